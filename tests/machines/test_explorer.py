"""The explorer over sound declarations: what it reaches, what it counts, and what it says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from stagehold.machines import declaration_hash
from stagehold.machines.explorer import Product, WorldResult, explore, table_check
from stagehold.machines.explorer import check as checking
from stagehold.machines.explorer.fairness import strong_parts
from stagehold.machines.explorer.tables import DECLARED
from stagehold.specs.outcomes import HostMode, PrefetchPolicy
from stagehold.specs.worlds import DEFAULT_WORLDS, FULL_WORLDS, OVERLAPPING, Breaker, World

FIGURES = Path(__file__).parents[2] / "docs" / "machines" / "table-check.json"
ROWS_NOT_TAKEN = {
    "request: anchor_lost, abort -> aborted",  # a passing state: no caller ever finds a request in it
    "write: offered, drop -> dropped",  # a passing state as well
}
MAY_REPEAT = {
    "tree: grows", "tree: evicted", "tree: window tombstoned", "store: the pages of span vanish",
    "host tier: the pages of span arrive", "host tier: the pages of span are reclaimed",
    "breaker: result", "breaker: its limit runs out", "caller: flush",
    "request: visit", "request: commit", "request: release",
}  # fmt: skip


def alone(**facts: Any) -> World:
    """A world of one request."""
    return World(name="alone", why="one request", wants=(0,), **{"issue_limit": 1, **facts})


COVERING = (
    alone(issue_limit=2, tombstones=True, declines=True, large_anchor=True, retractions=1),
    alone(root=True),
    alone(staging=1),
    alone(writer=True, flush_detach=True, tries=0),
    alone(writer=True, mode=HostMode.CACHE, policy=PrefetchPolicy.BEST_EFFORT, flush_detach=True),
    alone(breaker=Breaker.LIVE, issue_limit=2),
    World(name="two", why="two requests share a hold", issue_limit=1, policy=PrefetchPolicy.BEST_EFFORT),
    World(
        name="over",
        why="two spans over one head",
        spans=OVERLAPPING,
        wants=(0, 1),
        staging=3,
        issue_limit=1,
        policy=PrefetchPolicy.BEST_EFFORT,
    ),
)
"""Small worlds that take every row together."""


@pytest.fixture(scope="module")
def covering() -> list[WorldResult]:
    """The covering worlds, searched once."""
    return [explore(world) for world in COVERING]


def test_the_declared_machines_hold_in_small_worlds(covering: list[WorldResult]) -> None:
    """No deadlock, leak, breach, unfair cycle or dead end anywhere in the covering worlds."""
    assert [] == [line for result in covering for line in result.counterexample]


def test_every_row_of_the_product_is_taken(covering: list[WorldResult]) -> None:
    """Only the rows of passing states, which nobody can ever send an event to, stay untaken."""
    declared = set(Product(COVERING[0], DECLARED).row_texts)
    taken = {row for result in covering for row in result.rows_taken}

    assert ROWS_NOT_TAKEN == declared - taken


def test_only_the_world_and_visits_repeat_for_ever(covering: list[WorldResult]) -> None:
    """No launch, query, fetch, admission or deadline is left inside a cycle."""
    assert set() == {move for result in covering for move in result.repeated_moves} - MAY_REPEAT


def test_cycles_exist_and_are_seen(covering: list[WorldResult]) -> None:
    """A tree that grows and is evicted for ever is a cycle, and a fair one."""
    assert all(result.cyclic_parts > 0 for result in covering)
    assert {"tree: grows", "tree: evicted"} <= set(covering[0].repeated_moves)


def test_a_world_has_one_number_of_situations(covering: list[WorldResult]) -> None:
    """Two searches of one world count the same situations, moves and rows."""
    assert covering[1] == explore(COVERING[1])


def test_an_instance_of_a_bigger_budget_adds_situations() -> None:
    """The launches left are part of a situation: more of them, more situations."""
    assert explore(alone(issue_limit=1)).states < explore(alone(issue_limit=2)).states


def test_a_store_that_stays_open_delays_nobody_for_ever() -> None:
    """With a breaker that never heals every request still ends."""
    assert explore(alone(breaker=Breaker.OPEN, issue_limit=3, retractions=1)).holds


def test_world_names_are_unique() -> None:
    """A figure in a report belongs to one world."""
    names = [world.name for world in (*DEFAULT_WORLDS, *FULL_WORLDS)]

    assert sorted(set(names)) == sorted(names)


def test_the_committed_figures_are_of_the_declared_worlds() -> None:
    """The figures of the long search name every world of the declaration, and found nothing in any."""
    report = json.loads(FIGURES.read_text())

    assert declaration_hash().hex() == report["declaration"]
    assert [world.name for world in (*DEFAULT_WORLDS, *FULL_WORLDS)] == [w["name"] for w in report["worlds"]]
    assert report["holds"]
    assert report["product_states"] >= 2_000_000


def test_strong_parts_are_those_of_a_small_graph() -> None:
    """0 and 1 reach each other, 2 reaches itself, 3 is left: three parts, found successors first."""
    heads, targets = [0, 2, 3, 4, 5], [1, 2, 0, 2, 0]

    parts = strong_parts(heads, targets)

    assert parts[0] == parts[1]
    assert 3 == len({parts[0], parts[2], parts[3]})
    assert parts[2] < parts[0] < parts[3]


def test_the_report_is_plain_and_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """One dictionary for JSON: machines, product, oracle, and each world."""
    monkeypatch.setattr(checking, "DEFAULT_WORLDS", (alone(),))
    heard: list[WorldResult] = []

    report = json.loads(json.dumps(table_check(progress=heard.append)))

    assert report["holds"]
    assert ["request", "hold", "write", "store", "attachment", "residency", "tick"] == [
        machine["name"] for machine in report["machines"]
    ]
    assert heard[0].states == report["product_states"] == report["worlds"][0]["states"]
    assert report["oracle_cells"] > 500
    assert 0 == report["oracle_differences"] == report["deadlocks"] == report["leaks"]


def test_the_full_check_searches_the_worlds_of_an_hour_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """`full` adds worlds, it replaces none."""
    monkeypatch.setattr(checking, "DEFAULT_WORLDS", (alone(),))
    monkeypatch.setattr(checking, "FULL_WORLDS", (alone(root=True),))

    assert 2 == len(table_check(full=True)["worlds"])
