"""Bugs planted in a copy of the sources, one at a time, and the tests that must see each.

A copy of a commit is made in a folder of its own, tests and all; one file of it is changed, tests are run on it in a
child process, and the file is put back. Heavy packages are loaded once, before the children are forked. The copy comes
first on the path, so that it and not the checkout is what is tested: `--canary` shows it.

    python tests/mutants/harness.py                       every mutant of the table
    python tests/mutants/harness.py --only NAME ...       some of them
    python tests/mutants/harness.py --mechanical 200      drawn ones, against the quick tests that call what they change
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

import touched

if TYPE_CHECKING:
    from touched import Map

ROOT = Path(__file__).resolve().parents[2]
TABLE = Path(__file__).with_name("table.toml")

QUICK = ("tests/specs", "tests/machines", "tests/lifecycle", "tests/cases", "tests/golden",
         "tests/stateful/test_finds.py", "tests/stateful/test_storm.py")  # fmt: skip
"""What mechanical mutants must survive: the tests of their wings, the cases, the golden conversations and a storm."""

SLOW = ("tests/lifecycle/test_break_growth.py", "tests/lifecycle/ranks/test_torch_group.py",
        "tests/lifecycle/ranks/test_walks.py", "tests/lifecycle/test_idle_instances.py",
        "tests/machines/test_html_page.py")  # fmt: skip
"""Left out of it: processes, long walks and pages, which see nothing that the others do not see sooner; and a bar on
time, which a busy machine breaks without any bug."""

MOST_MEMORY = 16 << 30
"""Bytes of address space of a child: a bug that fills memory fails, and takes nothing else with it."""

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
    line: int = 0

    @property
    def file(self) -> str:
        return f"src/stagehold/{self.path}"


@dataclass(frozen=True)
class Revision:
    """The commit whose sources are copied, and that of the tests where it is another."""

    sources: str
    tests: str = ""


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
def copy_of(revision: Revision | str) -> Iterator[Path]:
    """A folder with what a commit has, for as long as it is needed; its tests may be of another commit."""
    at = revision if isinstance(revision, Revision) else Revision(revision)
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        folder = Path(name)
        subprocess.run(["tar", "-x", "-C", name], input=_git("archive", at.sources), check=True)
        if at.tests:
            shutil.rmtree(folder / "tests")
            subprocess.run(["tar", "-x", "-C", name], input=_git("archive", at.tests, "tests"), check=True)
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


@dataclass(frozen=True)
class Run:
    """How pytest is run. With `keep` compiled modules are left behind, for the children after this one.

    `only` are the tests that are run of what is collected, with their usual `seconds`; with `map_to` all are, and who
    calls what is written there; with `collects` none are.
    """

    keep: bool = False
    only: tuple[str, ...] = ()
    seconds: Mapping[str, float] = field(default_factory=dict)
    map_to: Path | None = None
    collects: bool = False

    def plugins(self, folder: Path) -> list[object]:
        """What pytest is given beside its options."""
        if self.map_to is None:
            return [touched.Only(self.only, self.seconds)] if self.only else []
        listener = touched.Listener(folder / "src/stagehold", self.map_to)
        listener.listen()
        return [listener]


def run_tests(folder: Path, tests: Sequence[str], seconds: float, run: Run = Run()) -> tuple[int | None, str]:
    """Exit status of pytest over `tests` in a child, None where it hung; and what it printed."""
    out = folder / "out.txt"
    child = os.fork()
    if child == 0:
        _be_pytest(folder, tests, out, run)
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status), out.read_text(errors="replace")
        time.sleep(0.05)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None, out.read_text(errors="replace")


def _be_pytest(folder: Path, tests: Sequence[str], out: Path, run: Run) -> None:
    status = 70
    try:
        os.setpgid(0, 0)
        resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, MOST_MEMORY))
        with out.open("w") as stream:
            os.dup2(stream.fileno(), 1)
            os.dup2(stream.fileno(), 2)
        os.chdir(folder)
        source = str(folder / "src")
        sys.path.insert(0, source)
        os.environ["PYTHONPATH"] = source
        sys.dont_write_bytecode = not run.keep
        os.environ["PYTHONDONTWRITEBYTECODE"] = "" if run.keep else "1"
        import pytest

        options = ["-q", "--no-header", "-p", "no:cacheprovider", "-p", "no:randomly", "--tb=line"]
        options += [] if run.map_to else ["-x"]
        options += ["--collect-only"] if run.collects else []
        options += [f"--ignore={path}" for path in SLOW]
        status = int(pytest.main([*options, *tests], plugins=run.plugins(folder)))
    except BaseException:  # noqa: BLE001 - the child must end here, and say why
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


class Field:
    """A copy in which mutants are tried, and how long its tests take untouched."""

    def __init__(self, folder: Path, calls: Map | None = None, most: float = math.inf) -> None:
        self.folder = folder
        self._calls, self._most = calls, most
        self._seconds: dict[str, float] = {}

    def baseline(self, tests: tuple[str, ...]) -> float:
        """At least the seconds of the tests on the untouched copy; RuntimeError where they fail there."""
        new = [test for test in tests if test not in self._seconds]
        if new:
            start = time.monotonic()
            status, said = run_tests(self.folder, new, 1800, Run(keep=True))
            if status != 0:
                raise RuntimeError(f"{' '.join(new)} do not pass on the untouched copy:\n{said[-2000:]}")
            self._seconds |= dict.fromkeys(new, time.monotonic() - start)
        return sum(self._seconds[test] for test in tests)

    def try_one(self, mutant: Mutant) -> Verdict:
        """Plant, run, put back. A mutant whose tests fail without it is not caught."""
        if self._calls is not None:
            return self._try_called(mutant, self._calls)
        try:
            allowed = max(LEAST_SECONDS, TIMES * self.baseline(mutant.tests))
        except RuntimeError as error:
            return Verdict(mutant, False, str(error), 0.0)
        return self._planted(mutant, mutant.tests, allowed, Run())

    def _try_called(self, mutant: Mutant, calls: Map) -> Verdict:
        """The same with the tests that call what the mutant changes, in rounds until one fails."""
        tests = calls.tests(touched.places_at(mutant.path, mutant.old, mutant.line), self._most)
        rounds = touched.in_rounds(tests)
        done = Verdict(mutant, False, "no test calls it", 0.0)
        seconds = 0.0
        for some in rounds:
            allowed = max(LEAST_SECONDS, TIMES * calls.cost(some))
            run = Run(only=some, seconds=calls.seconds)
            done = self._planted(mutant, list(dict.fromkeys(map(touched.file_of, some))), allowed, run)
            seconds += done.seconds
            if done.caught:
                break
        return replace(done, seconds=seconds)

    def warm(self, tests: Sequence[str]) -> None:
        """Compile everything, once for all mutants."""
        run_tests(self.folder, tests, 1800, Run(keep=True, collects=True))

    def _planted(self, mutant: Mutant, tests: Sequence[str], allowed: float, run: Run) -> Verdict:
        path = self.folder / mutant.file
        text = path.read_text(encoding="utf-8")
        start = time.monotonic()
        try:
            _write(path, changed(text, mutant))
            status, said = run_tests(self.folder, tests, allowed, run)
        finally:
            _write(path, text)
        # 1: a test failed; 2 and 4: nothing could be collected or configured; None: hung; a signal: crashed
        return Verdict(mutant, status != 0, _first_failure(status, said), time.monotonic() - start)


def who_calls_what(revision: Revision, tests: Sequence[str], kept: Path | None) -> Map:
    """Run tests on an untouched copy, and hear what each of them calls; those that fail there are left out.

    What was `kept` by an earlier run is read instead; that it is of the same commit is for the caller to see to.
    """
    if kept is not None and kept.exists():
        return touched.read(kept)
    with copy_of(revision) as folder:
        path = folder / "calls.json"
        status, said = run_tests(folder, tests, 3600, Run(map_to=path))
        if not path.exists():
            raise RuntimeError(f"the tests cannot be run on the untouched copy (status {status}):\n{said[-2000:]}")
        sys.stderr.write(f"untouched: {said.rstrip().splitlines()[-1]}\n")
        calls = touched.read(path)
    if kept is not None:
        calls.write(kept)
    return calls


def _write(path: Path, text: str) -> None:
    """Write a module, and leave nothing compiled from what stood there: a bug may be as long and as old."""
    path.write_text(text, encoding="utf-8")
    for compiled in (path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"):
        compiled.unlink()


def _first_failure(status: int | None, said: str) -> str:
    if status in (None, touched.HUNG):
        return "hung"
    lines = [line for line in said.splitlines() if line.startswith(("FAILED", "ERROR", "E "))]
    return lines[0][:160] if lines else f"exit status {status}"


def shares(
    revision: Revision, mutants: Sequence[Mutant], processes: int, calls: Map | None, most: float
) -> Iterator[Verdict]:
    """Try all mutants, so many at a time, each process on a copy of its own; verdicts as they come."""
    reading, writing = os.pipe()
    lanes = []
    for lane in range(processes):
        child = os.fork()
        if child == 0:
            os.close(reading)
            _lane(revision, list(enumerate(mutants))[lane::processes], calls, most, writing)
        lanes.append(child)
    os.close(writing)
    with os.fdopen(reading) as lines:
        for line in lines:
            said = json.loads(line)
            yield Verdict(mutants[said.pop("at")], **said)
    for child in lanes:
        os.waitpid(child, 0)


def _lane(revision: Revision, mine: list[tuple[int, Mutant]], calls: Map | None, most: float, writing: int) -> None:
    try:
        with copy_of(revision) as folder:
            here = Field(folder, calls, most)
            if calls is not None:
                here.warm(QUICK)
            for at, mutant in mine:
                done = here.try_one(mutant)
                line = {"at": at, "caught": done.caught, "how": done.how[:1000], "seconds": done.seconds}
                os.write(writing, f"{json.dumps(line)}\n".encode())  # short, so that lines of lanes do not mix
    except BaseException:  # noqa: BLE001 - the child must end here, and say why
        traceback.print_exc()
    finally:
        os._exit(0)


def canary(tests: Sequence[str]) -> Mutant:
    """A bug that shows only where the copy is what is tested: it says its own name."""
    old = "from __future__ import annotations\n"
    return Mutant("canary", "canary", "__init__.py", old, f'{old}raise RuntimeError("{CANARY}")\n', tuple(tests))


def main() -> int:
    """Try mutants, print each verdict and a summary; 1 where too many survive."""
    words = argparse.ArgumentParser(description="Plant bugs and see whether the tests find them.")
    words.add_argument("--only", nargs="*", default=None, help="names of mutants, of the table or of those drawn")
    words.add_argument("--mechanical", type=int, default=0, metavar="N", help="so many drawn ones instead")
    words.add_argument("--seed", default="", help="of the drawn ones; the commit unless given")
    words.add_argument("--at", default="HEAD", help="the commit that is copied")
    words.add_argument("--tests", default="", help="the commit of the tests, where it is a later one")
    words.add_argument("--calls", type=Path, help="file for who calls what, read if it is there, else written")
    words.add_argument("--most", type=float, default=math.inf, metavar="SECONDS", help="of tests for each drawn one")
    words.add_argument("--processes", type=int, default=1)
    words.add_argument("--canary", action="store_true", help="show that the copy is what is tested")
    words.add_argument("--json", action="store_true")
    asked = words.parse_args()
    load()
    revision, mutants = Revision(asked.at, asked.tests), chosen(asked)
    calls, least = None, 1.0
    if asked.mechanical:
        calls, least = who_calls_what(revision, QUICK, asked.calls), 0.9
    done = []
    for verdict in shares(revision, mutants, asked.processes, calls, asked.most):
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
        from mechanical import draw

        seed = asked.seed or commit()
        sys.stderr.write(f"seed {seed}\n")
        return _named(draw(ROOT, asked.at, seed, asked.mechanical, QUICK), asked.only)
    return _named(table(), asked.only)


def _named(mutants: list[Mutant], names: list[str] | None) -> list[Mutant]:
    """Those of these names; all where there are none."""
    unknown = set(names or ()) - {mutant.name for mutant in mutants}
    if unknown:
        raise SystemExit(f"--only: no mutants are called {', '.join(sorted(unknown))}")
    return [mutant for mutant in mutants if not names or mutant.name in names]


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
