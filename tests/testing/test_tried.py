"""A scheduler that is not ours is tried in Worlds: good ones end well, and what a bad one does is told."""

from __future__ import annotations

from collections import deque
from pathlib import Path
from runpy import run_path

import pytest

from stagehold import Misuse, Plan
from stagehold.serving.runner import Work
from stagehold.serving.scheduler import Scheduler
from stagehold.testing import World, WorldBroken, trial
from stagehold.testing.shapes import drawn
from stagehold.testing.tried import Tried

ROOT = Path(__file__).resolve().parents[2]
EMBEDDED = run_path(str(ROOT / "examples" / "embed.py"))


class Blind:
    """A runner that looks at nothing: the trial is the model."""

    def forward(self, batch: list[Work]) -> list[int]:
        return [1000 + work.last % 7 for work in batch]

    def read(self, work: Work) -> None:
        """Nothing."""


def served(seed: int, in_flight: int) -> Tried:
    """Forty requests in the world of a seed, by the bundled scheduler."""
    with trial(seed) as engine:
        scheduler = Scheduler(engine, Blind(), token_budget=48, in_flight=in_flight)
        waiting = deque(engine.crowd(40))
        while waiting or not scheduler.idle:
            for _ in range(min(len(waiting), 3)):
                scheduler.submit(*waiting.popleft())
            scheduler.step()
    return engine


@pytest.mark.parametrize("in_flight", [0, 1])
def test_the_bundled_scheduler_passes(in_flight: int) -> None:
    """With and without a batch in flight, in worlds that are drawn: everybody ends, and holds are spliced and lost."""
    tried = [served(seed, in_flight) for seed in range(6)]

    assert {40} == {engine.world.ends["finished"] for engine in tried}
    assert 0 < min(sum(engine.stats().spliced for engine in tried), sum(tried[0].world.marks.losses.values()))


@pytest.mark.parametrize("seed", range(4))
def test_the_example_of_a_scheduler_passes(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As it stands in the folder of examples, in forty lines."""
    monkeypatch.setattr("time.sleep", lambda _: None)
    with trial(seed) as engine:
        prompts = {one.rid: one.tokens[:60] for one in engine.crowd(30)}
        assert set(prompts) == set(EMBEDDED["serve"](engine, prompts, answer=4))


def serve_one(engine: Tried, *, spoilt: bool = False, kept: bool = False, early: bool = False) -> None:
    """One request, in a way that is wrong if any of the words is said."""
    (one,) = engine.crowd(1)
    handle = engine.arrive(*one)
    plan = None
    while not isinstance(plan, Plan):
        engine.tick()
        plan = engine.select(handle, 64)
    engine.tick() if early else None
    admission = engine.commit(plan)
    engine.extend(handle, admission.extend_tokens)
    if spoilt:
        engine.device_bytes.tensor[:, engine.page_slots(handle)[0]] ^= 1
    engine.publish(handle, len(one.tokens))
    if not kept:
        engine.finish(handle)


def test_a_scheduler_that_is_right_about_one_request() -> None:
    """Nothing is said of it."""
    with trial(1) as engine:
        serve_one(engine)


def test_who_writes_where_others_read_is_told() -> None:
    """At the next call that looks."""
    with pytest.raises(WorldBroken, match="wrong bytes at tokens"), trial(1) as engine:
        serve_one(engine, spoilt=True)


def test_who_forgets_a_request_is_told_at_the_end() -> None:
    """By its handle."""
    with pytest.raises(WorldBroken, match=r"there is left: .*'request 0'"), trial(1) as engine:
        serve_one(engine, kept=True)


def wait_for_ever(engine: Tried) -> None:
    engine.arrive(*next(engine.crowd(1)))
    while True:
        engine.tick()


def test_who_never_looks_again_is_told() -> None:
    """A loop that only ticks comes to the bound, and hears who is alive."""
    said = r"nothing went on for \d+ ticks; alive are .*'request 0'"
    with pytest.raises(WorldBroken, match=said), trial(1) as engine:
        wait_for_ever(engine)


def test_who_ticks_in_a_visit_is_refused_as_ever() -> None:
    """The engine's own words."""
    with pytest.raises(Misuse, match="visits are open"), trial(1) as engine:
        serve_one(engine, early=True)


@pytest.mark.parametrize("call", ["finish", "page_slots"])
def test_who_uses_a_request_that_waits_is_told_the_call(call: str) -> None:
    """The engine's own sentence, which names what the scheduler called and not what the trial looked at."""
    engine = Tried(World(1, drawn(1)))
    (one,) = engine.crowd(1)
    handle = engine.arrive(*one)
    with pytest.raises(Misuse, match=rf"^{call}\(.*it is queued; only a committed request runs"):
        getattr(engine, call)(handle)
    engine.abort(handle)
    engine.close()
