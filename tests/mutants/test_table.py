"""The table of bugs stays plantable, and the harness tests the copy and not the checkout."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

KINDS = {
    "dropped release", "double release", "early publication", "stale plan", "splice boundary", "lost tombstone",
    "pin not moved by a split", "retry not cleared on an exit", "attempts not counted for one cause",
    "head not exempted", "charge before delivery", "partial delivery taken for a smaller success",
    "belief taught on failure", "backlog not decremented", "rank-local branch before the exchange",
    "namespace taken from the node instead of the request", "given to one tenant, and guaranteed to another",
    "waiting counted wrongly",
}  # fmt: skip

LEAST_MUTANTS = 40
QUICK_TEST = "tests/lifecycle/test_clock.py"

RUN_ONE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import harness
folder, tests = Path(sys.argv[2]), sys.argv[3:]
harness.load()
status, said = harness.run_tests(folder, tests, 300)
print(said)
raise SystemExit(status)
"""


def module(name: str) -> ModuleType:
    """A file of this folder, as a module of its own name."""
    if name not in sys.modules:
        spec = spec_from_file_location(name, HERE / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        sys.modules[name] = module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    return sys.modules[name]


harness, mechanical = module("harness"), module("mechanical")


def test_every_mutant_can_be_planted() -> None:
    """Its old text stands exactly once in its file, the new text is another program, and its tests are there."""
    wrong = []
    for mutant in harness.table():
        text = (ROOT / mutant.file).read_text(encoding="utf-8")
        try:
            changed = harness.changed(text, mutant)
            if ast.dump(ast.parse(changed)) == ast.dump(ast.parse(text)):
                wrong.append(f"mutant {mutant.name!r} changes nothing")
        except (ValueError, SyntaxError) as error:
            wrong.append(str(error))
        wrong += [
            f"mutant {mutant.name!r}: no test {test}"
            for test in mutant.tests
            if not (ROOT / test.partition("::")[0]).exists()
        ]

    assert [] == wrong


def test_the_table_has_all_kinds_and_no_name_twice() -> None:
    """At least forty bugs, of each kind one."""
    mutants = harness.table()

    assert LEAST_MUTANTS <= len(mutants) == len({mutant.name for mutant in mutants})
    assert KINDS == {mutant.kind for mutant in mutants}
    assert all(mutant.tests for mutant in mutants)


def test_a_text_that_has_moved_is_an_error() -> None:
    """Not found, or found twice: the mutant is not planted somewhere else."""
    mutant = harness.Mutant("m", "k", "x.py", "a = 1", "a = 2", ("t",))

    assert "a = 2\n" == harness.changed("a = 1\n", mutant)
    for text, times in (("b = 1\n", 0), ("a = 1\na = 1\n", 2)):
        with pytest.raises(ValueError, match=f"found {times} times in x.py, expected once"):
            harness.changed(text, mutant)


def test_the_copy_is_what_is_tested(tmp_path: Path) -> None:
    """Tests pass on an untouched copy; with a bug in the copy alone they fail, and say so in its words."""
    with harness.copy_of("HEAD") as folder:
        whole = one_run(folder)
        canary = harness.canary((QUICK_TEST,))
        path = folder / canary.file
        path.write_text(harness.changed(path.read_text(encoding="utf-8"), canary), encoding="utf-8")
        broken = one_run(folder)

    assert 0 == whole.returncode, whole.stdout
    assert 0 != broken.returncode
    assert harness.CANARY in broken.stdout
    assert harness.CANARY not in (ROOT / canary.file).read_text(encoding="utf-8")


def one_run(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", RUN_ONE, str(HERE), str(folder), QUICK_TEST]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=600)


def test_mechanical_mutants_are_drawn_by_seed_and_are_programs() -> None:
    """The same for the same seed, of every kind, each of them another program than the file it changes."""
    drawn = [mechanical.draw(ROOT, "HEAD", seed, 150, ("t",)) for seed in ("a", "a", "b")]

    assert drawn[0] == drawn[1] != drawn[2]
    assert 150 == len(drawn[0])
    assert {"comparison", "off by one", "dropped", "and/or", "constant"} == set(Counter(m.kind for m in drawn[0]))
    for mutant in drawn[0]:
        assert ast.dump(ast.parse(mutant.new)) != ast.dump(ast.parse(mutant.old)), mutant.name


@pytest.mark.parametrize(
    ("text", "bugs"),
    [
        ("def f(a):\n    return a < 1\n", {"a <= 1", "a < 2", "return True"}),
        ("def f(a, b):\n    return a and b\n", {"a or b", "return True"}),
        ("def f(a):\n    a.x += 1\n    a.go()\n", {"a.x += 2", "    pass\n    a.go()", "a.x += 1\n    pass"}),
        ("def f():\n    return False\n", {"return True"}),
        ("def f(a):\n    raise ValueError(a > 1)\n", set()),
        ("def __str__(a):\n    return a + 1\n", set()),
    ],
)
def test_each_kind_of_bug(text: str, bugs: set[str]) -> None:
    """Every bug of a small text, and none where it only speaks."""
    found = [changed for _, _, changed in mechanical.bugs(text)]

    assert len(bugs) == len(found)
    assert all(any(bug in changed for changed in found) for bug in bugs)
