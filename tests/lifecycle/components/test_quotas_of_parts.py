"""Quotas of tenants where a hold needs a whole window: what is kept for each is of use, or nothing is kept."""

from __future__ import annotations

import pytest

from stagehold import HostMode, Namespace
from stagehold.lifecycle.launch import LaunchRules
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import Launch


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


ROOMY = {"parts": {"staging": 30, "device": 48}, "chunk": 32, "tenant_share": 0.5, "load_limit_fraction": 1.0}


@pytest.mark.parametrize("kinds", ["", "w"])
def test_what_host_memory_has_is_held_as_far_as_its_tenant_can_hold_it(mixed, kinds: str) -> None:
    """24 pages were kept while the tenant was alone, and half of 40 is all that it can hold beside another one."""
    h = mixed(kinds, **ROOMY, store=None, host_memory_mode=HostMode.CACHE)
    tokens = h.prompt(24)
    h.run("w", tokens)
    h.until(lambda: not h.core.writes)
    h.core.tree.remove(h.chain(tokens), 0)
    h.arrive("guest", h.prompt(0, 9), namespace=Namespace("another tenant"))
    handle = h.arrive("r", tokens)
    h.tick(3)
    assert h.admit(handle).store_hit_tokens == 20 * 16


def test_what_was_found_while_there_was_more_room_is_asked_for_anew(mixed) -> None:
    """Where a shorter hit could end is not known."""
    h = mixed("w", **ROOMY)
    h.put_all(h.prompt(24), 0, 24)
    m = h.machine(h.arrive("r", h.prompt(24)))
    h.until(lambda: m.data.known_end)
    rules = LaunchRules(h.core, h.engine._parts.retries)
    assert (m.data.known_end, rules.launch(m, None)) == (24, Launch.KNOWN)
    h.arrive("guest", h.prompt(0, 9), namespace=Namespace("another tenant"))
    assert rules.launch(m, None) is Launch.DECLINED  # its hold is there still, so that it may load no more


def test_a_window_that_gates_no_match_is_left_where_its_tenant_may_not_hold_it(mixed) -> None:
    """Both prompts are in host memory, and the windows of two are more than half of the staging of windows."""
    parts = {"gates": False, "staging": 8, "writes": "last"}
    h = mixed("w", parts=parts, chunk=12, tenant_share=0.5, store=None, host_memory_mode=HostMode.CACHE)
    prompts = [h.prompt(8, family) for family in (1, 2)]
    for family, tokens in enumerate(prompts):
        h.run(f"w{family}", tokens)
        h.until(lambda: not h.core.writes)
        h.core.tree.remove(h.chain(tokens), 0)
    h.arrive("guest", h.prompt(0, 9), namespace=Namespace("another tenant"))
    handles = [h.arrive(f"r{family}", tokens) for family, tokens in enumerate(prompts)]
    h.tick(3)
    assert [(h.hold_of(one).state, list(h.hold_of(one).data.parts)) for one in handles] == [
        (HoldState.READY, ["swa"]), (HoldState.READY, [])
    ]  # fmt: skip
