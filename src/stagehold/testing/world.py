"""A World: the real engine among requests, siblings, neighbours and a store, from one seed. Same seed, same run.

It plays everything that the engine does not own: a scheduler that visits in any order, a model that writes known
bytes, servers that share the store, faults, restarts. Every act is a method with plain arguments, so that a walk, a
property test or a search can call it; after every act everything is checked, and the first thing that is not right
raises `WorldBroken` (or what the engine itself raises). It never decides anything that the engine decides.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from stagehold.lifecycle.errors import Misuse
from stagehold.lifecycle.snapshots import Snapshot
from stagehold.specs.attachment import AttachmentState
from stagehold.specs.write import WriteState
from stagehold.testing.checks import check_hosts, check_medium, check_rest, check_tree
from stagehold.testing.content import answer_to
from stagehold.testing.digests import digest_of
from stagehold.testing.stage import act
from stagehold.testing.traffic import Traffic
from stagehold.testing.visiting import Ending
from stagehold.testing.watch import check_replay, require
from stagehold.testing.watched import WatchedStore, medium_of


@dataclass(frozen=True, slots=True)
class Saved:
    """One moment of a World; opaque. Good for the engine that was alive then."""

    engine: Snapshot
    own: dict[str, Any]
    blocks: int
    acts: int


OWN = ("guests", "open", "watch", "ends", "arrivals", "lost", "launched")
"""Fields of a World that an act may change and a snapshot must copy; the library only ever grows."""


class World(Traffic):
    """All acts, and those on the engine as a whole: flush, detach, attach, restart, rewind; then the end."""

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
    def drain(self, ticks: int) -> None:
        """Let writes end for so many ticks, then drop those that wait; nothing if a visit is open."""
        if self.open:
            return
        missed = self.engine.drain(ticks).unwritten
        self.watch.count(self.blocks)
        queued = [w for w in self.core.writes.values() if w.state is WriteState.QUEUED]
        require(missed >= 0 and not queued, f"after a drain {len(queued)} writes are queued, {missed} pages missed")

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
        return self.engine.digest() + self.core.tree.digest() + self.digest()

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
        if store is not None:
            assert isinstance(store, WatchedStore), "a World attaches no other store"
            self.store = store

    def digest(self) -> bytes:
        """16 bytes over what the future depends on, without ticks and names; see `digests`."""
        return digest_of(self.engine._parts)  # noqa: SLF001

    # The end

    @property
    def bound(self) -> int:
        """Ticks within which everything ends once nothing goes wrong any more.

        The store is attached and heals; then each attempt may use up all its launches, each of which asks, parks and
        fetches; then everybody runs, one after the other if there is room for one only, and the writes go out.
        """
        limits = self.shape.config.limits
        heals = limits.attach_limit + limits.detach_limit + 2 * (limits.open_limit_cap + limits.probe_limit)
        launch = limits.retry_interval_cap + limits.lookup_limit + limits.park_limit + limits.fetch_limit
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
        self._settle(start + bound)
        self.check_rest()
        return self.tick_number - start

    def _settle(self, end: int) -> None:
        """Idle ticks: what was published in the last pass may still be written. `WorldBroken` where that goes on."""
        self.tick()
        while not self._is_still():
            require(self.tick_number < end, "an idle engine does not come to rest")
            self.tick()

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
        check_hosts(self.core, self.library)
        check_medium(self.library, self.store.medium, self.lost)
        check_replay(self.core, self.blocks)

    def close(self) -> None:
        """End the engine, with all that must hold then."""
        self._close()
