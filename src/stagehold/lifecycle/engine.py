"""The public face: everything that a scheduler may call, and all of it.

The engine belongs to one thread. Its first act in every pass is `tick`; then come visits (`select`, then `commit`
or `release`), and the life of what was admitted (`extend`, `publish`, `finish`). It holds no clock but the tick.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from numpy.typing import ArrayLike

from stagehold.cache.foreseen import Foresight
from stagehold.cache.keys import ALONE, Namespace, RankCoordinates
from stagehold.cache.stores.protocol import Store
from stagehold.kernels.copies import DeviceBytes
from stagehold.lifecycle import inputs
from stagehold.lifecycle.assembly import Binding, assemble
from stagehold.lifecycle.breaches import Breaches, OnViolation, shout
from stagehold.lifecycle.copies import Copies
from stagehold.lifecycle.data import Admission, Extension, Handle, NoRoom, Plan, RequestData, Skip
from stagehold.lifecycle.drain import Drained, drain
from stagehold.lifecycle.errors import Misuse
from stagehold.lifecycle.guard import exclusive
from stagehold.lifecycle.parts import Parts
from stagehold.lifecycle.passes import Passes
from stagehold.lifecycle.policy import Machines
from stagehold.lifecycle.ranks.solo import Facts, Group, Solo
from stagehold.lifecycle.roster import Roster
from stagehold.lifecycle.snapshots import Snapshot, put_back, take
from stagehold.lifecycle.stats import Stats, Tally
from stagehold.lifecycle.visits import Deliver, deliver_all
from stagehold.machines import Block, Machine, Sink
from stagehold.specs.attachment import AttachmentState
from stagehold.specs.config import EngineConfig
from stagehold.specs.request import RequestState
from stagehold.specs.tick import TickState

OURS = Machines()
MID_PASS = (TickState.POLLING, TickState.APPLYING, TickState.TIMING, TickState.ISSUING)
"""Where the tick stands between calls only if one was cut short."""


class Engine:
    """One rank's engine. `sink` receives each tick's audit block.

    `strict` counts all books again after every tick, and the first breach raises. A service holds sums against sums:
    a breach is counted (`Stats.violations`), `on_violation` is told the first of each book, the requests concerned
    get no further launch, and what is in doubt is given to nobody. An `AuditLog`'s `violation` can be told.

    With `parts` and `page_part_bytes` in the configuration the engine holds the KV tensors: the model writes to and
    reads from `device_bytes.tensor`, uint8 [parts, device_pages, page_part_bytes], at the page slots it is given. By
    default a copy between device and staging has happened when the call that made it returns; `copies` says when it
    is reported as ended. `group` is all ranks that share scheduling, and `at` where this one stands as far as that
    changes the bytes of its pages; `deliver`, for tests, how much can be spliced. With `foresight`, for the lab, pages
    leave the device by their next use, the farthest first, whatever `eviction` says.

    `store` is attached at once: its self-test runs in the first ticks, and requests that arrive meanwhile are
    launched when it has passed; what they publish before that is written when it is matched or built upon later.
    The engine closes the store. Without one, in `cache` mode, host memory takes pages and gives them back by itself.
    With `shadow_oracle` a `transitions` machine of the same rows looks on: the first step that it would have taken
    differently raises, in every mode.

    All calls belong to one thread (`WrongThread`), and none may come from inside another (`Reentered`). A call at the
    wrong moment, or with an argument that it cannot take, raises `Misuse` and changes nothing; one with a handle that
    names no live attempt raises `UnknownHandle`.

    >>> from stagehold import Engine, EngineConfig, Namespace
    >>> engine = Engine(EngineConfig(page_size=16, device_pages=64, staging_pages=0, largest_request_tokens=256))
    >>> request = engine.arrive("request 1", range(100), Namespace("my-model"), max_new_tokens=20)
    >>> engine.tick()
    >>> admission = engine.commit(engine.select(request, budget=512))
    >>> admission.hit_tokens, admission.extend_tokens
    (0, 100)
    >>> engine.extend(request, 100), engine.publish(request, 100), engine.finish(request)  # doctest: +ELLIPSIS
    (Extension(...), None, None)
    >>> engine.close()

    `machines` are other ones in place of ours, for those who study what ours are worth.

    What a store raises is a fault of the store. What the sink raises comes out of `tick`, once the pass is over:
    `last_block` is what it was given, and the engine goes on. What else is raised in the middle of a pass, and an
    interrupt anywhere, leaves an engine that can be closed, or put back to a snapshot, and nothing else.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        store: Store | None = None,
        group: Group | None = None,
        at: RankCoordinates = ALONE,
        sink: Sink | None = None,
        strict: bool = False,
        shadow_oracle: bool = False,
        copies: Copies | None = None,
        deliver: Deliver = deliver_all,
        on_violation: OnViolation = shout,
        foresight: Foresight | None = None,
        machines: Machines = OURS,
    ) -> None:
        inputs.engine(config, at, group, copies, machines, sink=sink, deliver=deliver, on_violation=on_violation,
                      foresight=foresight)  # fmt: skip
        self.config = config
        self._thread = threading.current_thread()
        self._running: str | None = None
        self._cut: str | None = None  # the call that was interrupted
        self._closed = False
        self._tally = Tally(sink)
        binding = Binding(strict=strict, shadow_oracle=shadow_oracle)
        self._parts: Parts = assemble(
            config, self._tally.block, copies, deliver, binding=binding, at=at, foresight=foresight, machines=machines
        )
        self._passes = Passes(self._parts, group or Solo(), self._tally, Breaches(on_violation))
        self._parts.core.ledger.strict = strict
        self._roster = Roster()
        if store is not None:
            self._attach(store)

    # The pass

    @exclusive
    def tick(self, *, advance_retries: bool = True) -> None:
        """Poll, agree, apply, time, issue, record: first in every pass, in every kind of loop.

        A pass that only polls a copy gives `advance_retries=False`, equal on all ranks: retries are paced in passes
        that could have admitted. With the tier off (`staging_pages=0`) there is nothing to do, and nothing is done.
        """
        self._must_be_open("tick")
        if self.config.tier:
            self._passes.run(advance_retries=bool(advance_retries))

    @exclusive
    def poll(self) -> Facts:
        """The first part of `tick`, for loops that do the exchange themselves. Acts on nothing."""
        self._must_be_open("tick")
        self._must_have_a_tier("poll")
        return self._passes.poll()

    @exclusive
    def proceed(self, agreed: Facts, *, advance_retries: bool = True) -> None:
        """The last part of `tick`: act on what all ranks agreed on."""
        self._refuse_visits("proceed")
        if self._parts.tick.state is not TickState.AGREEING:
            raise Misuse("proceed: expected a poll before it, whose facts were agreed on")
        self._passes.proceed(agreed, advance_retries=bool(advance_retries))

    # Requests that wait

    @exclusive
    def arrive(self, rid: str, tokens: ArrayLike, namespace: Namespace, max_new_tokens: int) -> Handle:
        """A request: `tokens` are its prompt's ids (1-D, integers in [0, 2**32)). It is launched in the next tick.

        One that is selected before that is admitted with what the device has; the store is not asked.
        """
        self._must_be_open("arrive")
        chain = inputs.prompt(rid, tokens, namespace, self.config.page_size)
        max_new_tokens = inputs.whole(f"arrive {rid!r}", "max_new_tokens", max_new_tokens)
        if rid in self._roster.alive:
            raise Misuse(
                f"arrive: request {rid!r} is alive as {self._roster.alive[rid].data.handle}; finish or abort it first"
            )
        inputs.admissible(rid, chain, max_new_tokens, self.config.largest_request_tokens)
        return self._roster.enter(self._parts, rid, chain, max_new_tokens)

    @exclusive
    def select(self, handle: Handle, budget: int) -> Plan | Skip:
        """Look at one waiting request; `budget` is how many tokens this pass may still compute (>= 1)."""
        return self._parts.visits.select(self._roster.find(handle), inputs.whole("select", "budget", budget))

    @exclusive
    def commit(self, plan: Plan) -> Admission:
        """End a visit: admitted with what was delivered, or the reason. `PartialDelivery` after a rollback."""
        m = self._visited(plan, "commit")
        admission = self._parts.visits.commit(m, plan)
        if admission.admitted:
            self._parts.running.matched(m)
            happened = self._parts.core.happened
            happened.admitted = happened.admitted.plus(admission, m.data.prompt_tokens)
        return admission

    @exclusive
    def would_deliver(self, plan: Plan) -> bool:
        """Whether `commit` would admit the request now, with all that the plan promises. Changes nothing."""
        return self._parts.visits.would_deliver(self._visited(plan, "would_deliver"), plan)

    @exclusive
    def release(self, plan: Plan) -> None:
        """End a visit without admitting."""
        self._parts.visits.release(self._visited(plan, "release"), plan)

    def _visited(self, plan: Plan, call: str) -> Machine:
        if not isinstance(plan, Plan):
            raise Misuse(f"{call}: expected the Plan that select gave, got {plan!r}")
        return self._roster.find(plan.handle)

    # Requests that run

    @exclusive
    def extend(self, handle: Handle, n_tokens: int, tokens: ArrayLike | None = None) -> Extension | NoRoom:
        """Room for `n_tokens` more tokens of the request; `tokens` are the ids of decoded ones (1-D), in order.

        Within prompt and `max_new_tokens` there is always room. Beyond them it may be refused, and nothing changes.
        """
        m = self._roster.committed(handle, "extend")
        return self._parts.running.extend(m, inputs.whole("extend", "n_tokens", n_tokens), tokens)

    @exclusive
    def publish(self, handle: Handle, upto: int) -> None:
        """The KV of the first `upto` tokens is in the request's slots: whole pages of it enter the tree."""
        self._parts.running.publish(self._roster.committed(handle, "publish"), inputs.whole("publish", "upto", upto))

    def page_slots(self, handle: Handle, component: str | None = None) -> tuple[int, ...]:
        """The request's page table: slot of each of its pages, the tree's first.

        Of a `component` with a window -1 for pages behind it; of one with checkpoints the slot that it computes in.
        """
        data: RequestData = self._roster.committed(handle, "page_slots").data
        return tuple(data.slots if component is None else inputs.share(data.shares, component).slots)

    @exclusive
    def finish(self, handle: Handle) -> None:
        """The request ended well: every whole page with known tokens is published, the rest goes back."""
        m = self._roster.committed(handle, "finish")
        self._parts.running.publish(m, m.data.n_tokens)
        self._end(m, self._parts.core.steps.request.finish)

    @exclusive
    def retract(self, handle: Handle) -> Handle:
        """Take the slots back; what was published stays. The next attempt, under its new handle, starts in `queued`.

        Its prompt is every token known so far, those given to `extend` included; the rest is what it may still answer.
        """
        m = self._roster.committed(handle, "retract")
        data: RequestData = m.data
        left = data.max_new_tokens - (data.chain.n_tokens - data.prompt_tokens)
        if left < 1:
            raise Misuse(f"retract({handle}): every token that was asked for is known; finish it")
        self._end(m, self._parts.core.steps.request.retract)
        return self._roster.enter(self._parts, data.handle.rid, data.chain, left)

    @exclusive
    def abort(self, handle: Handle) -> None:
        """End the request, whatever it is doing; an open visit to it ends, too."""
        self._end(self._roster.find(handle), self._parts.core.steps.request.abort)

    def _end(self, m: Machine, step: Callable[[Machine], Any]) -> None:
        self._roster.leave(self._parts.core, m, step)
        self._tally.max_issues = max(self._tally.max_issues, m.issues)

    # The store, and the end

    @exclusive
    def attach(self, store: Store) -> None:
        """Use `store` from now on, once its self-test has passed. A store that it replaces is closed."""
        self._must_be_open("attach")
        self._attach(store)

    def _attach(self, store: Store) -> None:
        self._must_have_a_tier("attach")
        self._parts.attach(inputs.usable("attach", store))

    @exclusive
    def detach(self) -> None:
        """Stop using the store: what needs it is dropped at once, its IO runs out over the next ticks.

        In `cache` mode host memory goes on alone, and what is verified or was copied stays; else all is dropped.
        """
        self._refuse_visits("detach")
        self._parts.detach()

    @property
    def attachment(self) -> AttachmentState:
        """Where the store link stands."""
        state = self._parts.core.link.state
        assert isinstance(state, AttachmentState)
        return state

    @exclusive
    def flush(self) -> None:
        """Drop holds and queued writes, and empty the tree. Refused while anything runs, loads or copies."""
        self._refuse_visits("flush")
        self._parts.flush()

    @exclusive
    def drain(self, ticks: int, pause: Callable[[], None] | None = None) -> Drained:
        """Tick until every write has ended, at most `ticks` times; then drop what has not begun, and say which.

        `pause` is called between ticks, for stores whose time is not the tick's.
        """
        self._refuse_visits("drain")
        inputs.can_be_called("drain", "pause", pause)
        return drain(self._parts, self._passes.run, self.stats, inputs.whole("drain", "ticks", ticks), pause)

    @exclusive
    def close(self) -> None:
        """End everything: requests are aborted, holds and writes dropped, the store closed, all IO waited for."""
        if self._closed:
            return
        cut = self._cut is not None or self._parts.tick.state in MID_PASS
        self._closed = True
        try:
            self._end_everything()
        except BaseException as error:
            self._parts.phases.close_stores()
            # What a pass was cut short in is half done, and the rules may not know how to end it.
            if not (cut and isinstance(error, Exception)):
                raise
        finally:
            self._roster.alive.clear()
            self._parts.take_apart()

    def _end_everything(self) -> None:
        for m in list(self._roster.alive.values()):
            self._end(m, self._parts.core.steps.request.abort)
        self._parts.end()
        self._passes.check()

    def _must_be_open(self, call: str) -> None:
        if self._closed:
            raise Misuse(f"{call}: this engine is closed")
        if self._parts.tick.state is TickState.STOPPED:
            raise Misuse(f"{call}: {self._passes.stopped_by}, and this engine has stopped; close it")
        if self._cut is not None or self._parts.tick.state in MID_PASS:
            raise Misuse(f"{call}: {self._cut or 'tick'} was cut short and has left its work half done; "
                         "restore a snapshot, or close this engine")  # fmt: skip

    def _must_have_a_tier(self, call: str) -> None:
        if not self.config.tier:
            raise Misuse(f"{call}: the tier is off (staging_pages=0); a store needs staging")

    def _refuse_visits(self, call: str) -> None:
        self._must_be_open(call)
        if self._parts.core.visits:
            raise Misuse(f"{call}: a visit is open; commit or release it first")

    # Looking in

    @property
    def device_bytes(self) -> DeviceBytes | None:
        """The tensors of the device pool, where bytes are attached."""
        tensors = self._parts.core.tensors
        return None if tensors is None else tensors.device

    def component_bytes(self, component: str) -> DeviceBytes | None:
        """The same of another component: uint8 [its parts, its device_pages, its page_part_bytes]."""
        tensors = self._parts.core.bytes.get(inputs.component("component_bytes", component, self.config))
        return None if tensors is None else tensors.device

    def state_of(self, handle: Handle) -> RequestState:
        """Where a live request stands."""
        state = self._roster.find(handle).state
        assert isinstance(state, RequestState)
        return state

    def stats(self) -> Stats:
        """Counters since the start, and what is owned now."""
        return self._tally.stats(self._parts.core)

    def digest(self) -> bytes:
        """16 bytes that cover every block closed so far: equal on ranks that did the same."""
        return self._parts.core.journal.digest

    def last_block(self) -> Block | None:
        """The block of the last tick."""
        return self._tally.last

    @exclusive
    def snapshot(self) -> Snapshot:
        """A copy of everything that can change, store included; refused while the store has workers of its own."""
        self._must_be_open("snapshot")
        return take(self._parts, (self._tally, self._roster))

    @exclusive
    def restore(self, snapshot: Snapshot) -> None:
        """Go back to a snapshot of this engine. It can be used again."""
        if self._closed:
            raise Misuse("restore: this engine is closed")
        put_back(self._parts, (self._tally, self._roster), snapshot)
        self._cut = None
