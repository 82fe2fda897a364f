"""K13: one unreadable file made a request promote, fail and promote again for ever.

The lookup said yes, the load failed, the cached yes was still there, and other requests took it over. Here a failed
fetch forgets what was known and believed, launches are counted over all causes, and the next request asks anew.
"""

from __future__ import annotations

from stagehold import RequestState
from stagehold.cache.stores.protocol import Progress, Verdict
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.testing.hand import AT_ONCE


class Liar(SimulatedStore):
    """Every page but the engine's own test page is said to be there, and is unreadable."""

    def __init__(self, *, good: int = 0, verdict: Verdict = Verdict.MISS) -> None:
        super().__init__(delays=AT_ONCE)
        self.good, self.verdict = good, verdict
        self.lookups = self.reads = 0
        self._kinds: dict[int, tuple[str, int]] = {}

    def exists(self, ticket, keys, tick):
        self.lookups += 1
        self._kinds[ticket] = ("exists", len(keys))
        super().exists(ticket, keys, tick)

    def get_into(self, ticket, keys, buffers, tick):
        if len(keys) > 1:
            self.reads += 1
            self._kinds[ticket] = ("get", len(keys))
        super().get_into(ticket, keys, buffers, tick)

    def poll(self, tick):
        return [self._lie(progress) for progress in super().poll(tick)]

    def _lie(self, told: Progress) -> Progress:
        kind, keys = self._kinds.get(told.ticket, ("", 0))
        if not told.done or not kind:
            return told
        if kind == "exists":
            return Progress(told.ticket, done=True, good=keys, verdicts=(Verdict.HIT,) * keys)
        rest = (self.verdict,) + (Verdict.UNREAD,) * (keys - self.good - 1)
        return Progress(told.ticket, done=True, good=self.good, verdicts=(Verdict.HIT,) * self.good + rest)


def test_a_request_stops_after_its_budget_and_computes(hand):
    """At most one launch and eight more, each with a query of its own; then it is admitted."""
    store = Liar()
    h = hand(store=store)
    a = h.arrive("a", h.prompt(8))
    h.until_state(a, RequestState.CAPPED, patience=1000)
    assert (9, 9) == (store.lookups, store.reads)
    assert 0 == h.admit(a).hit_tokens


def test_a_failed_load_turns_the_verdict_round_for_others(hand):
    """The second request does not take the first one's word: no claim without a query."""
    store = Liar()
    h = hand(store=store)
    tokens = h.prompt(8)
    a = h.arrive("a", tokens)
    h.until_state(a, RequestState.RETRY)
    assert [False] * 8 == [h.core.beliefs.knows(h.chain(tokens).page_key(page)) for page in range(8)]
    before = store.lookups
    h.arrive("b", tokens)
    h.tick()
    assert before + 1 == store.lookups


def test_unreadable_pages_open_the_breaker_and_nobody_waits(hand):
    """A store that fails at reading is in trouble however well it answers lookups."""
    store = Liar(verdict=Verdict.CORRUPT)
    h = hand(store=store, retry_interval_ticks=1)
    for number in range(16):
        h.arrive(f"r{number}", h.prompt(8, number + 1))
    h.tick(12)
    assert "OPEN" == h.core.breaker.state.name
    late = h.arrive("late", h.prompt(8, 99))
    h.tick()
    assert h.admit(late).admitted


def test_a_head_that_reads_well_is_used_and_its_end_not_chased(hand):
    """Five good pages of eight: the request gets five, once."""
    store = Liar(good=5)
    h = hand(store=store)
    a = h.arrive("a", h.prompt(8))
    h.tick(3)
    assert 80 == h.admit(a).store_hit_tokens
    h.tick(50)
    assert 1 == store.reads
