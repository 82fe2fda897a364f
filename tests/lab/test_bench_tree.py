"""The tree bench: rows for every operation, a workload that repeats, and bars that can fail."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path

import pytest

from stagehold.lab.bench import tree_workload
from stagehold.lab.bench.tree import OUR_OPS, OURS, SIZE_OPS, Cell, Peer, bench_tree
from stagehold.lab.bench.tree_bars import Table, bar, bars
from stagehold.lab.bench.tree_ours import OurTree


def row(engine, op, length, median, low, *, page=64, turns=10_000):
    names = ("engine", "op", "page", "length", "turns", "median_us", "min_us")
    return dict(zip(names, (engine, op, page, length, turns, median, low), strict=True))


@pytest.mark.parametrize("page", [1, 64])
def test_a_small_run_has_a_row_for_every_operation(page):
    """Ours alone, at one length, with the sizes of both trees."""
    found = bench_tree([40], [page], [1_024], reps=8)
    assert {(engine, op) for engine in OURS for op in (*OUR_OPS, *SIZE_OPS)} == {
        (each["engine"], each["op"]) for each in found["rows"]
    }
    assert all(each["median_us"] >= each["min_us"] > 0 for each in found["rows"])
    assert all(size["nodes"] >= 40 for size in found["sizes"])


def test_the_workload_repeats():
    """The same seed gives every engine the same tokens, and a chat begins with what it was."""
    one, two = (list(islice(tree_workload.chats(50), 50)) for _ in range(2))
    assert [text.tolist() for text in one] == [text.tolist() for text in two]
    assert all(280 <= len(text) <= 1_024 + 8 * 176 for text in one)


def test_new_turns_differ_between_rounds():
    """Else the second round would insert what is there."""
    first, second = (tree_workload.continuations(tree_workload.Job(1_024, 2, salt), 1) for salt in (0, 1))
    assert first[0].tolist() != second[0].tolist()
    assert [128, 128] == [len(turn) for turn in first]


def test_our_tree_loses_no_slot_in_a_run():
    """Every slot is free or in the tree when the operations are through."""
    ours = OurTree("three", 16, 60, [1_024], 8)
    for op in ("match_hit", "match_half", "insert_turn", "lock", "cycle"):
        ours.run(op, tree_workload.Job(1_024, 4, 0))
    ours.tree.check()
    for name, pool in ours.tree.pools.items():
        pool.check({"tree": ours.tree.owned(name)})
    ours.drain()
    assert 0 == ours.tree.total


def test_a_bar_holds_by_median_or_by_minimum():
    """One of the two may be somebody else's noise; both together are not."""
    assert bar("x", (64, 1), (3.0, 1.0), 2.0).holds
    assert bar("x", (64, 1), (1.0, 3.0), 2.0).holds
    assert not bar("x", (64, 1), (3.0, 3.0), 2.0).holds


def test_a_ratio_to_a_peer_is_compared_with_its_limit():
    """A cycle at a third of the peer's fails the bar of a fifth."""
    rows = [row("full", "cycle", 8_192, 30, 20), row("sglang_rust", "cycle", 8_192, 90, 60)]
    (found,) = Table(rows, (64, 10_000)).against()
    assert (False, 1 / 5) == (found.holds, found.limit)
    assert (1 / 3, 1 / 3) == (found.by_median, found.by_min)


def test_growth_with_the_tree_is_compared_between_sizes():
    """One eviction at a hundred thousand turns over one at ten thousand."""
    rows = [row("full", "evict_page", 0, 3, 2), row("full", "evict_page", 0, 6, 4, turns=100_000)]
    (found,) = [each for each in bars(rows, []) if "growth" in each.what]
    assert (2.0, False) == (found.by_median, found.holds)


def test_a_peer_that_ends_is_reported_with_its_last_words():
    """An interpreter without the packages says so, and the bench does not hang."""
    with pytest.raises(RuntimeError, match=r"the peer ended: .*sglang"):
        Peer(sys.executable, "sglang_rust", Cell(64, 1, (1_024,), 4))


def test_nothing_beside_the_peer_hides_a_standard_module():
    """It is run as a script by another interpreter, for which this folder comes first."""
    beside = {path.stem for path in Path(tree_workload.__file__).parent.glob("*.py")}
    assert set() == beside & sys.stdlib_module_names
