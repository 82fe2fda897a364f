"""Two holds over one span: a short delivery or a cut can bring that about; only one of them can ever be joined."""

from __future__ import annotations

import pytest

from stagehold import PrefetchPolicy, RequestState
from stagehold.cache.stores.simulated import Delays
from stagehold.lifecycle.books import check
from stagehold.machines import Machine
from stagehold.specs.hold import HoldState
from stagehold.testing.hand import Hand

BYTES = {"parts": 2, "page_part_bytes": 32}


def span(h: Machine) -> tuple[int, int]:
    return h.data.start, h.data.last


def by_short_delivery(hand) -> tuple[Hand, Machine, Machine]:
    """A fetch of eight pages brings four, while another fetch of just those four is under way."""
    h = hand(delays=Delays(exists=(1, 1), get=(6, 6), put=(1, 1)), **BYTES)
    long = h.prompt(8)
    h.put(long)
    a = h.arrive("long", long)
    h.tick(2)
    b = h.arrive("short", h.prompt(8, 2, shared=4))
    first = h.hold_of(a)
    h.tick(2)
    second = h.hold_of(b)
    assert [(0, 8), (0, 4)] == [span(first), span(second)]
    h.store.damage(h.names(long)[4])
    h.until(lambda: first.state is HoldState.READY, 20)
    return h, second, first


def by_cut(hand) -> tuple[Hand, Machine, Machine]:
    """A visit that will not wait keeps four verified pages of eight, which another hold brings already."""
    h = hand(prefetch_policy=PrefetchPolicy.BEST_EFFORT, **BYTES)
    h.put(h.prompt(8))
    h.store.limit(1)
    a = h.arrive("long", h.prompt(8))
    h.tick(2)
    b = h.arrive("short", h.prompt(8, 2, shared=4))
    h.tick(2)
    first, second = h.hold_of(a), h.hold_of(b)
    h.until(lambda: h.core.operations.live[first.data.operation].good == 4, 20)
    h.engine.release(h.engine.select(a, 1000))
    return h, second, first


WAYS = {"short delivery": by_short_delivery, "cut": by_cut}


@pytest.mark.parametrize("way", WAYS)
def test_the_hold_that_came_second_to_its_span_is_not_joined(hand, way):
    """Both are wanted, the books are right, and whoever comes now joins the one that was there."""
    h, there, shortened = WAYS[way](hand)
    assert span(there) == span(shortened) == (0, 4)
    assert there.data.claims
    assert shortened.data.claims
    assert [there.number] == list(h.core.spans.values())
    assert [] == check(h.core)
    third = h.arrive("third", h.prompt(8, 3, shared=4))
    h.tick(2)
    assert there is h.hold_of(third)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("order", [("long", "short"), ("short", "long")])
def test_both_claimants_are_served_the_same_bytes(hand, way, order):
    """Whoever is admitted first splices, the other one is covered by it."""
    h, there, _ = WAYS[way](hand)
    h.until(lambda: there.state is HoldState.READY, 20)
    handles = [h.engine._roster.alive[name].data.handle for name in order]
    admissions = [h.admit(handle) for handle in handles]
    assert [64, 64] == [admission.hit_tokens for admission in admissions]
    assert admissions[0].slots == admissions[1].slots
    read = [h.core.tensors.device.tensor[:, slot].flatten().tolist() for slot in admissions[0].slots]
    assert [[page + 1] * 64 for page in range(4)] == read


@pytest.mark.parametrize("way", WAYS)
def test_when_the_one_that_could_be_joined_has_gone_nobody_joins_the_other(hand, way):
    """A newcomer opens a hold of its own: it costs a fetch, and no book has to look for a successor."""
    h, there, shortened = WAYS[way](hand)
    h.engine.abort(h.engine._roster.alive["short"].data.handle)
    assert {} == h.core.spans
    third = h.arrive("third", h.prompt(8, 3, shared=4))
    h.tick(2)
    assert h.hold_of(third) not in (there, shortened)
    assert [] == check(h.core)
    h.until(lambda: h.hold_of(third).state is HoldState.READY, 20)
    assert RequestState.STAGED is h.engine._roster.alive["long"].state
    assert 64 == h.admit(third).store_hit_tokens
