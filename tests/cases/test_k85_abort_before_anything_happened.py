"""K85: aborting a request that had never been scheduled killed the engine.

It was not yet in the table that the abort looked in. Here a request is alive from `arrive` on, and abort has a row in
every state that is not an end; the matrix over all states is in the tests of the lifecycle.
"""

from __future__ import annotations

import pytest

from stagehold import RequestState, UnknownHandle
from stagehold.machines import MACHINES
from stagehold.specs.declare import Kind
from stagehold.specs.request import REQUEST


def test_abort_has_a_row_in_every_state_that_is_no_end():
    """From the declaration, so that a state added later has it, too."""
    assert REQUEST in MACHINES
    lasting = {state.name for state in REQUEST.states if state.kind is not Kind.TERMINAL}
    assert lasting == {row.source for row in REQUEST.expanded() if row.event == "abort"}


def test_an_abort_in_the_pass_of_the_arrival_is_legal(hand):
    """And the tick after it launches nothing for the dead."""
    h = hand()
    before = h.core.operations._next
    for number in range(50):
        h.engine.abort(h.arrive(f"r{number}", h.prompt(8, number + 1)))
    h.tick(5)
    assert (before, 0) == (h.core.operations._next, h.engine.stats().live_machines)


def test_the_same_id_may_come_and_go_many_times_in_one_pass(hand):
    """Each time under another attempt; the last one is served."""
    h = hand()
    h.put(h.prompt(8))
    handles = []
    for _ in range(5):
        handles.append(h.arrive("r", h.prompt(8)))
        if len(handles) < 5:
            h.engine.abort(handles[-1])
    h.tick(3)
    assert [0, 1, 2, 3, 4] == [handle.attempt for handle in handles]
    assert 128 == h.admit(handles[-1]).store_hit_tokens
    for handle in handles[:-1]:
        with pytest.raises(UnknownHandle):
            h.engine.abort(handle)


def test_an_abort_without_a_store_is_legal(hand):
    """Nothing was ever asked for it."""
    h = hand(store=None)
    a = h.arrive("a", h.prompt(8))
    h.engine.abort(a)
    b = h.arrive("b", h.prompt(8))
    h.tick()
    assert RequestState.CAPPED is h.engine.state_of(b)
    h.engine.abort(b)
    h.tick()


def test_an_abort_while_the_store_is_still_under_test_is_legal(hand):
    """The launch queue waits for the self-test, and passes over whoever left meanwhile."""
    h = hand(attach=False)
    a, b = h.arrive("a", h.prompt(8)), h.arrive("b", h.prompt(8, 2))
    h.engine.abort(a)
    h.tick(2)
    assert RequestState.LOOKUP is h.engine.state_of(b)
