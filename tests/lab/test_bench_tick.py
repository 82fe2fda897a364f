"""The tick bench: its fields, and the bars that hold on a busy machine, too."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from stagehold import RequestState
from stagehold.cli.main import app
from stagehold.lab.bench import tick as bench

FIELDS = {
    "idle_empty_us",
    "idle_loaded_us",
    "idle_ratio",
    "busy_event_us",
    "matching_share",
    "select_commit_8k_us",
    "select_commit_128k_us",
    "select_commit_ratio",
}


@pytest.fixture(scope="module")
def figures() -> dict[str, float]:
    """One short bench for all tests."""
    return bench.bench_tick(rounds=12)


def test_the_figures_are_all_there_and_positive(figures: dict[str, float]) -> None:
    """And the ratios are those of the figures."""
    assert set(figures) == FIELDS
    assert min(figures.values()) > 0
    assert figures["idle_ratio"] == figures["idle_loaded_us"] / figures["idle_empty_us"]
    assert figures["select_commit_ratio"] == figures["select_commit_128k_us"] / figures["select_commit_8k_us"]


def test_an_idle_tick_costs_no_more_with_a_long_queue(figures: dict[str, float]) -> None:
    """1,000 queued and 64 fetching: at most twice a tick with nothing queued."""
    assert figures["idle_ratio"] <= 2


def test_a_visit_costs_little_more_behind_a_long_prefix(figures: dict[str, float]) -> None:
    """Sixteen times the prefix, at most three times the cost."""
    assert figures["select_commit_ratio"] <= 3


def test_matching_is_a_small_part_of_a_busy_tick(figures: dict[str, float]) -> None:
    """Each answer and each IO commit is one look-up in the index."""
    assert 0 < figures["matching_share"] < 0.25


def test_the_loaded_engine_is_what_it_is_called() -> None:
    """64 requests have a claim on a fetch that does not end, 1,000 have not been launched."""
    made = bench.loaded()
    states = [m.state for m in made.engine._parts.core.requests.values()]
    assert (64, 1_000) == (states.count(RequestState.STAGED), states.count(RequestState.QUEUED))
    assert 64 == len(made.store.in_flight())
    records = len(made.engine._parts.core.journal.records)
    made.tick(50)
    assert 0 == records == len(made.engine.last_block().records), "an idle tick takes no step"
    made.engine.close()


def test_matches_are_counted_only_while_somebody_asks() -> None:
    """And the tree is as before."""
    made = bench.rig()
    tree = made.engine._parts.core.tree
    with bench.matching(made.engine) as spent:
        made.arrive(bench.prompt(4, 1))
        made.tick()
    seen = len(spent)
    made.arrive(bench.prompt(4, 2))
    made.tick()
    assert 0 < seen == len(spent)
    assert "full_match" not in vars(tree)
    made.engine.close()


def test_the_command_prints_one_object(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the fields by name."""
    monkeypatch.setattr(bench, "bench_tick", lambda: {"idle_ratio": 1.5})
    result = CliRunner().invoke(app, ["bench", "tick", "--json"])
    assert {"idle_ratio": 1.5} == json.loads(result.output)
