"""Bugs planted in a copy of the sources, one at a time, and the tests that must see each.

A copy of a commit is made in a folder of its own, tests and all; one file of it is changed, tests are run on it in a
child process, and the file is put back. Heavy packages are loaded once, before the children are forked. The copy comes
first on the path, so that it and not the checkout is what is tested: `--canary` shows it.

    python tests/mutants/harness.py                       every mutant of the table
    python tests/mutants/harness.py --only NAME ...       some of them
    python tests/mutants/harness.py --mechanical 200      drawn ones, against the quick tests
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("table.toml")

QUICK = ("tests/lifecycle", "tests/cases", "tests/machines/test_checks.py", "tests/machines/test_compile.py",
         "tests/stateful/test_storm.py")  # fmt: skip
"""What mechanical mutants must survive: the tests of the lifecycle, the cases, the checks of rows and a storm."""

SLOW = ("tests/lifecycle/test_break_growth.py", "tests/lifecycle/ranks/test_torch_group.py",
        "tests/lifecycle/ranks/test_walks.py")  # fmt: skip
"""Left out of it: processes and long walks, for nothing that the others do not see sooner."""

LEAST_SECONDS, TIMES = 90.0, 6.0
"""A run of tests may take so much longer than on the untouched copy before it counts as hung, and so as caught."""

CANARY = "the copy is what is tested"


@dataclass(frozen=True)
class Mutant:
    """One small bug: `old` stands exactly once in `path` (below src/stagehold) and becomes `new`."""

    name: str
    kind: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def file(self) -> str:
        return f"src/stagehold/{self.path}"


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: `caught`, or not; `how` is the first line that says so."""

    mutant: Mutant
    caught: bool
    how: str
    seconds: float


def table() -> list[Mutant]:
    """The mutants of the table, in its order."""
    rows = tomllib.loads(TABLE.read_text(encoding="utf-8"))["mutant"]
    return [Mutant(**{**row, "tests": tuple(row["tests"])}) for row in rows]


def changed(text: str, mutant: Mutant) -> str:
    """The text of the file with the bug in it; ValueError where what it replaces is not found exactly once."""
    found = text.count(mutant.old)
    if found != 1:
        raise ValueError(f"mutant {mutant.name!r}: its old text is found {found} times in {mutant.path}, expected once")
    return text.replace(mutant.old, mutant.new)


def commit() -> str:
    """The commit that is checked out."""
    return _git("rev-parse", "HEAD").decode().strip()


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True).stdout


@contextmanager
def copy_of(revision: str) -> Iterator[Path]:
    """A folder with what a commit has, for as long as it is needed."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        tar = subprocess.run(["tar", "-x", "-C", name], input=_git("archive", revision), check=True)
        assert tar.returncode == 0
        _git_in(folder)
        yield folder


def _git_in(folder: Path) -> None:
    """Tests that look at tracked files find a repository."""
    for arguments in (("init", "-q"), ("add", "-A")):
        subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


def load() -> None:
    """Import what every child needs and no mutant can change."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    import numpy as np  # noqa: F401
    import orjson  # noqa: F401
    import pydantic_settings  # noqa: F401
    import pytest  # noqa: F401
    import structlog  # noqa: F401
    import torch
    import transitions  # noqa: F401
    import typer  # noqa: F401

    torch.set_num_threads(1)  # a pool of threads would not survive the fork
    assert "stagehold" not in sys.modules, "the sources must be loaded in the child, from the copy"


def run_tests(folder: Path, tests: Sequence[str], seconds: float, *, keep: bool = False) -> tuple[int | None, str]:
    """Exit status of pytest over `tests` in a child, None where it hung; and what it printed.

    With `keep` compiled modules are left behind, for the children after this one.
    """
    out = folder / "out.txt"
    child = os.fork()
    if child == 0:
        _be_pytest(folder, tests, out, keep=keep)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), out.read_text(errors="replace")
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None, out.read_text(errors="replace")


def _be_pytest(folder: Path, tests: Sequence[str], out: Path, *, keep: bool) -> None:
    status = 70
    try:
        os.setpgid(0, 0)
        with out.open("w") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        os.chdir(folder)
        source = str(folder / "src")
        sys.path.insert(0, source)
        os.environ["PYTHONPATH"] = source
        sys.dont_write_bytecode = not keep
        os.environ["PYTHONDONTWRITEBYTECODE"] = "" if keep else "1"
        import pytest

        options = ["-q", "-x", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly", "--tb=line"]
        status = int(pytest.main([*options, *(f"--ignore={path}" for path in SLOW), *tests]))
    except BaseException:  # noqa: BLE001 - the child must end here, and say why
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class Field:
    """A copy in which mutants are tried, and how long its tests take untouched."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seconds: dict[str, float] = {}

    def baseline(self, tests: tuple[str, ...]) -> float:
        """At least the seconds of the tests on the untouched copy; RuntimeError where they fail there."""
        new = [test for test in tests if test not in self._seconds]
        if new:
            start = time.monotonic()
            status, said = run_tests(self.folder, new, 1800, keep=True)
            if status != 0:
                raise RuntimeError(f"{' '.join(new)} do not pass on the untouched copy:\n{said[-2000:]}")
            self._seconds |= dict.fromkeys(new, time.monotonic() - start)
        return sum(self._seconds[test] for test in tests)

    def try_one(self, mutant: Mutant) -> Verdict:
        """Plant, run, put back. A mutant whose tests fail without it is not caught."""
        try:
            allowed = max(LEAST_SECONDS, TIMES * self.baseline(mutant.tests))
        except RuntimeError as error:
            return Verdict(mutant, False, str(error), 0.0)
        path = self.folder / mutant.file
        text = path.read_text(encoding="utf-8")
        start = time.monotonic()
        try:
            _write(path, changed(text, mutant))
            status, said = run_tests(self.folder, mutant.tests, allowed)
        finally:
            _write(path, text)
        # 1: a test failed; 2 and 4: nothing could be collected or configured; None: hung; a signal: crashed
        return Verdict(mutant, status != 0, _first_failure(status, said), time.monotonic() - start)


def _write(path: Path, text: str) -> None:
    """Write a module, and leave nothing compiled from what stood there: a bug may be as long and as old."""
    path.write_text(text, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def _first_failure(status: int | None, said: str) -> str:
    if status is None:
        return "hung"
    lines = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR", "E "))]
    return lines[0][:160] if lines else f"exit status {status}"


def shares(revision: str, mutants: Sequence[Mutant], processes: int) -> Iterator[Verdict]:
    """Try all mutants, so many at a time, each process on a copy of its own."""
    if processes == 1:
        with copy_of(revision) as folder:
            field = Field(folder)
            yield from map(field.try_one, mutants)
        return
    lanes = []
    for lane in range(processes):
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reading)
            _lane(revision, mutants[lane::processes], writing)
        os.close(writing)
        lanes.append((child, reading, mutants[lane::processes]))
    for child, reading, mine in lanes:
        with os.fdopen(reading) as lines:
            for line, mutant in zip(lines, mine, strict=False):
                yield Verdict(mutant, **json.loads(line))
        os.waitpid(child, 0)


def _lane(revision: str, mutants: Sequence[Mutant], writing: int) -> None:
    try:
        with os.fdopen(writing, "w") as lines:
            for done in shares(revision, mutants, 1):
                lines.write(json.dumps({"caught": done.caught, "how": done.how, "seconds": done.seconds}) + "\n")
                lines.flush()
    finally:
        os._exit(0)


def canary(tests: Sequence[str]) -> Mutant:
    """A bug that shows only where the copy is what is tested: it says its own name."""
    old = "from __future__ import annotations\n"
    return Mutant("canary", "canary", "__init__.py", old, f'{old}raise RuntimeError("{CANARY}")\n', tuple(tests))


def main() -> int:
    """Try mutants, print each verdict and a summary; 1 where too many survive."""
    words = argparse.ArgumentParser(description="Plant bugs and see whether the tests find them.")
    words.add_argument("--only", nargs="*", default=None, help="names of mutants of the table")
    words.add_argument("--mechanical", type=int, default=0, metavar="N", help="so many drawn ones instead")
    words.add_argument("--seed", default="", help="of the drawn ones; the commit unless given")
    words.add_argument("--at", default="HEAD", help="the commit that is copied")
    words.add_argument("--processes", type=int, default=1)
    words.add_argument("--canary", action="store_true", help="show that the copy is what is tested")
    words.add_argument("--json", action="store_true")
    asked = words.parse_args()
    load()
    mutants, least = chosen(asked), 1.0
    if asked.mechanical:
        least = 0.9
    done = []
    for verdict in shares(asked.at, mutants, asked.processes):
        done.append(verdict)
        if not asked.json:
            said = "caught  " if verdict.caught else "SURVIVES"
            say(f"{said} {verdict.mutant.name} ({verdict.seconds:.0f} s): {verdict.how}")
    return summary(done, len(mutants), least, as_json=asked.json)


def chosen(asked: argparse.Namespace) -> list[Mutant]:
    """Which mutants were asked for."""
    if asked.canary:
        return [canary(("tests/lifecycle/test_clock.py",))]
    if asked.mechanical:
        sys.path.insert(0, str(Path(__file__).parent))
        from mechanical import draw

        seed = asked.seed or commit()
        sys.stderr.write(f"seed {seed}\n")
        return draw(ROOT, asked.at, seed, asked.mechanical, QUICK)
    mutants = table()
    if asked.only:
        unknown = set(asked.only) - {mutant.name for mutant in mutants}
        if unknown:
            raise SystemExit(f"--only: no mutants are called {', '.join(sorted(unknown))}")
        mutants = [mutant for mutant in mutants if mutant.name in asked.only]
    return mutants


def say(line: str) -> None:
    """One line of output, at once."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def summary(done: list[Verdict], asked: int, least: float, *, as_json: bool) -> int:
    """Print figures and survivors; the exit status."""
    survivors = [verdict.mutant for verdict in done if not verdict.caught]
    share = (len(done) - len(survivors)) / max(1, len(done))
    holds = len(done) == asked and share >= least
    figures = {"mutants": len(done), "caught": len(done) - len(survivors), "share": round(share, 3), "holds": holds}
    if as_json:
        say(json.dumps({**figures, "survivors": [f"{one.name} in {one.path}" for one in survivors]}))
    else:
        say(", ".join(f"{name} {value}" for name, value in figures.items()))
        for one in survivors:
            say(f"survives: {one.name} in {one.path}")
            say("\n".join(difflib.unified_diff(one.old.splitlines(), one.new.splitlines(), lineterm="", n=0)))
    return 0 if holds else 1


if __name__ == "__main__":
    shutil.rmtree(Path(__file__).parent / "__pycache__", ignore_errors=True)
    raise SystemExit(main())
