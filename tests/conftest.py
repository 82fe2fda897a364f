"""Engines driven by hand, and the row gate: a whole run fails when a declared row was taken by none of its engines."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from stagehold.testing.hand import Hand

# Before torch is loaded: its threads wait without spinning, so that two cores are enough for tests with threads.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "0")

ROWS = pytest.StashKey["object"]()


@pytest.fixture
def hand(request: pytest.FixtureRequest) -> Iterator[Callable[..., Hand]]:
    """Builds engines driven by hand; each is closed at the end, and then nobody may own anything.

    A parameter gives settings that hold unless the test says otherwise.
    """
    from stagehold.testing.hand import Hand

    made: list[Hand] = []

    def build(**options: object) -> Hand:
        made.append(Hand(**{**getattr(request, "param", {}), **options}))
        return made[-1]

    yield build
    for one in made:
        one.engine.close()
        assert {} == one.engine.stats().owned
        assert 0 == one.engine.stats().live_machines


@pytest.fixture(name="built", scope="session")
def _built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source archive, and the wheel that was built from it and from nothing else."""
    out, root = tmp_path_factory.mktemp("dist"), Path(__file__).resolve().parents[1]
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(root)]
    subprocess.run(command, check=True, capture_output=True, cwd=out)
    return out


def is_whole(config: pytest.Config) -> bool:
    """Whether nothing was left out: no paths, no `-k`, no other `-m` than the standing one, nothing deselected."""
    option = config.option
    narrowed = (option.keyword, option.deselect, option.ignore, option.ignore_glob, option.collectonly, option.maxfail)
    paths = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    return paths and option.markexpr in ("", "not soak") and not any(narrowed)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Count, in a whole run; others are spared the import."""
    if not is_whole(session.config):
        return (yield)
    from stagehold.testing.rows import RowsTaken

    rows = session.config.stash[ROWS] = RowsTaken()
    with rows.listening():
        return (yield)


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A suite in which all tests passed fails for the rows that none of them took."""
    rows = session.config.stash.get(ROWS, None)
    if rows is not None and exitstatus == pytest.ExitCode.OK and (rows.untaken() or rows.reached()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """How many rows were taken, and each that is missing."""
    rows = config.stash.get(ROWS, None)
    if rows is None:
        return
    from stagehold.testing.rows import UNREACHABLE, all_rows

    untaken, reached = rows.untaken(), rows.reached()
    taken = sum(bool(rows.counts[name]) for name in all_rows())
    terminalreporter.section("declared rows")
    terminalreporter.line(f"{taken} of {len(all_rows())} taken by engines, {len(UNREACHABLE)} cannot be")
    for name in untaken:
        terminalreporter.line(f"taken by no test that drives an engine: {name}", red=True)
    for name in reached:
        terminalreporter.line(f"listed as unreachable, and taken: {name} ({UNREACHABLE[name]})", red=True)
