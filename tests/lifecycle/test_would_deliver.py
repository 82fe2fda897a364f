"""What `would_deliver` says of an open visit is what its commit then does, and asking changes nothing."""

from __future__ import annotations

import pytest

from stagehold import AdmissionOutcome, Misuse, PartialDelivery


def told(h, handle) -> tuple[bool, object]:
    """What is said of a visit, asked twice, and then its outcome."""
    plan = h.engine.select(handle, 1000)
    before, records = h.books(), h.engine.digest()
    said = h.engine.would_deliver(plan)
    assert said == h.engine.would_deliver(plan)
    assert (before, records) == (h.books(), h.engine.digest())
    try:
        return said, h.engine.commit(plan).outcome
    except PartialDelivery:
        return said, None


def fetched(h, rid: str, pages: int = 8):
    """A request whose hold is ready."""
    h.put(h.prompt(pages))
    handle = h.arrive(rid, h.prompt(pages))
    h.tick(3)
    return handle


def test_a_hold_that_fits(hand):
    """DELIVERED."""
    h = hand()
    assert (True, AdmissionOutcome.ADMITTED) == told(h, fetched(h, "a"))


def test_a_hold_behind_which_the_tree_has_grown(hand):
    """MORE than was promised is no less."""
    h = hand()
    a = fetched(h, "a")
    plan = h.engine.select(a, 1000)
    h.grow(h.prompt(8), 8)
    assert h.engine.would_deliver(plan)
    assert 128 == h.engine.commit(plan).hit_tokens


@pytest.mark.parametrize(("pages", "outcome"), [(0, AdmissionOutcome.ADMITTED), (5, None)])
def test_a_hold_that_does_not_bring_what_it_promised(hand, pages, outcome):
    """NOTHING is admitted, and yet not what was promised; PARTIAL raises."""
    h = hand(engine_options={"deliver": lambda _hold, _live, _promised: pages})
    assert (False, outcome) == told(h, fetched(h, "a"))


def test_no_room_while_others_run(hand):
    """With a hold, and without one."""
    h = hand(device_pages=40)
    h.admit(h.arrive("runs", h.prompt(31, 2)))
    assert (False, AdmissionOutcome.NO_ROOM) == told(h, fetched(h, "a"))
    b = h.arrive("b", h.prompt(12, 3))
    assert (False, AdmissionOutcome.NO_ROOM) == told(h, b)


def test_a_request_without_a_hold(hand):
    """Admitted with what the device has."""
    h = hand()
    h.grow(h.prompt(8), 4)
    assert (True, AdmissionOutcome.ADMITTED) == told(h, h.arrive("a", h.prompt(8)))


def test_a_cover_that_shrinks_between_plan_and_commit(hand):
    """SHRUNK: it would launch again instead."""
    h = hand()
    h.put(h.prompt(8))
    h.grow(h.prompt(8), 8)
    a = h.arrive("a", h.prompt(8))
    h.tick()
    plan = h.engine.select(a, 1000)
    assert h.engine.would_deliver(plan)
    h.shrink(h.prompt(8), 3)
    assert not h.engine.would_deliver(plan)
    assert AdmissionOutcome.SHRUNK is h.engine.commit(plan).outcome


def test_a_visit_that_is_over(hand):
    """Like commit and release."""
    h = hand()
    plan = h.engine.select(h.arrive("a", h.prompt(8)), 1000)
    h.engine.release(plan)
    with pytest.raises(Misuse, match="not open"):
        h.engine.would_deliver(plan)
