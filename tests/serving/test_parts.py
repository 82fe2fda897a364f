"""Known bytes of windows and states behind the scheduler: what is read is compared, what is wrong or missing counts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from stagehold import ComponentConfig, ComponentKind, Engine, EngineConfig, HostMode, Namespace
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.serving.parts import StatePart, WindowPart, known_parts
from stagehold.serving.pattern import Layout, Tokens
from stagehold.serving.runner import PatternRunner, Work
from stagehold.serving.scheduler import Scheduler

SPACE = Namespace("m")
PAGE = 16
LAYOUT = Layout(layers=1, token_part_bytes=8, page_size=PAGE)
SWA = ComponentConfig(
    name="swa", kind=ComponentKind.SLIDING_WINDOW, device_pages=24, staging_pages=8, window_tokens=40,
    parts=2, page_part_bytes=PAGE * 8,
)  # fmt: skip
STATE = ComponentConfig(
    name="state", kind=ComponentKind.CHECKPOINT, device_pages=8, staging_pages=4, parts=1, page_part_bytes=24
)
TOKENS = np.arange(100, dtype=np.uint32)


def engine_of(*components: ComponentConfig, mode: HostMode = HostMode.BUFFER_ONLY) -> Engine:
    config = EngineConfig(
        page_size=PAGE, device_pages=40, staging_pages=24, largest_request_tokens=256, host_memory_mode=mode,
        prefetch_threshold_tokens=PAGE, page_cache_fraction=0.0, parts=LAYOUT.parts,
        page_part_bytes=LAYOUT.page_part_bytes, components=components, chunk_tokens=64,
    )  # fmt: skip
    return Engine(config, store=SimulatedStore(seed=1), strict=True)


def runner_of(engine: Engine) -> PatternRunner:
    assert engine.device_bytes is not None
    return PatternRunner(LAYOUT, engine.device_bytes.tensor, known_parts(engine))


def prompts(count: int) -> Iterator[Tokens]:
    """Six conversations that take turns, each a little longer each time."""
    for number in range(count):
        talk, turn = number % 6, number // 6
        yield np.arange(120 + 24 * turn, dtype=np.uint32) + np.uint32(1000 * talk)


@pytest.mark.parametrize("mode", list(HostMode))
@pytest.mark.parametrize("in_flight", [0, 1, 3])
@pytest.mark.parametrize(
    "components", [(SWA,), (STATE,), (SWA, STATE)], ids=lambda some: "+".join(c.name for c in some)
)
def test_no_byte_is_wrong_in_any_loop(mode: HostMode, in_flight: int, components: tuple[ComponentConfig, ...]) -> None:
    """With batches in flight, too, whose states have moved on when the host notices; and hits come from the store."""
    engine = engine_of(*components, mode=mode)
    runner = runner_of(engine)
    scheduler = Scheduler(engine, runner, token_budget=96, running_limit=3, in_flight=in_flight)
    hits = 0
    for number, prompt in enumerate(prompts(18)):
        scheduler.submit(f"r{number}", prompt, SPACE, 4)
        for _ in range(200):
            hits += sum(one.admission.store_hit_tokens for one in scheduler.step().admitted)
            if scheduler.idle:
                break
    assert scheduler.idle
    assert (0, 0) == (runner.wrong_bytes, runner.phantom_tokens)
    assert 0 < hits
    engine.close()


def work(first: int, last: int, reused: int = 0, **others: list[int]) -> Work:
    slots = np.arange(-(-last // PAGE), dtype=np.int64)
    return Work("r", SPACE, TOKENS, first, last, 0, reused, slots, {k: np.array(v) for k, v in others.items()})


def window() -> tuple[WindowPart, torch.Tensor]:
    pool = torch.zeros((2, 10, PAGE * 8), dtype=torch.uint8)
    part = WindowPart(SWA, PAGE, pool)
    part.write(work(0, 80, swa=[0, 1, 2, 3, 4]))
    return part, pool


def test_a_window_is_read_as_far_as_it_reaches() -> None:
    """Of 70 tokens the last three whole pages and the part of one behind them, and nothing before."""
    part, pool = window()
    assert (70 - PAGE) * 2 * 8 == part.compare(work(70, 80, swa=[-1, 1, 2, 3, 4])).compared_bytes
    pool[:, 0] ^= 255
    assert 0 == part.compare(work(70, 80, swa=[0, 1, 2, 3, 4])).wrong_bytes
    pool[0, 2, 5] ^= 1
    found = part.compare(work(70, 80, swa=[0, 1, 2, 3, 4]))
    assert (1, (32,)) == (found.wrong_bytes, found.wrong_positions)


def test_a_page_without_a_slot_is_wrong_to_its_last_byte() -> None:
    """Where hits wait for the window; where they do not, it is not read."""
    part, pool = window()
    found = part.compare(work(70, 80, swa=[0, 1, -1, 3, 4]))
    assert (PAGE * 2 * 8, tuple(range(32, 48))) == (found.wrong_bytes, found.wrong_positions)

    free = WindowPart(SWA.model_copy(update={"gates": False}), PAGE, pool)
    assert 0 == free.compare(work(70, 80, swa=[0, 1, -1, 3, 4])).wrong_bytes


def test_what_is_computed_has_a_place() -> None:
    """A page to be computed without a slot is an error that names it."""
    part, _ = window()
    with pytest.raises(ValueError, match="page 4 is computed, and has no slot of 'swa'"):
        part.write(work(60, 80, swa=[0, 1, 2, 3, -1]))


def test_a_state_is_that_of_its_whole_prefix() -> None:
    """One other token anywhere before makes it another one, and a wrong one is seen."""
    pool = torch.zeros((1, 4, 24), dtype=torch.uint8)
    part = StatePart(STATE, pool)
    part.write(work(0, 64, state=[2]))
    assert 0 == part.compare(work(64, 70, 64, state=[2])).wrong_bytes
    assert (63,) == part.compare(work(64, 70, 64, state=[1])).wrong_positions
    other = TOKENS.copy()
    other[3] += 1
    assert bool((part.expected(SPACE, TOKENS[:64]) != part.expected(SPACE, other[:64])).any())


def test_a_state_that_began_in_the_middle_stays_wrong() -> None:
    """It gates nothing, so it counts nothing; but whoever takes it for the state of the prefix sees that it is not."""
    pool = torch.zeros((1, 4, 24), dtype=torch.uint8)
    free = StatePart(STATE.model_copy(update={"gates": False}), pool)
    assert 0 == free.compare(work(64, 70, 64, state=[2])).wrong_bytes
    free.write(work(64, 80, 64, state=[2]))
    assert 0 == free.compare(work(80, 81, 64, state=[2])).wrong_bytes
    assert 0 < StatePart(STATE, pool).compare(work(80, 81, 64, state=[2])).wrong_bytes


def test_a_layout_that_has_no_known_bytes_is_refused() -> None:
    """Odd parts, or parts of a token that are no words."""
    with pytest.raises(ValueError, match="component 'swa': expected an even number of parts"):
        WindowPart(SWA.model_copy(update={"parts": 1}), PAGE, torch.zeros((1, 4, 128), dtype=torch.uint8))
