"""K56: host-hit tokens were charged when the request was planned; then the prefix shrank.

The charge stayed, for tokens that nobody delivered, and the holds of requests that seemed not to fit kept everybody
else out. Here a plan charges nothing, commit charges what was delivered, and a request that does not fit gives its
claim back.
"""

from __future__ import annotations

import pytest

from stagehold import AdmissionOutcome, PartialDelivery, RequestState
from stagehold.testing.hand import Hand


def planned(hand, delivered: int, **settings):
    """A request with 3 pages live and 8 promised, of which the hold will deliver up to page `delivered`."""
    h = hand(engine_options={"deliver": lambda _hold, _live, _promised: delivered}, **settings)
    tokens = h.prompt(8, tail=4)
    h.put(tokens)
    h.grow(tokens, 3)
    a = h.arrive("a", tokens, new=20)
    h.tick(3)
    return h, a


def promised_pages(h: Hand) -> int:
    return h.core.reserved


@pytest.mark.parametrize(("delivered", "hit"), [(8, 8), (0, 3)])
def test_the_charge_is_what_is_left_behind_the_delivered_hit(hand, delivered, hit):
    """8 pages, 4 tokens and 20 new ones are 10 pages in all."""
    h, a = planned(hand, delivered)
    assert hit * 16 == h.admit(a).hit_tokens
    assert (10 - hit, 10 - hit) == (promised_pages(h), h.books()["slots"])


def test_a_plan_charges_nothing(hand):
    """Neither slots nor a promise."""
    h, a = planned(hand, 8)
    plan = h.engine.select(a, 100)
    assert (0, 0) == (promised_pages(h), h.books().get("slots", 0))
    h.engine.release(plan)


def test_a_partial_delivery_leaves_no_charge(hand):
    """It is an error, and all of it is rolled back."""
    h, a = planned(hand, 5)
    with pytest.raises(PartialDelivery):
        h.visit(a)
    assert (0, {}) == (promised_pages(h), h.books())
    assert 3 * 16 == h.admit(a).hit_tokens


def test_a_hundred_shrunk_prefixes_charge_no_phantom(hand):
    """The room that admission sees is the room that there is."""
    h = hand(engine_options={"deliver": lambda _hold, _live, _promised: 0})
    for number in range(100):
        tokens = h.prompt(8, number + 1)
        h.put(tokens)
        a = h.arrive(f"r{number}", tokens)
        h.tick(3)
        admission = h.admit(a)
        assert 0 == admission.store_hit_tokens
        h.engine.abort(a)
    h.tick()
    assert (0, h.config.device_pages) == (promised_pages(h), h.core.room())


def test_requests_that_do_not_fit_do_not_wedge_admission(hand):
    """Each gives its claim back; the hold's pages and pin are free for those that fit."""
    h = hand(device_pages=40, engine_options={"deliver": lambda _hold, _live, _promised: 0})
    runs = h.arrive("runs", h.prompt(31, 500))
    h.admit(runs)
    large = []
    for number in range(3):
        tokens = h.prompt(10, number + 1)
        h.put(tokens)
        large.append(h.arrive(f"large{number}", tokens))
    h.tick(3)
    assert [AdmissionOutcome.UNFIT] * 3 == [h.visit(handle).outcome for handle in large]
    assert [RequestState.RETRY] * 3 == [h.engine.state_of(handle) for handle in large]
    assert ({"lock", "slots"}, 0) == (set(h.books()) - {"staging", "pin"}, h.core.tree.pinned)
    small = h.arrive("small", h.prompt(6, 400))
    assert h.admit(small).admitted


def test_a_prefix_that_shrinks_before_the_plan_is_seen_by_it(hand):
    """The plan looks at the live tree, not at what was found when the store was asked."""
    h = hand(pin_fraction=0.0)
    tokens = h.prompt(8)
    h.put(tokens)
    h.grow(tokens, 5)
    a = h.arrive("a", tokens)
    h.tick(3)
    h.shrink(tokens, 2)
    assert not getattr(h.visit(a), "admitted", False)
    assert 0 == promised_pages(h)
    h.tick(3)
    admission = h.admit(a)
    assert (32, 96) == (admission.device_hit_tokens, admission.store_hit_tokens)
