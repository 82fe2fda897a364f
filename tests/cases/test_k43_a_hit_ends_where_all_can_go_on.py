"""K43: attention KV was restored and recurrent state was not; two answers in five were garbage.

Here a hit is the longest prefix that every component can restore, in the tree, in host memory and in the store, and it
is delivered whole: the state that a request begins with is that of its hit, byte by byte.
"""

from __future__ import annotations

import pytest

from stagehold import ComponentConfig, ComponentKind, Skip
from stagehold.cache.components.full import FULL
from stagehold.lifecycle.stocks import Stocks

BYTES = 8
PAGE = 16
SWA = ComponentConfig(
    name="swa", kind=ComponentKind.SLIDING_WINDOW, window_tokens=3 * PAGE, device_pages=40, staging_pages=12,
    parts=1, page_part_bytes=BYTES,
)  # fmt: skip
STATE = ComponentConfig(
    name="state", kind=ComponentKind.CHECKPOINT, device_pages=12, staging_pages=6, parts=1, page_part_bytes=BYTES
)


def engine(hand, *components: ComponentConfig):
    return hand(
        components=components, chunk_tokens=4 * PAGE, prefetch_threshold_tokens=PAGE, pin_fraction=0.0,
        parts=1, page_part_bytes=BYTES,
    )  # fmt: skip


def hit_of(h, tokens) -> tuple[int, object]:
    """Pages that a request finds, once the store has been asked; and the request."""
    a = h.arrive("a", tokens)
    h.tick(3)
    return h.admit(a).hit_tokens // PAGE, a


@pytest.mark.parametrize(("checkpoints", "hit"), [((12,), 12), ((7,), 7), ((3, 9, 11), 11), ((), 0)])
def test_a_hit_ends_at_the_last_state_that_the_store_has(hand, checkpoints, hit):
    """Twelve pages of attention KV are stored, and states at some ends of pages."""
    h = engine(hand, STATE)
    tokens = h.prompt(14)
    h.put(tokens, 0, 12)
    for end in checkpoints:
        h.put(tokens, end - 1, end, component="state")
    found, a = hit_of(h, tokens)
    assert hit == found
    if hit:
        assert [h.stored_byte("state", hit - 1)] == h.bytes_at("state", h.engine.page_slots(a, "state"))
        assert [h.stored_byte(FULL, page) for page in range(hit)] == h.bytes_at(FULL, h.engine.page_slots(a))


@pytest.mark.parametrize(("lost", "hit"), [(11, 11), (10, 10), (9, 9), (8, 12), (0, 12)])
def test_a_hit_ends_where_its_window_is_whole(hand, lost, hit):
    """A page of the window that the store has lost ends the hit before it, unless the window lies behind it."""
    h = engine(hand, SWA)
    tokens = h.prompt(14)
    h.put_all(tokens, 0, 12)
    h.store.drop(h.names(tokens, lost, lost + 1, "swa")[0])
    found, a = hit_of(h, tokens)
    assert hit == found
    slots = h.engine.page_slots(a, "swa")
    assert [-1] * (hit - 3) == list(slots[: hit - 3])
    assert [h.stored_byte("swa", page) for page in range(hit - 3, hit)] == h.bytes_at("swa", slots[hit - 3 : hit])


def test_every_component_has_its_say(hand):
    """States at 5, 10 and 12, the window's pages but 11 and 6: ten is the end that both can restore."""
    h = engine(hand, SWA, STATE)
    tokens = h.prompt(14)
    h.put(tokens, 0, 12)
    for end in (5, 10, 12):
        h.put(tokens, end - 1, end, component="state")
    for first, last in ((0, 6), (7, 11)):
        h.put(tokens, first, last, component="swa")
    assert 10 == hit_of(h, tokens)[0]


def test_what_is_live_counts_as_far_as_it_can_be_gone_on_from(hand):
    """Nine pages are in the tree; the last state is that of page 4, and the store has nothing."""
    h = engine(hand, STATE)
    tokens = h.prompt(14)
    h.grow(tokens, 4, state=1)
    h.grow(tokens, 9)
    a = h.arrive("a", tokens)
    admission = h.admit(a)
    assert (4 * PAGE, 0) == (admission.device_hit_tokens, admission.store_hit_tokens)
    assert [h.computed_byte("state", 3)] == h.bytes_at("state", h.engine.page_slots(a, "state"))


def test_a_state_that_comes_back_damaged_is_no_hit(hand):
    """The lookup found it and the bytes are wrong: nothing of the span is published."""
    h = engine(hand, STATE)
    tokens = h.prompt(14)
    h.put_all(tokens, 0, 12)
    for name in h.names(tokens, 0, 12, "state"):
        h.store.damage(name)
    a = h.arrive("a", tokens)
    h.tick(3)
    assert 0 == h.live(tokens)
    h.until(lambda: not isinstance(found := h.visit(a), Skip) and found.admitted)
    assert 0 == h.machine(a).data.published


def test_a_match_on_attention_alone_is_found_out(hand, monkeypatch):
    """Planted: nothing gates a match. The request would begin with a state that is not its own."""
    real = Stocks.__init__

    def without_gates(self, config, parts):
        real(self, config, parts)
        self.gates = ()

    monkeypatch.setattr(Stocks, "__init__", without_gates)
    with pytest.raises(AssertionError):
        test_a_hit_ends_at_the_last_state_that_the_store_has(hand, (7,), 7)
