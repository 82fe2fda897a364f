"""The machine bench: its fields, its mix, and the bars that need no quiet machine."""

from __future__ import annotations

from collections import Counter

import pytest

from stagehold.lab.bench import machine as bench
from stagehold.machines import MACHINES, rows_of
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


def test_the_figures_are_there_for_many_instances_and_for_one() -> None:
    """All positive, and the ratios are those of the figures."""
    figures = bench.bench_machine(bench.default_mix(600))
    assert FIELDS <= figures.keys()
    assert FIELDS - {"instance_bytes"} <= figures["one_instance"].keys()
    assert all(figures[name] > 0 for name in FIELDS)
    assert figures["audited_over_floor"] == figures["audited_step_ns"] / figures["floor_ns"]
    assert figures["transitions_over_audited"] == figures["transitions_ns"] / figures["audited_step_ns"]


def test_a_recorded_mix_is_measured_in_its_own_proportions() -> None:
    """Steps and distinct rows are those that were fed in."""
    mix = [("store", StoreState.HEALTHY, "result", Result.CLEAN)] * 300
    figures = bench.bench_machine(mix)
    assert (figures["steps"], figures["rows"]) == (300, 1)


def test_an_instance_takes_at_most_200_bytes() -> None:
    """The bar, for every machine."""
    assert max(bench.instance_bytes(spec) for spec in MACHINES) <= 200


def test_the_default_mix_is_made_of_declared_rows() -> None:
    """Ten thousand steps, each of them a row of its machine."""
    rows = {(spec.name, row.source, row.event, row.outcome) for spec in MACHINES for row in rows_of(spec)}
    mix = Counter(bench.default_mix())
    assert mix.total() == bench.STEPS
    assert set(mix) <= rows
    assert {machine for machine, *_ in mix} == {"request", "hold", "write", "store"}
