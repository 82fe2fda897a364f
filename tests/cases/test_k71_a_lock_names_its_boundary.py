"""K71: window locks were released once too often, or never; all ranks asserted on the same node hours later.

Here a lock is a receipt that says from which page to which boundary it reaches. It survives every split, is given back
once, and whatever else is offered for release is refused there and then.
"""

from __future__ import annotations

import pytest

from stagehold import ComponentConfig, ComponentKind
from stagehold.cache.errors import ReceiptRefused
from stagehold.cache.holds import Hold, Receipt
from stagehold.cache.node import Node

SWA = ComponentConfig(
    name="swa", kind=ComponentKind.SLIDING_WINDOW, window_tokens=48, device_pages=80, staging_pages=12
)


def engine(hand, **settings):
    return hand(components=(SWA,), chunk_tokens=64, store=None, **settings)


def evictable(h) -> int:
    return h.core.tree.evictable_slots("swa")


def run(h, rid: str, pages: int, *, family: int = 1, shared: int | None = None):
    """A request that has computed and published its prompt and goes on."""
    a = h.arrive(rid, h.prompt(pages, family, shared=shared), new=40)
    h.admit(a)
    data = h.machine(a).data
    while data.n_tokens < data.prompt_tokens:
        h.engine.extend(a, min(64, data.prompt_tokens - data.n_tokens))
        h.engine.publish(a, data.n_tokens)
    return a


def test_a_lock_covers_its_window_after_any_split(hand):
    """The window of one request is split by the hits of others, in every place; each gives back what it took."""
    h = engine(hand)
    a = run(h, "a", 12)
    before = evictable(h)
    others = [run(h, f"r{page}", 14, family=page, shared=page) for page in (9, 10, 11, 12)]
    h.core.tree.check()
    for handle in others:
        h.engine.abort(handle)
    h.core.tree.check()
    assert before < evictable(h)
    assert 3 == len(h.core.tree.slots(h.chain(h.prompt(12)), 9, 12, "swa"))
    h.core.tree.evict(80, "swa")
    assert (0, 3) == (evictable(h), len(h.core.tree.owned("swa")))
    h.engine.finish(a)
    assert 4 >= len(h.core.tree.owned("swa")) == evictable(h)


@pytest.mark.parametrize("end", ["finish", "retract", "abort"])
def test_each_end_gives_back_what_was_taken_and_nothing_else(hand, end):
    """Two requests on one window; whichever goes first leaves the other one's lock alone."""
    h = engine(hand)
    a, b = run(h, "a", 12), run(h, "b", 12)
    getattr(h.engine, end)(a)
    h.core.tree.check()
    h.core.tree.evict(80, "swa")
    table = h.engine.page_slots(b, "swa")
    assert [*table[9:12]] == h.core.tree.slots(h.chain(h.prompt(12)), 9, 12, "swa")
    h.engine.finish(b)
    h.core.tree.check()
    assert evictable(h) == len(h.core.tree.owned("swa"))


def test_a_second_release_is_refused_where_it_happens(hand):
    """And changes nothing."""
    h = engine(hand)
    a = run(h, "a", 12)
    receipt = h.machine(a).data.lock
    h.engine.finish(a)
    before = h.core.tree.digest()
    with pytest.raises(ReceiptRefused):
        h.core.tree.unlock(receipt, forfeit=True)
    assert before == h.core.tree.digest()
    h.core.tree.check()


def test_nobody_releases_without_the_receipt(hand):
    """Not with one that was made up, nor with that of a pin or a transfer."""
    h = engine(hand)
    a = run(h, "a", 12)
    tree, chain = h.core.tree, h.chain(h.prompt(12))
    pin, span = tree.pin(chain, 12), tree.hold_span(chain, 9, 12, firsts={"swa": 9})
    for wrong in (Receipt(Hold.LOCK, 10_000, 12), pin, span):
        with pytest.raises(ReceiptRefused):
            tree.unlock(wrong, forfeit=True)
    tree.check()
    tree.unpin(pin)
    tree.release_span(span)
    h.engine.finish(a)


def test_a_lock_that_names_a_node_loses_count_at_the_first_split(hand):
    """Planted: the receipt keeps the node at which the climb ended, and a split leaves it behind."""
    h = engine(hand)
    a = run(h, "a", 12)
    part = h.core.tree.part("swa")
    serial, (bottom, start) = next(reversed(part.holders.items()))
    top: Node = bottom
    while top.start > start:
        top = top.parent
    h.core.tree.boundary(h.chain(h.prompt(12)), 10)
    named = top.start
    assert (9, True) == (start, named > start), "the upper half of the split is below the node's own start"
    part.holders[serial] = (bottom, named)
    h.engine.finish(a)
    assert evictable(h) < len(h.core.tree.owned("swa")), "locked for ever"
