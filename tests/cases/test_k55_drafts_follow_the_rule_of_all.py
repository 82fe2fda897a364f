"""K55: the KV of a draft model was left behind by hits, and the share of accepted drafts fell for hours, unseen.

Here the KV of a draft is a component like any other, one that gates no match: it is published, written, fetched and
spliced with the pages that it belongs to, byte by byte. Where it cannot be had the hit stands, the table says which
pages nobody may read, and the next turn has it again.
"""

from __future__ import annotations

import pytest

from stagehold import ComponentConfig, ComponentKind
from stagehold.cache.components.full import FULL
from stagehold.lifecycle.launch import LaunchRules

BYTES = 8
PAGE = 16
DRAFT = ComponentConfig(
    name="draft", kind=ComponentKind.SLIDING_WINDOW, window_tokens=3 * PAGE, device_pages=40, staging_pages=12,
    gates=False, parts=1, page_part_bytes=BYTES,
)  # fmt: skip


def engine(hand, **settings):
    return hand(
        components=(DRAFT,), chunk_tokens=4 * PAGE, prefetch_threshold_tokens=PAGE, pin_fraction=0.0,
        parts=1, page_part_bytes=BYTES, **settings,
    )  # fmt: skip


def planned(h, tokens):
    """A request whose hold is ready."""
    a = h.arrive("a", tokens)
    h.tick(3)
    return a


def test_a_draft_comes_back_with_its_pages(hand):
    """What is believed stored is declared, and what is declared is delivered whole."""
    h = engine(hand)
    tokens = h.prompt(14)
    h.put_all(tokens, 0, 12)
    h.believe(tokens, 9, 12, "draft")
    a = planned(h, tokens)
    assert 12 * PAGE == h.admit(a).hit_tokens
    slots = h.engine.page_slots(a, "draft")[9:12]
    assert [h.stored_byte("draft", page) for page in range(9, 12)] == h.bytes_at("draft", slots)
    assert slots == tuple(h.core.tree.slots(h.chain(tokens), 9, 12, "draft"))


def test_a_hit_stands_without_its_draft(hand):
    """Nobody knows of a draft in the store: the pages are used, and no page of the draft is named."""
    h = engine(hand)
    tokens = h.prompt(14)
    h.put(tokens, 0, 12)
    a = planned(h, tokens)
    assert 12 * PAGE == h.admit(a).hit_tokens
    assert (-1,) * 12 == h.engine.page_slots(a, "draft")
    assert [h.stored_byte(FULL, page) for page in range(12)] == h.bytes_at(FULL, h.engine.page_slots(a))


def test_no_room_for_a_draft_costs_the_draft_alone(hand):
    """Other holds own its staging when the fetch is sent off: the hold goes without it."""
    h = engine(hand)
    for family in range(2, 6):
        other = h.prompt(4, family)
        h.put_all(other, 0, 4)
        h.believe(other, 1, 4, "draft")
        h.arrive(f"other {family}", other)
    h.tick(3)
    assert 0 == h.core.stocks.by_name["draft"].staging_free()
    tokens = h.prompt(14)
    h.put_all(tokens, 0, 12)
    h.believe(tokens, 9, 12, "draft")
    a = planned(h, tokens)
    assert {} == h.hold_of(a).data.parts
    assert 12 * PAGE == h.admit(a).hit_tokens


def test_a_damaged_draft_is_never_published(hand):
    """It was declared: the fetch fails as a whole, and what was believed of it is forgotten."""
    h = engine(hand)
    tokens = h.prompt(14)
    h.put_all(tokens, 0, 12)
    h.believe(tokens, 9, 12, "draft")
    h.store.damage(h.names(tokens, 10, 11, "draft")[0])
    planned(h, tokens)
    assert 0 == h.live(tokens)
    assert 0 == len(h.core.tree.owned("draft"))
    assert not h.core.beliefs.knows(h.core.stocks.by_name["draft"].keys(h.chain(tokens), 10, 11)[0])


def turn(h, number: int, pages: int) -> float:
    """One turn of a conversation that was evicted meanwhile; the share of its draft's window that came back."""
    tokens = h.prompt(pages)
    a = h.arrive(f"turn {number}", tokens)
    h.tick(4)
    hit = h.admit(a).hit_tokens // PAGE
    slots = h.engine.page_slots(a, "draft")
    share = sum(slot >= 0 for slot in slots[max(0, hit - 3) : hit]) / min(3, hit) if hit else 1.0
    while (data := h.machine(a).data).n_tokens < len(tokens):
        h.engine.extend(a, min(4 * PAGE, len(tokens) - data.n_tokens))
        h.engine.publish(a, h.machine(a).data.n_tokens)
    h.engine.finish(a)
    h.tick(40)
    h.core.tree.evict(h.core.tree.evictable)
    return share


def turns(h) -> list[float]:
    return [turn(h, number, 4 + number) for number in range(12)]


def test_no_turn_of_a_long_conversation_loses_its_draft(hand):
    """Twelve turns, each of which finds its prefix in the store only: the window is whole each time."""
    assert [1.0] * 12 == turns(engine(hand, page_cache_fraction=0.0))


def test_a_draft_that_is_left_behind_is_seen(hand, monkeypatch):
    """Planted: holds declare what gates a match and nothing else."""
    real = LaunchRules._declared

    def declared(self, data, start, last):
        return {name: span for name, span in real(self, data, start, last).items() if self.core.stocks.part(name).gates}

    monkeypatch.setattr(LaunchRules, "_declared", declared)
    with pytest.raises(AssertionError):
        test_no_turn_of_a_long_conversation_loses_its_draft(hand)
