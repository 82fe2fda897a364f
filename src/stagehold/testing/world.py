"""A World: the real engine among requests, siblings, neighbours and a store, from one seed. Same seed, same run.

It plays everything that the engine does not own: a scheduler that visits in any order, a model that writes known
bytes, servers that share the store, faults, restarts. Every act is a method with plain arguments, so that a walk, a
property test or a search can call it; after every act everything is checked, and the first thing that is not right
raises `WorldBroken` (or what the engine itself raises). It never decides anything that the engine decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from enum import Enum, auto
from functools import wraps
from itertools import count
from typing import Any, Concatenate, ParamSpec, TypeVar

from stagehold.cache.keys import Chain
from stagehold.cache.stores.simulated import Medium
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import Admission, NoRoom, Plan, Skip
from stagehold.lifecycle.engine import Engine
from stagehold.lifecycle.errors import Misuse, PartialDelivery
from stagehold.lifecycle.snapshots import Snapshot
from stagehold.machines import Block
from stagehold.specs.attachment import AttachmentState
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import AdmissionOutcome, PrefetchPolicy, SkipReason
from stagehold.specs.request import RequestState
from stagehold.specs.write import WriteState
from stagehold.testing.checks import (
    check_act,
    check_beliefs,
    check_medium,
    check_read,
    check_rest,
    check_tree,
    write_kv,
)
from stagehold.testing.content import Prompt, answer_to
from stagehold.testing.guests import Guest, Library
from stagehold.testing.marks import Marks
from stagehold.testing.shapes import WorldShape
from stagehold.testing.watch import Watch, check_replay, require
from stagehold.testing.watched import Delivers, Delivery, LateCopies, WatchedStore, medium_of, write_page

P = ParamSpec("P")
T = TypeVar("T")


class Ending(Enum):
    """How a visit ends."""

    COMMIT = auto()
    RELEASE = auto()
    ABORT = auto()


def act(method: Callable[Concatenate[World, P], T]) -> Callable[Concatenate[World, P], T]:
    """Note the act for `World.program`, perform it, check everything."""
    name = method.__name__

    @wraps(method)
    def noted(self: World, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self.acts.append((name, args, kwargs))
        result = method(self, *args, **kwargs)
        self.check()
        return result

    return noted


@dataclass(frozen=True, slots=True)
class Saved:
    """One moment of a World; opaque. Good for the engine that was alive then."""

    engine: Snapshot
    own: dict[str, Any]
    blocks: int
    acts: int


RIDS = 61
"""Request ids come round again after so many arrivals, as another attempt of the same id."""

OWN = ("guests", "open", "watch", "ends", "arrivals", "honest")
"""Fields of a World that an act may change and a snapshot must copy; the library only ever grows."""


class World:
    """`engine`, the `guests` that are alive, and what they have come to (`ends`), over a `medium` of stored pages.

    Arguments that choose among several (`who`, `which`) are taken modulo their number, and an act without anybody to
    do it to does nothing: so every list of acts is a legal run.
    """

    def __init__(self, seed: int, shape: WorldShape) -> None:
        self.seed = seed
        self.shape = shape
        self.acts: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = []
        self.marks = Marks()
        self.guests: list[Guest] = []
        self.open: list[tuple[Guest, Plan]] = []
        self.ends: Counter[str] = Counter()
        self.arrivals = 0
        self.library = Library(shape.config.page_size, shape.config.parts)
        self.delivery = Delivery()
        self.honest = shape.honest
        self._stores = 0
        self._start(medium_of(shape))

    def _start(self, medium: Medium) -> None:
        self.blocks: list[Block] = []
        self.watch = Watch(self.shape.config.limits)
        self.store = self._new_store(medium)
        self.engine = Engine(
            self.shape.config,
            store=self.store,
            sink=self.blocks.append,
            strict=True,
            copies=LateCopies(self.seed + self._stores, self.shape.copy_ticks),
            deliver=self.delivery,
        )

    def _new_store(self, medium: Medium) -> WatchedStore:
        self._stores += 1
        return WatchedStore(self.seed + self._stores, self.shape, medium)

    @property
    def core(self) -> Core:
        """The engine's insides: to look, and for the few acts of other traffic that have no call of their own."""
        return self.engine._parts.core  # noqa: SLF001

    @property
    def stores(self) -> list[WatchedStore]:
        """The store in use and those before it that have not finished."""
        return [self.store, *(store for store in self.core.former if isinstance(store, WatchedStore))]

    @property
    def tick_number(self) -> int:
        """The engine's clock."""
        return self.core.clock.tick

    @property
    def waiting(self) -> list[Guest]:
        """Guests that are neither running nor visited, in order of arrival."""
        visited = [guest for guest, _ in self.open]
        return [guest for guest in self.guests if not guest.running and guest not in visited]

    @property
    def running(self) -> list[Guest]:
        """Guests that were admitted."""
        return [guest for guest in self.guests if guest.running]

    def check(self) -> None:
        """Everything that must hold between acts."""
        check_act(self.core, self.guests, self.library)
        if self.honest:
            check_beliefs(self.core, self.library, self.store.medium)

    def program(self) -> str:
        """The run so far as lines of Python that repeat it."""
        return "\n".join(
            f"world.{name}({', '.join([*map(_literal, args), *(f'{k}={_literal(v)}' for k, v in kwargs.items())])})"
            for name, args, kwargs in self.acts
        )

    # Requests that wait

    @act
    def arrive(self, prompt: Prompt, space: int = 0, answer: int = 1, stored: int = 0) -> None:
        """A request with this prompt, cut to what is admissible, in namespace number `space`.

        Another server has already stored its first `stored` pages.
        """
        namespace = self.shape.namespaces[space % len(self.shape.namespaces)]
        room = self.shape.config.largest_request_tokens - answer
        chain = Chain(namespace, prompt.tokens(self.shape.branches)[:room], self.shape.config.page_size)
        self._arrive(chain, answer)
        self._store(chain, stored)

    @act
    def follow(self, which: int, own: int, answer: int = 1) -> None:
        """The next turn of a conversation that was held here: a known sequence and `own` more tokens."""
        chain = self.library.pick(which)
        if chain is None:
            return
        tokens = [*chain.tokens.tolist(), *Prompt(0, 1, which, own).tokens(self.shape.branches).tolist()]
        room = self.shape.config.largest_request_tokens - answer
        self._arrive(Chain(chain.namespace, tokens[:room], self.shape.config.page_size), answer)

    def _arrive(self, chain: Chain, answer: int) -> None:
        alive = {guest.handle.rid for guest in self.guests}
        rid = next(name for i in count() if (name := f"r{self.arrivals % RIDS + i}") not in alive)
        self.arrivals += 1
        handle = self.engine.arrive(rid, chain.tokens, chain.namespace, answer)
        self.library.learn(chain)
        self.guests.append(Guest.arrived(handle, chain, answer, self.shape.config.parts))

    @act
    def select(self, who: int, budget: int = 64) -> None:
        """Look at a waiting request; its visit stays open until `end` or the next tick."""
        self._select(who, budget)

    def _select(self, who: int, budget: int) -> bool:
        waiting = self.waiting
        if not waiting:
            return False
        guest = waiting[who % len(waiting)]
        found = self.engine.select(guest.handle, budget)
        if isinstance(found, Plan):
            self.open.append((guest, found))
            return True
        self._skipped(guest, found)
        return False

    def _skipped(self, guest: Guest, skip: Skip) -> None:
        """A request is held back for its wait budget and no longer."""
        self.marks.note(f"skip.{skip.reason}")
        if skip.reason not in (SkipReason.WAITING_LOOKUP, SkipReason.WAITING_FETCH):
            return
        if guest.skipped_at is None:
            guest.skipped_at = self.tick_number
        waited, budget = self.tick_number - guest.skipped_at, self.wait_budget(self._awaited(guest))
        require(waited < budget, f"{guest.handle} was skipped for {waited} ticks, budget {budget}: {skip.reason}")

    def _awaited(self, guest: Guest) -> int:
        """Pages of the hold that this request has a claim on; 0 while the store is being asked."""
        spans = [h.data.last - h.data.start for h in self.core.holds.values() for number in h.data.claims
                 if self.core.requests[number].data.handle == guest.handle]  # fmt: skip
        return sum(spans)

    def wait_budget(self, pages: int) -> int:
        """The most ticks for which a visit may be put off because of so many pages of the store."""
        config, limits = self.shape.config, self.shape.config.limits
        match config.prefetch_policy:
            case PrefetchPolicy.BEST_EFFORT:
                return 0
            case PrefetchPolicy.TIMEOUT:
                return min(limits.wait_cap_ticks, limits.wait_base_ticks + int(limits.wait_per_page_ticks * pages))
            case PrefetchPolicy.WAIT_COMPLETE:
                return config.wait_complete_ticks

    @act
    def end(self, which: int, ending: Ending, delivers: Delivers = Delivers.ALL) -> None:
        """End one of the open visits."""
        if self.open:
            self._end(which % len(self.open), ending, delivers)

    @act
    def visit(self, who: int, ending: Ending, delivers: Delivers = Delivers.ALL) -> None:
        """Select and end at once."""
        if self._select(who, 64):
            self._end(-1, ending, delivers)

    def _end(self, which: int, ending: Ending, delivers: Delivers) -> None:
        guest, plan = self.open.pop(which)
        match ending:
            case Ending.COMMIT:
                self._commit(guest, plan, delivers)
            case Ending.RELEASE:
                self.engine.release(plan)
            case Ending.ABORT:
                self._abort(guest)

    def _commit(self, guest: Guest, plan: Plan, delivers: Delivers) -> None:
        locked = self.engine.state_of(guest.handle) is RequestState.ANCHOR_LOCKED
        torn = locked and delivers is Delivers.SOME and plan.promised_pages > 1
        self.delivery.next = delivers
        try:
            admission = self.engine.commit(plan)
        except PartialDelivery:
            require(torn, f"{guest.handle}: a whole delivery was called partial")
            self.marks.note("admission.partial")
            return
        finally:
            self.delivery.next = Delivers.ALL
        require(not torn, f"{guest.handle}: a partial delivery was taken for {admission.outcome}")
        self.marks.note(f"admission.{admission.outcome}")
        if admission.admitted:
            self._admitted(guest, plan, admission)
        elif admission.outcome is AdmissionOutcome.NO_ROOM:
            busy = self.core.committed or self._is_copying() or self.open
            require(bool(busy), f"{guest.handle}: no room, and nothing runs, is copied or is being visited")

    def _admitted(self, guest: Guest, plan: Plan, admission: Admission) -> None:
        hit, size = admission.hit_tokens, self.shape.config.page_size
        require(hit == size * len(admission.slots) < guest.prompt, f"{admission}: {guest.prompt} tokens of prompt")
        require(hit == admission.device_hit_tokens + admission.store_hit_tokens, f"{admission}: the hits do not add up")
        require(0 < admission.extend_tokens <= min(plan.extend_tokens, guest.prompt - hit), f"{admission} for {plan}")
        guest.running, guest.computed, guest.skipped_at = True, hit, None
        check_read(self.core, guest, admission.slots)

    def _is_copying(self) -> bool:
        loading = any(h.state is HoldState.LOADING for h in self.core.holds.values())
        return loading or any(w.state is WriteState.COPYING for w in self.core.writes.values())

    # Requests that run

    @act
    def compute(self, who: int, tokens: int, publish: bool = True) -> None:
        """Prefill the next tokens of a running prompt."""
        guests = [guest for guest in self.running if guest.computed < guest.prompt]
        if guests:
            guest = guests[who % len(guests)]
            self._forward(guest, min(max(1, tokens), guest.prompt - guest.computed), None)
            if publish:
                self._publish(guest)

    @act
    def decode(self, who: int, beyond: bool = False) -> None:
        """One token of an answer; the last one promised needs no KV. `beyond` asks for more than was promised."""
        largest = self.shape.config.largest_request_tokens
        guests = [guest for guest in self.running if guest.computed >= guest.prompt and self._may_say(guest, beyond)]
        guests = [guest for guest in guests if guest.chain.n_tokens + 1 < largest]
        if guests:
            guest = guests[who % len(guests)]
            self._forward(guest, 1, answer_to(guest.chain.tokens))

    def _may_say(self, guest: Guest, beyond: bool) -> bool:
        return beyond or guest.chain.n_tokens + 1 < guest.prompt + guest.answer

    def _forward(self, guest: Guest, count: int, token: int | None) -> None:
        check_read(self.core, guest, self.engine.page_slots(guest.handle))
        promised = guest.computed + count <= guest.prompt + guest.answer
        given = self.engine.extend(guest.handle, count, None if token is None else [token])
        if isinstance(given, NoRoom):
            require(not promised, f"{guest.handle}: {given} within what was promised")
            self.marks.note("extend.no_room")
            return
        if token is not None:
            guest.say(token)
            self.library.learn(guest.chain)
        write_kv(self.core, guest, self.engine.page_slots(guest.handle), guest.computed + count)
        guest.computed += count

    @act
    def publish(self, who: int) -> None:
        """Publish what a running request has computed, decoded pages too."""
        running = self.running
        if running:
            self._publish(running[who % len(running)])

    def _publish(self, guest: Guest) -> None:
        self.engine.publish(guest.handle, guest.computed)
        self._is_published(guest)
        check_read(self.core, guest, self.engine.page_slots(guest.handle))

    def _is_published(self, guest: Guest) -> None:
        pages = guest.computed // self.shape.config.page_size
        live = self.core.tree.full_match(guest.chain, pages)
        require(live == pages, f"{guest.handle} published {pages} pages, the tree has {live}")

    @act
    def finish(self, who: int) -> None:
        """A request that has computed its prompt ends well."""
        guests = [guest for guest in self.running if guest.computed >= guest.prompt]
        if guests:
            self._finish(guests[who % len(guests)])

    def _finish(self, guest: Guest) -> None:
        check_read(self.core, guest, self.engine.page_slots(guest.handle))
        self.engine.finish(guest.handle)
        self._is_published(guest)
        self._gone(guest, "finished")

    @act
    def retract(self, who: int) -> None:
        """The slots of a running request are taken back; its next attempt waits, as the youngest."""
        running = self.running
        if not running:
            return
        guest = running[who % len(running)]
        handle = self.engine.retract(guest.handle)
        answer = max(1, guest.prompt + guest.answer - guest.chain.n_tokens)
        self._gone(guest, "retracted")
        self.guests.append(Guest.arrived(handle, guest.chain, answer, self.shape.config.parts))

    @act
    def abort(self, who: int) -> None:
        """End any request, whatever it is doing."""
        if self.guests:
            guest = self.guests[who % len(self.guests)]
            self.open = [(other, plan) for other, plan in self.open if other is not guest]
            self._abort(guest)

    def _abort(self, guest: Guest) -> None:
        self.marks.note(f"abort.{self.engine.state_of(guest.handle).name.lower()}")
        self.engine.abort(guest.handle)
        self._gone(guest, "aborted")

    def _gone(self, guest: Guest, how: str) -> None:
        self.guests.remove(guest)
        self.ends[how] += 1

    # Time, and other traffic

    @act
    def tick(self) -> None:
        """The next pass; visits that are still open are given back first."""
        while self.open:
            self._end(0, Ending.RELEASE, Delivers.ALL)
        self.engine.tick()
        self.watch.count(self.blocks)

    @act
    def evict(self, pages: int) -> None:
        """Other traffic wants device pages: the least recently used that nobody protects go."""
        self.core.tree.evict(min(pages, self.core.tree.evictable))

    @act
    def lose(self, which: int) -> None:
        """The store loses a page."""
        names = self.store.keys()
        if names:
            self.honest = False
            self.store.drop(names[which % len(names)])

    @act
    def damage(self, which: int) -> None:
        """A bit of a stored page flips."""
        names = self.store.keys()
        if names:
            self.honest = False
            self.store.damage(names[which % len(names)])

    @act
    def fail(self, count: int) -> None:
        """The next operations of the store fail."""
        self.store.fail_next(count)

    @act
    def stall(self) -> None:
        """The store completes nothing until it is released."""
        self.store.stall()

    @act
    def unstall(self) -> None:
        """Everything that the store sat on goes on."""
        self.store.release()

    @act
    def neighbour(self, which: int, pages: int) -> None:
        """Another server stores the first pages of a sequence, at last."""
        chain = self.library.pick(which)
        if chain is not None:
            self._store(chain, pages)

    def _store(self, chain: Chain, pages: int) -> None:
        for page in range(min(pages, chain.n_pages)):
            write_page(self.store.medium, self.library.name(chain, page), self.library.body(chain, page))

    # The engine as a whole

    @act
    def flush(self) -> None:
        """Empty the tree; refused while anything is committed, loads, copies or is visited."""
        busy = bool(self.core.committed or self._is_copying() or self.open)
        try:
            self.engine.flush()
        except Misuse:
            require(busy, "a flush was refused, and nothing is running or flying")
            self.marks.note("flush.refused")
        else:
            require(not busy and not self.core.tree.total, "a flush went through while something was busy")
            self.marks.note("flush.done")

    @act
    def detach(self) -> None:
        """Let go of the store; nothing if there is none, or if a visit is open."""
        if not self.open and self.engine.attachment in (AttachmentState.ATTACHING, AttachmentState.ATTACHED):
            self.engine.detach()

    @act
    def attach(self, fresh: bool = False) -> None:
        """Attach a store again, on the same medium or on an empty one; nothing unless there is none."""
        if self.engine.attachment is AttachmentState.DETACHED:
            self.store = self._new_store(medium_of(self.shape) if fresh else self.store.medium)
            self.honest = self.shape.honest if fresh else self.honest
            self.engine.attach(self.store)

    @act
    def restart(self) -> None:
        """The process ends and another one starts on what the store has."""
        medium = self.store.medium
        self._close()
        self._start(medium)

    def _close(self) -> None:
        self.engine.close()
        self.ends["aborted"] += len(self.guests)
        self.guests.clear()
        self.open.clear()
        self.watch.count(self.blocks)
        check_rest(self.core)
        require(not self.engine.stats().owned, f"the engine is closed and owns {self.engine.stats().owned}")
        check_replay(self.core, self.blocks)
        self.marks.add(self.engine.stats())

    @act
    def rewind(self, ticks: int) -> None:
        """Go on for some ticks, go back, and go on again: the same must happen."""
        if self.open:
            return
        saved = self.snapshot()
        first = self._go_on(ticks)
        self.restore(saved)
        again = self._go_on(ticks)
        self.restore(saved)
        require(first == again, f"{ticks} ticks after a snapshot and after its restoration differ")

    def _go_on(self, ticks: int) -> bytes:
        for _ in range(ticks):
            self.engine.tick()
        return self.engine.digest() + self.core.tree.digest()

    def snapshot(self) -> Saved:
        """This moment of engine, store and World."""
        own = deepcopy({name: getattr(self, name) for name in OWN})
        return Saved(self.engine.snapshot(), own, len(self.blocks), len(self.acts))

    def restore(self, saved: Saved) -> None:
        """Go back to a snapshot of the engine that runs now. It can be used again."""
        self.engine.restore(saved.engine)
        vars(self).update(deepcopy(saved.own))
        del self.blocks[saved.blocks :]
        del self.acts[saved.acts :]
        store = self.core.store
        assert isinstance(store, WatchedStore), "a World attaches no other store"
        self.store = store

    # The end

    @property
    def bound(self) -> int:
        """Ticks within which everything ends once nothing goes wrong any more.

        The store is attached and heals; then each attempt may use up all its launches, each of which asks, parks and
        fetches; then everybody runs, one after the other if there is room for one only, and the writes go out.
        """
        limits = self.shape.config.limits
        heals = limits.attach_limit + limits.detach_limit + 2 * (limits.open_limit_cap + limits.probe_limit)
        launch = limits.retry_interval_ticks + limits.lookup_limit + limits.park_limit + limits.fetch_limit
        runs = len(self.guests) * (self.shape.config.largest_request_tokens + max(self.shape.copy_ticks))
        writes = limits.write_wait_limit + limits.tries * limits.put_limit + 64
        return heals + limits.issue_limit * launch + limits.ready_limit + runs + writes + self.wait_budget(1 << 20)

    def quiesce(self) -> int:
        """Fault-free ticks and visits until everything has ended; returns how many. `WorldBroken` past the bound."""
        bound, start = self.bound, self.tick_number
        for store in self.stores:
            store.heal()
        while self.guests or not self._is_still():
            require(self.tick_number - start < bound, f"not everything has ended after {bound} ticks")
            self._pass()
        self.check_rest()
        return self.tick_number - start

    def _is_still(self) -> bool:
        core = self.core
        return not (core.holds or core.writes or core.operations.live)

    def _pass(self) -> None:
        self.tick()
        for _ in range(len(self.running)):
            self.compute(0, 1 << 10)
        for guest in self.running:
            while self._may_say(guest, beyond=False):
                self._forward(guest, 1, answer_to(guest.chain.tokens))
            self._finish(guest)
        for who in range(len(self.waiting) - 1, -1, -1):
            self.visit(who, Ending.COMMIT)

    def check_rest(self) -> None:
        """What must be left when everything has ended, and what the log says of it."""
        self.tick()
        check_rest(self.core)
        check_tree(self.core, self.library)
        if self.honest:
            check_medium(self.library, self.store.medium)
        check_replay(self.core, self.blocks)

    def close(self) -> None:
        """End the engine, with all that must hold then."""
        self._close()


def _literal(value: object) -> str:
    return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)
