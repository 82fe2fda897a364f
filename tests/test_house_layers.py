"""Imports go one way, and heavy or impure packages stay behind their fences."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "stagehold"

LEVEL = {
    "specs": 0,
    "machines": 1,
    "kernels": 1,
    "cache": 2,
    "lifecycle": 3,
    "serving": 4,
    "adapters": 4,
    "testing": 5,
    "lab": 6,
    "operate": 6,
    "cli": 7,
}
FACE = "face"  # `stagehold` itself: what it exports comes from lifecycle and below, so it stands just above

TORCH = ("kernels", "cache/pools", "cache/staging", "lifecycle/ranks/torch_group.py", "serving", "adapters")
FENCES = {
    "torch": TORCH,
    "transitions": ("machines",),
    "transformers": ("serving/model",),
    "tokenizers": ("serving/model",),
    "structlog": ("machines/logs.py",),
    "triton": ("kernels/paged.py",),
    "vllm": ("adapters/vllm/connector.py",),
    "typer": ("cli",),
    "rich": ("cli",),
}
IMPURE = ("time", "random", "secrets", "uuid", "datetime", "threading", "asyncio")
THREAD_RULE = ("lifecycle/engine.py", "lifecycle/guard.py")  # they ask who calls, and start nothing
PURE_WINGS = ("specs", "machines", "lifecycle")
EDGE = ("lifecycle/ranks/torch_group.py",)  # the group keeps the only wall-clock limit
FACE_ONLY_WINGS = ("adapters", "lab")
BESIDE_FACE = ("stagehold.cache.stores", "stagehold.testing", "stagehold.serving", "stagehold.lab")
LAB_ALSO = ("stagehold.specs",)  # declarations are data, and a policy of the lab is a declaration
MEASURES_INSIDES = ("lab/bench",)  # a bench of one part has to hold that part in its hand


def modules() -> list[Path]:
    return sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def place(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imports_of(path: Path, source: str | None = None) -> Iterator[str]:
    """Dotted names that a module imports anywhere in its text, relative ones resolved."""
    package = ["stagehold", *path.relative_to(PACKAGE).parent.parts]
    for node in ast.walk(ast.parse(path.read_text() if source is None else source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{stem}.{alias.name}" for alias in node.names)


def target_wing(name: str) -> str | None:
    parts = name.split(".")
    if parts[0] != "stagehold":
        return None
    return parts[1] if len(parts) > 1 and parts[1] in LEVEL else FACE


def layer_breaches(path: Path, source: str | None = None) -> list[str]:
    wing = path.relative_to(PACKAGE).parts[0]
    found = []
    for name in imports_of(path, source):
        target = target_wing(name)
        if target is None or target == wing:
            continue
        level = LEVEL["lifecycle"] + 0.5 if target == FACE else LEVEL[target]
        strangers = {wing, target} == {"machines", "cache"}
        if level >= LEVEL[wing] or strangers:
            found.append(f"{place(path)} imports {name}: {wing} may not know {target}")
    return found


def fence_breaches(path: Path, source: str | None = None) -> list[str]:
    here = place(path)
    roots = {name.split(".")[0] for name in imports_of(path, source)}
    found = [
        f"{here} imports {package}: it is fenced to {', '.join(allowed)}"
        for package, allowed in FENCES.items()
        if package in roots and not here.startswith(allowed)
    ]
    if here.startswith(PURE_WINGS) and not here.startswith(EDGE):
        allowed = {"threading"} if here.startswith(THREAD_RULE) else set()
        found += [f"{here} imports {name}: the core knows ticks only" for name in IMPURE if name in roots - allowed]
    return found


def face_breaches(path: Path, exported: set[str], source: str | None = None) -> list[str]:
    here = place(path)
    if not here.startswith(FACE_ONLY_WINGS) or here.startswith(MEASURES_INSIDES):
        return []
    own = f"stagehold.{here.split('/')[0]}"
    beside = (*BESIDE_FACE, own, *(LAB_ALSO if own == "stagehold.lab" else ()))
    return [
        f"{here} imports {name}: only what stagehold.__all__ exports, the stores and testing"
        for name in imports_of(path, source)
        if name.startswith("stagehold.")
        and not name.startswith(beside)
        and name.removeprefix("stagehold.") not in exported
    ]


def face_of_the_lab() -> set[str]:
    """What the package exports, and what its machines do: a policy is made of declarations and of what runs them."""
    return exported_names() | {f"machines.{name}" for name in exported_names("machines/__init__.py")}


def exported_names(module: str = "__init__.py") -> set[str]:
    tree = ast.parse((PACKAGE / module).read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(t, ast.Name) and t.id == "__all__" for t in targets):
                return set(ast.literal_eval(node.value)) if node.value else set()
    return set()


def test_every_wing_has_a_level() -> None:
    """A new folder of the package is given its place in the order of layers."""
    wings = {p.parent.name for p in PACKAGE.glob("*/__init__.py")}

    assert wings == set(LEVEL)


def test_every_module_imports_lower_layers_only() -> None:
    """No module of the package imports its own level's neighbour or anything above it."""
    assert [] == [b for path in modules() for b in layer_breaches(path)]


def test_every_package_stays_behind_its_fence() -> None:
    """torch, transitions, structlog and the impure parts of the standard library are where they belong."""
    assert [] == [b for path in modules() for b in fence_breaches(path)]


def test_outer_wings_use_the_public_face() -> None:
    """Adapters and lab import what a user could import."""
    exported, lab = exported_names(), face_of_the_lab()

    assert [] == [
        b for path in modules() for b in face_breaches(path, lab if place(path).startswith("lab/") else exported)
    ]


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("specs/x.py", "from stagehold.machines import compile"),
        ("cache/x.py", "import stagehold.machines.step"),
        ("machines/x.py", "def f():\n    from stagehold.cache import tree"),
        ("machines/x.py", "from stagehold.kernels import copies"),
        ("lifecycle/x.py", "import stagehold"),
        ("cache/stores/x.py", "from ...lifecycle import engine"),
        ("serving/x.py", "from stagehold.adapters import vllm"),
    ],
)
def test_an_upward_import_is_caught(where: str, source: str) -> None:
    """The check sees plain, local, relative and sideways imports."""
    assert layer_breaches(PACKAGE / where, source)


@pytest.mark.parametrize(
    ("where", "source"),
    [
        ("lifecycle/x.py", "import torch"),
        ("cache/tree/x.py", "from torch import Tensor"),
        ("cache/x.py", "import transitions"),
        ("machines/audit.py", "import structlog"),
        ("lifecycle/x.py", "from time import monotonic"),
        ("lifecycle/engine.py", "from time import monotonic"),
        ("lifecycle/x.py", "import threading"),
    ],
)
def test_a_breached_fence_is_caught(where: str, source: str) -> None:
    """The check sees a fenced package outside its fence, and a clock in the core."""
    assert fence_breaches(PACKAGE / where, source)


def test_reaching_past_the_face_is_caught() -> None:
    """The check sees a lab module that imports the engine's insides."""
    path = PACKAGE / "lab" / "x.py"

    assert face_breaches(path, {"Engine"}, "from stagehold.lifecycle.engine import Engine")
    assert not face_breaches(path, {"Engine"}, "from stagehold import Engine")


@pytest.mark.parametrize(
    ("source", "fine"),
    [
        ("from stagehold.specs.hold import HOLD", True),
        ("from stagehold.machines import Machine, Rule", True),
        ("from stagehold.machines.compile import bind", False),
        ("from stagehold.lifecycle.acts import Acts", False),
    ],
)
def test_a_policy_is_made_of_declarations_and_of_what_is_exported(source: str, fine: bool) -> None:
    """The lab sees the tables and the public names of the machines, an adapter neither."""
    assert fine is not bool(face_breaches(PACKAGE / "lab" / "x.py", face_of_the_lab(), source))
    assert face_breaches(PACKAGE / "adapters" / "x.py", exported_names(), source)
