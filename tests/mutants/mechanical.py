"""Mechanical bugs: every place in the sources where one can be made, and a draw from them by a seed.

Kinds: a comparison turned, an integer off by one, `and` for `or` and back, a constant returned, a statement dropped.
"""

from __future__ import annotations

import ast
import random
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

from harness import Mutant

WINGS = ("specs", "machines", "lifecycle")

SPARED = (
    "machines/explorer/", "machines/html_", "machines/dot.py", "machines/diagram.py", "machines/heat.py",
    "machines/timeline.py", "machines/audit_", "machines/logs.py", "machines/matrix.py", "machines/findings.py",
    "machines/labels.py", "specs/worlds.py", "lifecycle/ranks/torch_group.py",
)  # fmt: skip
"""Tools that draw, read and render, and a group that needs processes: other tests than the quick ones are theirs."""

TURNED = {
    ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">", ast.Eq: "!=", ast.NotEq: "==",
    ast.Is: "is not", ast.IsNot: "is", ast.In: "not in", ast.NotIn: "in",
}  # fmt: skip


def draw(root: Path, revision: str, seed: str, count: int, tests: Sequence[str]) -> list[Mutant]:
    """`count` mutants of a commit, the same for the same seed; fewer where there are not so many places."""
    places = list(_places(root, revision, tuple(tests)))
    return random.Random(f"mutants {seed}").sample(places, min(count, len(places)))


def _places(root: Path, revision: str, tests: tuple[str, ...]) -> Iterator[Mutant]:
    def git(*arguments: str) -> str:
        return subprocess.run(["git", *arguments], cwd=root, check=True, capture_output=True, text=True).stdout

    wings = [f"src/stagehold/{wing}" for wing in WINGS]
    for name in git("ls-tree", "-r", "--name-only", revision, *wings).splitlines():
        path = name.removeprefix("src/stagehold/")
        if name.endswith(".py") and not path.startswith(SPARED):
            text = git("show", f"{revision}:{name}")
            seen = set()
            for line, kind, changed in bugs(text):
                if changed not in seen:  # a function in a function is walked with both
                    seen.add(changed)
                    yield Mutant(f"{kind} at {path}:{line}", kind, path, text, changed, tests, line)


def bugs(text: str) -> Iterator[tuple[int, str, str]]:
    """Every bug that can be made in a source text: its line, its kind, and the text with it."""
    tree = ast.parse(text)
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef) and not _is_told(function):
            yield from _in_function(text, function)


def _is_told(function: ast.FunctionDef) -> bool:
    """Whether it only makes text for people."""
    return function.name in ("__str__", "__repr__")


def _in_function(text: str, function: ast.FunctionDef) -> Iterator[tuple[int, str, str]]:
    spoken = {id(node) for one in ast.walk(function) if isinstance(one, ast.JoinedStr | ast.Raise | ast.Assert)
              for node in ast.walk(one)}  # fmt: skip
    for node in ast.walk(function):
        if id(node) in spoken:
            continue
        yield from _in_expression(text, node)
        for body in (getattr(node, "body", None), getattr(node, "orelse", None)):
            if isinstance(body, list):
                yield from _dropped(text, body)


def _in_expression(text: str, node: ast.AST) -> Iterator[tuple[int, str, str]]:
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = node.left, node.comparators[0]
        between = _between(text, left, right)
        if "(" not in text[slice(*between)]:  # else the right side is in brackets, whose place nobody knows
            yield node.lineno, "comparison", _replaced(text, *between, f" {TURNED[type(node.ops[0])]} ")
    elif isinstance(node, ast.BoolOp):
        first, second = node.values[0], node.values[1]
        start, end = _between(text, first, second)
        word = " or " if isinstance(node.op, ast.And) else " and "
        middle = text[start:end]
        old = " and " if isinstance(node.op, ast.And) else " or "
        if middle == old and len(node.values) == 2:
            yield node.lineno, "and/or", _replaced(text, start, end, word)
    elif isinstance(node, ast.Constant) and type(node.value) is int:
        yield node.lineno, "off by one", _replaced(text, *_span(text, node), str(node.value + 1))
    elif isinstance(node, ast.Return) and node.value is not None:
        constant = _constant(node.value)
        if constant is not None:
            yield node.lineno, "constant", _replaced(text, *_span(text, node.value), constant)


def _constant(value: ast.expr) -> str | None:
    if isinstance(value, ast.Constant) and isinstance(value.value, bool):
        return str(not value.value)
    if isinstance(value, ast.Compare | ast.BoolOp):
        return "True"
    return None


def _dropped(text: str, body: list[ast.stmt]) -> Iterator[tuple[int, str, str]]:
    for statement in body:
        called = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call)
        if called or isinstance(statement, ast.AugAssign):
            yield statement.lineno, "dropped", _replaced(text, *_span(text, statement), "pass")


def _offset(text: str, line: int, column: int) -> int:
    lines = text.splitlines(keepends=True)
    before = "".join(lines[: line - 1])
    return len(before) + len(lines[line - 1].encode()[:column].decode())


def _span(text: str, node: ast.expr | ast.stmt) -> tuple[int, int]:
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    return _offset(text, node.lineno, node.col_offset), _offset(text, node.end_lineno, node.end_col_offset)


def _between(text: str, left: ast.expr, right: ast.expr) -> tuple[int, int]:
    return _span(text, left)[1], _span(text, right)[0]


def _replaced(text: str, start: int, end: int, new: str) -> str:
    return text[:start] + new + text[end:]
