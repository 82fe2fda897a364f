"""The row gate: what is counted, what is missing, and that a whole run fails for it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis.stateful import run_state_machine_as_test

from stagehold.machines import MACHINES
from stagehold.machines.checks import check
from stagehold.testing import rows
from stagehold.testing.hand import Hand
from stagehold.testing.rows import MOST_UNREACHABLE, UNREACHABLE, RowsTaken, all_rows
from stagehold.testing.tree_rules import TreeRules, rule_settings

CONFTEST = Path(__file__).parents[1] / "conftest.py"
SETTINGS = '[tool.pytest.ini_options]\ntestpaths = ["tests"]\naddopts = "--import-mode=importlib -p no:cacheprovider"\n'
ONE_ENGINE = """
from stagehold.testing.hand import Hand

def test_a_request():
    with Hand() as h:
        h.run("a", h.prompt(4))
"""


def a_request() -> None:
    with Hand() as h:
        handle = h.arrive("a", h.prompt(4))
        h.tick(3)
        h.serve(handle)


def pytest_in(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A session of its own over one test that drives one engine, under the gate of this suite."""
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "pyproject.toml").write_text(SETTINGS)
    (folder / "tests" / "test_one.py").write_text(ONE_ENGINE)
    shutil.copy(CONFTEST, folder / "tests" / "conftest.py")
    clean = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-q", *arguments]
    return subprocess.run(command, check=False, cwd=folder, env=clean, capture_output=True, text=True)


def test_an_engine_that_closes_is_counted() -> None:
    """Its rows, those of its passes, and its end."""
    taken = RowsTaken()
    with taken.listening():
        a_request()

    assert 1 == taken.counts["request.queued.issue.LOOKUP"] == taken.counts["tick.*.halt"]
    assert 1 == taken.counts["store.*.close"] == taken.counts["attachment.*.close"]
    assert taken.counts["tick.recording.recorded"] == taken.counts["tick.between.tick"] > 1


def test_nothing_is_counted_that_drives_no_engine() -> None:
    """Before and after the block nobody listens."""
    taken = RowsTaken()
    with taken.listening():
        pass
    a_request()

    assert Counter() == taken.counts


def test_residency_counts_where_a_checked_tree_asserts_it() -> None:
    """The rows of buffer_only are all met by the tree's own rule machine, and no other ones."""
    taken = RowsTaken()
    with taken.listening():
        run_state_machine_as_test(TreeRules, settings=rule_settings(600, derandomize=True))

    hosted = ("FETCHED", "backed_up", "both.", "staging.", "stage")
    residency = {name for name in all_rows() if name.startswith("residency.")}
    assert {name for name in residency if not any(word in name for word in hosted)} == {
        name for name in residency if taken.counts[name]
    }


def test_residency_counts_where_a_strict_engine_asserts_it() -> None:
    """A page goes to host memory, stays there alone, and comes back; another one is given up by both."""
    taken = RowsTaken()
    with taken.listening(), Hand(store=None, host_memory_mode="cache", staging_pages=10) as h:
        h.run("a", h.prompt(4))
        h.tick(4)
        h.shrink(h.prompt(4), 0)
        again = h.arrive("again", h.prompt(4))
        h.tick(2)
        h.serve(again)
        h.tick()
        h.shrink(h.prompt(4), 0)
        h.engine.flush()

    counts = {name: taken.counts[f"residency.{name}"] for name in ROUND}
    assert {**ROUND, "both.evict": 8} == counts


ROUND = {"unborn.birth.COMPUTED": 4, "device.backed_up": 4, "both.evict": 0, "staging.load": 4,
         "staging.evict_host.DELETE": 4}  # fmt: skip
"""Rows of four pages that are computed, copied, evicted, loaded, evicted again and flushed."""


def test_residency_of_a_loose_engine_costs_nothing() -> None:
    """No book is kept, neither by the tree nor by the host tier."""
    with Hand(store=None, host_memory_mode="cache", engine_options={"strict": False}) as h:
        assert (h.core.book, h.core.tree.moves, h.core.host.watch) == (None, None, None)


def test_each_missing_row_is_named_in_order() -> None:
    """And none that is listed as unreachable."""
    taken = RowsTaken()
    taken.counts.update(dict.fromkeys(all_rows(), 1))
    for name in ("write.offered.drop", "hold.loading.loaded", "request.*.abort"):
        del taken.counts[name]

    assert ["request.*.abort", "hold.loading.loaded"] == taken.untaken()


def test_a_reason_that_has_gone_is_named() -> None:
    """A row that was listed as unreachable and then taken."""
    taken = RowsTaken()
    taken.counts["write.offered.drop"] += 1

    assert ["write.offered.drop"] == taken.reached()


def test_the_list_of_unreachable_rows_is_short_and_names_rows() -> None:
    """At most twelve, each with a reason."""
    assert len(UNREACHABLE) <= MOST_UNREACHABLE == 12
    assert set(UNREACHABLE) <= set(all_rows())
    assert all(UNREACHABLE.values())


def test_every_declared_row_has_a_name_of_its_own() -> None:
    """Names tell rows apart, so that one cannot stand for another."""
    assert sum(len(spec.rows) for spec in MACHINES) == len(set(all_rows()))
    assert set(rows.DECLARED.values()) == set(all_rows())
    assert [] == [problem for spec in MACHINES for problem in check(spec)]


def test_a_whole_run_fails_for_rows_that_no_test_took(tmp_path: Path) -> None:
    """All tests pass, and the session does not; each missing row is named."""
    done = pytest_in(tmp_path)

    assert 1 == done.returncode
    assert "1 passed" in done.stdout
    assert "taken by no test that drives an engine: request.committed.retract" in done.stdout
    assert "engine: request.committed.finish" not in done.stdout


@pytest.mark.parametrize("narrowed", [["tests/test_one.py"], ["-k", "request"]])
def test_a_part_of_the_suite_is_not_held_to_it(tmp_path: Path, narrowed: list[str]) -> None:
    """One file, or a chosen name."""
    done = pytest_in(tmp_path, *narrowed)

    assert 0 == done.returncode
    assert "declared rows" not in done.stdout
