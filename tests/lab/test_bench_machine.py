"""The machine bench: its fields, and the bars that need no quiet machine."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from stagehold.lab.bench import machine as bench
from stagehold.lab.bench.mix import Mix, Taking, shipped_mix
from stagehold.machines import MACHINES
from stagehold.specs.outcomes import Result
from stagehold.specs.store import StoreState

FIELDS = {
    "floor_ns",
    "step_ns",
    "audited_step_ns",
    "transitions_ns",
    "transitions_face_ns",
    "audited_over_floor",
    "transitions_over_audited",
    "instance_bytes",
}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few rounds: these tests are about what is measured, not about how well."""
    monkeypatch.setattr(bench, "ROUNDS", 2)
    monkeypatch.setattr(bench, "LIVE", 20)


def in_small(taken: Mapping[Taking, int]) -> Mix:
    """A twentieth of each row, at least one step."""
    return Mix({taking: max(1, count // 20) for taking, count in taken.items()}, 100)


def test_the_figures_are_there_for_many_instances_and_for_one() -> None:
    """All positive, and the ratios are those of the figures."""
    figures = bench.bench_machine(in_small(shipped_mix().taken))
    assert FIELDS <= figures.keys()
    assert FIELDS - {"instance_bytes"} <= figures["one_instance"].keys()
    assert all(figures[name] > 0 for name in FIELDS)
    assert figures["audited_over_floor"] == figures["audited_step_ns"] / figures["floor_ns"]
    assert figures["transitions_over_audited"] == figures["transitions_ns"] / figures["audited_step_ns"]


def test_a_recorded_mix_is_measured_in_its_own_proportions() -> None:
    """Steps, distinct rows and steps a block are those that were fed in."""
    mix = Mix({("store", StoreState.HEALTHY, "result", Result.CLEAN): 300}, 60)
    figures = bench.bench_machine(mix)
    assert (figures["steps"], figures["rows"], figures["recorded_block_steps"]) == (300, 1, 5)


def test_the_full_cost_has_the_whole_block_in_it() -> None:
    """A step alone in its block pays for closing, hashing and logging it; one of many pays a part."""
    rows = {("store", StoreState.HEALTHY, "result", Result.CLEAN): 300}
    alone, among = bench.bench_machine(Mix(rows, 300)), bench.bench_machine(Mix(rows, 3))
    assert alone["full_step_ns"] == pytest.approx(alone["audited_step_ns"] + alone["logged_block_ns"])
    assert among["full_step_ns"] == pytest.approx(among["audited_step_ns"] + among["logged_block_ns"] / 100)


def test_an_instance_takes_at_most_200_bytes() -> None:
    """The bar, for every machine."""
    assert max(bench.instance_bytes(spec) for spec in MACHINES) <= 200
