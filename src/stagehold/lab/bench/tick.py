"""What a pass costs: ticks in which nothing happens, ticks in which much does, and one visit from select to commit.

Owns the measurement. Times are processor time of this thread, medians over rounds that take all variants in turn, so
that a busy machine hits all alike. The simulated store is stalled while idle ticks are taken: what it would cost to
look through its own operations is no cost of an engine.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from statistics import median
from time import thread_time_ns
from typing import Any

import numpy as np

from stagehold import Engine, EngineConfig, Handle, HostMode, Limits, Namespace, Plan
from stagehold.cache.keys import Chain, object_name
from stagehold.cache.stores.page import encode_header
from stagehold.cache.stores.simulated import Delays, SimulatedStore
from stagehold.lab.clock import warm_up

SPACE = Namespace("bench")
PAGE = 64
FAMILY_TOKENS = 800_000  # more than the longest prompt, so that no two families have a page in common
QUEUED = 1_000
FETCHING = 64
FETCH_PAGES = 4
TAIL_PAGES = 16
SHORT, LONG = 8_192, 131_072

ROUNDS = 40
TICKS_A_ROUND = 25
AT_ONCE = Delays(exists=(1, 1), get=(1, 1), put=(1, 1))
PATIENT = Limits(lookup_limit=10**6, park_limit=10**6, fetch_limit=10**6, ready_limit=10**6)
"""No deadline falls while idle ticks are taken."""


def bench_tick(rounds: int = ROUNDS) -> dict[str, float]:
    """Microseconds: an idle tick, a transition of a busy tick, and one visit at two lengths of live prefix.

    `idle_loaded_us` has 1,000 requests queued and 64 spans being fetched. `busy_event_us` is the time of ticks in
    which 64 lookups, then 64 fetches end, over their records. A visit is select and commit of a request whose last
    16 pages are ready in staging. `matching_share` is the share of busy ticks spent matching.
    """
    gc.collect()
    gc.disable()
    try:
        idle = _idle(rounds)
        busy = _busy(rounds)
        visits = _visits(rounds)
    finally:
        gc.enable()
    return {**idle, **busy, **visits}


def microseconds(call: Callable[[], object]) -> float:
    """Processor time of one call."""
    begin = thread_time_ns()
    call()
    return (thread_time_ns() - begin) / 1_000


# Engines


@dataclass(slots=True)
class Rig:
    """An engine over a simulated store that has whatever `stock` put there."""

    engine: Engine
    store: SimulatedStore
    arrivals: int = 0

    def arrive(self, tokens: np.ndarray[Any, np.dtype[np.uint32]]) -> Handle:
        """A request under a name of its own."""
        self.arrivals += 1
        return self.engine.arrive(f"r{self.arrivals}", tokens, SPACE, 1)

    def stock(self, tokens: np.ndarray[Any, np.dtype[np.uint32]], first: int = 0) -> None:
        """Another server has stored the whole pages of a prompt from `first` on."""
        chain = Chain(SPACE, tokens, PAGE)
        for page in range(first, chain.n_pages):
            name = object_name(chain.page_key(page), component="full")
            self.store.medium.write(name, encode_header(name, b""))

    def tick(self, count: int = 1) -> None:
        """`count` ticks."""
        for _ in range(count):
            self.engine.tick()


def rig(store: SimulatedStore | None = None, **options: Any) -> Rig:
    """An engine with room for everything that is measured here; its store is attached."""
    sizes: dict[str, Any] = {
        "page_size": PAGE, "device_pages": 8_192, "staging_pages": FETCHING * FETCH_PAGES, "load_limit_fraction": 1.0,
        "largest_request_tokens": LONG + (TAIL_PAGES + 1) * PAGE, "host_memory_mode": HostMode.BUFFER_ONLY,
        "limits": PATIENT,
    }  # fmt: skip
    store = SimulatedStore(delays=AT_ONCE) if store is None else store
    made = Rig(Engine(EngineConfig(**{**sizes, **options}), store=store), store)
    warm_up(made.engine)
    return made


def prompt(pages: int, number: int) -> np.ndarray[Any, np.dtype[np.uint32]]:
    """`pages` whole pages and a token, that share nothing with those of another `number`."""
    return np.arange(pages * PAGE + 1, dtype=np.uint32) + np.uint32(number * FAMILY_TOKENS)


# Idle ticks


def loaded() -> Rig:
    """64 spans are on their way and stay there; 1,000 requests wait behind them."""
    made = rig()
    prompts = [prompt(FETCH_PAGES, number) for number in range(FETCHING)]
    for tokens in prompts:
        made.stock(tokens)
        made.arrive(tokens)
    made.tick(2)
    made.store.stall()
    for number in range(QUEUED):
        made.arrive(prompt(FETCH_PAGES, FETCHING + number))
    made.tick()
    stats = made.engine.stats()
    assert stats.owned["staging"] == FETCHING * FETCH_PAGES, "not all fetches are under way"
    assert stats.live_machines == QUEUED + 2 * FETCHING, "not everybody waits"
    return made


def _idle(rounds: int) -> dict[str, float]:
    empty, full = rig(), loaded()
    empty.store.stall()
    spent: dict[str, list[float]] = {"empty": [], "loaded": []}
    for _ in range(rounds):
        for name, made in (("empty", empty), ("loaded", full)):
            spent[name].append(microseconds(lambda made=made: made.tick(TICKS_A_ROUND)) / TICKS_A_ROUND)  # type: ignore[misc]
    empty.engine.close()
    full.engine.close()
    idle, busy = median(spent["empty"]), median(spent["loaded"])
    return {"idle_empty_us": idle, "idle_loaded_us": busy, "idle_ratio": busy / idle}


# Busy ticks


def _busy(rounds: int) -> dict[str, float]:
    made = rig()
    made.tick(10)
    plain: list[float] = []
    shares: list[float] = []
    for number in range(rounds):
        for measure in (plain, shares):
            batch = [prompt(FETCH_PAGES, 2 * number * FETCHING + i + (measure is shares) * FETCHING)
                     for i in range(FETCHING)]  # fmt: skip
            for tokens in batch:
                made.stock(tokens)
            handles = [made.arrive(tokens) for tokens in batch]
            made.tick()
            measure.append(_busy_pass(made) if measure is plain else _matching_pass(made))
            for handle in handles:
                made.engine.abort(handle)
            made.tick(2)
    made.engine.close()
    return {"busy_event_us": median(plain), "matching_share": median(shares)}


def _busy_pass(made: Rig) -> float:
    """Two ticks: 64 lookups end and fetches begin, then 64 fetches end. Microseconds for each record."""
    spent, records = 0.0, 0
    for _ in range(2):
        spent += microseconds(made.tick)
        block = made.engine.last_block()
        assert block is not None
        records += len(block.records) // 16
    return spent / records


def _matching_pass(made: Rig) -> float:
    """The same two ticks; the share of them that was spent in matches."""
    with matching(made.engine) as spent:
        whole = microseconds(lambda: made.tick(2))
    return sum(spent) / whole


@contextmanager
def matching(engine: Engine) -> Iterator[list[float]]:
    """Collect the microseconds of every match of the engine's tree within the block."""
    tree: Any = engine._parts.core.tree  # noqa: SLF001 - a bench of one part holds that part in its hand
    spent: list[float] = []

    def timed(match: Callable[..., int]) -> Callable[..., int]:
        def call(*arguments: Any) -> int:
            begin = thread_time_ns()
            found = match(*arguments)
            spent.append((thread_time_ns() - begin) / 1_000)
            return found

        return call

    tree.full_match, tree.joint_match = timed(tree.full_match), timed(tree.joint_match)
    try:
        yield spent
    finally:
        del tree.full_match, tree.joint_match


# Visits


def _visits(rounds: int) -> dict[str, float]:
    made = rig()
    bases = {SHORT: prompt(SHORT // PAGE, 1)[:-1], LONG: prompt(LONG // PAGE, 2)[:-1]}
    for tokens in bases.values():
        publish(made, tokens)
    spent: dict[int, list[float]] = {length: [] for length in bases}
    for number in range(rounds):
        for length, base in bases.items():
            spent[length].append(_visit(made, np.concatenate([base, prompt(TAIL_PAGES, 3 + number)])))
    made.engine.close()
    short, long = median(spent[SHORT]), median(spent[LONG])
    return {"select_commit_8k_us": short, "select_commit_128k_us": long, "select_commit_ratio": long / short}


def publish(made: Rig, tokens: np.ndarray[Any, np.dtype[np.uint32]]) -> None:
    """The whole pages of a prompt are in the tree, computed by a request that has ended."""
    handle = made.arrive(tokens)
    plan = made.engine.select(handle, len(tokens))
    assert isinstance(plan, Plan)
    made.engine.commit(plan)
    made.engine.extend(handle, len(tokens))
    made.engine.finish(handle)


def _visit(made: Rig, tokens: np.ndarray[Any, np.dtype[np.uint32]]) -> float:
    """Microseconds from select to commit of a request whose last pages are ready in staging."""
    made.stock(tokens, len(tokens) // PAGE - TAIL_PAGES)
    handle = made.arrive(tokens)
    made.tick(3)
    begin = thread_time_ns()
    plan = made.engine.select(handle, PAGE)
    assert isinstance(plan, Plan), plan
    admission = made.engine.commit(plan)
    spent = (thread_time_ns() - begin) / 1_000
    assert admission.store_hit_tokens == TAIL_PAGES * PAGE, admission
    made.engine.abort(handle)
    made.tick(2)
    return spent
