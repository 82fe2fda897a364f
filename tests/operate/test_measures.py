"""Every series exists from the start and moves; those that people decide by move by the right amount."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from importlib.util import module_from_spec, spec_from_file_location
from itertools import chain
from pathlib import Path

import pytest

from stagehold import Engine, Stats
from stagehold.operate.measures import MEASURES, Kind, series
from stagehold.operate.snapshot import Feed
from stagehold.specs.outcomes import Decline, Loss, Thrown
from stagehold.testing.hand import Hand
from stagehold.testing.shapes import drawn
from stagehold.testing.steps import Walk
from stagehold.testing.world import World

WORLDS = 30  # at most: when all has moved, no other is begun
ACTS = 250
LEAST = 330  # series
EVERY = 7  # ticks of a walk between two looks


def stories():
    spec = spec_from_file_location("drives", Path(__file__).parent / "drives.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


DRIVES = stories()


def now(engine: Engine) -> dict[tuple[str, ...], float]:
    return {(name, *labels): value for (name, labels), value in series(Feed(engine).latest).items()}


# One by one


@pytest.mark.parametrize("name", DRIVES.STORIES)
def test_a_story_moves_its_series_from_zero(hand, name):
    """By as much as can be told beforehand."""
    options, act, expected = DRIVES.STORIES[name]
    h = hand(**options)
    before = now(h.engine)
    assert {0} == {before[one] for one in expected}
    act(h)
    after = now(h.engine)
    assert expected == {one: after[one] for one in expected}
    h.core.ledger.queried -= int(after[("token_gap_tokens",)])


def test_what_was_reused_is_a_share_of_the_prompts_that_were_admitted(hand):
    """Numerator and denominator come from one act: neither moves without the other, whatever else happens."""
    h = hand(device_pages=33)
    parts = ("admitted_requests", "admitted_prompt_tokens", "admitted_device_tokens", "admitted_store_tokens")
    DRIVES.no_room(h)
    first = now(h.engine)
    assert [1, 24 * 16 + 1, 0, 0] == [first[(part,)] for part in parts]
    for handle in list(h.engine._roster.alive):
        h.engine.abort(h.engine._roster.alive[handle].data.handle)
    assert [first[(part,)] for part in parts] == [now(h.engine)[(part,)] for part in parts]
    h.serve(h.arrive("again", h.prompt(8)))
    again = now(h.engine)
    assert again[("admitted_requests",)] == 2
    assert again[("admitted_prompt_tokens",)] == first[("admitted_prompt_tokens",)] + 129
    assert again[("admitted_prompt_tokens",)] >= sum(again[(part,)] for part in parts[2:])


def test_a_wrong_numerator_would_be_seen(hand, monkeypatch):
    """Planted: what the store delivered is counted when it is found, and its prompt when it is admitted."""
    h = hand()
    monkeypatch.setattr(
        "stagehold.lifecycle.happened.Admitted.plus",
        lambda self, admission, prompt: type(self)(self.requests + 1, self.prompt, self.device, self.store + 128),
    )
    h.serve(DRIVES.found(h))
    after = now(h.engine)
    assert after[("admitted_store_tokens",)] > after[("admitted_prompt_tokens",)]


# All of them


@pytest.fixture(scope="module")
def moved() -> tuple[set[tuple[str, ...]], set[tuple[str, ...]]]:
    """All series, and those that were not zero at some look: walks, stories, ticks and bytes with a clock."""
    all_of_them: set[tuple[str, ...]] = set()
    found: set[tuple[str, ...]] = set()

    def look(values: dict[tuple[str, ...], float]) -> None:
        all_of_them.update(values)
        found.update(name for name, value in values.items() if value)

    for values in chain(told(), timed(), walks()):
        look(values)
        if found == all_of_them and len(found) > LEAST:
            break
    return all_of_them, found


def walks() -> Iterator[dict[tuple[str, ...], float]]:
    seen: list[dict[tuple[str, ...], float]] = []
    close, tick = Engine.close, Engine.tick

    def ticked(self: Engine, **given: bool) -> None:
        tick(self, **given)
        if self.stats().ticks % EVERY == 0:
            seen.append(now(self))

    def closed(self: Engine) -> None:
        close(self)
        seen.append(now(self))

    Engine.close, Engine.tick = closed, ticked  # type: ignore[method-assign]
    try:
        for seed in range(WORLDS):
            world = World(seed, drawn(seed))
            Walk(world).run(ACTS)
            world.close()
            yield from seen
            seen.clear()
    finally:
        Engine.close, Engine.tick = close, tick  # type: ignore[method-assign]


def told() -> Iterator[dict[tuple[str, ...], float]]:
    for options, act, _ in (*DRIVES.STORIES.values(), *DRIVES.by_hand().values()):
        h = Hand(**options)
        act(h)
        yield now(h.engine)
        h.core.ledger.queried -= h.engine.stats().token_gap
        h.engine.close()


def timed() -> Iterator[dict[tuple[str, ...], float]]:
    """Bandwidth needs bytes and time, and a tick has to be timed."""
    clock = iter(range(1000))
    with Hand(**DRIVES.BYTES) as h:
        feed = Feed(h.engine, pace_seconds=0, clock=lambda: float(next(clock)))
        h.serve(DRIVES.found(h))
        h.run("b", h.prompt(4, 2))
        for _ in range(4):
            feed.tick()
            yield {(name, *labels): value for (name, labels), value in series(feed.latest).items()}


def test_every_series_moves(moved):
    """None is there for decoration."""
    all_of_them, found = moved
    assert len(all_of_them) > LEAST
    assert [] == sorted(all_of_them - found)


def test_every_series_is_there_from_the_start(moved):
    """What comes later are components and nothing else."""
    with Hand() as h:
        first = set(now(h.engine))
    assert {"pool_pages"} >= {name for name, *_ in moved[0] - first}


def test_every_reason_is_seeded_from_its_enum(hand):
    """In the order of declaration, with nothing beside them."""
    values = now(hand().engine)
    told = {name: [labels[0] for one, *labels in values if one == name] for name in
            ("lost_tokens", "declined_launches", "unused_read_pages")}  # fmt: skip
    assert [loss.name.lower() for loss in Loss] == told["lost_tokens"]
    assert [reason.name.lower() for reason in Decline] == told["declined_launches"]
    assert list(Thrown) == told["unused_read_pages"]


class Noted:
    """Statistics that remember which of them were read."""

    def __init__(self, stats: Stats) -> None:
        self._stats = stats
        self.asked: set[str] = set()

    def __getattr__(self, name: str) -> object:
        self.asked.add(name)
        return getattr(self._stats, name)


def test_no_statistic_is_left_out(hand):
    """Every field of `Stats` is read by a measure, but for the rows, which `events` counts by event and outcome."""
    seen = Feed(hand().engine).latest
    stats = Noted(seen.stats)
    series(replace(seen, stats=stats))
    assert {"rows_taken"} == {field.name for field in fields(Stats)} - stats.asked


def test_names_say_what_they_are():
    """No two are alike, none has the ending that the exporter adds, and each says when it moves."""
    names = [measure.name for measure in MEASURES]
    assert len(set(names)) == len(names)
    assert not [name for name in names if name.endswith("_total")]
    assert all(measure.unit and measure.moves for measure in MEASURES)
    assert set(Kind) == {measure.kind for measure in MEASURES}
