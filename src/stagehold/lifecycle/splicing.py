"""The splice itself: what the tree lacks of a hold is copied from staging to the device, and published.

Owns no state and decides nothing: admission has made sure of the room, the lock and the visit. Two things happen to
what is brought. The tail goes behind the live prefix, as pages [low, last) of every component. Holes that other
components have in front of it, left by evictions, are filled once the tail stands.
"""

from __future__ import annotations

from stagehold.cache.components.base import Span
from stagehold.cache.keys import Chain
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import HoldData
from stagehold.lifecycle.stocks import Stock


def lacking(core: Core, hold: HoldData, name: str) -> list[Span]:
    """What the tree lacks of that which the hold brings of a component: merged spans, in page order."""
    one = hold.parts.get(name)
    return [] if one is None else core.tree.missing(hold.chain, one.first, hold.last, name)


def join(core: Core, hold: HoldData, chain: Chain, low: int) -> None:
    """Pages [low, last) of the hold enter the tree with what other components need there; then holes are filled.

    `chain` is the visitor's, of which [0, low) is live. A checkpoint stands at the end, so it is all tail or all hole.
    """
    lacks = {name: lacking(core, hold, name) for name in hold.parts}
    slots = core.allocate_device(hold.last - low)
    load(core, core.stocks.spine, hold.staging[low - hold.base :], slots)
    tails: dict[str, list[int]] = {}
    repairs: dict[str, tuple[list[Span], list[int]]] = {}
    for name, spans in lacks.items():
        stock, part = core.stocks.by_name[name], core.stocks.part(name)
        taken = core.allocate(stock, part.units(spans))
        load(core, stock, staged(hold, name, spans, per_page=part.per_page), taken)
        holes = [Span(span.start, min(span.end, low)) for span in spans if span.start < low]
        filling = part.units(holes)
        tails[name] = taken[filling:]
        if holes:
            repairs[name] = (holes, taken[:filling])
    with core.loading():
        shown = core.insert(chain, low, slots, tails)
        assert shown == slots, "the tree shows other slots than were loaded"
        for name, (holes, taken) in repairs.items():
            core.tree.attach(chain, hold.last, holes, taken, component=name)


def load(core: Core, stock: Stock, pages: list[int], slots: list[int]) -> None:
    """Queue the copies of staging pages to slots of one component, where it has bytes."""
    bytes_of = core.bytes.get(stock.name)
    core.happened.copied_in(stock.name, len(slots))
    if bytes_of is not None and slots:
        bytes_of.load(pages, slots)


def staged(hold: HoldData, name: str, spans: list[Span], *, per_page: bool) -> list[int]:
    """Staging pages of the spans of a component that the tree lacks, in page order."""
    one = hold.parts[name]
    if not per_page:
        return list(one.staging) if spans else []
    return [page for span in spans for page in one.staging[span.start - one.first : span.end - one.first]]
