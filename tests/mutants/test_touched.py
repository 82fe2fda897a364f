"""Which tests a drawn mutant meets: those that call what it changes, cheapest files first, and none that hangs."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

HERE = Path(__file__).parent

SOURCE = "\n\ndef used(a):\n    return a + 1\n\n\ndef loaded():\n    return 2\n\n\ndef never():\n    return 3\n"

TESTS = """
import pytest
from stagehold.x import loaded, never, used

TWO = loaded()

@pytest.fixture(scope="module")
def made():
    return used(1)

def test_that_uses():
    assert 2 == used(1)

def test_that_does_not():
    assert 2 == TWO
"""

RUN_ONE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import harness
here = Path(sys.argv[2])
calls = here / "calls.json"
if sys.argv[3] == "map":
    run = harness.Run(map_to=calls)
else:
    harness.touched.LEAST_CPU = 0.5
    run = harness.Run(only=tuple(sys.argv[4:]), seconds=harness.touched.read(calls).seconds)
status, said = harness.run_tests(here, ["tests"], 100, run)
print(said)
raise SystemExit(status)
"""


def module(name: str):
    spec = spec_from_file_location(name, HERE / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    found = sys.modules.get(name) or module_from_spec(spec)
    sys.modules[name] = found
    spec.loader.exec_module(found)
    return found


touched = module("touched")


def run(here: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", RUN_ONE, str(HERE), str(here), *words], check=False, capture_output=True, text=True
    )


def project(here: Path, more: str = "") -> None:
    """A package of that name with one module, and two files of tests."""
    for path, text in {
        "src/stagehold/__init__.py": "",
        "src/stagehold/x.py": SOURCE,
        "tests/test_a.py": TESTS,
        "tests/test_b.py": f"{TESTS}\n{more}",
        "pyproject.toml": '[tool.pytest.ini_options]\naddopts = "--import-mode=importlib"\n',
    }.items():
        (here / path).parent.mkdir(parents=True, exist_ok=True)
        (here / path).write_text(text)


def test_tests_are_known_by_the_functions_that_they_call(tmp_path: Path) -> None:
    """In the test, in a fixture of its file, or while modules are loaded; a test that fails untouched is left out."""
    project(tmp_path, "def test_with_what_was_made(made):\n    assert 2 == made\n\ndef test_wrong():\n    assert 0\n")
    run(tmp_path, "map")
    calls = touched.read(tmp_path / "calls.json")

    def meets(line: int) -> set[str]:
        return set(calls.tests(touched.places_at("x.py", SOURCE, line)))

    whole = {f"tests/test_{one}.py::test_that_{what}" for one in "ab" for what in ("uses", "does_not")}
    whole.add("tests/test_b.py::test_with_what_was_made")
    assert {"tests/test_a.py::test_that_uses", *(test for test in whole if "_b" in test)} == meets(4)
    assert whole == meets(8) == set(calls.seconds)
    assert set() == meets(12)


def test_only_those_are_run_and_a_hung_one_ends_the_run(tmp_path: Path) -> None:
    """On the time of the processor that it takes."""
    project(tmp_path, "def test_with_what_was_made(made):\n    assert 2 == made\n")
    run(tmp_path, "map")
    some = run(tmp_path, "only", "tests/test_b.py::test_that_uses")
    (tmp_path / "src/stagehold/x.py").write_text(SOURCE.replace("return a + 1", "while True:\n        a += 1"))
    hung = run(tmp_path, "only", "tests/test_a.py::test_that_does_not", "tests/test_b.py::test_that_uses")

    assert (0, "1 passed" in some.stdout) == (some.returncode, True), some.stdout
    assert touched.HUNG == hung.returncode, hung.stdout


def test_those_that_call_it_come_first_and_what_costs_too_much_is_left_out() -> None:
    """Where all may see a change, because it is called while modules are loaded."""
    seconds = {"a.py::x": 1.0, "b.py::x": 50.0, "b.py::y": 1.0, "c.py::x": 7.0}
    place = ("x.py", 1)
    calls = touched.Map({touched.EVERYBODY: frozenset({place}), "b.py::y": frozenset({place})}, seconds)

    assert ["b.py::x", "b.py::y", "a.py::x", "c.py::x"] == calls.tests(frozenset({place}))
    assert ["b.py::x", "b.py::y", "a.py::x"] == calls.tests(frozenset({place}), 55.0)
    assert ["a.py::x", "c.py::x"] == calls.tests(frozenset({place}), 20.0)


def test_rounds_begin_with_the_cheapest_files() -> None:
    """A few files at first, then more; files are ordered by what their tests take, and kept whole."""
    seconds = {f"f{file}.py::{test}": float(9 - file % 9) for file in range(9) for test in "ab"}
    calls = touched.Map({"f8.py": frozenset({("x.py", 1)}), touched.EVERYBODY: frozenset({("x.py", 5)})}, seconds)
    tests = calls.tests(frozenset({("x.py", 5)}))
    rounds = touched.in_rounds(tests)

    assert ["f8.py::a", "f8.py::b", "f7.py::a"] == tests[:3]
    assert [12, 6] == [len(one) for one in rounds]
    assert tests == [test for one in rounds for test in one]
    assert ["f8.py::a", "f8.py::b"] == calls.tests(frozenset({("x.py", 1)}))
    assert 2.0 == calls.cost(calls.tests(frozenset({("x.py", 1)})))
