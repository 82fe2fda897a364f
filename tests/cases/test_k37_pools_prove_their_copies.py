"""K37: a round trip from the device to the host and back changed packed rows, and nobody saw an error.

Here every engine with tensors sends a pattern through the first and the last slot and page before it serves anyone,
and refuses to start where a byte comes back changed. On the way to the store and back, each page has its checksum.
"""

from __future__ import annotations

from typing import Any

import pytest

from stagehold import Engine
from stagehold.kernels import copies
from stagehold.testing.hand import small_config

CONFIG = {"parts": 4, "page_part_bytes": 64}


def test_honest_copies_start() -> None:
    """All bytes come back, in as many parts as there are."""
    engine = Engine(small_config(**CONFIG), strict=True)
    engine.close()


@pytest.mark.parametrize("slot", [0, 63])
def test_a_copy_that_packs_rows_wrongly_is_refused_at_the_start(monkeypatch: pytest.MonkeyPatch, slot: int) -> None:
    """Two parts of one slot change places on the way to the device: named with the slot, before any request."""
    honest = copies.scatter

    def swapped(staging: Any, pages: Any, device: Any, slots: Any) -> None:
        honest(staging, pages, device, slots)
        if slot in slots:
            device.array()[[0, 1], slot] = device.array()[[1, 0], slot]

    monkeypatch.setattr(copies, "scatter", swapped)
    with pytest.raises(RuntimeError, match=f"slot {slot} of the device pool does not give back"):
        Engine(small_config(**CONFIG), strict=True)
