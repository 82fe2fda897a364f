"""K62: a short cut returned the hits in all where the new ones were asked for, and the server counted some twice.

Here hit, device part, store part and extend of an admission are worked out in one place from one page table. All pairs
of what is live and what is stored are tried.
"""

from __future__ import annotations

import pytest

from stagehold.lifecycle.visits import Visits

PAGES, TAIL = 8, 5
BUDGETS = (1, 16, 50, 1000)


def expected(live: int, stored: int, budget: int) -> tuple[int, int, int, int]:
    """(hit, of the device, of the store, to compute) in tokens; two pages are worth a fetch."""
    brought = stored - live if stored - live >= 2 else 0
    hit = 16 * (live + brought)
    return hit, 16 * live, 16 * brought, min(budget, PAGES * 16 + TAIL - hit)


def admissions(h):
    """An admission for each of 9 x 9 x 4 cases, in one engine, with what it should be."""
    family = 0
    for live in range(PAGES + 1):
        for stored in range(PAGES + 1):
            for budget in BUDGETS:
                family += 1
                tokens = h.prompt(PAGES, family, tail=TAIL)
                h.put(tokens, 0, stored)
                h.grow(tokens, live)
                a = h.arrive(f"r{family}", tokens)
                h.tick(3)
                yield h.visit(a, budget), expected(live, stored, budget)
                h.engine.abort(a)
                h.shrink(tokens, 0)


def figures(admission) -> tuple[int, int, int, int]:
    return (
        admission.hit_tokens,
        admission.device_hit_tokens,
        admission.store_hit_tokens,
        admission.extend_tokens,
    )


def test_every_figure_of_every_case(hand):
    """324 of them; the page table is as long as the hit."""
    h = hand()
    for admission, right in admissions(h):
        assert right == figures(admission)
        assert right[0] == 16 * len(admission.slots)


def test_hits_in_all_for_new_ones_would_be_seen(hand, monkeypatch):
    """Planted: what the store brought is said to be the whole hit."""
    admitted = Visits._admitted

    def in_all(self, m, plan):
        admission = admitted(self, m, plan)
        if admission.store_hit_tokens:
            object.__setattr__(admission, "store_hit_tokens", admission.hit_tokens)
        return admission

    monkeypatch.setattr(Visits, "_admitted", in_all)
    wrong = [right for admission, right in admissions(hand()) if figures(admission) != right]
    assert wrong
    assert all(device and store for _, device, store, _ in wrong)


@pytest.mark.parametrize("stored", [3, 8])
def test_new_tokens_of_two_that_share_a_fetch_are_counted_once(hand, stored):
    """The first brings them; for the second they are the device's."""
    h = hand()
    tokens = h.prompt(8)
    h.put(tokens, 0, stored)
    a, b = h.arrive("a", tokens), h.arrive("b", tokens)
    h.tick(3)
    first, second = h.admit(a), h.admit(b)
    assert (16 * stored, 0) == (first.store_hit_tokens, first.device_hit_tokens)
    assert (0, 16 * stored) == (second.store_hit_tokens, second.device_hit_tokens)
    assert 16 * stored == h.engine.stats().spliced
