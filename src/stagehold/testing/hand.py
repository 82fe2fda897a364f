"""An engine driven by hand: one tick, one visit at a time, over a simulated store with fixed delays.

For tests that name the moment at which something happens. It owns the engine that it builds and plays the other
traffic of a server: pages that a sibling publishes, pages that are evicted, pages that another server has stored.
It never decides anything that the engine decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from stagehold.cache.components.cells import nodes_between
from stagehold.cache.components.full import FULL
from stagehold.cache.keys import Chain, Namespace, object_name
from stagehold.cache.stores.page import encode_header
from stagehold.cache.stores.protocol import Store
from stagehold.cache.stores.simulated import Delays, SimulatedStore
from stagehold.lifecycle.data import Admission, Handle, Plan, Skip
from stagehold.lifecycle.engine import Engine
from stagehold.machines import Machine
from stagehold.specs.attachment import AttachmentState
from stagehold.specs.config import EngineConfig
from stagehold.specs.limits import Limits
from stagehold.specs.outcomes import HostMode
from stagehold.specs.request import RequestState
from stagehold.specs.store import StoreState

Tokens = npt.NDArray[np.uint32]

NAMESPACE = Namespace("by-hand")
AT_ONCE = Delays(exists=(1, 1), get=(1, 1), put=(1, 1))
SLOW_GETS = Delays(exists=(1, 1), get=(100, 100), put=(1, 1))
FAMILY_TOKENS = 1_000_000
PATIENCE_TICKS = 5_000


def small_config(**settings: Any) -> EngineConfig:
    """A small `buffer_only` engine; `settings` are fields of the configuration or of its limits.

    It has no page cache unless it is asked for, so that what is in the store only is read from there each time.
    """
    limits = {name: settings.pop(name) for name in list(settings) if name in Limits.model_fields}
    defaults: dict[str, Any] = {
        "page_size": 16,
        "device_pages": 64,
        "staging_pages": 40,
        "largest_request_tokens": 512,
        "host_memory_mode": HostMode.BUFFER_ONLY,
        "prefetch_threshold_tokens": 32,
        "page_cache_fraction": 0.0,
    }
    return EngineConfig(**{**defaults, **settings}, limits=Limits(**limits))


class Given(Enum):
    """What store an engine gets when none is named."""

    SIMULATED = auto()


class Hand:
    """`engine`, `core` (its insides) and `store`. Engine options go by name, everything else is configuration.

    The store is a `SimulatedStore` that answers in the next tick, or after `delays` once it is attached; with
    `store=None` there is none. Unless `attach=False`, its self-test has passed when the constructor returns.
    """

    def __init__(
        self,
        *,
        store: Store | Given | None = Given.SIMULATED,
        delays: Delays = AT_ONCE,
        attach: bool = True,
        engine_options: dict[str, Any] | None = None,
        **settings: Any,
    ) -> None:
        self.config = small_config(**settings)
        own: Store | None = SimulatedStore(delays=AT_ONCE) if store is Given.SIMULATED else store
        self.store: Any = own
        self.engine = Engine(self.config, store=own, **{"strict": True, **(engine_options or {})})
        self.core = self.engine._parts.core  # noqa: SLF001 - a hand reaches inside
        if attach and self.store is not None:
            self.until(lambda: self.engine.attachment is not AttachmentState.ATTACHING)
        if store is Given.SIMULATED:
            self.store._delays = delays  # noqa: SLF001 - the self-test is not to be delayed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    # Time

    @property
    def now(self) -> int:
        """The number of the last tick."""
        return self.core.clock.tick

    def tick(self, count: int = 1) -> None:
        """`count` ticks."""
        for _ in range(count):
            self.engine.tick()

    def until(self, done: Any, patience: int = PATIENCE_TICKS) -> int:
        """Tick until `done()`; returns how many ticks that took. AssertionError when it takes too long."""
        for ticks in range(patience):
            if done():
                return ticks
            if hasattr(self.store, "wait"):  # a store with workers goes on in its own time
                self.store.wait(0.05)
            self.tick()
        raise AssertionError(f"not after {patience} ticks")

    def until_state(self, handle: Handle, *states: RequestState, patience: int = PATIENCE_TICKS) -> int:
        """Tick until the request is in one of `states`."""
        return self.until(lambda: self.engine.state_of(handle) in states, patience)

    # Prompts and what others do with their pages

    def prompt(self, pages: int, family: int = 1, *, shared: int | None = None, tail: int = 1) -> Tokens:
        """`pages` whole pages and `tail` tokens of a family; only the first `shared` pages are family 1's."""
        size = self.config.page_size
        tokens = np.arange(pages * size + tail, dtype=np.uint32)
        own = tokens + np.uint32(family * FAMILY_TOKENS)
        if shared is not None:
            own[: shared * size] = tokens[: shared * size] + np.uint32(FAMILY_TOKENS)
        return own

    def chain(self, tokens: Tokens, namespace: Namespace = NAMESPACE) -> Chain:
        """The keys of a prompt."""
        return Chain(namespace, tokens, self.config.page_size)

    def names(self, tokens: Tokens, first: int = 0, last: int | None = None, component: str = FULL) -> list[bytes]:
        """Object names of whole pages [first, last) in the store."""
        chain = self.chain(tokens)
        pages = range(first, chain.n_pages if last is None else last)
        return [object_name(chain.page_key(page), component=component) for page in pages]

    def put(
        self,
        tokens: Tokens,
        first: int = 0,
        last: int | None = None,
        *,
        body: bytes | None = None,
        component: str = FULL,
    ) -> None:
        """Another server has stored pages [first, last); every byte of page i is i + 1 unless `body` is given.

        Of a component with checkpoints these are the boundaries first + 1 to last. Every byte of another component's
        page is `stored_byte`.
        """
        size = self._page_bytes(component)
        for page, name in enumerate(self.names(tokens, first, last, component), start=first):
            raw = bytes([self.stored_byte(component, page)]) * size if body is None else body
            self.store.medium.write(name, encode_header(name, raw) + raw)

    def put_all(self, tokens: Tokens, first: int = 0, last: int | None = None) -> None:
        """The same for every component."""
        for component in (FULL, *(one.name for one in self.config.components)):
            self.put(tokens, first, last, component=component)

    def believe(self, tokens: Tokens, first: int, last: int, component: str) -> None:
        """The engine has learned that the store has pages [first, last) of a component."""
        self.core.beliefs.teach(self.core.stocks.by_name[component].keys(self.chain(tokens), first, last))

    def stored_byte(self, component: str, page: int) -> int:
        """What every byte of a page is that another server has stored."""
        return (page + 1 + 60 * self._place(component)) % 256

    def computed_byte(self, component: str, page: int) -> int:
        """What every byte of a page is that a sibling publishes, where other components have tensors, too; else 0."""
        return (page + 31 + 60 * self._place(component)) % 256 if self.config.components else 0

    def _place(self, component: str) -> int:
        return [FULL, *(one.name for one in self.config.components)].index(component)

    def _page_bytes(self, component: str) -> int:
        if component == FULL:
            return self.config.page_bytes
        one = self.config.components[self._place(component) - 1]
        return one.parts * one.page_part_bytes

    def grow(self, tokens: Tokens, pages: int, **bring: int) -> None:
        """A sibling publishes the first `pages` pages, with the slots of `bring` for the last ones of a component."""
        chain = self.chain(tokens)
        live = self.core.tree.full_match(chain, pages)
        if live < pages:
            others = {name: self.core.allocate(self.core.stocks.by_name[name], count) for name, count in bring.items()}
            slots = self.core.allocate_device(pages - live)
            for name, taken in {FULL: slots, **others}.items():
                self._compute(name, pages - len(taken), taken)
            self.core.insert(chain, live, slots, others)

    def _compute(self, component: str, first: int, slots: list[int]) -> None:
        if component in self.core.bytes:
            for page, slot in enumerate(slots, start=first):
                self.core.bytes[component].device.tensor[:, slot] = self.computed_byte(component, page)

    def tombstone(self, tokens: Tokens, start: int, end: int, component: str) -> None:
        """A component loses its slots over live pages [start, end), which nobody may have locked; FULL stays."""
        tree, chain = self.core.tree, self.chain(tokens)
        part = tree.part(component)
        for page in (start, end):
            tree.boundary(chain, page)
        for node in nodes_between(tree.covering(chain, start, end), start):
            cell = node.cells[part.at]
            assert not cell.locks, f"{component}: pages {node.start} to {node.end} are locked"
            if cell.slots:
                part.bare(node)

    def shown(self, tokens: Tokens, start: int, end: int, component: str = FULL) -> list[int]:
        """The byte that each page of [start, end) has on the device; of checkpoints, the one of boundary `end`."""
        slots = self.core.tree.slots(self.chain(tokens), start, end, component)
        return self.bytes_at(component, slots)

    def bytes_at(self, component: str, slots: Iterable[int]) -> list[int]:
        """The byte that each of these slots is full of; AssertionError where a slot is not of one byte."""
        tensor, found = self.core.bytes[component].device.tensor, []
        for slot in slots:
            values = sorted(set(tensor[:, slot].flatten().tolist()))
            assert len(values) == 1, f"{component} slot {slot} holds {values}"
            found.append(values[0])
        return found

    def shrink(self, tokens: Tokens, pages: int) -> int:
        """Evict what the tree holds behind the first `pages` pages and nobody protects; returns how many went."""
        return self.core.tree.remove(self.chain(tokens), pages)

    def live(self, tokens: Tokens) -> int:
        """Pages of the prompt that the tree holds."""
        return self.core.tree.full_match(self.chain(tokens))

    # Requests

    def arrive(self, rid: str, tokens: Tokens, new: int = 1, namespace: Namespace = NAMESPACE) -> Handle:
        """A request arrives; it is launched in the next tick."""
        return self.engine.arrive(rid, tokens, namespace, new)

    def machine(self, handle: Handle) -> Machine:
        """The request's instance."""
        return self.engine._roster.find(handle)  # noqa: SLF001

    def hold_of(self, handle: Handle) -> Machine:
        """The hold that the request has a claim on."""
        return self.core.holds[self.machine(handle).data.hold]

    def visit(self, handle: Handle, budget: int = 100_000) -> Admission | Skip:
        """Select, and commit what was selected."""
        plan = self.engine.select(handle, budget)
        return self.engine.commit(plan) if isinstance(plan, Plan) else plan

    def admit(self, handle: Handle) -> Admission:
        """A visit that admits, or AssertionError."""
        admission = self.visit(handle)
        assert isinstance(admission, Admission) and admission.admitted, f"{handle}: {admission}"  # noqa: PT018
        return admission

    def compute(self, handle: Handle) -> None:
        """Slots for the rest of the prompt; all of it is computed and published."""
        data = self.machine(handle).data
        self.engine.extend(handle, data.prompt_tokens - data.n_tokens)
        self.engine.publish(handle, data.prompt_tokens)

    def serve(self, handle: Handle) -> Admission:
        """Admit, compute, finish."""
        admission = self.admit(handle)
        self.compute(handle)
        self.engine.finish(handle)
        return admission

    def run(self, rid: str, tokens: Tokens) -> Admission:
        """A whole request in the present pass, without waiting for the store."""
        return self.serve(self.arrive(rid, tokens))

    # Trouble

    def outage(self) -> None:
        """Break the store's answers until the breaker is open; requests of its own provoke the results."""
        fails = self.config.limits.trip_results * 4
        for number in range(fails):
            if self.core.breaker.state is StoreState.OPEN:
                break
            self.store.fail_next(1)
            handle = self.arrive(f"outage-{number}", self.prompt(4, 900 + number))
            self.tick(2)
            self.engine.abort(handle)
        assert self.core.breaker.state is StoreState.OPEN, "the breaker did not trip"
        self.store.fail_next(0)

    def taken(self, row: str) -> int:
        """How often a row was taken in the ticks that are over; `machine.source.event.OUTCOME`."""
        return self.engine.stats().rows_taken.get(row, 0)

    def books(self) -> dict[str, int]:
        """Every resource that anybody owns now, but for the link to the store."""
        return {name: units for name, units in self.engine.stats().owned.items() if name != "link"}
