"""Quotas of tenants, rule by rule: what one is guaranteed is left for it, and what it does not use is lent.

Each test has a greedy tenant (`hand`'s own namespace) and another one, which is there with a request that is too short
to be worth a fetch.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stagehold import HostMode, Namespace
from stagehold.cache.stores.simulated import Delays, SimulatedStore
from stagehold.lifecycle.acts import Acts
from stagehold.lifecycle.data import Handle
from stagehold.lifecycle.errors import InvariantBroken
from stagehold.specs.hold import HoldState
from stagehold.specs.request import RequestState
from stagehold.specs.write import WriteState
from stagehold.testing.hand import NAMESPACE, SLOW_GETS, Hand

OTHER = Namespace("another tenant")
HALF = {"tenant_share": 0.5, "load_limit_fraction": 1.0, "delays": SLOW_GETS}
SLOW_PUTS = Delays(exists=(1, 1), get=(1, 1), put=(100, 100))

Build = Callable[..., Hand]


def key(space: Namespace) -> bytes:
    return space.digest(16)


def guest(h: Hand) -> Handle:
    """The other tenant is there."""
    return h.arrive("guest", h.prompt(1, 99), namespace=OTHER)


def store(h: Hand, tokens, space: Namespace = NAMESPACE) -> None:
    """Another server has stored all whole pages of this prompt for a tenant."""
    whose, h.chain = h.chain, lambda of, namespace=space: whose(of, namespace)
    h.put(tokens)
    h.chain = whose


def fetched(h: Hand, rid: str, pages: int, family: int, space: Namespace = NAMESPACE) -> Handle:
    """A request whose pages are stored, two ticks after its arrival."""
    store(h, h.prompt(pages, family), space)
    handle = h.arrive(rid, h.prompt(pages, family), namespace=space)
    h.tick(2)
    return handle


def fetching(h: Hand, *wanted: tuple[int, int, Namespace]) -> list[Handle]:
    """Requests of (pages, family, tenant) that are launched in one tick, so that none finds the limit of loads."""
    for pages, family, space in wanted:
        store(h, h.prompt(pages, family), space)
    handles = [h.arrive(f"r{family}", h.prompt(pages, family), namespace=space) for pages, family, space in wanted]
    h.tick(2)
    return handles


def states(h: Hand, *handles: Handle) -> list[HoldState]:
    return [h.hold_of(handle).state for handle in handles]


def held(h: Hand, space: Namespace = NAMESPACE) -> int:
    return h.core.quotas.staging[0].used.get(key(space), 0)


# Staging


def test_staging_is_left_for_the_other_tenant_and_not_for_the_one_that_asks(hand: Build) -> None:
    """20 of 40 pages are its own: the second fetch of ten fits, the third waits; the other one's begins at once."""
    h = hand(**HALF)
    guest(h)
    handles = fetching(h, *((10, family, NAMESPACE) for family in (1, 2, 3)), (20, 4, OTHER))
    assert states(h, *handles) == [*[HoldState.FETCHING] * 2, HoldState.PARKED, HoldState.FETCHING]
    assert h.engine.stats().refused_for_tenants["staging"] > 0


def test_a_tenant_alone_has_all_of_staging(hand: Build) -> None:
    """What nobody is guaranteed, and what nobody uses."""
    h = hand(**HALF)
    first, second = (fetched(h, f"r{family}", 20, family) for family in (1, 2))
    assert states(h, first, second) == [HoldState.FETCHING] * 2
    assert h.core.staging.free_count == 0


def test_what_nobody_is_guaranteed_anybody_may_have(hand: Build) -> None:
    """With a quarter for each of two, one of them may have three quarters."""
    h = hand(**{**HALF, "tenant_share": 0.25})
    guest(h)
    greedy = fetching(h, *((10, family, NAMESPACE) for family in (1, 2, 3, 4)))
    assert states(h, *greedy) == [*[HoldState.FETCHING] * 3, HoldState.PARKED]


def test_what_waits_begins_when_the_other_tenant_has_gone(hand: Build) -> None:
    """Nothing was given back, and yet there is more room."""
    h = hand(**HALF)
    other = guest(h)
    greedy = fetching(h, *((10, family, NAMESPACE) for family in (1, 2, 3)))
    assert states(h, *greedy) == [*[HoldState.FETCHING] * 2, HoldState.PARKED]
    h.engine.abort(other)
    h.tick()
    assert states(h, *greedy) == [HoldState.FETCHING] * 3


def test_what_waits_begins_when_so_many_have_come_that_nothing_is_kept_for_any(hand: Build) -> None:
    """Two of four pages are the other tenant's; with five tenants there is no page for each of them."""
    h = hand(**{**HALF, "tenant_share": 1.0}, staging_pages=4, prefetch_threshold_tokens=16)
    guest(h)
    handles = fetching(h, (2, 1, NAMESPACE), (2, 2, NAMESPACE))
    assert states(h, *handles) == [HoldState.FETCHING, HoldState.PARKED]
    h.tick()
    for number in range(3):
        h.arrive(f"t{number}", h.prompt(0, number), namespace=Namespace(f"tenant {number}"))
    h.tick()
    assert states(h, *handles) == [HoldState.FETCHING] * 2


def test_a_newcomer_waits_for_fetches_in_flight_and_for_no_later_ones(hand: Build) -> None:
    """All of staging was taken before it came; of what comes back then, its own is not given away again."""
    h = hand(**{**HALF, "delays": Delays(exists=(1, 1), get=(20, 20), put=(1, 1))})
    *first, parked = fetching(h, *((10, family, NAMESPACE) for family in (1, 2, 3, 4, 5)))
    other = fetched(h, "other", 16, 6, OTHER)
    assert h.core.quotas.staging[0].overdue == 20
    assert states(h, *first, parked, other) == [*[HoldState.FETCHING] * 4, *[HoldState.PARKED] * 2]
    h.until(lambda: h.hold_of(first[0]).state is HoldState.READY)
    for handle in first[:2]:
        h.engine.abort(handle)
    h.tick()
    assert states(h, parked, other) == [HoldState.PARKED, HoldState.FETCHING]
    assert (held(h), h.core.quotas.staging[0].overdue) == (20, 0)


def test_a_span_is_cut_to_what_its_tenant_can_have(hand: Build) -> None:
    """24 pages are stored, and half of 40 is all that can ever be had beside another one."""
    h = hand(**HALF)
    guest(h)
    greedy = fetched(h, "long", 24, 1)
    assert (h.hold_of(greedy).data.last, h.hold_of(greedy).state) == (20, HoldState.FETCHING)


def test_an_elder_of_one_tenant_keeps_nothing_from_what_another_is_guaranteed(hand: Build) -> None:
    """A hold of 16 was passed too often: its tenant's others wait behind it, the other tenant's do not."""
    h = hand(**HALF, operation_window=16)
    guest(h)
    first, elder = fetching(h, (10, 1, NAMESPACE), (16, 2, NAMESPACE))
    h.hold_of(elder).data.passed = 99
    h.core.quotas.loads.guaranteed = 40  # nobody is kept from a launch
    own, other = fetching(h, (4, 3, NAMESPACE), (8, 4, OTHER))
    assert states(h, first, elder, own, other) == [
        HoldState.FETCHING, HoldState.PARKED, HoldState.PARKED, HoldState.FETCHING
    ]  # fmt: skip


def test_beyond_its_own_a_tenant_waits_for_the_elders_of_others(hand: Build) -> None:
    """Room that nobody is guaranteed goes to whoever was passed too often, whose it is does not matter."""
    h = hand(**{**HALF, "tenant_share": 0.25})
    first, elder = fetching(h, (20, 1, OTHER), (24, 2, NAMESPACE))
    h.hold_of(elder).data.passed = 99
    h.core.quotas.loads.guaranteed = 40
    (other,) = fetching(h, (4, 3, OTHER))
    assert states(h, first, elder, other) == [HoldState.FETCHING, HoldState.PARKED, HoldState.PARKED]


def test_each_tenant_has_an_elder_of_its_own(hand: Build) -> None:
    """A hold of each was passed too often, and nothing is kept for the older one: the other one is not passed again."""
    h = hand(**{**HALF, "tenant_share": 0.25})
    _, older, elder = fetching(h, (20, 1, OTHER), (24, 2, NAMESPACE), (18, 3, OTHER))
    for one in (older, elder):
        h.hold_of(one).data.passed = 99
    h.core.news += 1
    h.tick()
    elders = [m.data.namespace for m in h.engine._parts.holds.elders]
    assert elders == [key(NAMESPACE), key(OTHER)]


# Host memory


@pytest.fixture(name="kept")
def _kept(hand: Build) -> Hand:
    """Host memory of 40 pages alone: eight of the other tenant's, then as many as there is room for."""
    h = hand(store=None, host_memory_mode=HostMode.CACHE, tenant_share=0.25, load_limit_fraction=1.0)
    written(h, OTHER, 8, 50)
    for family in range(1, 8):
        written(h, NAMESPACE, 8, family)
    return h


def written(h: Hand, space: Namespace, pages: int, family: int) -> None:
    """A prompt was computed, and is in host memory alone."""
    tokens = h.prompt(pages, family)
    handle = h.arrive(f"w{family}", tokens, namespace=space)
    h.serve(handle)
    h.until(lambda: not h.core.writes)
    h.core.tree.remove(h.chain(tokens, space), 0)


def test_host_memory_keeps_what_a_tenant_is_guaranteed(kept: Hand) -> None:
    """Seven prompts of eight pages came after it, and there is room for four."""
    owned = kept.core.staging.tenancy.owned
    assert (owned[key(OTHER)], owned[key(NAMESPACE)]) == (8, 32)


def test_a_tenant_comes_back_to_its_pages(kept: Hand) -> None:
    """Its hold takes them from host memory at once."""
    handle = kept.arrive("again", kept.prompt(8, 50), namespace=OTHER)
    kept.tick(2)
    assert kept.admit(handle).store_hit_tokens == 8 * 16


def test_pages_of_a_tenant_that_is_long_gone_are_anybodys(hand: Build) -> None:
    """After `belief_limit` ticks without a request."""
    h = hand(store=None, host_memory_mode=HostMode.CACHE, tenant_share=0.25, belief_limit=30, write_wait_limit=30)
    written(h, OTHER, 8, 50)
    h.tick(29)
    assert key(OTHER) in h.core.quotas.tenants
    h.tick(2)
    assert key(OTHER) not in h.core.quotas.tenants
    for family in range(1, 8):
        written(h, NAMESPACE, 8, family)
    assert key(OTHER) not in h.core.staging.tenancy.owned


def test_holds_over_host_memory_are_held_like_others(kept: Hand) -> None:
    """What a hold has of host memory cannot be taken back, so that a fourth one of eight pages waits."""
    handles = [kept.arrive(f"r{family}", kept.prompt(8, family)) for family in (4, 5, 6, 7)]
    kept.tick(3)
    assert states(kept, *handles) == [*[HoldState.READY] * 3, HoldState.PARKED]
    assert held(kept) == 24


def test_puts_from_host_memory_are_held_like_others(hand: Build) -> None:
    """The same for writes whose bytes are there: 30 of 40 pages, and no more."""
    h = hand(store=None, host_memory_mode=HostMode.CACHE, tenant_share=0.25)
    prompts = [h.prompt(8, family) for family in (1, 2, 3, 4, 5)]
    for family in range(1, 6):
        written(h, NAMESPACE, 8, family)
    guest(h)
    h.store = SimulatedStore(delays=SLOW_PUTS)
    h.engine.attach(h.store)
    h.until(lambda: h.engine.attachment.name == "ATTACHED")
    for at, tokens in enumerate(prompts):
        h.run(f"again {at}", tokens)
    h.tick(4)
    assert held(h) <= 30
    assert held(h) > 20
    assert WriteState.QUEUED in {w.state for w in h.core.writes.values()}


# Pins, lookups, loads


def test_pins_are_left_for_the_other_tenant(hand: Build) -> None:
    """Of 32 pages that may be pinned 16 are its own: two anchors of ten wait for each other, alone they would not."""
    for share, second in ((0.0, HoldState.FETCHING), (0.5, HoldState.PARKED)):
        h = hand(**{**HALF, "tenant_share": share})
        guest(h)
        handles = []
        for family in (1, 2):
            store(h, h.prompt(14, family))
            h.grow(h.prompt(14, family), 10)
            handles.append(h.arrive(f"r{family}", h.prompt(14, family)))
        h.tick(3)
        assert states(h, *handles) == [HoldState.FETCHING, second]
    assert h.engine.stats().refused_for_tenants["pin"] > 0


def test_an_anchor_that_could_never_be_pinned_is_not_waited_for(hand: Build) -> None:
    """18 pages are more than one tenant can have of 32: fetched with an empty pin, and looked at again later."""
    h = hand(**HALF)
    guest(h)
    store(h, h.prompt(22))
    h.grow(h.prompt(22), 18)
    handle = h.arrive("r", h.prompt(22))
    h.tick(3)
    assert states(h, handle) == [HoldState.FETCHING]
    assert h.hold_of(handle).data.pin.pages == 0


def test_a_pin_of_a_policy_is_its_tenants(hand: Build) -> None:
    """Charged when it is taken, and no more when it is given back."""
    h = hand(**HALF)
    parts = h.engine._parts
    acts = Acts(h.core, None, parts.holds, retries=parts.retries, running=parts.running)
    h.grow(h.prompt(8), 6)
    request = h.machine(h.arrive("r", h.prompt(8)))
    acts.pin(request)
    assert h.core.quotas.pins.used == {key(NAMESPACE): 6}
    acts.unpin(request)
    assert (h.core.quotas.pins.used, h.core.tree.pinned) == ({}, 0)


def test_lookups_are_left_for_the_other_tenant(hand: Build) -> None:
    """Two of four are its own."""
    h = hand(**{**HALF, "delays": Delays(exists=(50, 50))}, query_limit=4)
    guest(h)
    greedy = [h.arrive(f"r{family}", h.prompt(4, family)) for family in range(4)]
    other = [h.arrive(f"o{family}", h.prompt(4, family), namespace=OTHER) for family in range(3)]
    h.tick()
    asked = [h.engine.state_of(handle) is RequestState.LOOKUP for handle in (*greedy, *other)]
    assert asked == [True, True, False, False, True, True, False]
    assert h.engine.stats().refused_for_tenants["lookup"] == 2  # the last one found that all four are in flight


def test_who_may_load_no_more_does_not_keep_others_from_being_launched(hand: Build) -> None:
    """Arrivals of the greedy tenant wait in their order, and the other one's pass them."""
    h = hand(**{**HALF, "load_limit_fraction": 0.5})
    guest(h)
    fetched(h, "r0", 12, 1)
    waiting = [h.arrive(f"r{family}", h.prompt(4, family)) for family in (2, 3)]
    store(h, h.prompt(8, 4), OTHER)
    other = h.arrive("other", h.prompt(8, 4), namespace=OTHER)
    h.tick(3)
    assert [h.engine.state_of(handle) for handle in waiting] == [RequestState.QUEUED] * 2
    assert states(h, other) == [HoldState.FETCHING]
    assert [m.data.handle for m in h.engine._parts.phases.queued()] == waiting
    h.engine.abort(h.arrive("r9", h.prompt(4, 9)))
    h.engine.abort(waiting[0])
    h.engine.abort(h.engine._roster.alive["r0"].data.handle)
    h.tick(102)
    assert h.engine.state_of(waiting[1]) is not RequestState.QUEUED
    assert h.engine._parts.phases.queued() == []


def test_the_first_load_of_a_tenant_is_launched_however_little_is_guaranteed(hand: Build) -> None:
    """Half of a limit of one page is none."""
    h = hand(**{**HALF, "load_limit_fraction": 0.01})
    greedy, other = (fetched(h, f"r{number}", 4, number, space) for number, space in enumerate((NAMESPACE, OTHER)))
    assert (h.config.load_limit_pages, h.core.quotas.loads.guaranteed) == (1, 0)
    assert states(h, greedy, other) == [HoldState.FETCHING] * 2


# Writes


def test_the_backlog_is_left_for_the_other_tenant(hand: Build, caplog: pytest.LogCaptureFixture) -> None:
    """Of 32 pages 16 are its own; what is refused is no sign of a bug, and nobody is told of one."""
    h = hand(**HALF, write_backlog_tokens=32 * 16)
    guest(h)
    h.store.stall()
    h.run("greedy", h.prompt(24, 1))
    assert h.engine.stats().backlog_pages == 16
    assert h.engine.stats().refused_for_tenants["backlog"] == 1  # what follows it has no parent
    h.serve(h.arrive("other", h.prompt(16, 2), namespace=OTHER))
    assert h.engine.stats().backlog_pages == 32
    assert "backlog is full" not in caplog.text


def test_a_burst_of_writes_does_not_stand_before_others(hand: Build) -> None:
    """The greedy tenant has all that writes may have, and more waits; the other one's first write goes before that."""
    h = hand(tenant_share=0.25, delays=SLOW_PUTS, device_pages=128)
    guest(h)
    for family in (1, 2, 3):
        h.run(f"r{family}", h.prompt(28, family))
    h.tick(3)
    queued = [w for w in h.core.writes.values() if w.state is WriteState.QUEUED]
    assert len(queued) > 8
    h.serve(h.arrive("other", h.prompt(4, 4), namespace=OTHER))
    h.tick(3)
    (write,) = (w for w in h.core.writes.values() if w.data.namespace == key(OTHER))
    assert write.state is WriteState.STORING
    assert h.core.quotas.writes[0].used[key(OTHER)] == 4


def test_writes_of_tenants_take_turns(hand: Build) -> None:
    """Of one tick: one of each, and the next tick begins with another one."""
    h = hand(tenant_share=0.25)
    h.tick()
    for family, space in enumerate((NAMESPACE, OTHER)):
        h.serve(h.arrive(f"r{family}", h.prompt(24, family), namespace=space))
    turns = [[w.data.namespace for w in h.core.backlog.turn()] for _ in range(2)]
    assert turns == [[key(OTHER), key(NAMESPACE)], [key(NAMESPACE), key(OTHER)]]  # nothing began: each is blocked
    h.until(lambda: not h.core.writes)
    h.run("r9", h.prompt(4, 9))
    h.tick()
    assert list(h.core.backlog._lanes) == [("full", key(NAMESPACE))]


def test_one_write_of_each_tenant_begins_before_the_second_of_any(hand: Build) -> None:
    """Where nothing is blocked."""
    h = hand(tenant_share=0.25)
    for family, space in enumerate((NAMESPACE, OTHER)):
        h.serve(h.arrive(f"r{family}", h.prompt(12, family), namespace=space))
    begun: list[bytes] = []
    for w in h.core.backlog.turn():
        begun.append(w.data.namespace)
        h.core.backlog.leave(w)
    assert begun == [key(OTHER), key(NAMESPACE)] * 3


def test_a_first_write_begins_however_much_others_write(hand: Build) -> None:
    """Loads leave twelve pages to writes, all of which one tenant has; four of staging are free, and another one's."""
    h = hand(tenant_share=0.1, load_limit_fraction=1.0, delays=Delays(exists=(1, 1), get=(500, 500), put=(500, 500)))
    guest(h)
    fetching(h, (24, 1, NAMESPACE))
    h.run("greedy", h.prompt(20, 2))
    h.tick(3)
    assert (h.core.write_pages, h.core.staging.free_count) == (12, 4)
    h.serve(h.arrive("other", h.prompt(4, 3), namespace=OTHER))
    h.tick(2)
    assert (h.core.write_pages, h.core.staging.free_count) == (16, 0)


def test_a_write_fits_in_what_its_tenant_is_guaranteed(hand: Build) -> None:
    """Four pages are the largest write of 40; three are guaranteed to each of a dozen tenants."""
    h = hand(tenant_share=0.25)
    h.run("alone", h.prompt(8, 1))
    assert {w.data.pages for w in h.core.writes.values()} == {4}
    for number in range(11):
        h.arrive(f"t{number}", h.prompt(1, 50 + number), namespace=Namespace(f"tenant {number}"))
    h.until(lambda: not h.core.writes)
    h.run("crowded", h.prompt(8, 2))
    assert [w.data.pages for w in h.core.writes.values()] == [3, 3, 2]


def test_what_waits_for_write_back_is_offered_past_a_full_backlog(hand: Build) -> None:
    """The greedy tenant's pages leave first, and its part of the backlog is full: the other one's are offered."""
    h = hand(
        host_memory_mode=HostMode.CACHE, write_policy="write_back", tenant_share=0.5, write_backlog_tokens=8 * 16,
        device_pages=48,
    )  # fmt: skip
    guest(h)
    h.store.stall()
    h.run("greedy", h.prompt(6, 1))
    h.serve(h.arrive("other", h.prompt(6, 2), namespace=OTHER))
    large = h.arrive("more", h.prompt(30, 3))
    h.admit(large)
    h.engine.extend(large, 30 * 16 + 1)
    h.tick(3)
    assert h.core.quotas.backlog.used == {key(NAMESPACE): 4, key(OTHER): 4}


def test_a_drain_writes_what_each_tenant_has_room_for(hand: Build) -> None:
    """The same of all that is held back, in one go."""
    h = hand(host_memory_mode=HostMode.CACHE, write_policy="write_back", tenant_share=0.5, write_backlog_tokens=8 * 16)
    h.store.stall()
    h.serve(h.arrive("other", h.prompt(6, 2), namespace=OTHER))
    h.run("greedy", h.prompt(6, 1))
    h.engine._parts.phases.offers.held_back()
    assert h.core.quotas.backlog.used == {key(NAMESPACE): 4, key(OTHER): 4}


# Who counts


def test_nobody_counts_where_no_share_is_set(hand: Build) -> None:
    """Nothing is counted, whatever happens."""
    h = hand()
    fetched(h, "r", 8, 1)
    quotas = h.core.quotas
    assert (quotas.on, quotas.tenants, quotas.pins.used, h.core.staging.tenancy) == (False, {}, {}, None)
    assert [share.used for share in (*quotas.staging, *quotas.writes, quotas.loads, quotas.backlog)] == [{}] * 4


def test_a_snapshot_has_what_tenants_have(hand: Build) -> None:
    """And what counts it is one thing again after the way back."""
    h = hand(**HALF)
    guest(h)
    fetching(h, (10, 1, NAMESPACE))
    saved = h.engine.snapshot()
    before = dict(h.core.quotas.staging[0].used)
    fetching(h, (8, 2, NAMESPACE), (8, 3, Namespace("a third")))
    assert len(h.core.quotas.tenants) == 3
    h.engine.restore(saved)
    quotas = h.core.quotas
    assert quotas.staging[0].used == before == {key(NAMESPACE): 10}
    assert list(quotas.tenants) == [key(OTHER), key(NAMESPACE)]
    assert h.core.staging.tenancy.held is quotas.staging[0]
    assert h.core.ledger.shares["backlog"] is quotas.backlog
    h.run("r9", h.prompt(8, 9))
    h.tick(3)


def test_a_breach_of_a_quota_is_one(hand: Build) -> None:
    """Planted: a hold gets staging that is another tenant's."""
    h = hand(**HALF)
    guest(h)
    fetched(h, "r1", 16, 1)
    h.core.staging_room = lambda _stock, _namespace: 40
    store(h, h.prompt(16, 2))
    h.arrive("r2", h.prompt(16, 2))
    with pytest.raises(InvariantBroken, match=r"quotas: 32 of 40 staging are in use, and tenants lack 20"):
        h.tick(3)
    del h.core.staging_room
    h.core.ledger.strict = False
