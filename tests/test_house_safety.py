"""No source of the package runs, unpickles or hands to a shell what it was given; each exception has its reason."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "stagehold"

UNPICKLERS = {
    "pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "dbm", "jsonpickle", "yaml",
    "ruamel", "xml", "code", "codeop", "runpy", "imp", "pty", "telnetlib", "pdb",
}  # fmt: skip
"""Modules that make objects or code of bytes, or run what they are given."""
CALLS = {"eval", "exec", "compile", "__import__", "breakpoint", "execfile"}
MEMBERS = {
    "os.system", "os.popen", "os.execv", "os.execve", "os.execvp", "os.spawnv", "os.startfile", "torch.load",
    "torch.jit.load", "torch.package", "torch.hub", "subprocess.getoutput", "subprocess.getstatusoutput",
    "tempfile.mktemp", "concurrent.futures.ProcessPoolExecutor", "torch.distributed.broadcast_object_list",
    "torch.distributed.all_gather_object", "dist.all_gather_object", "dist.broadcast_object_list",
}  # fmt: skip
"""The object collectives of torch unpickle; `numpy.load` does not unless it is told to."""
PROCESSES = {"subprocess", "multiprocessing"}

ALLOWED: dict[tuple[str, str], str] = {
    ("machines/compile.py", "marshal"): "keeps its own compiled code in memory",
    ("machines/compile.py", "compile"): "the step of a checked declaration",
    ("machines/compile.py", "exec"): "the same, run once to make the class",
    ("testing/explore/keep.py", "pickle"): "snapshots of one search, in its own memory",
    ("testing/explore/pair.py", "marshal"): "writes numbers to be hashed, and reads none",
    ("lab/bench/machine.py", "exec"): "fixed texts that are timed",
    ("machines/dot.py", "subprocess"): "the program dot, its text on its input",
    ("operate/doctor/keys.py", "subprocess"): "this interpreter, with one fixed line",
    ("lab/demo/parent.py", "subprocess"): "this interpreter, with a module of ours",
    ("lab/bench/tree.py", "subprocess"): "the interpreter that the user names for the peer",
    ("lab/ranks.py", "multiprocessing"): "spawns functions of ours; pickles pass between our own processes",
    ("lab/bench/ranks.py", "multiprocessing"): "the same",
    ("lab/workers.py", "multiprocessing"): "the same",
    ("lab/workers.py", "concurrent.futures.ProcessPoolExecutor"): "the same",
    ("testing/explore/report.py", "multiprocessing"): "the same",
}
"""What may stand where, and why."""


def dotted(node: ast.expr) -> str:
    """A name with its attributes, as it is written; empty for anything else."""
    if isinstance(node, ast.Name):
        return node.id
    inner = dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{inner}.{node.attr}" if inner and isinstance(node, ast.Attribute) else ""


def found(source: str) -> Iterator[tuple[str, int]]:
    """What a source does that needs a reason, and on which line."""
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names = [node.module]
            yield from (
                (f"{node.module}.{a.name}", node.lineno) for a in node.names if f"{node.module}.{a.name}" in MEMBERS
            )
        yield from ((root, node.lineno) for name in names if (root := name.split(".")[0]) in UNPICKLERS | PROCESSES)
        if isinstance(node, ast.Call):
            yield from _called(node)


def _called(node: ast.Call) -> Iterator[tuple[str, int]]:
    name = dotted(node.func)
    if name in CALLS or name in MEMBERS:
        yield name, node.lineno
    for keyword in node.keywords:
        literal = isinstance(keyword.value, ast.Constant) and not keyword.value.value
        if keyword.arg in ("shell", "allow_pickle", "trust_remote_code") and not literal:
            yield keyword.arg, node.lineno


@cache
def told(source: str) -> tuple[tuple[str, int], ...]:
    return tuple(found(source))


def breaches(place: str, source: str) -> list[str]:
    return [f"{place}:{line}: {what}" for what, line in told(source) if (place, what) not in ALLOWED]


def sources() -> dict[str, str]:
    return {p.relative_to(PACKAGE).as_posix(): p.read_text(encoding="utf-8") for p in sorted(PACKAGE.rglob("*.py"))}


def test_no_source_runs_what_it_is_given() -> None:
    """No unpickling, no evaluation, no shell, no process but those named above."""
    assert [] == [breach for place, source in sources().items() for breach in breaches(place, source)]


def test_every_exception_is_still_needed() -> None:
    """One that nothing uses any more is struck out."""
    here = sources()
    seen = {(place, what) for place, source in here.items() for what, _ in told(source)}

    assert set() == set(ALLOWED) - seen


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "from pickle import loads",
        "def f():\n    import marshal as m",
        "import torch\ntorch.load('x')",
        "from torch import load\n",
        "from os import system\n",
        "eval('1')",
        "exec(open('x').read())",
        "compile('1', 'x', 'eval')",
        "import subprocess",
        "import os\nos.system('x')",
        "run('x', shell=True)",
        "run('x', shell=flag)",
        "load('x', allow_pickle=True)",
        "from yaml import load",
        "import multiprocessing.connection",
        "from concurrent.futures import ProcessPoolExecutor",
        "model(trust_remote_code=True)",
    ],
)
def test_each_way_to_run_something_is_seen(source: str) -> None:
    """In any module that has no reason for it."""
    assert breaches("cache/x.py", source)


@pytest.mark.parametrize(
    "source", ["import re\nre.compile('x')", "model.eval()", "run('x', shell=False)", "import json"]
)
def test_what_only_looks_alike_is_left_alone(source: str) -> None:
    """Methods of those names, and a shell that is refused."""
    assert not breaches("cache/x.py", source)
