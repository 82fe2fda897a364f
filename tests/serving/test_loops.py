"""Loops of every shape: the tick is drained first, retries follow, admission comes last; and what gates the tick."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
import xxhash

from stagehold import AttachmentState, Engine, EngineConfig, HostMode, Limits, Misuse, Namespace
from stagehold.cache.stores.simulated import Delays, Medium, SimulatedStore
from stagehold.lifecycle.ranks.solo import Solo
from stagehold.machines import MACHINES, Block, rows_of
from stagehold.serving.loops import PrefillLoop
from stagehold.serving.pattern import Layout
from stagehold.serving.runner import PatternRunner, Work
from stagehold.serving.scheduler import Scheduler

LAYOUT = Layout(layers=1, token_part_bytes=16, page_size=4)
SPACE = Namespace("loops")
Tokens = npt.NDArray[np.uint32]
LOOPS = {"normal": 0, "overlapped": 1, "pipeline of four": 3}
"""Batches in flight."""


class Reader(PatternRunner):
    """A model whose answers depend on every KV byte that it reads, so that a wrong page gives another answer."""

    def __init__(self, pool: torch.Tensor) -> None:
        super().__init__(LAYOUT, pool)
        self.said: dict[str, list[int]] = {}

    def forward(self, batch: Sequence[Work]) -> list[int]:
        super().forward(batch)
        return [self._answer(work) for work in batch]

    def _answer(self, work: Work) -> int:
        pages = self._pool[:, torch.from_numpy(work.slots)].reshape(LAYOUT.parts, -1, LAYOUT.token_part_bytes)
        kv = pages[:, : work.last].contiguous().numpy().tobytes()
        answer = xxhash.xxh3_64_intdigest(kv) % 1000
        self.said.setdefault(work.rid, []).append(answer)
        return answer


class CountedGroup(Solo):
    """One rank that counts its exchanges."""

    exchanges = 0

    def exchange(self, facts: Any) -> Any:
        self.exchanges += 1
        return super().exchange(facts)


@dataclass
class Server:
    """An engine, its runner, its log and its group."""

    store: SimulatedStore | None = None
    options: dict[str, Any] = field(default_factory=dict)
    blocks: list[Block] = field(default_factory=list)

    def __post_init__(self) -> None:
        sizes = {
            "page_size": 4, "device_pages": 64, "staging_pages": 64, "largest_request_tokens": 128,
            "host_memory_mode": HostMode.BUFFER_ONLY, "prefetch_threshold_tokens": 4,
            "parts": LAYOUT.parts, "page_part_bytes": LAYOUT.page_part_bytes,
        }  # fmt: skip
        self.group = CountedGroup()
        config = EngineConfig(**{**sizes, **self.options})
        self.engine = Engine(config, store=self.store, group=self.group, sink=self.blocks.append, strict=True)
        assert self.engine.device_bytes is not None
        self.runner = Reader(self.engine.device_bytes.tensor)
        while self.engine.attachment is AttachmentState.ATTACHING:
            self.engine.tick()
        self.blocks.clear()
        self.group.exchanges = 0

    def rows(self) -> list[str]:
        """What the engine did, row by row: of the closed blocks and of the open one."""
        raw = b"".join([*(block.records for block in self.blocks), *self.engine._parts.core.journal.records])
        codes = [int.from_bytes(raw[at + 4 : at + 6], "little") for at in range(0, len(raw), 16)]
        return [self._name(code) for code in codes]

    def _name(self, code: int) -> str:
        spec = MACHINES[code >> 8]
        return f"{spec.name}.{rows_of(spec)[code & 0xFF].event}"


DRAIN = ("request.answer", "hold.fetched", "hold.loaded", "hold.io_ended", "write.copied", "write.put_ended")
PHASES = {**dict.fromkeys(DRAIN, "drain"), "request.due": "retries",
          "request.admit": "admit", "request.commit": "admit"}  # fmt: skip


def order(rows: Iterable[str]) -> list[str]:
    """Phases in the order in which their rows stand in the log; rows of one phase in a row are one."""
    return [phase for phase, _ in groupby(PHASES[row] for row in rows if row in PHASES)]


def prompt(length: int, seed: int = 1) -> Tokens:
    return np.random.default_rng(seed).integers(0, 1000, length).astype(np.uint32)


def run(loop: Scheduler | PrefillLoop, limit: int = 300) -> None:
    for _ in range(limit):
        if loop.idle:
            return
        loop.step()
    raise AssertionError("the loop is wedged")


def without_engine(prompts: dict[str, Tokens], answer: int) -> dict[str, list[int]]:
    """The same model in the simplest loop there is: every request alone in pages of its own, nothing reused."""
    said = {}
    for rid, tokens in prompts.items():
        pages = -(-(len(tokens) + answer) // LAYOUT.page_size)
        runner = Reader(torch.zeros((LAYOUT.parts, pages, LAYOUT.page_part_bytes), dtype=torch.uint8))
        text = np.concatenate([tokens, np.zeros(answer, np.uint32)])
        computed = 0
        for known in range(len(tokens), len(text)):
            slots = np.arange(-(-known // LAYOUT.page_size))
            text[known] = runner.forward([Work(rid, SPACE, text, computed, known, 0, 0, slots)])[0]
            computed = known
        said[rid] = runner.said[rid]
    return said


PROMPTS = {"a": prompt(21), "b": prompt(30), "c": np.concatenate([prompt(16), prompt(9, 2)]), "d": prompt(21)}


def served(server: Server, in_flight: int, budget: int = 64) -> dict[str, list[int]]:
    """Answers of the bundled scheduler to `PROMPTS`, with prompts in one piece so that each answer is comparable."""
    loop = Scheduler(server.engine, server.runner, token_budget=budget, in_flight=in_flight)
    for rid, tokens in PROMPTS.items():
        loop.submit(rid, tokens, SPACE, 5)
    run(loop)
    return {rid: answers[-5:] for rid, answers in server.runner.said.items()}


# Outputs


@pytest.mark.parametrize("in_flight", LOOPS.values(), ids=LOOPS)
@pytest.mark.parametrize("tier", ["off", "without store", "with store"])
def test_outputs_equal_those_of_a_loop_without_the_engine(in_flight, tier):
    """Whatever is reused, fetched or computed again, the model reads the same bytes."""
    options = {"staging_pages": 0} if tier == "off" else {}
    server = Server(SimulatedStore() if tier == "with store" else None, options)
    assert without_engine(PROMPTS, 5) == served(server, in_flight)
    assert 0 == server.runner.wrong_bytes


@pytest.mark.parametrize("in_flight", LOOPS.values(), ids=LOOPS)
def test_outputs_are_the_same_under_retraction(in_flight):
    """A pool too small for all: who is sent back with a batch in flight says the same again."""
    prompts = {f"r{seed}": prompt(24, seed) for seed in range(6)}
    server = Server(options={"device_pages": 24, "largest_request_tokens": 64, "pin_fraction": 0.0})
    loop = Scheduler(server.engine, server.runner, token_budget=32, in_flight=in_flight)
    for rid, tokens in prompts.items():
        loop.submit(rid, tokens, SPACE, 20)
    run(loop)
    assert {rid: said[-1] for rid, said in without_engine(prompts, 20).items()} == {
        rid: said[-1] for rid, said in server.runner.said.items()
    }
    assert (0, 0) == (server.runner.wrong_bytes, server.runner.phantom_tokens)


def test_an_overlapped_loop_notices_results_one_pass_later():
    """The second token is computed before the first is known to the host."""
    normal, overlapped = (Scheduler(s.engine, s.runner, in_flight=n) for n, s in enumerate((Server(), Server())))
    for loop in (normal, overlapped):
        loop.submit("a", prompt(9), SPACE, 3)
    ends = []
    for loop in (normal, overlapped):
        passes = 0
        while not loop.idle:
            loop.step()
            passes += 1
        ends.append(passes)
    assert [3, 4] == ends


# Order


def stored(*prompts: Tokens) -> Medium:
    """What the store holds after another server has computed these prompts."""
    medium = Medium()
    server = Server(SimulatedStore(medium=medium))
    loop = Scheduler(server.engine, server.runner)
    for number, tokens in enumerate(prompts):
        loop.submit(f"writer-{number}", tokens, SPACE, 1)
    run(loop)
    server.engine.drain(200)
    server.engine.close()
    return medium


def busy(loop_of: Callable[[Server], Scheduler | PrefillLoop]) -> tuple[Server, Scheduler | PrefillLoop]:
    """Two passes from here on, each has something that ends, a retry that falls due, and somebody to admit.

    Two requests that nothing is stored for ask the store in turns, every other tick each.
    """
    found = [prompt(24, seed) for seed in (11, 12, 13)]
    store = SimulatedStore(medium=stored(*found), delays=Delays(exists=(1, 1), get=(1, 1), put=(1, 1)))
    server = Server(store, {"limits": Limits(retry_interval_ticks=1, retry_interval_cap=1, retry_max_reissues=50)})
    loop = loop_of(server)
    for turn in range(2):
        server.engine.arrive(f"unstored-{turn}", prompt(24, 20 + turn), SPACE, 1)
        server.engine.tick()
    for turn, tokens in enumerate(found):
        submit(loop, f"found-{turn}", tokens)
        loop.step()
    return server, loop


def submit(loop: Scheduler | PrefillLoop, rid: str, tokens: Tokens) -> None:
    if isinstance(loop, Scheduler):
        loop.submit(rid, tokens, SPACE, 1)
    else:
        loop.submit(rid, tokens, SPACE)


SHAPES: dict[str, Callable[[Server], Scheduler | PrefillLoop]] = {
    "normal": lambda s: Scheduler(s.engine, s.runner),
    "overlapped": lambda s: Scheduler(s.engine, s.runner, in_flight=1),
    "pipeline": lambda s: Scheduler(s.engine, s.runner, in_flight=3),
    "prefill": lambda s: PrefillLoop(s.engine, s.runner),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_every_pass_drains_then_retries_then_admits(shape):
    """The log of two passes has the three phases in their order, twice."""
    server, loop = busy(SHAPES[shape])
    before = len(server.rows())
    loop.step()
    loop.step()
    assert ["drain", "retries", "admit"] * 2 == order(server.rows()[before:])


@pytest.mark.parametrize("shape", SHAPES)
def test_an_empty_queue_is_drained_all_the_same(shape):
    """A pass without any request ticks, and what was on its way ends in it."""
    server = Server(SimulatedStore(delays=Delays(exists=(1, 1), get=(1, 1), put=(1, 1))))
    loop = SHAPES[shape](server)
    submit(loop, "a", prompt(24))
    run(loop)
    before, exchanges = len(server.rows()), server.group.exchanges
    assert loop.idle
    for _ in range(4):
        loop.step()
    assert 4 == server.group.exchanges - exchanges
    assert "write.put_ended" in server.rows()[before:]


@pytest.mark.parametrize("shape", SHAPES)
def test_a_prefill_that_is_deferred_has_been_drained(shape):
    """A rank's own decision comes after the tick: what ended was noticed, retries went out, nobody was admitted."""
    server, loop = busy(SHAPES[shape])
    loop._defer = lambda: True
    before = len(server.rows())
    loop.step()
    loop.step()
    assert ["drain", "retries", "drain", "retries"] == order(server.rows()[before:])


def test_a_pass_that_only_polls_a_transfer_does_not_advance_retries():
    """Nobody could have been admitted in it."""
    store = SimulatedStore(delays=Delays(exists=(1, 1), get=(1, 1), put=(1, 1)))
    server = Server(store, {"limits": Limits(retry_interval_ticks=2)})
    loop = PrefillLoop(server.engine, server.runner, transfer_passes=20)
    submit(loop, "a", prompt(8))
    while not loop._travelling:
        loop.step()
    server.engine.arrive("waits", prompt(24, 5), SPACE, 1)
    for _ in range(12):
        loop.step()
    assert "request.due" not in server.rows()
    submit(loop, "b", prompt(8, 6))
    for _ in range(3):
        loop.step()
    assert "request.due" in server.rows()


# Gates


@dataclass(frozen=True)
class Gate:
    """An engine, and what two passes of its loop do: phases, exchanges, blocks."""

    options: dict[str, Any]
    with_store: bool
    phases: list[str]
    exchanges: int
    blocks: int


GATES = {
    "tier off": Gate({"staging_pages": 0}, with_store=False, phases=[], exchanges=0, blocks=0),
    "tier without store": Gate({}, with_store=False, phases=["admit"], exchanges=2, blocks=2),
    "with store": Gate({}, with_store=True, phases=["retries", "admit", "drain"], exchanges=2, blocks=2),
}


@pytest.mark.parametrize("gate", GATES.values(), ids=GATES)
@pytest.mark.parametrize("shape", SHAPES)
def test_what_gates_a_tick(gate, shape):
    """No tier: not a step, not an exchange, not a record. No store: no retry. With both: all of it."""
    store = SimulatedStore(delays=Delays(exists=(1, 1), get=(1, 1), put=(1, 1)))
    limits = Limits(retry_interval_ticks=1, absence_limit=0)  # the second launch is sent off, too
    server = Server(store if gate.with_store else None, {"limits": limits, **gate.options})
    loop = SHAPES[shape](server)
    server.engine.arrive("waits", prompt(24, 5), SPACE, 1)
    for _ in range(2):
        server.engine.tick()
    submit(loop, "a", prompt(3))
    core, server.group.exchanges = server.engine._parts.core, 0
    server.blocks.clear()
    before = core.clock.tick
    loop.step()
    loop.step()
    assert (gate.exchanges, gate.blocks) == (server.group.exchanges, len(server.blocks))
    assert gate.exchanges == core.clock.tick - before
    assert gate.phases == order(server.rows())


def test_with_the_tier_off_nothing_is_kept_for_a_tick_that_never_comes():
    """Neither records nor births pile up, however many requests pass."""
    server = Server(options={"staging_pages": 0})
    loop = Scheduler(server.engine, server.runner)
    for number in range(50):
        submit(loop, f"r{number}", prompt(10, number))
        run(loop)
    journal = server.engine._parts.core.journal
    assert (0, 0, 0) == (len(journal.records), len(journal.births), len(server.engine._parts.phases.arrivals))
    server.engine.close()
    assert [] == server.blocks


def test_with_the_tier_off_no_store_can_be_used():
    """The engine says what is missing, and that there are no facts to exchange."""
    server = Server(options={"staging_pages": 0})
    with pytest.raises(Misuse, match="staging_pages=0"):
        server.engine.attach(SimulatedStore())
    with pytest.raises(Misuse, match="poll: the tier is off"):
        server.engine.poll()
    with pytest.raises(Misuse, match="staging_pages=0"):
        Server(SimulatedStore(), {"staging_pages": 0})
