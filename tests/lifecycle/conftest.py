"""The same tests in the other mode: what holds where staging is a buffer holds where it is a tier.

Left out by name is what names the difference itself: a prompt that comes from the host tier at once, where the test
waits for the store.
"""

from __future__ import annotations

from pathlib import Path

import pytest

BOTH_MODES = {
    "test_commit",
    "test_cuts",
    "test_equal_spans",
    "test_io_commit",
    "test_waiting",
    "test_admission",
    "test_boundary",
    "test_repair",
    "test_salvage",
    "test_short_spans",
    "test_states",
}
"""Modules whose engines are driven by hand in both modes."""

BUFFER_ALONE = {
    "test_a_repair_under_a_queued_write_and_a_pin_leaves_both_right": "the host tier has what the store has lost",
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give `hand` its mode; `buffer_only` is its own."""
    here = Path(metafunc.definition.path).stem
    if "hand" in metafunc.fixturenames and here in BOTH_MODES and metafunc.definition.name not in BUFFER_ALONE:
        metafunc.parametrize("hand", [{}, {"host_memory_mode": "cache", "load_limit_fraction": 0.9}], indirect=True,
                             ids=["buffer_only", "cache"])  # fmt: skip
