"""Publishing pages in the tree: what is new, what the tree has already, and what fills a hole of a component.

Owns the arithmetic of a span of slots against the live prefix. Checks everything before it changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stagehold.cache.components.base import Component, Span, nodes_between
from stagehold.cache.components.full import FULL
from stagehold.cache.errors import SpanRefused
from stagehold.cache.keys import Chain
from stagehold.cache.node import Node
from stagehold.cache.spine import Spine

Slots = Mapping[str, Sequence[int]] | Sequence[int]


class Inserted(NamedTuple):
    """Pages from `first_new` on are new; `duplicates` the tree did not take, the caller frees them."""

    first_new: int
    duplicates: dict[str, list[int]]


class Offer(NamedTuple):
    """Pages [start, end) of a chain with the slots that the caller brings for them."""

    chain: Chain
    start: int
    end: int
    slots: Mapping[str, Sequence[int]]

    def first(self, component: str) -> int:
        """Return the first page that the component's slots cover: they end with the span."""
        return self.end - len(self.slots.get(component, ()))

    def of(self, component: str, start: int, end: int) -> tuple[int, ...]:
        """Return the component's slots for pages [start, end), none if it does not cover them."""
        first = self.first(component)
        return tuple(self.slots[component][start - first : end - first]) if start >= first < self.end else ()


def insert(spine: Spine, offer: Offer) -> Inserted:
    """Publish the offer behind the live prefix, all or nothing; see `Tree.insert`."""
    chain, start, end, _ = offer
    check(spine, offer)
    node, live = spine.index.locate(chain, end)
    if live < start:
        raise SpanRefused(f"pages {start} to {end} do not join the live prefix of {live} pages")
    duplicates: dict[str, list[int]] = {}
    if live > start:
        duplicates = recover(spine, offer, live)
        node = spine.index.locate(chain, live)[0]
    if live < end:
        if not live:
            node = spine.root(chain)
        elif node.end != live:
            node = spine.split(node, live, chain)
        extend(spine, offer, node)
    return Inserted(live, duplicates)


def check(spine: Spine, offer: Offer) -> None:
    """Refuse an offer whose span or slots cannot be meant."""
    chain, start, end, slots = offer
    if not 0 <= start < end <= spine.limit(chain, None):
        raise SpanRefused(f"pages {start} to {end}: expected a span of the chain's {chain.n_pages} pages")
    if len(slots.get(FULL, ())) != end - start:
        raise SpanRefused(f"pages {start} to {end}: expected as many {FULL} slots, got {len(slots.get(FULL, ()))}")
    for name, mine in slots.items():
        if name != FULL and len(mine) > (end - start if spine.part(name).per_page else 1):
            raise SpanRefused(f"pages {start} to {end}: {len(mine)} {name} slots are too many")


def extend(spine: Spine, offer: Offer, node: Node) -> None:
    """Grow leaves behind `node` up to the end of the offer: one more where a component begins in between."""
    cuts = {offer.end}
    for part in spine.parts:
        if part.per_page and node.end < offer.first(part.name):
            cuts.add(offer.first(part.name))
    for cut in sorted(cuts):
        node = spine.grow(node, offer.chain, cut, offer.of(FULL, node.end, cut), others(spine, offer, node.end, cut))


def others(spine: Spine, offer: Offer, start: int, cut: int) -> list[tuple[int, ...]]:
    """Slots of each component beside FULL for a new node [start, cut)."""
    own = []
    for part in spine.parts:
        if part.per_page:
            own.append(offer.of(part.name, start, cut))
        else:
            own.append(tuple(offer.slots.get(part.name, ())) if cut == offer.end else ())
    return own


def recover(spine: Spine, offer: Offer, live: int) -> dict[str, list[int]]:
    """Use the offer where the live pages [start, live) lack a component; returns the slots not used there."""
    used: dict[str, set[int]] = {name: set() for name in offer.slots}
    for part in spine.parts:
        start = max(offer.start, offer.first(part.name))
        if part.per_page or live == offer.end:
            for hole in part.holes(spine.index.locate(offer.chain, live)[0], start, live):
                fill(spine, part, offer, hole, used)
    duplicates = {}
    for name, slots in offer.slots.items():
        whole = name == FULL or spine.part(name).per_page
        known = slots[: max(0, live - offer.first(name))] if whole or live == offer.end else ()
        duplicates[name] = [slot for slot in known if slot not in used[name]]
    return duplicates


def fill(spine: Spine, part: Component, offer: Offer, hole: Span, used: dict[str, set[int]]) -> None:
    """Fill a hole from the offer, and take the spine's new slots too where it is reached by them.

    A node that somebody holds keeps its spine slots: whoever holds it computes with them.
    """
    for page in part.edges(hole):
        if page:
            spine.boundary(offer.chain, page)
    bottom = spine.covering(offer.chain, hole.start, hole.end)
    for node in nodes_between(bottom, hole.start):
        slots = offer.of(part.name, node.start, node.end) if part.per_page else tuple(offer.slots[part.name])
        part.fill(node, slots)
        used[part.name].update(slots)
        fresh = offer.of(FULL, node.start, node.end)
        if part.rebuilds and not node.held and node.slots != fresh:
            old, node.slots = node.slots, fresh
            used[FULL].update(fresh)
            for other in spine.parts:
                other.rehomed(node, old)
            spine.pool.free(old)
