"""How a visit to a claimant ends: every outcome of commit, and what each leaves behind."""

from __future__ import annotations

import pytest

from stagehold import AdmissionOutcome, Misuse, PartialDelivery, RequestState, Skip, SkipReason
from stagehold.lifecycle.copies import PromptCopies
from stagehold.specs.hold import HoldState


class SlowCopies(PromptCopies):
    """Copies whose ends are reported only while `open`."""

    def __init__(self) -> None:
        super().__init__()
        self.open = False

    def poll(self, tick: int) -> list[int]:
        return super().poll(tick) if self.open else []


def ready(h, rid: str, tokens, live: int = 0, new: int = 1):
    """A request whose hold is ready behind `live` pages of the tree."""
    h.put(tokens)
    h.grow(tokens, live)
    handle = h.arrive(rid, tokens, new)
    h.tick(3)
    assert HoldState.READY is h.hold_of(handle).state
    return handle


def delivering(hand, pages: int, **settings):
    """An engine whose holds deliver up to page `pages`, whatever they promised."""
    return hand(engine_options={"deliver": lambda _hold, _live, _promised: pages}, **settings)


def test_what_was_promised_and_delivered_is_spliced(hand):
    """DELIVERED: hits are counted from what was delivered, the rest of the prompt is to be computed."""
    h = hand()
    a = ready(h, "a", h.prompt(8, tail=5), live=3)
    admission = h.admit(a)
    assert (128, 48, 80, 5) == (
        admission.hit_tokens, admission.device_hit_tokens, admission.store_hit_tokens, admission.extend_tokens
    )  # fmt: skip
    assert 8 == h.live(h.prompt(8))
    assert h.core.tree.slots(h.chain(h.prompt(8)), 0, 8) == list(admission.slots)
    h.tick()
    assert 1 == h.taken("request.anchor_locked.commit.DELIVERED")
    assert (80, {}) == (h.engine.stats().spliced, h.engine.stats().losses)


def test_more_than_promised_shrinks_the_extend_and_keeps_the_budget(hand):
    """MORE: the tree has grown past the hold between plan and commit."""
    h = hand(device_pages=64)
    long = h.prompt(12)
    h.put(long, 0, 8)
    a = h.arrive("a", long)
    h.tick(3)
    plan = h.engine.select(a, 1000)
    assert 12 * 16 + 1 - 128 == plan.extend_tokens
    h.grow(long, 12)
    admission = h.engine.commit(plan)
    assert (192, 192, 0, 1) == (
        admission.hit_tokens, admission.device_hit_tokens, admission.store_hit_tokens, admission.extend_tokens
    )  # fmt: skip
    assert 13 == h.books()["slots"] + h.machine(a).data.published
    h.tick()
    assert 1 == h.taken("request.anchor_locked.commit.MORE")
    assert {"covered": 128} == h.engine.stats().losses


def test_pages_that_a_sibling_published_between_plan_and_commit_are_not_loaded_again(hand):
    """Only the tail behind the live prefix is loaded; the rest was covered."""
    h = hand()
    tokens = h.prompt(8)
    a = ready(h, "a", tokens)
    plan = h.engine.select(a, 1000)
    h.grow(tokens, 5)
    admission = h.engine.commit(plan)
    assert (128, 48) == (admission.hit_tokens, admission.store_hit_tokens)
    assert (48, {"covered": 80}) == (h.engine.stats().spliced, h.engine.stats().losses)


def test_nothing_delivered_admits_with_zero_store_hits(hand):
    """NOTHING: the shape is selected again, once, without the hold."""
    h = delivering(hand, 0)
    a = ready(h, "a", h.prompt(8), live=3)
    admission = h.admit(a)
    assert (48, 0) == (admission.hit_tokens, admission.store_hit_tokens)
    assert {"short_device": 80} == h.engine.stats().losses
    h.tick()
    assert 0 == len(h.core.holds)


def test_nothing_delivered_and_no_room_without_it_goes_to_retry_with_the_end_known(hand):
    """UNFIT: the claim is given back, and the next launch needs no query."""
    h = delivering(hand, 0, device_pages=40)
    h.admit(h.arrive("runs", h.prompt(31, 2)))
    a = ready(h, "a", h.prompt(8))
    assert AdmissionOutcome.UNFIT is h.visit(a).outcome
    assert (RequestState.RETRY, 8) == (h.engine.state_of(a), h.machine(a).data.known_end)
    assert frozenset() == h.core.ledger.owned(h.machine(a).number)
    assert 8 == h.until_state(a, RequestState.STAGED)
    assert 1 == h.taken("request.retry.due.KNOWN")


def test_between_nothing_and_promised_is_rolled_back_and_raised(hand):
    """PARTIAL: a broken contract of the store side is never a smaller success."""
    h = delivering(hand, 5)
    tokens = h.prompt(8)
    a = ready(h, "a", tokens, live=3)
    free = h.core.device.free_count
    with pytest.raises(PartialDelivery, match=r"promised pages up to 8 and delivered up to 5"):
        h.visit(a)
    assert RequestState.CAPPED is h.engine.state_of(a)
    assert (3, free) == (h.live(tokens), h.core.device.free_count)
    assert {} == h.books()
    assert {"partial": 80} == h.engine.stats().losses
    assert 48 == h.admit(a).hit_tokens


def test_no_room_while_others_run_keeps_claim_hold_and_bytes(hand):
    """NO_ROOM: nothing is counted, and the hold is there when there is room."""
    h = hand(device_pages=40)
    runs = h.arrive("runs", h.prompt(31, 2))
    h.admit(runs)
    a = ready(h, "a", h.prompt(8))
    for _ in range(40):
        assert AdmissionOutcome.NO_ROOM is h.visit(a).outcome
        h.tick()
    assert (RequestState.STAGED, HoldState.READY, 0) == (
        h.engine.state_of(a), h.hold_of(a).state, h.machine(a).defers
    )  # fmt: skip
    h.engine.abort(runs)
    assert 128 == h.admit(a).store_hit_tokens


def idle_without_room(hand):
    """Nobody runs, and a load in flight holds most of the device pool; a second request's hold is ready."""
    copies = SlowCopies()
    h = hand(device_pages=34, engine_options={"copies": copies})
    first = ready(h, "first", h.prompt(30, 2))
    h.admit(first)
    h.engine.abort(first)
    return h, copies, ready(h, "a", h.prompt(8))


def test_no_room_although_idle_counts_a_deferral(hand):
    """DEFERRED: hold, pin and bytes stay."""
    h, copies, a = idle_without_room(hand)
    assert AdmissionOutcome.DEFERRED is h.visit(a).outcome
    assert (1, HoldState.READY) == (h.machine(a).defers, h.hold_of(a).state)
    copies.open = True
    h.tick()
    assert 128 == h.admit(a).store_hit_tokens


def test_after_32_deferrals_the_hold_is_dropped_and_the_request_recomputes(hand):
    """DEFER_CAP: the claim goes, not the request."""
    h, copies, a = idle_without_room(hand)
    outcomes = []
    for _ in range(33):
        outcomes.append(h.visit(a).outcome)
        h.tick()
    assert [AdmissionOutcome.DEFERRED] * 32 + [AdmissionOutcome.DEFER_CAP] == outcomes
    assert RequestState.CAPPED is h.engine.state_of(a)
    assert {"short_device": 128} == h.engine.stats().losses
    copies.open = True
    h.tick()
    assert 0 == h.admit(a).hit_tokens


def test_the_deferral_cap_is_configured(hand):
    """max_staged_admission_defers."""
    copies = SlowCopies()
    h = hand(device_pages=34, max_staged_admission_defers=2, engine_options={"copies": copies})
    first = ready(h, "first", h.prompt(30, 2))
    h.admit(first)
    h.engine.abort(first)
    a = ready(h, "a", h.prompt(8))
    assert ["deferred", "deferred", "defer_cap"] == [h.visit(a).outcome for _ in range(3)]


def test_select_allocates_no_slot_and_moves_no_byte(hand):
    """A plan is a lock and an open visit."""
    h = hand(parts=2, page_part_bytes=32)
    a = ready(h, "a", h.prompt(8), live=3)
    free, staged = h.core.device.free_count, h.core.staging.free_count
    bytes_before = h.core.tensors.device.tensor.clone()
    plan = h.engine.select(a, 1000)
    assert (3, 8) == (plan.live_pages, plan.promised_pages)
    assert (free, staged) == (h.core.device.free_count, h.core.staging.free_count)
    assert bool((bytes_before == h.core.tensors.device.tensor).all())
    h.engine.release(plan)


def test_a_released_visit_leaves_a_ready_hold_and_no_lock(hand):
    """Release gives back the lock alone."""
    h = hand()
    a = ready(h, "a", h.prompt(8), live=3)
    h.engine.release(h.engine.select(a, 1000))
    assert (RequestState.STAGED, HoldState.READY) == (h.engine.state_of(a), h.hold_of(a).state)
    assert frozenset({"claim"}) == h.core.ledger.owned(h.machine(a).number)
    h.tick()


def test_releases_do_not_keep_a_ready_hold_beyond_its_limit(hand):
    """Coming back from a visit starts no clock again."""
    h = hand(ready_limit=50)
    a = ready(h, "a", h.prompt(8))
    since = h.now
    while h.engine.state_of(a) is RequestState.STAGED:
        h.engine.release(h.engine.select(a, 1000))
        h.tick()
    assert (50, {"expired": 128}) == (h.now - since, h.engine.stats().losses)


def test_an_open_visit_refuses_a_tick_and_names_the_request(hand):
    """A visit ends in its own pass."""
    h = hand()
    plan = h.engine.select(h.arrive("late", h.prompt(4)), 1000)
    with pytest.raises(Misuse, match="late"):
        h.tick()
    h.engine.release(plan)
    h.tick()


@pytest.mark.parametrize("end", ["commit", "release"])
def test_a_plan_is_good_once(hand, end):
    """The second use is refused, and changes nothing."""
    h = hand()
    plan = h.engine.select(h.arrive("a", h.prompt(4)), 1000)
    h.engine.release(plan)
    with pytest.raises(Misuse, match="not open"):
        getattr(h.engine, end)(plan)


def test_a_second_select_of_an_open_visit_is_refused(hand):
    """One visit at a time for one request."""
    h = hand()
    a = h.arrive("a", h.prompt(4))
    plan = h.engine.select(a, 1000)
    with pytest.raises(Misuse, match="visit is open"):
        h.engine.select(a, 1000)
    h.engine.release(plan)


def test_the_budget_bounds_what_a_plan_extends(hand):
    """`extend_tokens` is the first chunk."""
    h = hand()
    plan = h.engine.select(h.arrive("a", h.prompt(8)), 50)
    assert 50 == plan.extend_tokens
    assert 50 == h.engine.commit(plan).extend_tokens


def test_a_request_without_room_waits_in_queue_whatever_its_state(hand):
    """NO_ROOM without a claim changes nothing."""
    h = hand(device_pages=40, store=None)
    runs = h.arrive("runs", h.prompt(31, 2))
    h.admit(runs)
    a = h.arrive("a", h.prompt(10))
    h.tick()
    assert AdmissionOutcome.NO_ROOM is h.visit(a).outcome
    assert RequestState.CAPPED is h.engine.state_of(a)
    h.engine.abort(runs)
    assert h.admit(a).admitted


def test_equal_prompts_share_one_fetch(hand):
    """Two claims, one hold, one read of the store; the sibling is covered by the splice."""
    h = hand()
    tokens = h.prompt(8)
    h.put(tokens)
    a, b = h.arrive("a", tokens), h.arrive("b", tokens)
    h.tick(3)
    assert h.hold_of(a) is h.hold_of(b)
    assert [h.machine(a).number, h.machine(b).number] == h.hold_of(a).data.claims
    assert 128 == h.admit(a).store_hit_tokens
    assert RequestState.COVERED is h.engine.state_of(b)
    admission = h.admit(b)
    assert (128, 0) == (admission.device_hit_tokens, admission.store_hit_tokens)
    h.tick()
    assert (1, 128) == (h.taken("request.staged.hold_ended.SPLICED"), h.engine.stats().fetched)
    assert (256, 128, {"covered": 128}) == (
        h.engine.stats().queried, h.engine.stats().spliced, h.engine.stats().losses
    )  # fmt: skip


def test_a_sibling_is_skipped_while_the_visit_is_open_even_if_it_waits_for_nothing(hand):
    """Its bytes are about to be spliced; recomputing them would be waste."""
    h = hand(wait_base_ticks=0, wait_per_page_ticks=0.0)
    tokens = h.prompt(8)
    h.put(tokens)
    a, b = h.arrive("a", tokens), h.arrive("b", tokens)
    h.tick(3)
    plan = h.engine.select(a, 1000)
    assert Skip(b, SkipReason.SIBLING_VISIT) == h.engine.select(b, 1000)
    h.engine.release(plan)
    assert 128 == h.admit(b).store_hit_tokens
    assert RequestState.COVERED is h.engine.state_of(a)


def test_the_visitor_may_leave_and_the_hold_stays_for_its_sibling(hand):
    """Abort of the visitor in its own visit: unplan, not drop."""
    h = hand()
    tokens = h.prompt(8)
    h.put(tokens)
    a, b = h.arrive("a", tokens), h.arrive("b", tokens)
    h.tick(3)
    h.engine.select(a, 1000)
    h.engine.abort(a)
    assert HoldState.READY is h.hold_of(b).state
    h.tick()
    assert 128 == h.admit(b).store_hit_tokens


def test_a_cover_is_shared_by_all_claimants(hand):
    """When one visit sees that the tree holds the span, the others are released in the same cascade."""
    h = hand()
    tokens = h.prompt(8)
    h.put(tokens)
    a, b = h.arrive("a", tokens), h.arrive("b", tokens)
    h.tick(3)
    h.grow(tokens, 8)
    h.engine.release(h.engine.select(a, 1000))
    assert [RequestState.COVERED] * 2 == [h.engine.state_of(a), h.engine.state_of(b)]
    assert {"covered": 256} == h.engine.stats().losses


def test_namespaces_share_nothing(hand):
    """Equal tokens of another tenant are another span."""
    from stagehold import Namespace

    h = hand()
    tokens = h.prompt(8)
    h.put(tokens)
    a = h.arrive("a", tokens)
    b = h.arrive("b", tokens, namespace=Namespace("by-hand", cache_salt="other"))
    h.tick(2)
    assert (RequestState.STAGED, RequestState.RETRY) == (h.engine.state_of(a), h.engine.state_of(b))
    h.tick()
    h.serve(a)
    assert 0 == h.admit(b).hit_tokens


def test_spliced_bytes_are_those_of_the_store(hand):
    """Each page of the store lands in the slot that the tree shows for it."""
    h = hand(parts=2, page_part_bytes=32)
    a = ready(h, "a", h.prompt(8), live=2)
    slots = h.admit(a).slots
    device = h.core.tensors.device.tensor
    assert [{page + 1} for page in range(2, 8)] == [set(device[:, slot].flatten().tolist()) for slot in slots[2:]]


def test_a_tail_that_starts_inside_the_hold_is_loaded_from_its_own_pages(hand):
    """What a sibling published between plan and commit is skipped at both ends of the copy."""
    h = hand(parts=2, page_part_bytes=32)
    tokens = h.prompt(8)
    a = ready(h, "a", tokens)
    plan = h.engine.select(a, 1000)
    h.grow(tokens, 5)
    slots = h.engine.commit(plan).slots
    device = h.core.tensors.device.tensor
    assert [{0}] * 5 + [{6}, {7}, {8}] == [set(device[:, slot].flatten().tolist()) for slot in slots]


def test_a_cover_that_shrinks_between_plan_and_commit_is_not_admitted_with_less(hand):
    """SHRUNK: the request launches again in that very commit, and the end is still known."""
    h = hand()
    tokens = h.prompt(8)
    h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick(2)
    h.grow(tokens, 8)
    h.tick()
    h.engine.release(h.engine.select(a, 1000))
    plan = h.engine.select(a, 1000)
    assert (RequestState.COVERED, 8) == (h.engine.state_of(a), plan.live_pages)
    h.shrink(tokens, 3)
    assert AdmissionOutcome.SHRUNK is h.engine.commit(plan).outcome
    assert RequestState.STAGED is h.engine.state_of(a)
    h.tick(2)
    assert 5 * 16 == h.admit(a).store_hit_tokens


def test_a_released_visit_to_a_queued_request_leaves_it_to_be_launched(hand):
    """Looking at it early costs it nothing."""
    h = hand()
    a = h.arrive("a", h.prompt(8))
    h.engine.release(h.engine.select(a, 1000))
    h.tick()
    assert RequestState.LOOKUP is h.engine.state_of(a)
