"""Publishing pages in the tree: what is new, what the tree has already, and what fills a hole of a component.

Owns the arithmetic of a span of slots against the live prefix. Checks everything before it changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from stagehold.cache.components.base import Component, Span
from stagehold.cache.components.cells import nodes_between
from stagehold.cache.components.full import SPINE
from stagehold.cache.errors import SpanRefused
from stagehold.cache.keys import Chain
from stagehold.cache.node import NOTHING, Node
from stagehold.cache.spine import Spine

Slots = Mapping[str, Sequence[int]] | list[int] | tuple[int, ...]


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

    def of(self, component: str, start: int, end: int) -> list[int]:
        """Return the component's slots for pages [start, end), none if it does not cover them."""
        mine = self.slots.get(component, ())
        first = self.end - len(mine)
        return list(mine[start - first : end - first]) if start >= first else NOTHING


def insert(spine: Spine, chain: Chain, span: tuple[int, int], slots: Mapping[str, Sequence[int]]) -> Inserted:
    """Publish pages of a chain behind its live prefix, all or nothing; see `Tree.insert`."""
    start, end = span
    check(spine, chain, span, slots)
    node, live = spine.index.locate(chain, end)
    if live < start:
        raise SpanRefused(f"pages {start} to {end} do not join the live prefix of {live} pages")
    duplicates: dict[str, list[int]] = {}
    if live > start:
        duplicates = recover(spine, Offer(chain, start, end, slots), live)
        node = spine.index.locate(chain, live)[0]
    if live < end:
        if not live:
            node = spine.root(chain)
        elif node.end != live:
            node = spine.split(node, live, chain)
        extend(spine, chain, end, slots, node)
    return Inserted(live, duplicates)


def check(spine: Spine, chain: Chain, span: tuple[int, int], slots: Mapping[str, Sequence[int]]) -> None:
    """Refuse a span or slots that cannot be meant."""
    start, end = span
    if not 0 <= start < end <= spine.limit(chain, None):
        raise SpanRefused(f"pages {start} to {end}: expected a span of the chain's {chain.n_pages} pages")
    known = 1
    for part in spine.parts:
        mine = slots.get(part.name)
        if mine is not None:
            known += 1
            if len(mine) > (end - start if part.per_page else 1):
                raise SpanRefused(f"pages {start} to {end}: {len(mine)} {part.name} slots are too many")
    if len(slots.get(SPINE, ())) != end - start or len(slots) != known:
        raise SpanRefused(f"pages {start} to {end}: expected as many {SPINE} slots and known components, got {slots}")


def extend(spine: Spine, chain: Chain, end: int, slots: Mapping[str, Sequence[int]], node: Node) -> None:
    """Grow leaves behind `node` up to page `end`: one more where a component's slots begin in between."""
    cuts = [end]
    for part in spine.parts:
        first = end - len(slots.get(part.name, ()))
        if part.per_page and node.end < first and first not in cuts:
            cuts.append(first)
    cuts.sort()
    full = slots[SPINE]
    base = end - len(full)
    for cut in cuts:
        start = node.end
        own = [others(part, slots.get(part.name, ()), (start, cut), end) for part in spine.parts]
        node = spine.grow(node, chain, cut, list(full[start - base : cut - base]), own)


def others(part: Component, mine: Sequence[int], span: tuple[int, int], end: int) -> list[int]:
    """Part of a component's slots, which end with page `end`, for a new node over `span`; none before they begin."""
    start, cut = span
    if part.per_page:
        base = end - len(mine)
        return list(mine[start - base : cut - base]) if start >= base and mine else NOTHING
    return list(mine) if cut == end and mine else NOTHING


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
        whole = name == SPINE or spine.part(name).per_page
        known = slots[: max(0, live - offer.first(name))] if whole or live == offer.end else ()
        duplicates[name] = [slot for slot in known if slot not in used[name]]
    return duplicates


def fill(spine: Spine, part: Component, offer: Offer, hole: Span, used: dict[str, set[int]]) -> None:
    """Fill a hole from the offer, and take the spine's new slots too where it is reached by them.

    A node that somebody holds keeps its spine slots: whoever holds it computes with them.
    """
    for page in part.edges(hole):
        spine.boundary(offer.chain, page)
    bottom = spine.covering(offer.chain, hole.start, hole.end)
    for node in nodes_between(bottom, hole.start):
        slots = offer.of(part.name, node.start, node.end) if part.per_page else list(offer.slots[part.name])
        part.fill(node, slots)
        used[part.name].update(slots)
        fresh = offer.of(SPINE, node.start, node.end)
        if part.rebuilds and not node.held and node.slots != fresh:
            old, node.slots = node.slots, fresh
            used[SPINE].update(fresh)
            for other in spine.parts:
                other.rehomed(node, old)
            spine.pool.free(old)
