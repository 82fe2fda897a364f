"""A scheduler of your own in a World: it drives an engine whose bytes are known, among evictions and a bad store.

`trial(seed)` gives something with the calls of `Engine`. Each call is made on the engine of a World and everything is
checked behind it; the model is played here, so that the scheduler needs none. What a scheduler may decide is its own.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from stagehold.cache.keys import Chain, Namespace
from stagehold.lifecycle.data import Admission, Extension, Handle, NoRoom, Plan, Skip
from stagehold.specs.request import RequestState
from stagehold.testing.checks import check_read, write_kv
from stagehold.testing.content import Prompt, Tokens
from stagehold.testing.guests import Guest
from stagehold.testing.shapes import WorldShape, drawn
from stagehold.testing.watch import require
from stagehold.testing.watch_parts import look, note_commit
from stagehold.testing.world import World

TROUBLES = {"evict": 0.3, "neighbour": 0.15, "lose": 0.05, "damage": 0.03, "fail": 0.05, "attach": 0.2}
"""What may happen before a tick, and how often; a store that was given up is attached again."""


class Arrival(NamedTuple):
    """What `Engine.arrive` is given."""

    rid: str
    tokens: Tokens
    namespace: Namespace
    max_new_tokens: int


class Tried:
    """The engine of `world` for a scheduler that is tried. What is not defined here is the engine's own.

    `crowd` gives requests that fit in it. Raises `WorldBroken` at the call behind which something is not right, and
    where nothing is admitted, extended or ended for `bound` ticks.
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self._dice = random.Random(f"trial {world.seed}")  # noqa: S311 - reproducible on purpose
        self._given: dict[Handle, int] = {}  # tokens that there is room for, of each request that runs
        self._moved = world.tick_number
        self._closed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self.world.engine, name)

    def crowd(self, count: int) -> Iterator[Arrival]:
        """`count` requests of a few families, whose prompts share heads of any length."""
        shape, dice = self.world.shape, self._dice
        most = shape.config.largest_request_tokens
        for number in range(count):
            prompt = Prompt(dice.randrange(3), dice.randint(1, 48), dice.randrange(4), dice.choice((0, 1, 5, 17)))
            answer = shape.answer(dice.choice((1, 3, 9)))
            space = dice.choice(shape.namespaces)
            yield Arrival(f"request {number}", shape.tokens(prompt)[: most - answer], space, answer)

    # Time

    def tick(self, *, advance_retries: bool = True) -> None:
        """See `Engine.tick`; before it, whatever may happen to tree and store."""
        world = self.world
        for trouble, often in TROUBLES.items() if not world.open else ():
            if self._dice.random() < often:
                self._happens(trouble)
        world.engine.tick(advance_retries=advance_retries)
        world.watch.count(world.blocks)
        quiet = world.tick_number - self._moved
        alive = f"alive are {', '.join(str(guest.handle) for guest in world.guests)}"
        require(not world.guests or quiet < world.bound, f"nothing went on for {quiet} ticks; {alive}")
        world.check()

    def _happens(self, trouble: str) -> None:
        which = self._dice.randrange(1 << 16)
        match trouble:
            case "evict" | "fail":
                getattr(self.world, trouble)(1 + which % 8)
            case "neighbour":
                self.world.neighbour(which, 18)
            case "attach":
                self.world.unstall()
                self.world.attach()
            case _:
                getattr(self.world, trouble)(which)

    # Requests

    def arrive(self, rid: str, tokens: ArrayLike, namespace: Namespace, max_new_tokens: int) -> Handle:
        """See `Engine.arrive`."""
        world = self.world
        handle = world.engine.arrive(rid, tokens, namespace, max_new_tokens)
        chain = Chain(namespace, np.asarray(tokens, dtype=np.uint32), world.shape.config.page_size)
        world.arrivals += 1
        world.library.learn(chain)
        world.guests.append(Guest.arrived(handle, chain, max_new_tokens, world.library.known))
        self._goes_on()
        return handle

    def _guest(self, handle: Handle) -> Guest:
        """Whom the engine knows by this handle; what it refuses to know, it says itself."""
        self.world.engine.state_of(handle)
        return next(guest for guest in self.world.guests if guest.handle == handle)

    def _goes_on(self) -> None:
        self._moved = self.world.tick_number
        self.world.check()

    def select(self, handle: Handle, budget: int) -> Plan | Skip:
        """See `Engine.select`."""
        found = self.world.engine.select(handle, budget)
        if isinstance(found, Plan):
            self.world.open.append((self._guest(handle), found))
        else:
            self.world.skipped(self._guest(handle), found)
        self.world.check()
        return found

    def commit(self, plan: Plan) -> Admission:
        """See `Engine.commit`; all that was hit is looked at."""
        was = look(self.world.core, self._guest(plan.handle))
        admission = self.world.engine.commit(plan)
        guest = self._close(plan)
        note_commit(self.world.marks.note, was, admission, self.world.shape.config.page_size)
        self.world.marks.note(f"admission.{admission.outcome}")
        if admission.admitted:
            self.world.admitted(guest, plan, admission)
            self._given[guest.handle] = guest.computed
            self._goes_on()
        self.world.check()
        return admission

    def release(self, plan: Plan) -> None:
        """See `Engine.release`."""
        self.world.engine.release(plan)
        self._close(plan)
        self.world.check()

    def _close(self, plan: Plan) -> Guest:
        guest = self._guest(plan.handle)
        self.world.open = [(other, one) for other, one in self.world.open if other is not guest]
        return guest

    def extend(self, handle: Handle, n_tokens: int, tokens: ArrayLike | None = None) -> Extension | NoRoom:
        """See `Engine.extend`; what the model reads is looked at, and what it computes is written."""
        guest = self._guest(handle)
        given = self.world.engine.extend(handle, n_tokens, tokens)
        if isinstance(given, NoRoom):
            promised = self._given[handle] + n_tokens <= guest.prompt + guest.answer
            require(not promised, f"{handle}: {given} within what was promised")
            return given
        self._given[handle] += n_tokens
        for token in [] if tokens is None else np.asarray(tokens).tolist():
            guest.say(token)
        self.world.library.learn(guest.chain)
        self._compute(guest)
        self._goes_on()
        return given

    def _compute(self, guest: Guest) -> None:
        """The forward of all tokens that there is room for and whose ids are known."""
        check_read(self.world.engine, guest)
        last = min(self._given[guest.handle], guest.chain.n_tokens)
        if last > guest.computed:
            write_kv(self.world.engine, guest, last)
            guest.computed = last

    def publish(self, handle: Handle, upto: int) -> None:
        """See `Engine.publish`."""
        self.world.engine.publish(handle, upto)
        check_read(self.world.engine, self._guest(handle))
        self._goes_on()

    def finish(self, handle: Handle) -> None:
        """See `Engine.finish`."""
        guest = self._guest(handle)
        if self.world.engine.state_of(handle) is RequestState.COMMITTED:  # of others the engine says why it cannot be
            check_read(self.world.engine, guest)
        self.world.engine.finish(handle)
        self._gone(guest, "finished")

    def retract(self, handle: Handle) -> Handle:
        """See `Engine.retract`."""
        guest = self._guest(handle)
        again = self.world.engine.retract(handle)
        left = guest.prompt + guest.answer - guest.chain.n_tokens
        self.world.guests.append(Guest.arrived(again, guest.chain, left, self.world.library.known))
        self._gone(guest, "retracted")
        return again

    def abort(self, handle: Handle) -> None:
        """See `Engine.abort`."""
        guest = self._guest(handle)
        self.world.open = [(other, plan) for other, plan in self.world.open if other is not guest]
        self.world.engine.abort(handle)
        self._gone(guest, "aborted")

    def _gone(self, guest: Guest, how: str) -> None:
        self._given.pop(guest.handle, None)
        self.world.guests.remove(guest)
        self.world.ends[how] += 1
        self._goes_on()

    def close(self) -> None:
        """The end: everybody must have ended; then what is under way ends too, and nothing may be left."""
        left = ", ".join(str(guest.handle) for guest in self.world.guests)
        require(not left, f"the scheduler has ended, and there is left: {left}")
        if not self._closed:
            self._closed = True
            self.world.quiesce()
            self.world.close()


@contextmanager
def trial(seed: int, shape: WorldShape | None = None) -> Iterator[Tried]:
    """An engine for a scheduler that is tried, in the World of a seed; see `Tried`, whose `crowd` it has, too.

    Behind the block, unless it raised, everybody must have ended: what is left of the engine is looked at and closed.
    """
    tried = Tried(World(seed, drawn(seed) if shape is None else shape))
    yield tried
    tried.close()
