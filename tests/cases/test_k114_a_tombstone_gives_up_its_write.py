"""K114: the window of a node was evicted before its backup had begun, and nobody noticed that it was never stored.

The next request of the prefix then counted on a window that no tier had. Here a window under its copy cannot be
evicted; one whose write still waits can, and then the write is given up by a row of its own, counted and believed by
nobody: a hit ends where the windows that were stored end.
"""

from __future__ import annotations

import pytest

from stagehold import ComponentConfig, ComponentKind
from stagehold.cache.components.full import FULL
from stagehold.specs.write import WriteState
from stagehold.testing.places import HeldCopies

SWA = ComponentConfig(
    name="swa",
    kind=ComponentKind.SLIDING_WINDOW,
    window_tokens=48,
    device_pages=40,
    staging_pages=12,
    parts=1,
    page_part_bytes=8,
)


def engine(hand, **settings):
    return hand(
        components=(SWA,),
        chunk_tokens=64,
        prefetch_threshold_tokens=16,
        pin_fraction=0.0,
        parts=1,
        page_part_bytes=8,
        **settings,
    )


def run(h, rid: str, tokens):
    """A request that computes and publishes its prompt."""
    a = h.arrive(rid, tokens)
    h.admit(a)
    data = h.machine(a).data
    while data.n_tokens < data.prompt_tokens:
        h.engine.extend(a, min(64, data.prompt_tokens - data.n_tokens))
        for name, slots in ((FULL, data.slots), ("swa", data.shares["swa"].slots)):
            for page in range(data.published, len(slots)):
                h.core.bytes[name].device.tensor[:, slots[page]] = h.computed_byte(name, page)
        h.engine.publish(a, data.n_tokens)
    return a


def in_store(h, tokens, component: str) -> list[bool]:
    return [name in h.store.medium for name in h.names(tokens, 0, 12, component)]


def believed(h, tokens) -> list[bool]:
    return [h.core.beliefs.knows(key) for key in h.core.stocks.by_name["swa"].keys(h.chain(tokens), 0, 12)]


@pytest.fixture
def gone(hand):
    """Staging is full of writes under way when the device loses all windows; one page of them still waits."""
    h = engine(hand)
    tokens = h.prompt(12)
    h.store.stall()
    a = run(h, "a", tokens)
    h.tick(3)
    waiting = [w.data for w in h.core.writes.values() if w.state is WriteState.QUEUED]
    assert [("swa", 11, 12)] == [(data.component, data.first, data.last) for data in waiting]
    h.engine.finish(a)
    h.core.tree.evict(40, "swa")
    assert [] == h.core.tree.resident(h.chain(tokens), 0, h.live(tokens), "swa")
    h.store.release()
    h.until(lambda: not h.core.writes)
    h.tick()
    return h, tokens


def test_a_window_that_goes_before_its_write_begins_is_given_up_by_name(gone):
    """What was offered is stored or given up: the counters say how much of each."""
    h, tokens = gone
    counters = h.engine.stats().counters
    assert 1 == h.taken("write.queued.start.GONE")
    assert (16, 24 * 16 - 16, 24 * 16) == (
        counters["write_start_gone"].tokens,
        counters["write_put_ended_stored"].tokens,
        counters["write_offer_queue"].tokens,
    )
    assert [True] * 11 + [False] == in_store(h, tokens, "swa")
    assert [True] * 12 == in_store(h, tokens, FULL)


def test_nobody_believes_in_what_was_given_up(gone):
    """A belief is taught by a put that was acknowledged."""
    h, tokens = gone
    assert in_store(h, tokens, "swa") == believed(h, tokens)


def test_a_hit_ends_where_the_stored_windows_end(gone):
    """All of FULL is stored, and the window of page 12 is not: 11 pages come back, with the right bytes."""
    h, tokens = gone
    b = h.arrive("b", tokens)
    h.tick(3)
    assert 11 * 16 == h.admit(b).hit_tokens
    assert [h.computed_byte("swa", page) for page in range(8, 11)] == h.shown(tokens, 8, 11, "swa")
    assert [h.computed_byte(FULL, page) for page in range(11)] == h.shown(tokens, 0, 11)


def test_what_was_given_up_is_offered_again_by_the_next_use(gone):
    """It is computed anew, published, and stored."""
    h, tokens = gone
    b = h.arrive("b", tokens)
    h.tick(3)
    h.serve(b)
    h.until(lambda: not h.core.writes)
    assert [True] * 12 == in_store(h, tokens, "swa") == believed(h, tokens)


def test_a_window_under_its_copy_cannot_be_evicted(hand):
    """Its slots are the tree's until the copy has ended."""
    copies = HeldCopies()
    h = engine(hand, engine_options={"copies": copies})
    tokens = h.prompt(12)
    h.tick(3)
    a = run(h, "a", tokens)
    h.tick()
    under = [w.data for w in h.core.writes.values() if w.state is WriteState.COPYING and w.data.component == "swa"]
    assert under
    h.engine.finish(a)
    h.core.tree.evict(40, "swa")
    for data in under:
        assert [] == h.core.tree.missing(data.chain, data.first, data.last, "swa")
    copies.free = True
    h.until(lambda: not h.core.writes)
    stored = in_store(h, tokens, "swa")
    assert all(stored[page] for data in under for page in range(data.first, data.last))
    assert stored == believed(h, tokens)


def test_a_stored_window_comes_back_after_its_tombstone(hand):
    """From the store, into the hole that it left; FULL is not loaded again."""
    h = engine(hand)
    tokens = h.prompt(12)
    h.engine.finish(run(h, "a", tokens))
    h.until(lambda: not h.core.writes)
    h.tombstone(tokens, 0, 12, "swa")
    assert (12, 0) == (h.live(tokens), h.core.tree.joint_match(h.chain(tokens)))
    free = h.core.device.free_count
    b = h.arrive("b", tokens)
    h.tick(3)
    assert (12 * 16, free) == (h.admit(b).hit_tokens, h.core.device.free_count)
    assert [h.computed_byte("swa", page) for page in range(9, 12)] == h.shown(tokens, 9, 12, "swa")
