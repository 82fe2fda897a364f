"""Residency in strict engines: tree, host tiers and the book of both, held against each other after every tick."""

from __future__ import annotations

import pytest

from stagehold import ComponentConfig, ComponentKind, HostMode
from stagehold.cache.components.full import FULL
from stagehold.cache.errors import InvariantBroken
from stagehold.specs.residency import ResidencyState as S

CACHE = {"host_memory_mode": HostMode.CACHE, "staging_pages": 40}


def places(h, tokens, component: str = FULL) -> list[S | None]:
    """Where each page of the prompt is."""
    chain = h.chain(tokens)
    return [h.core.book.of(chain.page_key(page), component) for page in range(chain.n_pages)]


def test_pages_are_where_the_engine_has_put_them(hand):
    """On the device, then in both, then below, then in both again."""
    h = hand(**CACHE)
    tokens = h.prompt(4)
    h.run("a", tokens)
    assert [S.DEVICE] * 4 == places(h, tokens)
    h.tick(4)
    assert [S.BOTH] * 4 == places(h, tokens)
    h.shrink(tokens, 2)
    assert [S.BOTH] * 2 + [S.STAGING] * 2 == places(h, tokens)
    a = h.arrive("again", tokens)
    h.tick(2)
    h.serve(a)
    assert [S.BOTH] * 4 == places(h, tokens)


def test_a_part_of_a_node_may_go_and_stay(hand):
    """What is trimmed from the end of a leaf is elsewhere than what is left of it."""
    h = hand(**CACHE)
    tokens = h.prompt(6)
    h.run("a", tokens)
    h.shrink(tokens, 4)
    assert [S.DEVICE] * 4 + [None] * 2 == places(h, tokens)
    h.core.tree.check()


def test_buffer_only_knows_the_device_alone(hand):
    """Its page cache is no tier, and no place of residency."""
    h = hand(page_cache_fraction=0.5)
    h.put(h.prompt(4))
    a = h.arrive("a", h.prompt(4))
    h.tick(3)
    h.serve(a)
    h.tick(3)
    h.shrink(h.prompt(4), 0)
    assert (4, [None] * 4) == (len(h.core.host), places(h, h.prompt(4)))


def test_each_component_has_places_of_its_own(hand):
    """A window that was evicted from under its pages."""
    window = ComponentConfig(name="swa", kind=ComponentKind.SLIDING_WINDOW, device_pages=20, staging_pages=8,
                             window_tokens=32, page_part_bytes=0)  # fmt: skip
    h = hand(**CACHE, components=(window,), chunk_tokens=128)
    tokens = h.prompt(4)
    h.run("a", tokens)
    h.tick(6)
    h.tombstone(tokens, 0, 4, "swa")
    assert {S.BOTH} == set(places(h, tokens))
    assert {S.STAGING, S.TOMBSTONE} >= set(places(h, tokens, "swa")) >= {S.STAGING}


def loses(h) -> None:
    """A page goes from the host tier behind the book's back."""
    tier = h.core.host
    tier.watch = None
    tier._drop(tier.keys()[0])


def forgets(h) -> None:
    """The book loses sight of one that is on the device."""
    key, component = next(at for at, place in h.core.book.places.items() if place is S.BOTH)
    h.core.book.step(key, component, "evict")


@pytest.mark.parametrize(
    ("wrong", "what"),
    [(loses, "4 pages of full are in host memory by the rows, its tier has 3"),
     (forgets, "3 pages of full are on the device by the rows, the tree has 4")],
)  # fmt: skip
def test_a_tier_that_moves_in_silence_is_found_by_the_next_tick(hand, wrong, what):
    """With the numbers of both sides."""
    h = hand(**CACHE)
    h.run("a", h.prompt(4))
    h.tick(4)
    wrong(h)
    with pytest.raises(InvariantBroken, match=what):
        h.tick()
    h.core.book = None  # or the engine could not be closed: what is wrong stays wrong


def test_a_restored_engine_has_the_book_of_that_moment(hand):
    """Its tree and its tiers tell the same book again, not the one of the time in between."""
    h = hand(**CACHE)
    h.run("a", h.prompt(4))
    h.tick(4)
    saved, then = h.engine.snapshot(), dict(h.core.book.places)
    h.run("b", h.prompt(4, 2))
    h.tick(4)
    h.engine.flush()
    h.engine.restore(saved)
    assert then == h.core.book.places
    h.run("c", h.prompt(6))
    h.tick(4)
    h.shrink(h.prompt(6), 0)
    assert [S.STAGING] * 6 == places(h, h.prompt(6))
