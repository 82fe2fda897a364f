"""What an open visit protects of other components: a plan finds at its commit what it has looked at."""

from __future__ import annotations

import pytest

from stagehold import Plan, RequestState
from stagehold.specs.hold import HoldState


@pytest.mark.parametrize("how", ["commit", "release"])
def test_a_plan_protects_the_window_that_it_looked_at(mixed, how):
    """Others want all slots while the visit is open: the window before the live end stays, and no page more."""
    h = mixed("w")
    tokens = h.prompt(14)
    h.grow(tokens, 6, swa=6)
    h.put_all(tokens, 0, 12)
    a = h.arrive("a", tokens)
    h.until_state(a, RequestState.STAGED)
    h.until(lambda: h.hold_of(a).state is HoldState.READY)
    plan = h.engine.select(a, 1_000)
    assert isinstance(plan, Plan)
    h.core.tree.evict(6, "swa")
    assert [(3, 6)] == h.core.tree.resident(h.chain(tokens), 0, 6, "swa")
    getattr(h.engine, how)(plan)
    if how == "release":
        h.core.tree.evict(6, "swa")
        assert [] == h.core.tree.resident(h.chain(tokens), 0, 6, "swa")
