"""The ends of a fetch: whole, head, nothing, cut; a buffer is freed by the end of IO and by nothing else."""

from __future__ import annotations

import pytest

from stagehold import RequestState
from stagehold.specs.hold import HoldState
from stagehold.testing.hand import SLOW_GETS


def hung(hand, pages: int = 20, **settings):
    """A fetch that hangs from now on."""
    h = hand(**settings)
    tokens = h.prompt(pages)
    h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick(2)
    h.store.stall()
    return h, a, h.hold_of(a)


def trickling(hand, ticks: int, **settings):
    """A fetch of 20 pages that has brought a page in each of `ticks` ticks and hangs from now on."""
    h = hand(**settings)
    h.store.limit(1)
    h.put(h.prompt(20))
    a = h.arrive("a", h.prompt(20))
    h.until(lambda: h.machine(a).data.hold)
    h.tick(ticks)
    h.store.stall()
    return h, a, h.hold_of(a)


def test_a_fetch_at_its_limit_keeps_its_verified_head(hand):
    """USABLE: one slow page does not cost all the others."""
    h, a, hold = trickling(hand, 6, fetch_limit=40, ready_limit=40)
    h.until(lambda: hold.state is HoldState.READY)
    assert (0, 6) == (hold.data.start, hold.data.last)
    assert {"cut": 14 * 16} == h.engine.stats().losses
    assert 96 == h.admit(a).store_hit_tokens


def test_the_tail_of_a_cut_keeps_its_staging_until_the_io_has_ended(hand):
    """It belongs to a hold that was born draining, and to nobody else."""
    h, a, hold = trickling(hand, 6, fetch_limit=40)
    h.until(lambda: hold.state is HoldState.READY)
    drain = max(h.core.holds.values(), key=lambda m: m.number)
    assert (HoldState.DRAINING, [], 14) == (drain.state, drain.data.claims, len(drain.data.staging))
    assert {"staging", "io"} == h.core.ledger.owned(drain.number)
    h.engine.abort(a)
    h.tick(1000)
    assert {"staging": 14, "io": 1} == h.books()
    h.store.release()
    h.until(lambda: drain.state is HoldState.DROPPED)
    assert 0 == h.books().get("io", 0)


def test_a_fetch_with_nothing_usable_drains_and_its_claimants_are_told(hand):
    """HOPELESS: the request goes on at once, the buffer stays with its IO."""
    h, a, hold = hung(hand, fetch_limit=40, retry_interval_ticks=0)
    assert 40 == h.until(lambda: hold.state is HoldState.DRAINING)
    assert (RequestState.RETRY, 20) == (h.engine.state_of(a), h.machine(a).data.known_end)
    assert {"expired": 320} == h.engine.stats().losses
    assert {"staging", "io"} == h.core.ledger.owned(hold.number)
    assert 0 == h.core.tree.pinned
    h.tick(500)
    assert HoldState.DRAINING is hold.state
    h.store.release()
    h.until(lambda: hold.state is HoldState.DROPPED)
    assert {} == h.books()


def test_pages_under_io_are_given_to_nobody(hand):
    """Staging of a draining hold is not in the free list, whoever asks."""
    h, a, hold = hung(hand, 20, staging_pages=30, load_limit_fraction=1.0)
    h.engine.abort(a)
    mine = set(hold.data.staging)
    assert mine.isdisjoint(h.core.staging._free)
    assert 10 == h.core.staging_free()
    h.store.release()
    h.until(lambda: hold.state is HoldState.DROPPED)
    assert 30 == h.core.staging_free()


def test_late_bytes_land_in_the_old_buffer_only(hand):
    """A fetch that nobody waits for writes to its own pages while another one is served."""
    h = hand(parts=2, page_part_bytes=32, staging_pages=16, load_limit_fraction=1.0)
    one, two = h.prompt(8, 1), h.prompt(8, 2)
    h.put(one, body=bytes([111]) * 64)
    h.put(two, body=bytes([222]) * 64)
    h.store._delays, h.store.cut = SLOW_GETS, None
    a = h.arrive("a", one)
    h.tick(2)
    h.engine.abort(a)
    b = h.arrive("b", two)
    h.tick(2)
    late = next(m for m in h.core.holds.values() if m.state is HoldState.DRAINING)
    assert set(late.data.staging).isdisjoint(h.hold_of(b).data.staging)
    h.until(lambda: h.hold_of(b).state is HoldState.READY)
    slots = h.admit(b).slots
    assert {222} == {value for slot in slots for value in h.core.tensors.device.tensor[:, slot].flatten().tolist()}


def test_a_short_delivery_keeps_a_head_that_is_long_enough(hand):
    """HEAD: the tail was not there; its end is forgotten and its staging free at once."""
    h = hand()
    tokens = h.prompt(8)
    h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick(2)
    h.store.drop(h.names(tokens)[5])
    h.tick()
    hold = h.hold_of(a)
    assert (HoldState.READY, 5, 5) == (hold.state, hold.data.last, len(hold.data.staging))
    assert (5, 35) == (h.machine(a).data.known_end, h.core.staging.free_count)
    assert {"failed": 48} == h.engine.stats().losses
    assert 80 == h.admit(a).store_hit_tokens


def test_a_short_delivery_untaught_the_beliefs_beyond_its_end(hand):
    """What did not come back is not believed stored."""
    h = hand()
    tokens = h.prompt(8)
    h.put(tokens)
    h.arrive("a", tokens)
    h.tick(2)
    chain = h.chain(tokens)
    assert h.core.beliefs.knows(chain.page_key(7))
    h.store.drop(h.names(tokens)[5])
    h.tick()
    assert [True] * 5 + [False] * 3 == [h.core.beliefs.knows(chain.page_key(page)) for page in range(8)]


def test_a_delivery_below_the_threshold_fails(hand):
    """NOTHING: everything goes back, and the request asks again."""
    h = hand()
    tokens = h.prompt(8)
    h.put(tokens)
    h.grow(tokens, 2)
    a = h.arrive("a", tokens)
    h.tick(2)
    h.store.drop(h.names(tokens)[3])
    h.tick()
    assert RequestState.RETRY is h.engine.state_of(a)
    assert ({}, 0, 40) == (h.books(), h.core.tree.pinned, h.core.staging.free_count)


@pytest.mark.parametrize("trouble", ["damage", "fail_next"])
def test_a_bad_page_is_never_published(hand, trouble):
    """Whatever was verified before it is used; what comes from it on is a miss."""
    h = hand(parts=2, page_part_bytes=32)
    tokens = h.prompt(8)
    h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick()
    if trouble == "damage":
        h.store.damage(h.names(tokens)[4])
    else:
        h.store.fail_next(1)
    h.tick(2)
    admission = h.admit(a)
    assert {"damage": 64, "fail_next": 0}[trouble] == admission.store_hit_tokens
    assert admission.hit_tokens == 16 * h.live(tokens)


def test_a_ready_hold_expires_at_its_limit_and_its_end_stays_known(hand):
    """Others are parked; the request needs no query to fetch again."""
    h = hand(ready_limit=30)
    tokens = h.prompt(8)
    h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick(3)
    assert 30 == h.until_state(a, RequestState.RETRY)
    assert ({}, {"expired": 128}) == (h.books(), h.engine.stats().losses)
    h.until_state(a, RequestState.STAGED)
    h.tick()
    assert 1 == h.taken("request.retry.due.KNOWN")


def test_no_limit_frees_the_source_of_a_load(hand):
    """A load keeps its staging and its slots until the copies have ended, whatever happens to the request."""
    from stagehold.lifecycle.copies import PromptCopies

    class Never(PromptCopies):
        done = False

        def poll(self, tick):
            return super().poll(tick) if self.done else []

    copies = Never()
    h = hand(engine_options={"copies": copies}, fetch_limit=20, ready_limit=20, park_limit=20)
    tokens = h.prompt(8)
    h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick(3)
    hold = h.hold_of(a)
    pages = list(hold.data.staging)
    h.admit(a)
    h.engine.abort(a)
    h.tick(200)
    assert (HoldState.LOADING, pages) == (hold.state, hold.data.staging)
    assert (0, 0) == (h.shrink(tokens, 0), h.core.tree.evict(8))
    copies.done = True
    h.tick()
    assert (HoldState.SPLICED, 8) == (hold.state, h.core.tree.evict(8))


def test_claimants_of_an_abandoned_fetch_share_its_end(hand):
    """Each is told once, in the order of their claims."""
    h = hand(fetch_limit=30, retry_interval_ticks=0, delays=SLOW_GETS)
    tokens = h.prompt(8)
    h.put(tokens)
    a, b = h.arrive("a", tokens), h.arrive("b", tokens)
    h.tick(2)
    assert 30 == h.until_state(a, RequestState.RETRY)
    assert RequestState.RETRY is h.engine.state_of(b)
    assert {"expired": 256} == h.engine.stats().losses


def test_the_last_claim_that_leaves_drops_the_hold_and_no_other(hand):
    """Counted claims: the first abort of two changes nothing for the second."""
    h = hand(delays=SLOW_GETS)
    tokens = h.prompt(8)
    h.put(tokens)
    a, b = h.arrive("a", tokens), h.arrive("b", tokens)
    h.tick(2)
    hold = h.hold_of(a)
    h.engine.abort(a)
    assert HoldState.FETCHING is hold.state
    h.engine.abort(b)
    assert HoldState.DRAINING is hold.state


def test_a_new_request_does_not_join_a_draining_hold(hand):
    """It opens one of its own; the old buffer is nobody's."""
    h = hand(delays=SLOW_GETS, staging_pages=20, load_limit_fraction=1.0)
    tokens = h.prompt(8)
    h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick(2)
    h.engine.abort(a)
    b = h.arrive("b", tokens)
    h.tick(2)
    assert HoldState.FETCHING is h.hold_of(b).state
    assert 16 == h.books()["staging"]
