"""Quotas of tenants where a hold needs a whole window: what is kept for each is of use, or nothing is kept."""

from __future__ import annotations

from stagehold import Namespace
from stagehold.specs.hold import HoldState


def test_no_part_of_a_window_is_kept_for_anybody(mixed) -> None:
    """A window has three pages. Of six in staging two tenants have one each; for six tenants nothing is kept."""
    h = mixed("w", parts={"staging": 6}, tenant_share=0.5)
    guaranteed = []
    for number in range(5):
        h.arrive(f"t{number}", h.prompt(0, 50 + number), namespace=Namespace(f"tenant {number}"))
        guaranteed.append(h.core.quotas.staging[1].guaranteed)
    assert guaranteed == [3, 3, 0, 0, 0]
    tokens = h.prompt(10)
    h.put_all(tokens, 0, 8)
    handle = h.arrive("r", tokens)
    h.until(lambda: h.machine(handle).data.hold)
    h.tick(2)
    assert h.hold_of(handle).state is HoldState.READY
