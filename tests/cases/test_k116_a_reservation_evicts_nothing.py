"""K116: room kept for drafts pushed good prefixes out, and the hit rate fell by half without a visible cause.

Here a promise is a number: it refuses others, and evicts nothing before a slot of it is taken. How much is promised is
a figure beside what is evictable, so that a fall of hits can be put down to it.
"""

from __future__ import annotations

from stagehold.lifecycle.admission import AdmissionRules
from stagehold.specs.outcomes import AdmissionOutcome
from stagehold.testing.hand import Hand

PREFIXES = 6


def server(hand) -> Hand:
    """A pool of 64 pages with six prefixes of eight in it, all written."""
    h = hand(largest_request_tokens=768)
    for family in range(1, PREFIXES + 1):
        h.run(f"r{family}", h.prompt(8, family))
        h.until(lambda h=h: not h.core.writes)
    return h


def live(h: Hand) -> int:
    """Pages of the prefixes that are still on the device."""
    return sum(h.live(h.prompt(8, family)) for family in range(1, PREFIXES + 1))


def test_a_large_promise_leaves_every_prefix_where_it_is(hand):
    """A request that may grow by 40 pages is admitted and decodes a little: nothing had to go for the rest."""
    h = server(hand)
    greedy = h.arrive("greedy", h.prompt(1, 50), new=40 * 16)
    h.admit(greedy)
    h.compute(greedy)
    assert PREFIXES * 8 == live(h)
    assert 40 <= h.engine.stats().reserved_pages <= 41
    for family in range(1, PREFIXES + 1):
        assert 8 == h.live(h.prompt(8, family))


def test_pages_go_one_by_one_as_the_promise_is_used(hand):
    """As many as are taken, not as many as are promised."""
    h = server(hand)
    greedy = h.arrive("greedy", h.prompt(1, 50), new=40 * 16)
    h.admit(greedy)
    h.compute(greedy)
    free = h.core.device.free_count
    for taken in range(1, 30):
        before = h.engine.stats().reserved_pages
        h.engine.extend(greedy, 16)
        assert before - 1 == h.engine.stats().reserved_pages
        assert PREFIXES * 8 - max(0, taken - free) == live(h)


def test_who_is_refused_for_a_promise_can_see_it(hand):
    """No room, though the pool is full of evictable pages: the figure says why, and gives it back at the end."""
    h = server(hand)
    greedy = h.arrive("greedy", h.prompt(1, 50), new=45 * 16)
    h.admit(greedy)
    other = h.arrive("other", h.prompt(20, 60))
    assert AdmissionOutcome.NO_ROOM is h.visit(other).outcome
    stats = h.engine.stats()
    assert stats.reserved_pages > 40
    assert h.core.tree.evictable > 40
    h.engine.abort(greedy)
    assert 0 == h.engine.stats().reserved_pages
    assert h.admit(other).admitted


def test_a_promise_that_is_taken_at_once_would_be_seen(hand, monkeypatch):
    """Planted: admission takes what it promises. Five of six prefixes are gone before a token was drafted."""
    take = AdmissionRules._take_slots

    def all_of_it(self, m, hit):
        take(self, m, hit)
        data, core = m.data, self.core
        core.device.free(core.allocate_device(data.reserve))

    h = server(hand)
    monkeypatch.setattr(AdmissionRules, "_take_slots", all_of_it)
    greedy = h.arrive("greedy", h.prompt(1, 50), new=40 * 16)
    h.admit(greedy)
    assert live(h) < PREFIXES * 8 // 2
