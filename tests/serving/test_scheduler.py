"""The bundled scheduler: what it serves, in which order, and what it does when there is no room."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from stagehold import AttachmentState, Engine, EngineConfig, Extension, Handle, HostMode, Namespace, NoRoom
from stagehold.cache.stores.protocol import Store
from stagehold.cache.stores.simulated import Delays, Medium, SimulatedStore
from stagehold.serving.pattern import Layout
from stagehold.serving.runner import PatternRunner, Work
from stagehold.serving.scheduler import Pass, Scheduler

LAYOUT = Layout(layers=2, token_part_bytes=64, page_size=4)
HERE = Namespace(model="m")
ELSEWHERE = Namespace(model="m", cache_salt="other")


def config(**changes: Any) -> EngineConfig:
    sizes = {
        "page_size": 4,
        "device_pages": 64,
        "staging_pages": 64,
        "largest_request_tokens": 128,
        "host_memory_mode": HostMode.BUFFER_ONLY,
        "prefetch_threshold_tokens": 4,
        "parts": LAYOUT.parts,
        "page_part_bytes": LAYOUT.page_part_bytes,
    }
    return EngineConfig(**{**sizes, **changes})


class Bench:
    """One engine, one scheduler, one runner."""

    def __init__(
        self, engine: type[Engine] = Engine, *, store: Store | None = None, budget: int = 16, **changes: Any
    ) -> None:
        self.engine = engine(config(**changes), store=store, strict=True)
        assert self.engine.device_bytes is not None
        self.runner = PatternRunner(LAYOUT, self.engine.device_bytes.tensor)
        self.scheduler = Scheduler(self.engine, self.runner, token_budget=budget)
        while self.engine.attachment is AttachmentState.ATTACHING:
            self.engine.tick()

    def submit(self, rid: str, tokens: npt.NDArray[np.uint32], answer: int = 3, where: Namespace = HERE) -> None:
        self.scheduler.submit(rid, tokens, where, answer)

    def run(self, limit: int = 500) -> list[Pass]:
        passes: list[Pass] = []
        while not self.scheduler.idle:
            passes.append(self.scheduler.step())
            assert len(passes) < limit, "the scheduler is wedged"
        return passes


def prompt(length: int, seed: int = 1) -> npt.NDArray[np.uint32]:
    return np.random.default_rng(seed).integers(0, 1000, length).astype(np.uint32)


def hits(passes: list[Pass]) -> dict[str, tuple[int, int]]:
    return {
        one.rid: (one.admission.device_hit_tokens, one.admission.store_hit_tokens)
        for done in passes
        for one in done.admitted
    }


def finished(passes: list[Pass]) -> list[str]:
    return [rid for done in passes for rid in done.finished]


def test_a_prompt_is_cut_to_the_budget() -> None:
    """40 tokens and a budget of 16 take three passes, then one pass for each further token of the answer."""
    bench = Bench(budget=16)
    bench.submit("a", prompt(40), answer=3)

    passes = bench.run()

    assert [16, 16, 8, 1, 1] == [done.computed_tokens for done in passes]
    assert ["a"] == finished(passes)


def test_no_pass_computes_more_than_its_budget() -> None:
    """Decode steps, cut prompts and new requests share one budget."""
    bench = Bench(budget=10)
    for i in range(6):
        bench.submit(f"r{i}", prompt(11 + i, seed=i), answer=4)

    passes = bench.run()

    assert max(done.computed_tokens for done in passes) == 10
    assert {f"r{i}" for i in range(6)} == set(finished(passes))


def test_a_shared_prefix_is_taken_from_the_device() -> None:
    """Whole pages are reused, at least one token is computed, and all bytes are right."""
    bench = Bench()
    bench.submit("a", prompt(16))
    bench.run()
    bench.submit("b", prompt(16))
    bench.submit("c", np.concatenate([prompt(16), prompt(5, seed=2)]))

    got = hits(bench.run())

    assert {"b": (12, 0), "c": (16, 0)} == got
    assert (0, 0) == (bench.runner.wrong_bytes, bench.runner.phantom_tokens)


def test_namespaces_share_nothing() -> None:
    """The same tokens in another namespace are computed again."""
    bench = Bench()
    bench.submit("a", prompt(16))
    bench.run()
    bench.submit("b", prompt(16), where=ELSEWHERE)

    assert {"b": (0, 0)} == hits(bench.run())
    assert 0 == bench.runner.wrong_bytes


def test_every_token_is_compared_once() -> None:
    """Prompt and answer, but for the last token of the answer, which needs no KV."""
    bench = Bench()
    bench.submit("a", prompt(21), answer=6)
    bench.run()

    assert (21 + 6 - 1) * LAYOUT.token_bytes == bench.runner.compared_bytes


def written(tokens: npt.NDArray[np.uint32]) -> Medium:
    """What the store of an engine holds that served `tokens` and was closed."""
    medium = Medium()
    bench = Bench(store=SimulatedStore(medium=medium))
    bench.submit("first", tokens)
    bench.run()
    bench.engine.drain(500)
    bench.engine.close()
    return medium


def test_a_prefix_in_the_store_is_taken_from_there() -> None:
    """A second engine on the same store finds what the first one wrote, and waits for it."""
    second = Bench(store=SimulatedStore(medium=written(prompt(32))))
    second.submit("b", prompt(32))
    passes = second.run()

    assert {"b": (0, 28)} == hits(passes)
    assert (0, 0) == (second.runner.wrong_bytes, second.runner.phantom_tokens)


def test_waiting_for_the_store_blocks_nobody() -> None:
    """A later request overtakes one whose bytes are still on their way."""
    delays = Delays(exists=(1, 1), get=(20, 20), put=(1, 1))
    second = Bench(store=SimulatedStore(medium=written(prompt(32)), delays=delays))
    second.submit("waits", prompt(32))
    second.submit("passes", prompt(8, seed=9), answer=2)

    assert ["passes", "waits"] == finished(second.run())


class Stingy(Engine):
    """Refuses room once, at the seventh call, as an engine without promises might at any."""

    calls = 0

    def extend(self, handle: Handle, n_tokens: int, tokens: Any = None) -> Extension | NoRoom:
        self.calls += 1
        if self.calls == 7:
            return NoRoom(1, 0)
        return super().extend(handle, n_tokens, tokens)


def test_the_youngest_makes_room_and_comes_back() -> None:
    """It is retracted, served again from what it had published, and answers with the same tokens."""
    bench = Bench(Stingy, budget=24)
    bench.submit("old", prompt(8), answer=8)
    bench.submit("young", prompt(8, seed=2), answer=8)

    passes = bench.run()

    assert ["young"] == [rid for done in passes for rid in done.retracted]
    assert ["old", "young"] == finished(passes)
    assert [0, 1] == [one.attempt for done in passes for one in done.admitted if one.rid == "young"]
    assert (0, 0) == (bench.runner.wrong_bytes, bench.runner.phantom_tokens)
    assert {} == bench.engine.stats().owned


def test_giving_up_leaves_nothing_behind() -> None:
    """Requests that wait and requests that run are aborted, and nothing is owned afterwards."""
    bench = Bench(budget=8)
    for i in range(5):
        bench.submit(f"r{i}", prompt(20, seed=i))
    bench.scheduler.step()

    bench.scheduler.abort_all()

    assert bench.scheduler.idle
    assert {} == bench.engine.stats().owned
    bench.engine.close()


class Late(PatternRunner):
    """Writes what a pass computes one pass too late, so that it is published before its bytes are there."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._owed: list[Work] = []

    def forward(self, batch: Any) -> list[int]:
        for work in batch:
            self.read(work)
        for work in self._owed:
            pattern = self._pattern(work.namespace)
            pattern.fill(self._pool, work.slots, work.tokens[work.first : work.last], work.first)
        self._owed = list(batch)
        return [work.last for work in batch]


def test_early_publication_is_seen_as_phantoms() -> None:
    """A planted fault: pages in the tree before their bytes make the next request's hit a phantom."""
    bench = Bench(budget=24)
    assert bench.engine.device_bytes is not None
    bench.runner = Late(LAYOUT, bench.engine.device_bytes.tensor)
    bench.scheduler = Scheduler(bench.engine, bench.runner, token_budget=24)
    bench.submit("a", prompt(16), answer=9)
    bench.scheduler.step()
    bench.submit("b", prompt(17), answer=1)
    bench.scheduler.step()

    assert 16 == bench.runner.phantom_tokens
