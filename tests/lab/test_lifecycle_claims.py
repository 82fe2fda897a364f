"""What the lifecycle promises about hits, held against an oracle that shares no code with it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import stagehold.lab.oracle
from stagehold.lab.bench.lifecycle import bench_lifecycle
from stagehold.lab.oracle import judge


@pytest.fixture(scope="module")
def figures() -> dict:
    return bench_lifecycle(300)


def test_the_oracle_imports_nothing_of_the_engine():
    """An error in the engine's books cannot hide in the oracle."""
    tree = ast.parse(Path(stagehold.lab.oracle.__file__).read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    assert not [name for name in imported if name.startswith("stagehold")]


def test_the_oracle_counts_pages_that_were_there_and_no_others():
    """A page counts from the tick in which it was sent; the first that was not there ends the prefix."""
    events = [
        {"page": "a", "sent": 1},
        {"page": "c", "sent": 1},
        {"admitted": "r", "tick": 1, "hit_tokens": 16},
        {"page": "b", "sent": 5},
        {"admitted": "s", "tick": 4, "hit_tokens": 16},
        {"admitted": "t", "tick": 5, "hit_tokens": 16},
    ]
    judgement = judge(events, {"r": "abc", "s": "abc", "t": "abc"}, page_size=16)
    assert judgement.oracle_tokens == 16 + 16 + 48
    assert judgement.worst[0] == ("t", 16, 48)


def test_hits_are_within_one_percent_of_the_oracle_at_every_size_of_staging(figures):
    """Trace replay with a device pool of a tenth of the working set."""
    for row in figures["staging"]:
        assert row["hit_over_oracle"] >= 0.99, row
        assert row["oracle_tokens"] > 0


def test_at_most_one_percent_of_what_is_fetched_is_wasted(figures):
    """Fetched and not spliced."""
    assert all(row["waste"] <= 0.01 for row in figures["staging"]), figures["staging"]


def test_the_hit_rate_does_not_depend_on_the_size_of_staging(figures):
    """From the largest span to twice the device pool: within one point."""
    assert figures["hit_rate_spread"] <= 0.01


def test_retries_find_writes_that_land_after_the_first_look(figures):
    """64 queued requests hit at least 95 % of what they would have, had every write landed before."""
    late = figures["late_write"]
    assert late["share"] >= 0.95, late
    assert late["without_retries"] < 0.5 * late["landed_before"], "the situation must need retries"


def test_a_span_that_left_the_store_is_missed_within_the_budget_and_read_once_at_most(figures):
    """The anchor is lost and the pages are gone before the refetch."""
    gone = figures["gone"]
    assert (gone["anchors_lost"], gone["refetches"]) == (1, 1), "the situation must arise"
    assert gone["store_hit_tokens"] == 0
    assert 1 <= gone["reissues"] <= 8
    assert gone["most_reads_of_a_page"] == 1


def test_an_outage_costs_each_request_at_most_one_reissue(figures):
    """The breaker opens and recovers while sixteen requests wait; none fails, and all hit."""
    outage = figures["outage"]
    assert outage["most_reissues"] <= 1
    assert outage["failed"] == 0
    assert outage["store_hit_tokens"] == outage["could_have_hit"]
