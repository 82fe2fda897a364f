"""Tiny models on an engine driven by hand, over a store in memory, and the same calls on tensors that no engine knows.

A donor computes a prompt a page a call. What it leaves is what the store is given, so that a test says which pages are
there; and a run that goes on behind any page must give the bits of the calls on plain tensors that went on there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.nn.functional import linear, scaled_dot_product_attention
from transformers.cache_utils import DynamicCache

from stagehold.cache.components.full import FULL
from stagehold.cache.components.state import STATE
from stagehold.cache.components.swa import SWA
from stagehold.cache.stores.medium import Medium
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.lifecycle.data import Admission, Handle
from stagehold.serving.model.layouts import PageLayout, layout_of
from stagehold.serving.model.paged import PagedModel, TransformersModel
from stagehold.serving.model.paging import Pages
from stagehold.serving.model.random_models import random_model
from stagehold.serving.model.recurrent import BLOCKS, HEADS, WIDTH, RecurrentModel, recurrent_layout
from stagehold.serving.model.runner import ModelRunner
from stagehold.serving.model.sizes import engine_options, pools_of
from stagehold.serving.model.witness import Digests, WitnessedRunner
from stagehold.serving.pattern import Slots
from stagehold.serving.runner import Runner, Work
from stagehold.serving.scheduler import Scheduler
from stagehold.specs.hold import HoldState
from stagehold.testing.hand import AT_ONCE, NAMESPACE, Hand

PAGE, PAGES, WINDOW = 4, 12, 14
"""Tokens in a page; whole pages of a prompt; tokens of the window: four pages, which it does not end at."""
POISON = 0x7F
"""Byte of whatever must not be read: as float32 larger than any number of a model."""

SIZES = {"hidden_size": 32, "intermediate_size": 48, "head_dim": 8}
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"num_hidden_layers": 3},
    "qwen3": {"num_hidden_layers": 3},
    "gemma3": {
        "num_hidden_layers": 6,
        "sliding_window": WINDOW,
        "layer_types": ["sliding_attention"] * 5 + ["full_attention"],
        "query_pre_attn_scalar": 8,
    },
    "gpt_oss": {"sliding_window": WINDOW},
}


class SlidingStates(RecurrentModel):
    """FULL, SWA and STATE at once: the last attention layer sees a window, and leaves its rows of FULL as they are."""

    def __init__(self, page_size: int, pools: Mapping[str, torch.Tensor]) -> None:
        super().__init__(page_size, pools)
        self._components = sliding_states(page_size)
        self._swa = self._components[SWA].numbers(pools[SWA])

    def forward(self, tokens: Any, first: int, slots: Mapping[str, Slots]) -> torch.Tensor:
        span = first, first + len(tokens)
        self._behind = Pages(self._components[SWA], self._swa, slots[SWA], span, WINDOW)
        return super().forward(tokens, first, slots)

    def _attended(self, block: int, x: torch.Tensor, pages: Pages) -> torch.Tensor:
        if block < BLOCKS - 1:
            return super()._attended(block, x, pages)
        into, out = self._attention[block]
        q, k, v = linear(x, into).view(len(x), 3, HEADS, WIDTH // HEADS).unbind(1)
        keys, values = (self._joined(part, new, self._behind).transpose(0, 1) for part, new in enumerate((k, v)))
        sees = torch.ones((len(x), keys.shape[1]), dtype=torch.bool).tril(self._behind.n_read)
        sees = sees.triu(self._behind.n_read - WINDOW + 1)
        found = scaled_dot_product_attention(q.transpose(0, 1), keys, values, attn_mask=sees)
        return linear(found.transpose(0, 1).reshape(len(x), WIDTH), out)


def sliding_states(page_size: int) -> dict[str, PageLayout]:
    window = PageLayout(SWA, 2, page_size, (HEADS, WIDTH // HEADS), torch.float32)
    return {**recurrent_layout(page_size), SWA: window}


class Built(NamedTuple):
    """A model before it has pools: the page of each component, and, of the library's models, the model itself."""

    pages: Mapping[str, PageLayout]
    on: Callable[[Mapping[str, torch.Tensor]], PagedModel]
    library: Any = None

    def pools(self, n_slots: int) -> dict[str, torch.Tensor]:
        return {name: page.pool(n_slots).fill_(POISON) for name, page in self.pages.items()}


@cache
def build(name: str) -> Built:
    """One of the four families; `states` has FULL and STATE, `sliding states` SWA besides."""
    if name == "states":
        return Built(recurrent_layout(PAGE), lambda pools: RecurrentModel(PAGE, pools))
    if name == "sliding states":
        return Built(sliding_states(PAGE), lambda pools: SlidingStates(PAGE, pools))
    model = random_model(name, **{**SIZES, **SHAPES[name]})
    pages = layout_of(model.config, PAGE, model.dtype).components
    return Built(pages, lambda pools: TransformersModel(model, PAGE, pools), model)


class Plain:
    """The same calls without pools that an engine knows: a prompt a page a call, and any calls behind any page."""

    def __init__(self, built: Built, tokens: Any) -> None:
        self._built = built
        self._tokens = tokens
        self._at: list[Any] = []  # what there is behind each page
        self._state: Any = self._fresh()
        for page in range(len(tokens) // PAGE):
            self._at.append(deepcopy(self._state))
            self._call(self._state, tokens, page * PAGE, (page + 1) * PAGE)
        self._at.append(self._state)

    def _fresh(self) -> Any:
        library = self._built.library
        return DynamicCache(config=library.config) if library else self._built.pools(3 * PAGES)

    def logits(self, tokens: Any, edges: Sequence[int]) -> list[torch.Tensor]:
        """Of the calls from edge to edge; the first edge is the end of a page that both prompts have."""
        assert np.array_equal(tokens[: edges[0]], self._tokens[: edges[0]])
        state = deepcopy(self._at[edges[0] // PAGE])
        return [self._call(state, tokens, first, last) for first, last in pairwise(edges)]

    def _call(self, state: Any, tokens: Any, first: int, last: int) -> torch.Tensor:
        if self._built.library:
            ids = torch.from_numpy(tokens[first:last].astype(np.int64))[None]
            with torch.inference_mode():
                logits = self._built.library(input_ids=ids, cache=state, use_cache=True, logits_to_keep=1).logits
            found: torch.Tensor = logits[0, -1]
            return found
        return self._built.on(state).forward(tokens[first:last], first, dict.fromkeys(state, np.arange(3 * PAGES)))


class Call(NamedTuple):
    work: Work
    logits: torch.Tensor


class Donor:
    """The bytes of a prompt's pages, computed a chunk a call in pools of its own; a witness's digests of them."""

    def __init__(self, built: Built, tokens: Any, chunk: int = PAGE) -> None:
        self.built, self.tokens = built, tokens
        self.plain = Plain(built, tokens)
        self.pools = built.pools(3 * PAGES)
        runner = WitnessedRunner(ModelRunner(built.on(self.pools)), built.pages, self.pools, PAGE)
        slots = np.arange(3 * PAGES)
        for first in range(0, len(tokens), chunk):
            span = first, min(first + chunk, len(tokens))
            runner.forward(
                [Work("donor", NAMESPACE, tokens, *span, first, 0, slots, dict.fromkeys(built.pages, slots))]
            )
        self.digests: Digests = runner.digests

    def page(self, component: str, page: int) -> bytes:
        return self.pools[component][:, page].contiguous().numpy().tobytes()

    def resumed(self, calls: Sequence[Call]) -> bool:
        """Whether the same calls on the pages of these pools, in order and untouched, give the same bits."""
        pools, slots = {name: pool.clone() for name, pool in self.pools.items()}, np.arange(3 * PAGES)
        model, tokens = self.built.on(pools), calls[-1].work.tokens
        assert np.array_equal(tokens[: calls[0].work.first], self.tokens[: calls[0].work.first])
        spans = [(call.work.first, call.work.last) for call in calls]
        again = [model.forward(tokens[first:last], first, dict.fromkeys(pools, slots)) for first, last in spans]
        return all(torch.equal(one, call.logits) for one, call in zip(again, calls, strict=True))


class Tier:
    """Engine, scheduler and model; `hand` turns the engine. While `held` is true the scheduler admits nobody."""

    def __init__(
        self,
        built: Built,
        *,
        medium: Medium | None = None,
        digests: Digests | None = None,
        chunk: int = PAGE,
        wrap: Callable[[Runner, Mapping[str, torch.Tensor]], Runner] = lambda runner, _: runner,
        device_pages: int = 64,
        off: bool = False,
        **settings: Any,
    ) -> None:
        sizes = engine_options(
            dict(built.pages), window_tokens=WINDOW, device_pages=device_pages, staging_pages=0 if off else 48
        )
        options = {"largest_request_tokens": 64, "chunk_tokens": chunk, "prefetch_threshold_tokens": PAGE}
        self.medium = Medium() if medium is None else medium
        store = None if off else SimulatedStore(medium=self.medium, delays=AT_ONCE)
        self.hand = Hand(store=store, **{**sizes, **options, **settings})
        self.engine = self.hand.engine
        self.pools = pools_of(self.engine)
        for pool in self.pools.values():
            pool.fill_(POISON)
        model = built.on(self.pools)
        runner = wrap(ModelRunner(model, lambda work, logits: self.calls.append(Call(work, logits))), self.pools)
        self.witness = WitnessedRunner(runner, model.components, self.pools, PAGE, deepcopy(digests))
        self.calls: list[Call] = []
        self.admissions: dict[str, Admission] = {}
        self.opened: dict[str, bytes] = {}
        self.held = False
        self.scheduler = Scheduler(self.engine, self, token_budget=chunk, defer=lambda: self.held)

    def forward(self, batch: Sequence[Work]) -> list[int]:
        """A `Runner`, so that the state which a request begins with is noted before anything is computed in it."""
        for work in batch:
            if STATE in self.pools and work.rid not in self.opened:
                self.opened[work.rid] = self.pools[STATE][:, int(work.pages(STATE)[0])].contiguous().numpy().tobytes()
        return self.witness.forward(batch)

    def read(self, work: Work) -> None:
        self.witness.read(work)

    def give(self, donor: Donor, last: int, first: int = 0, components: Sequence[str] = ()) -> None:
        """The store has the donor's pages [first, last) of these components; of all, if none is named."""
        for component in components or donor.built.pages:
            for page in range(first, last):
                self.hand.put(donor.tokens, page, page + 1, body=donor.page(component, page), component=component)

    def sibling(self, donor: Donor, pages: int, **bring: int) -> None:
        """Somebody has published the first pages of the donor's prompt: see `Hand.grow`; the bytes are the donor's."""
        start = self.hand.live(donor.tokens)
        self.hand.grow(donor.tokens, pages, **bring)
        for component, first in {FULL: start, **{name: pages - count for name, count in bring.items()}}.items():
            for page, slot in enumerate(self.slots(donor.tokens, first, pages, component), start=first):
                self.pools[component][:, slot] = donor.pools[component][:, page]

    def tombstone(self, tokens: Any, start: int, end: int, component: str = SWA) -> None:
        """See `Hand.tombstone`; what the slots held is poisoned, since one of them may be handed out again."""
        gone = self.slots(tokens, start, end, component)
        self.hand.tombstone(tokens, start, end, component)
        self.pools[component][:, gone] = POISON

    def plant(self, component: str, change: Callable[[list[int]], list[int]]) -> None:
        """A fault: splices of the component copy from other staging pages; from none, if none are named."""
        held = self.hand.core.bytes[component]
        load = held.load

        def wrong(pages: Sequence[int], slots: Sequence[int]) -> None:
            instead = change(list(pages))
            if instead:
                load(instead, slots)

        held.load = wrong  # type: ignore[method-assign]

    def holds(self, donor: Donor, component: str, page: int) -> bool:
        """Whether the tree's slot of a page has the donor's bytes."""
        (slot,) = self.slots(donor.tokens, page, page + 1, component)
        return bool((self.pools[component][:, slot] == donor.pools[component][:, page]).all())

    def slots(self, tokens: Any, start: int, end: int, component: str) -> list[int]:
        return list(self.hand.core.tree.slots(self.hand.chain(tokens), start, end, component))

    def missing(self, tokens: Any, start: int, end: int, component: str = SWA) -> list[tuple[int, int]]:
        spans = self.hand.core.tree.missing(self.hand.chain(tokens), start, end, component)
        return [(span.start, span.end) for span in spans]

    def ready(self, rid: str, tokens: Any, answer: int = 3) -> Any:
        """Submit, and tick until the request's hold is ready; returns the hold's data. Nobody is admitted yet."""
        self.submit(rid, tokens, answer)
        return self.readied(rid)

    def submit(self, rid: str, tokens: Any, answer: int = 3) -> None:
        self.held = True
        self.scheduler.submit(rid, tokens, NAMESPACE, answer)

    def readied(self, rid: str) -> Any:
        """Tick until the hold of a request that was submitted is ready; returns the hold's data."""
        for _ in range(200):
            self.step()
            hold = self.hold_of(rid)
            if hold and self.hand.hold_of(Handle(rid, 0)).state is HoldState.READY:
                return hold
        raise AssertionError(f"{rid}: no hold is ready")

    def hold_of(self, rid: str) -> Any:
        """The data of the hold that a waiting request has a claim on; None if it has none."""
        handle = Handle(rid, 0)
        return self.hand.hold_of(handle).data if self.hand.machine(handle).data.hold else None

    def serve(self, rid: str, tokens: Any, answer: int = 3) -> list[Call]:
        """Submit and run to the end; returns the calls."""
        self.scheduler.submit(rid, tokens, NAMESPACE, answer)
        return self.go_on(rid)

    def go_on(self, rid: str) -> list[Call]:
        self.held = False
        while not self.scheduler.idle:
            self.step()
        return [call for call in self.calls if call.work.rid == rid]

    def step(self) -> None:
        done = self.scheduler.step()
        self.admissions |= {one.rid: one.admission for one in done.admitted}

    def hit(self, rid: str) -> tuple[int, int]:
        """Pages from the device, and from below it."""
        one = self.admissions[rid]
        return one.device_hit_tokens // PAGE, one.store_hit_tokens // PAGE

    def forget(self) -> None:
        """All pages leave the device, once what was written is stored."""
        self.hand.until(lambda: not self.hand.core.writes)
        self.hand.tick(2)
        self.hand.core.tree.evict(self.hand.config.device_pages)
        assert 0 == self.hand.core.tree.total
        for pool in self.pools.values():
            pool.fill_(POISON)

    def close(self) -> None:
        """Drain and end; nobody owns anything then, and no byte that was taken over was another one's."""
        self.engine.drain(2_000)
        self.engine.close()
        assert {} == self.engine.stats().owned


def edges(calls: Sequence[Call]) -> list[int]:
    """Where the calls of one request begin and end."""
    assert all(one.work.last == two.work.first for one, two in pairwise(calls))
    return [calls[0].work.first, *(call.work.last for call in calls)]


def same(donor: Donor, calls: Sequence[Call]) -> bool:
    """Whether each call's logits are, bit for bit, those of the same calls on plain tensors."""
    right = donor.plain.logits(calls[-1].work.tokens, edges(calls))
    return all(torch.equal(one, call.logits) for one, call in zip(right, calls, strict=True))


@cache
def donated(name: str, chunk: int = PAGE) -> Donor:
    """A prompt of twelve whole pages and three tokens; nothing changes a donor once it is made."""
    tokens = np.random.default_rng(0).integers(0, 256, PAGES * PAGE + 3).astype(np.uint32)
    return Donor(build(name), tokens, chunk)


@cache
def crowd(name: str) -> dict[str, Donor]:
    """A chat, a branch of it, and two strangers: 48 whole pages, of which 6 are common to two."""
    rng = np.random.default_rng(5)
    chat, branch, one, other = (rng.integers(0, 256, PAGES * PAGE + 3).astype(np.uint32) for _ in range(4))
    branch[: 6 * PAGE] = chat[: 6 * PAGE]
    prompts = {"chat": chat, "branch": branch, "one": one, "other": other}
    return {rid: Donor(build(name), tokens) for rid, tokens in prompts.items()}


class Bits(NamedTuple):
    """What the tests of this folder share."""

    tier: Callable[..., Tier]
    donor: Callable[..., Donor]
    crowd: Callable[[str], dict[str, Donor]]
    same: Callable[[Donor, Sequence[Call]], bool]
    edges: Callable[[Sequence[Call]], list[int]]


@pytest.fixture(name="bits")
def _bits() -> Iterator[Bits]:
    """`tier(donor or name, **options)` builds a tier of that model; all are closed at the end."""
    made: list[Tier] = []

    def tier(source: Donor | str, **options: Any) -> Tier:
        built = build(source) if isinstance(source, str) else source.built
        digests = None if isinstance(source, str) else source.digests
        made.append(Tier(built, **{"digests": digests, **options}))
        return made[-1]

    yield Bits(tier, donated, crowd, same, edges)
    for one in made:
        one.close()
