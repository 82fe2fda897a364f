"""K44: a hybrid model was accepted at start, and the groups of its sliding windows were then not masked.

Here each kind of KV is named, its pools and its window are declared, and what cannot work is refused at start by name.
What is accepted is masked: a page table names no page that a window cannot see, and a prefix counts as a hit only where
the window before its end is whole.
"""

from __future__ import annotations

import pytest

from stagehold import ComponentConfig, ComponentKind, Engine, Misuse
from stagehold.testing.hand import small_config

SWA = {
    "name": "swa",
    "kind": ComponentKind.SLIDING_WINDOW,
    "window_tokens": 48,
    "device_pages": 20,
    "staging_pages": 12,
}
STATE = {"name": "state", "kind": ComponentKind.CHECKPOINT, "device_pages": 6, "staging_pages": 6}


def started(*components: dict, **settings) -> None:
    """An engine of a model with these components beside full attention."""
    parts = tuple(ComponentConfig(**one) for one in components)
    Engine(small_config(components=parts, **{"chunk_tokens": 64, **settings})).close()


REFUSED = {
    "a window without its size": ([{**SWA, "window_tokens": None}], {}, "swa"),
    "a checkpoint with a window": ([{**STATE, "window_tokens": 48}], {}, "state"),
    "a ring of checkpoints": ([{**STATE, "ring": True}], {}, "state"),
    "a pool below what one request needs": ([SWA, {**STATE, "device_pages": 2}], {}, "state"),
    "a window pool for chunks of any size": ([SWA], {"chunk_tokens": None}, "swa"),
    "staging below two windows": ([{**SWA, "staging_pages": 5}], {}, "swa"),
    "tensors for some": ([{**SWA, "parts": 2, "page_part_bytes": 8}], {}, "swa"),
    "tensors for all but one": ([STATE], {"parts": 2, "page_part_bytes": 8}, "state"),
    "one name for two": ([SWA, SWA], {}, "swa"),
    "the name of full attention": ([{**STATE, "name": "full"}], {}, "full"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_served_is_refused_at_start_by_name(what):
    """Never later, and never without saying which component."""
    components, settings, name = REFUSED[what]
    with pytest.raises(ValueError, match=f"'{name}'"):
        started(*components, **settings)


@pytest.mark.parametrize(
    "components", [[SWA], [STATE], [SWA, STATE], [{**SWA, "gates": False}], [{**SWA, "ring": True}]]
)
def test_what_can_be_served_is(components):
    """With a store or without."""
    started(*components)
    started(*components, staging_pages=0)


def test_a_page_table_names_no_page_behind_the_window(hand):
    """12 pages are computed; whoever goes on sees the last three, and the rest is -1."""
    h = hand(components=(ComponentConfig(**SWA),), chunk_tokens=64, store=None)
    a = h.arrive("a", h.prompt(12), new=40)
    h.admit(a)
    for _ in range(3):
        h.engine.extend(a, 64)
    table = h.engine.page_slots(a, "swa")
    assert (12, [-1] * 5) == (len(table), [*table[:5]])
    h.engine.publish(a, 192)
    h.engine.extend(a, 1)
    table = h.engine.page_slots(a, "swa")
    assert (13, 9) == (len(table), table.count(-1))
    assert [-1] * 9 == [*table[:9]]
    h.engine.finish(a)


def test_a_prefix_without_its_window_is_no_hit(hand):
    """All of its pages of full attention are there."""
    h = hand(components=(ComponentConfig(**SWA),), chunk_tokens=64, store=None)
    tokens = h.prompt(12)
    h.grow(tokens, 12)
    assert 12 == h.live(tokens)
    assert 0 == h.admit(h.arrive("a", tokens)).hit_tokens


def test_a_component_that_there_is_not_is_named(hand):
    """With those that there are."""
    h = hand(components=(ComponentConfig(**SWA),), chunk_tokens=64)
    a = h.arrive("a", h.prompt(2))
    h.admit(a)
    with pytest.raises(Misuse, match=r"'mamba'.*swa"):
        h.engine.page_slots(a, "mamba")
