"""K14: a pending hit was polled in a hot loop without a deadline, until the client gave up after five minutes.

Here every waiting state names a limit in ticks and the row that fires at it, and a request that is visited again and
again is held back for its wait budget and no longer.
"""

from __future__ import annotations

import pytest

from stagehold import PrefetchPolicy, RequestState, Skip
from stagehold.cache.stores.simulated import Delays
from stagehold.machines import MACHINES
from stagehold.specs.declare import Kind
from stagehold.specs.limits import Limits

NEVER = {
    "lookup": Delays(exists=(10**6, 10**6), get=(1, 1), put=(1, 1)),
    "fetch": Delays(exists=(1, 1), get=(10**6, 10**6), put=(1, 1)),
}


@pytest.mark.parametrize("spec", MACHINES, ids=lambda spec: spec.name)
def test_every_waiting_state_has_a_deadline_or_waits_for_one_that_has(spec):
    """A limit by name, and a row for the event that fires at it."""
    for state in spec.states:
        if state.kind is not Kind.WAITING:
            continue
        if state.delegate is not None:
            waits = next(other for other in MACHINES if other.name == state.delegate).states
            assert all(other.deadline is not None for other in waits if other.kind is Kind.WAITING)
            continue
        assert state.deadline is not None, f"{spec.name}.{state.name.name}"
        assert state.deadline.limit in Limits.model_fields
        rows = [row for row in spec.expanded() if row.source is state.name and row.event == state.deadline.event]
        assert rows, f"{spec.name}.{state.name.name}: nothing happens at {state.deadline.limit}"


@pytest.mark.parametrize("stuck", NEVER)
@pytest.mark.parametrize("policy", list(PrefetchPolicy))
def test_a_request_that_is_polled_in_a_loop_is_admitted_within_its_budget(hand, stuck, policy):
    """Whatever hangs, and however patient the policy."""
    h = hand(delays=NEVER[stuck], prefetch_policy=policy)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(2)
    budget = {"best_effort": 0, "timeout": 34, "wait_complete": h.config.wait_complete_ticks}[policy.value]
    ticks = 0
    while isinstance(h.visit(a), Skip):
        h.tick()
        ticks += 1
    assert ticks <= budget
    assert RequestState.COMMITTED is h.engine.state_of(a)


@pytest.mark.parametrize("stuck", NEVER)
def test_a_request_that_nobody_polls_comes_to_rest_by_itself(hand, stuck):
    """Its limits fire without a visit, and its budget of launches ends."""
    h = hand(delays=NEVER[stuck], lookup_limit=10, fetch_limit=10, open_limit=50, staging_pages=200)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    for _ in range(60):
        h.tick(20)
        if h.engine.state_of(a) is RequestState.CAPPED:
            break
    assert h.engine.state_of(a) in (RequestState.CAPPED, RequestState.RETRY)
    assert h.admit(a).admitted
