"""Who counts as a tenant, and for how long: what each is guaranteed follows from how many there are."""

from __future__ import annotations

from collections.abc import Callable

from stagehold import HostMode, Namespace
from stagehold.cache.stores.simulated import Delays
from stagehold.lifecycle.quotas import LOOKED_AT_A_TICK
from stagehold.testing.hand import NAMESPACE, Hand

SLOW_PUTS = Delays(exists=(1, 1), get=(1, 1), put=(100, 100))

Build = Callable[..., Hand]


def test_a_tenant_counts_until_nothing_of_it_is_left(hand: Build) -> None:
    """Its request, then its write, then nothing."""
    h = hand(tenant_share=0.25, delays=SLOW_PUTS)
    h.run("r", h.prompt(4))
    h.tick(5)
    assert (list(h.core.quotas.tenants), h.core.requests) == ([NAMESPACE.digest(16)], {})
    h.until(lambda: not h.core.writes)
    h.tick()
    assert h.core.quotas.tenants == {}
    assert h.engine.stats().tenants == 0


def test_more_tenants_than_shares_have_an_equal_part_each(hand: Build) -> None:
    """Half of 40 for each of two; eight for each of five."""
    h = hand(tenant_share=0.5)
    guaranteed = []
    for number in range(5):
        h.arrive(f"t{number}", h.prompt(1, number), namespace=Namespace(f"tenant {number}"))
        guaranteed.append(h.core.quotas.staging[0].guaranteed)
    assert guaranteed == [20, 20, 13, 10, 8]


def test_who_counts_is_asked_a_few_at_a_time(hand: Build) -> None:
    """Where each user is a tenant: thousands that have gone are forgotten in as many ticks as that takes."""
    h = hand(tenant_share=0.25)
    for number in range(3 * LOOKED_AT_A_TICK):
        h.engine.abort(h.arrive(f"t{number}", h.prompt(1, number), namespace=Namespace(f"tenant {number}")))
    left = []
    for _ in range(3):
        h.tick()
        left.append(len(h.core.quotas.tenants))
    assert left == [2 * LOOKED_AT_A_TICK, LOOKED_AT_A_TICK, 0]


def test_a_tenant_that_has_left_counts_again_while_its_pages_are_written(hand: Build) -> None:
    """With write-back its pages are offered when others want the device, and by then it may be none any more."""
    h = hand(
        host_memory_mode=HostMode.CACHE, write_policy="write_back", tenant_share=0.25, device_pages=48, delays=SLOW_PUTS
    )
    h.run("r", h.prompt(8, 1))
    h.tick(2)
    assert h.core.quotas.tenants == {}
    h.serve(h.arrive("more", h.prompt(30, 3), namespace=Namespace("another tenant")))
    h.tick()
    assert {w.data.namespace for w in h.core.writes.values()} == {NAMESPACE.digest(16)}
    assert list(h.core.quotas.tenants) == [NAMESPACE.digest(16)]


def test_a_write_is_no_larger_than_what_is_guaranteed_of_the_backlog(hand: Build) -> None:
    """One page of ten, where staging would take writes of four: the greedy tenant leaves it, and it can be had."""
    h = hand(tenant_share=0.1, write_backlog_tokens=10 * 16)
    other = Namespace("another tenant")
    h.arrive("guest", h.prompt(1, 99), namespace=other)
    h.store.stall()
    h.run("greedy", h.prompt(20, 1))
    h.serve(h.arrive("other", h.prompt(8, 2), namespace=other))
    assert h.core.quotas.backlog.used == {NAMESPACE.digest(16): 9, other.digest(16): 1}
