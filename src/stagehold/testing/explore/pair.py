"""Two ranks of one group, real engines both, and everything that may be done to them: one method for each move.

Owns the order of things between the ranks: one exchange a tick, the same calls on both. It decides nothing that an
engine decides; after every move everything is checked, and the first thing that is not right raises `Broken`.
"""

from __future__ import annotations

import marshal
from hashlib import blake2b
from typing import Any

import numpy as np

from stagehold.cache.components.full import FULL, SPINE
from stagehold.cache.keys import Chain, object_name
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import Admission, Handle, Plan
from stagehold.lifecycle.engine import Engine
from stagehold.lifecycle.errors import Misuse, PartialDelivery
from stagehold.lifecycle.facts import unpack
from stagehold.specs.attachment import AttachmentState
from stagehold.specs.outcomes import AdmissionOutcome
from stagehold.testing.explore import rules, seen
from stagehold.testing.explore.broken import require
from stagehold.testing.explore.chosen import ChosenCopies, ChosenStore, Labels
from stagehold.testing.explore.keep import Keeper, Kept
from stagehold.testing.explore.own import AWAY, COMPUTED, GONE, RANKS, RUNS, WAITS, Delivery, Own, Place
from stagehold.testing.explore.small import SmallWorld
from stagehold.testing.explore.words import LETTERS, SAID, go_on, spent


class Pair:
    """A small world at its beginning: attached, idle, the first pages live, nobody there."""

    def __init__(self, world: SmallWorld) -> None:
        self.world = world
        self.config = world.config()
        self.chains = [world.chain(pages) for pages in world.prompts]
        self.siblings = [(world.chain(pages), count) for pages, count in world.siblings]
        self.names = {
            (chain, page): object_name(chain.page_key(page), component=FULL)
            for chain in (*self.chains, *(chain for chain, _ in self.siblings))
            for page in range(chain.n_pages)
        }
        self.delivery = Delivery()
        self.labels = [Labels(self.config.device_pages, self.config.staging_pages) for _ in range(RANKS)]
        self.engines = [self._engine(rank) for rank in range(RANKS)]
        count = len(self.chains)
        self.own = Own(world.budget, [AWAY] * count, [None] * count)
        while self.engines[0].attachment is AttachmentState.ATTACHING:
            self.tick(*("TT" for _ in self.flying()))
        for chain, pages in zip(self.chains, world.live, strict=True):
            self._grow(chain, pages)
        if world.believed:
            for core in self.cores:
                for chain in self.chains:
                    core.beliefs.teach(core.keys(chain, 0, chain.n_pages))
        self.tick()
        for who in range(world.arrived):
            self.arrive(who)
        self._keeper = Keeper(self.engines, lambda: self.own, self._take)

    def _engine(self, rank: int) -> Engine:
        stored = zip(self.chains, self.world.stored, strict=True)
        pages = {self.names[chain, page]: None for chain, count in stored for page in range(count)}
        engine = Engine(
            self.config,
            store=ChosenStore(pages),
            group=Place(rank),
            copies=ChosenCopies(),
            deliver=self.delivery,
            strict=True,
        )
        core = engine._parts.core  # noqa: SLF001 - a search reaches inside
        core.bytes[SPINE] = self.labels[rank]  # type: ignore[assignment]
        core.journal.sink = None
        return engine

    def _take(self, own: Own) -> None:
        self.own = own

    @property
    def cores(self) -> list[Core]:
        """The insides of both ranks."""
        return [engine._parts.core for engine in self.engines]  # noqa: SLF001

    def save(self) -> Kept:
        """This moment, of both ranks."""
        return self._keeper.save()

    def restore(self, kept: Kept) -> None:
        """Go back to it."""
        self._keeper.restore(kept)

    def told(self) -> bytes:
        """16 bytes that are equal for equal situations. The ranks run the same program, so that they may be swapped."""
        one, other = (seen.shared(engine._parts) for engine in self.engines)  # noqa: SLF001
        require(one == other, "the ranks are not in the same situation")
        own = self.own
        mine = (tuple(own.stands), sorted(own.plans), sorted(own.visited), own.fresh, tuple(own.budget))
        here = sorted(marshal.dumps(seen.local(core), 2) for core in self.cores)
        return blake2b(marshal.dumps((one, mine, here), 2), digest_size=16).digest()

    def do(self, move: tuple[Any, ...]) -> None:
        """Make one move, `(name, *arguments)`, and check everything."""
        getattr(self, move[0])(*move[1:])
        self.check()

    def check(self) -> None:
        """Everything that must hold in every situation."""
        for engine in self.engines:
            rules.check(engine._parts, self)  # noqa: SLF001

    # Time

    def flying(self) -> list[int]:
        """Numbers of the operations that were sent off, oldest first; the same on both ranks."""
        one, other = (
            [(number, o.kind, o.owner) for number, o in sorted(core.operations.live.items()) if o.place >= 0]
            for core in self.cores
        )
        require(one == other, f"the ranks fly different operations: {one} and {other}")
        return [number for number, _, _ in one]

    def ends(self, which: int, word: str) -> None:
        """An operation in flight (by its age, from 0) goes on before a tick polls it; one letter for each rank."""
        for core, letter in zip(self.cores, word, strict=True):
            if letter != SAID:
                go_on(core, self.flying()[which], LETTERS[letter])
        self.own.budget = spent(self.own.budget, (word,))

    def tick(self, *words: str) -> None:
        """The next pass of both ranks. A word for each operation in flight, oldest first, a letter for each rank."""
        for which, word in enumerate(words):
            self.ends(which, word)
        facts = [engine.poll() for engine in self.engines]
        agreed = np.minimum(*facts)
        require(unpack(agreed).same, "the ranks have recorded different things")
        for engine in self.engines:
            engine.proceed(agreed)
        self.own.visited = []
        self.own.fresh = True

    def _spend(self, what: str) -> None:
        self.own.budget = self.own.budget.spend(what)
        self.own.fresh = False

    # Requests

    def arrive(self, who: int) -> None:
        """Request `who` arrives on both ranks."""
        handles = [
            engine.arrive(f"r{who}", self._tokens(who), self.chains[who].namespace, 1) for engine in self.engines
        ]
        self._goes_on(who, WAITS, handles[0])

    def _tokens(self, who: int) -> Any:
        return self.chains[who].tokens

    def _goes_on(self, who: int, stands: str, handle: Handle | None = None) -> None:
        self.own.stands[who] = stands
        self.own.handles[who] = handle or self.own.handles[who]

    def select(self, who: int) -> None:
        """Look at a request; where that gives a plan, its visit stays open."""
        found = self._both(who, "select", 64)
        if isinstance(found[0], Plan):
            self.own.plans[who] = tuple(found)
            self.own.visited.append(who)
            self.own.fresh = False

    def _both(self, who: int, call: str, *args: Any) -> list[Any]:
        """The same call on both ranks, for one request; they must answer the same."""
        found = [getattr(engine, call)(self.own.handles[who], *args) for engine in self.engines]
        require(found[0] == found[1], f"{call} of request {who}: {found[0]} on one rank, {found[1]} on the other")
        return found

    def commit(self, who: int, how: str = "all") -> None:
        """End a visit with what the hold delivers: `all`, `some` or `none` of it."""
        self.delivery.how = how
        if how != "all":
            self._spend("short")
        plans = self.own.plans.pop(who)
        self.own.fresh = False
        try:
            found = [_commit(engine, plan) for engine, plan in zip(self.engines, plans, strict=True)]
        finally:
            self.delivery.how = "all"
        require(found[0] == found[1], f"commit of request {who}: {found[0]} on one rank, {found[1]} on the other")
        if found[0] is not None and found[0].admitted:
            self._goes_on(who, RUNS)
            for core, one in zip(self.cores, found, strict=True):
                assert one is not None, "the ranks have answered the same"
                rules.check_read(core, self, self.chains[who], one.slots)

    def release(self, who: int) -> None:
        """End a visit without a commit."""
        self._spend("release")
        for engine, plan in zip(self.engines, self.own.plans.pop(who), strict=True):
            engine.release(plan)

    def compute(self, who: int) -> None:
        """Compute the rest of a running prompt, and publish it."""
        self.own.fresh = False
        chain = self.chains[who]
        for rank, engine in enumerate(self.engines):
            handle = self.own.handles[who]
            assert handle is not None, "a request that runs has arrived"
            slots = engine.page_slots(handle)
            rules.check_read(self.cores[rank], self, chain, slots)
            engine.extend(handle, chain.n_tokens - len(slots) * self.config.page_size)
            for page, slot in enumerate(engine.page_slots(handle)[: chain.n_pages]):
                if page >= len(slots):
                    self.labels[rank].device[slot] = self.names[chain, page]
            engine.publish(handle, chain.n_tokens)
            rules.check_read(self.cores[rank], self, chain, engine.page_slots(handle)[: chain.n_pages])
        self._goes_on(who, COMPUTED)

    def finish(self, who: int) -> None:
        """A request that has computed its prompt ends well."""
        self.own.fresh = False
        self._both(who, "finish")
        self._goes_on(who, GONE)

    def retract(self, who: int) -> None:
        """Take the slots of a running request back; its next attempt waits."""
        self._spend("retract")
        self._goes_on(who, WAITS, self._both(who, "retract")[0])

    def abort(self, who: int) -> None:
        """End a request, whatever it is doing."""
        self._spend("abort")
        self.own.plans.pop(who, None)
        self._both(who, "abort")
        self._goes_on(who, GONE)

    # Other traffic

    def evict(self, pages: int = 1) -> None:
        """Other traffic takes the least recently used pages that nobody protects."""
        self._spend("evict")
        for core in self.cores:
            core.tree.evict(pages)

    def sibling(self, which: int) -> None:
        """Another request has computed a prefix and publishes it."""
        self._spend("sibling")
        self._grow(*self.siblings[which])

    def can_grow(self, chain: Chain, pages: int) -> bool:
        """Whether there is something to publish, and room for it beside what is promised."""
        core = self.cores[0]
        live = core.tree.full_match(chain, pages)
        return live < pages and pages - live + core.tree.protect_cost(chain, live) <= core.room()

    def _grow(self, chain: Chain, pages: int) -> None:
        for core, labels in zip(self.cores, self.labels, strict=True):
            live = core.tree.full_match(chain, pages)
            lock = core.tree.lock(chain, live)
            slots = core.allocate_device(pages - live)
            for page, slot in zip(range(live, pages), slots, strict=True):
                labels.device[slot] = self.names[chain, page]
            core.insert(chain, live, slots)
            core.tree.unlock(lock)

    def lose(self, which: int) -> None:
        """The stores of both ranks lose the last page of a prompt that they have."""
        self._spend("lose")
        chain = self.chains[which]
        for core in self.cores:
            assert isinstance(core.store, ChosenStore), "a small world attaches no other store"
            held = [page for page in range(chain.n_pages) if self.names[chain, page] in core.store.pages]
            if held:
                del core.store.pages[self.names[chain, held[-1]]]

    # The engine as a whole

    def flush(self) -> None:
        """Empty the tree; refused while anything is busy, on both ranks alike."""
        self._spend("flush")
        refused = []
        for engine in self.engines:
            try:
                engine.flush()
            except Misuse:
                refused.append(engine)
        require(len(refused) in (0, RANKS), "a flush was refused on one rank and not on the other")

    def detach(self) -> None:
        """Let go of the store, for good."""
        self._spend("detach")
        for engine in self.engines:
            engine.detach()

    @property
    def ended(self) -> bool:
        """Whether nobody is there and nothing is under way."""
        core = self.cores[0]
        busy = core.requests or core.holds or core.writes or core.operations.live
        return not busy

    def rest(self) -> None:
        """What must be left when everything has ended."""
        for core in self.cores:
            rules.check_rest(core)


def _commit(engine: Engine, plan: Plan) -> Admission | None:
    """The admission; None where the delivery was called partial."""
    try:
        admission = engine.commit(plan)
    except PartialDelivery:
        return None
    assert isinstance(admission.outcome, AdmissionOutcome), "an admission says how it ended"
    return admission
