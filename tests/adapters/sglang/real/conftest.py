"""Tests against the released SGLang, on a CPU. `make test-sglang` installs it; nothing here is collected without it.

SGLang imports torchvision on its way to the storage classes and uses nothing of it there; the build that fits the CPU
build of torch is not to be had, so its names are made up here.
"""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from importlib.metadata import version
from importlib.util import find_spec
from types import ModuleType

collect_ignore_glob = ["test_*.py"] if find_spec("sglang") is None else []


class _Name(type):
    """A class that has every attribute."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name


class _Names(ModuleType):
    """A module that has every name."""

    __path__ = ()
    __version__ = "0.28.0"

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return _Name(name, (), {})


class _Torchvision:
    """Finds torchvision and all of its modules."""

    def find_spec(self, name, path=None, target=None):
        return ModuleSpec(name, self, is_package=True) if name.split(".")[0] == "torchvision" else None

    def create_module(self, spec):
        return _Names(spec.name)

    def exec_module(self, module):
        """Nothing is to be done."""


if not collect_ignore_glob and find_spec("torchvision") is None:
    sys.meta_path.append(_Torchvision())


def pytest_terminal_summary(terminalreporter) -> None:
    """What was tested, by version, beside how many tests passed."""
    if collect_ignore_glob:
        return
    told = ", ".join(f"{name} {version(name)}" for name in ("sglang", "torch", "stagehold"))
    terminalreporter.write_line(f"tested: {told}; on a CPU")
