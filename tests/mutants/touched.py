"""Which tests call which functions, so that a drawn mutant meets the tests that can see it, cheapest files first.

Owns the map from tests to functions, and the two plugins of pytest that make it and use it. A test that never calls
the function that was changed cannot see the change; what is called while modules are loaded belongs to every test, and
what is called in a fixture to every test of its file, since others may use what it made.
"""

from __future__ import annotations

import ast
import json
import math
import os
import signal
import sys
import threading
from collections import defaultdict
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType

import pytest

EVERYBODY = ""

LEAST_CPU, TIMES = 30.0, 10.0
"""A test may take so many seconds of the processor, or so many times what the longest of its file took."""

HUNG = 71
"""Exit status of a run in which a test took longer."""

Place = tuple[str, int]
"""A function: its file below src/stagehold, and the line on which it begins, decorators included."""


@dataclass(frozen=True)
class Map:
    """`calls` from a test, a file of tests or EVERYBODY to functions; `seconds` of each test that passed, in order."""

    calls: dict[str, frozenset[Place]]
    seconds: dict[str, float]

    def tests(self, places: frozenset[Place], most: float = math.inf) -> list[str]:
        """The tests that call one of the places, file by file, the cheapest file first.

        Where all may see a change, those that call it themselves come first. Files that would bring it over `most`
        seconds are left out.
        """
        found = direct = [test for test in self.seconds if any(places & self.calls.get(at, frozenset())
                                                               for at in (test, file_of(test)))]  # fmt: skip
        if places & self.calls.get(EVERYBODY, frozenset()):
            found = list(self.seconds)
        own = set(map(file_of, direct))
        cost: defaultdict[str, float] = defaultdict(float)
        for test in found:
            cost[file_of(test)] += self.seconds[test]
        kept, total = [], 0.0
        for file in sorted(cost, key=lambda file: (file not in own, cost[file], file)):
            if total + cost[file] <= most:
                total += cost[file]
                kept.append(file)
        order = {file: at for at, file in enumerate(kept)}
        return sorted((test for test in found if file_of(test) in order), key=lambda test: order[file_of(test)])

    def cost(self, tests: Sequence[str]) -> float:
        """Seconds that these tests took."""
        return sum(self.seconds[test] for test in tests)

    def write(self, path: Path) -> None:
        """Leave the map where `read` finds it."""
        calls = {at: sorted(places) for at, places in self.calls.items()}
        path.write_text(json.dumps({"calls": calls, "seconds": self.seconds}), encoding="utf-8")


def in_rounds(tests: Sequence[str]) -> list[tuple[str, ...]]:
    """The same tests, few files first and more in each round: most bugs are seen soon, and files take time to load."""
    files = list(dict.fromkeys(map(file_of, tests)))
    rounds, size = [], 6
    while files:
        now, files = set(files[:size]), files[size:]
        rounds.append(tuple(test for test in tests if file_of(test) in now))
        size *= 4
    return rounds


def file_of(test: str) -> str:
    """The file of a test."""
    return test.partition("::")[0]


def read(path: Path) -> Map:
    """What `Map.write` has written."""
    found = json.loads(path.read_text(encoding="utf-8"))
    calls = {at: frozenset((file, line) for file, line in places) for at, places in found["calls"].items()}
    return Map(calls, found["seconds"])


def places_at(path: str, text: str, line: int) -> frozenset[Place]:
    """The functions of a source text that a line stands in."""
    found = set()
    for function in ast.walk(ast.parse(text)):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            first = min([function.lineno, *(one.lineno for one in function.decorator_list)])
            if first <= line <= (function.end_lineno or first):
                found.add((path, first))
    return frozenset(found)


class Listener:
    """A plugin that hears every call of a function, and which test it belongs to."""

    def __init__(self, source: Path, out: Path) -> None:
        self._source, self._out = f"{source}/", out
        self._heard: dict[str, dict[int, CodeType]] = {EVERYBODY: {}}
        self._now = self._heard[EVERYBODY]
        self._seconds: defaultdict[str, float] = defaultdict(float)
        self._failed: set[str] = set()

    def listen(self) -> None:
        """From now on, in all threads."""
        threading.settrace(self._call)
        sys.settrace(self._call)

    def _call(self, frame: FrameType, _event: str, _argument: object) -> None:
        code = frame.f_code
        self._now.setdefault(id(code), code)  # kept, so that no other code gets its id

    def _at(self, where: str) -> None:
        self._now = self._heard.setdefault(where, {})

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        self._at(file_of(item.nodeid))
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        self._at(item.nodeid)
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        self._at(file_of(item.nodeid))
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if not report.passed:
            self._failed.add(report.nodeid)

    def pytest_sessionfinish(self) -> None:
        sys.settrace(None)
        self._write()

    def _write(self) -> None:
        calls = {at: frozenset(place for code in codes.values() if (place := self._place(code)))
                 for at, codes in self._heard.items()}  # fmt: skip
        seconds = {test: took for test, took in self._seconds.items() if test not in self._failed}
        Map(calls, seconds).write(self._out)

    def _place(self, code: CodeType) -> Place | None:
        if not code.co_filename.startswith(self._source):
            return None
        return code.co_filename.removeprefix(self._source), code.co_firstlineno


class Only:
    """A plugin that runs these tests of what is collected, in this order; one that never ends fails.

    What it may take is counted on the processor, so that a busy machine fails nothing.
    """

    def __init__(self, tests: Sequence[str], seconds: Mapping[str, float]) -> None:
        self._order = {test: at for at, test in enumerate(tests)}
        most: defaultdict[str, float] = defaultdict(float)
        for test in seconds:
            most[file_of(test)] = max(most[file_of(test)], seconds[test])
        self._most = most
        signal.signal(signal.SIGVTALRM, _is_hung)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted((item for item in items if item.nodeid in self._order),
                          key=lambda item: self._order[item.nodeid])  # fmt: skip

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        signal.setitimer(signal.ITIMER_VIRTUAL, max(LEAST_CPU, TIMES * self._most[file_of(item.nodeid)]))
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)


def _is_hung(_signal: int, _frame: FrameType | None) -> None:
    os._exit(HUNG)  # an exception might be caught by what is hung
