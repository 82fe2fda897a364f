"""K86: a preempted request's blocks were given to another one while they were still being copied out.

What reached the store was half of each. Here the pages of a copy are under its own span, not under the request's lock:
the request may go at any time, its pages only when the copy is over.
"""

from __future__ import annotations

import pytest

from stagehold.cache.holds import EMPTY, Hold
from stagehold.cache.tree import Tree
from stagehold.specs.write import WriteState
from stagehold.testing.hand import Hand
from stagehold.testing.watched import LateCopies

COPY_TICKS = 8


def leaves_during_the_copy(build, how: str, **options) -> tuple[Hand, list[int]]:
    """Eight published pages of sevens; their copy is in flight, and the request goes."""
    copies = {"copies": LateCopies(0, (COPY_TICKS, COPY_TICKS))}
    h = build(
        parts=2,
        page_part_bytes=32,
        staging_pages=80,
        device_pages=40,
        largest_request_tokens=512,
        engine_options={**copies, **options},
    )
    a = h.arrive("a", h.prompt(8), new=20)
    h.admit(a)
    slots = list(h.engine.extend(a, 129).slots)[:8]
    h.core.tensors.device.tensor[:, slots] = 7
    h.engine.publish(a, 129)
    h.tick()
    assert [WriteState.COPYING] == [w.state for w in h.core.writes.values()]
    getattr(h.engine, how)(a)
    if how == "retract":
        h.engine.abort(h.engine._roster.alive["a"].data.handle)
    return h, slots


def given_to_another(h: Hand) -> list[int]:
    """All that a request can get of the device now, up to what it may have."""
    other = h.arrive("other", h.prompt(0, 9, tail=1), new=400)
    h.admit(other)
    given = []
    while len(given) < 25:
        new = h.engine.extend(other, 16)
        given += getattr(new, "slots", ()) or [-1]
    return given


@pytest.mark.parametrize("how", ["retract", "abort", "finish"])
def test_nobody_gets_a_page_that_is_being_copied(hand, how):
    """The pool is used up around them, and evictions pass them by."""
    h, slots = leaves_during_the_copy(hand, how)
    h.core.tree.evict(10**6)
    assert 8 == h.live(h.prompt(8))
    assert set(slots).isdisjoint(given_to_another(h))


@pytest.mark.parametrize("how", ["retract", "abort", "finish"])
def test_what_was_computed_is_what_is_stored(hand, how):
    """And when the copy is over its pages can go."""
    h, _ = leaves_during_the_copy(hand, how)
    h.tick(COPY_TICKS + 4)
    assert {7} == {value for name in h.names(h.prompt(8)) for value in h.store.medium.read(name)[-64:]}
    assert 8 == h.core.tree.evict(10**6)


def test_a_copy_that_holds_nothing_would_be_seen(monkeypatch):
    """Planted: the span of a copy protects no page. The next request is given what is being copied."""
    monkeypatch.setattr(Tree, "hold_span", lambda *_args, **_more: EMPTY[Hold.SPAN])
    h, slots = leaves_during_the_copy(Hand, "abort", strict=False)
    h.core.tree.evict(10**6)
    assert not set(slots).isdisjoint(given_to_another(h))
