"""Protection of the live tree: locks of requests, pins of anchors, spans that a transfer reads or writes.

Owns how a receipt is taken over all components and given back. The books themselves are those of `holds` and of each
component; what may be evicted is what they leave.
"""

from __future__ import annotations

from collections.abc import Mapping

from stagehold.cache.components.cells import nodes_between
from stagehold.cache.components.full import SPINE
from stagehold.cache.errors import ClaimRefused, ReceiptRefused, SpanRefused
from stagehold.cache.holds import EMPTY, LOCK, PIN, SPAN, Hold, Receipt, unprotected
from stagehold.cache.keys import Chain
from stagehold.cache.spine import Spine


class Protected(Spine):
    """The part of the tree's face by which live prefixes are protected."""

    # -- questions, all read-only --------------------------------------------------------------------------

    @property
    def evictable(self) -> int:
        """Pages that no hold protects."""
        return self.holds.evictable

    def evictable_slots(self, component: str = SPINE) -> int:
        """Slots of the component that `evict` could free now."""
        return self.holds.evictable if component == SPINE else self.part(component).evictable

    def doubled_slots(self, component: str) -> int:
        """Slots of the component that holders of locks count on, and cannot have when they move on."""
        return self.part(component).doubled

    @property
    def pinned(self) -> int:
        """Pages under at least one pin."""
        return self.holds.pinned

    def protect_cost(self, chain: Chain, pages: int) -> int:
        """Pages that would leave `evictable` if this live prefix were held now."""
        return unprotected(self.covering(chain, 0, pages), pages) if pages else 0

    def pin_cost(self, chain: Chain, pages: int) -> int:
        """Pages that would be newly charged if this live prefix were pinned now."""
        return self.holds.uncharged(self.covering(chain, 0, pages), pages) if pages else 0

    def unlocked(self, chain: Chain, start: int, end: int, component: str) -> int:
        """Slots of a component over live pages [start, end) that a hold would take from what can be promised."""
        return self.part(component).unlocked(self.covering(chain, start, end), start, end) if start < end else 0

    # -- receipts ------------------------------------------------------------------------------------------

    def lock(
        self, chain: Chain, pages: int, *, firsts: Mapping[str, int] | None = None, own: int | None = None
    ) -> Receipt:
        """Protect all components of a live prefix: FULL to the root, the others as far as a use reaches.

        Of the components that `firsts` names, from their pages on. The holder has published the pages from `own` on
        itself: it counts on their slots when it moves on, and `doubled_slots` are those that others hold as well.
        """
        if not pages:
            return EMPTY[LOCK]
        for page in (min(own or pages, pages), pages):  # a node is all of the holder's own, or nothing of it
            node = self.boundary(chain, page)
        receipt = self.holds.take(LOCK, node)
        for part in self.parts:
            part.lock(receipt.serial, node, (firsts or {}).get(part.name, part.reach(pages)), own)
        return receipt

    def unlock(self, receipt: Receipt, *, forfeit: bool = False) -> None:
        """Give a lock back.

        One whose window was attached anew is dead and refused; with `forfeit` the window is given up and
        the rest given back.
        """
        if receipt.kind is not LOCK:
            raise _other_kind(LOCK, receipt)
        self._give(receipt, forfeit=forfeit)

    def pin(self, chain: Chain, pages: int) -> Receipt:
        """Protect a live prefix as an anchor: no component but the one that carries the tree."""
        return self.holds.pin(self.boundary(chain, pages)) if pages else EMPTY[PIN]

    def unpin(self, receipt: Receipt) -> None:
        """Give a pin back."""
        if receipt.kind is not PIN:
            raise _other_kind(PIN, receipt)
        if receipt.serial:
            self.holds.unpin(receipt)

    def hold_span(
        self, chain: Chain, start: int, end: int, *, load: bool = False, firsts: Mapping[str, int] | None = None
    ) -> Receipt:
        """Protect what a transfer reads or writes: all components over [start, end), and the path to it.

        Where `firsts` is given, only the components that it names are protected besides the one that carries the
        tree, each from its own first page on and no further up: a span without a tombstone never dies.
        A `load` claims its span for itself, and is refused where another load in flight has claimed a page:
        it joins that load or recomputes.
        """
        if not 0 <= start <= end:
            raise SpanRefused(f"pages {start} to {end}: expected a span")
        if start == end:
            return EMPTY[SPAN]
        others = self.loads_over(chain, start, end) if load else ()
        if others:
            raise ClaimRefused(f"pages {start} to {end}: loads {list(others)} in flight bring part of them")
        if load and start:
            self.covering(chain, start, end)  # refused before anything is split
            self.boundary(chain, start)
        for name, first in (firsts or {}).items():
            if self.part(name).per_page and 0 < first < end:
                self.boundary(chain, first)
        node = self.boundary(chain, end)
        receipt = self.holds.take(SPAN, node)
        for part in self.parts:
            if firsts is None:
                part.lock(receipt.serial, node, min(start, part.reach(end)))
            elif part.name in firsts:
                part.lock(receipt.serial, node, firsts[part.name])
        if load:
            self.claims.take(receipt.serial, nodes_between(node, start))
        return receipt

    def loads_over(self, chain: Chain, start: int, end: int) -> tuple[int, ...]:
        """Receipt numbers of the loads in flight over live pages [start, end), oldest first; read-only."""
        return self.claims.over(nodes_between(self.covering(chain, start, end), start)) if self.claims.nodes else ()

    def release_span(self, receipt: Receipt, *, forfeit: bool = False) -> None:
        """Give a span back; dead ones as for `unlock`."""
        if receipt.kind is not SPAN:
            raise _other_kind(SPAN, receipt)
        self._give(receipt, forfeit=forfeit)
        if self.claims.nodes:
            self.claims.drop(receipt.serial)

    def _give(self, receipt: Receipt, *, forfeit: bool) -> None:
        serial = receipt.serial
        if not serial:
            return
        parts = self.parts
        for part in parts:
            if part.dead and not forfeit:
                part.refuse_dead(serial)
        self.holds.give(receipt)
        for part in parts:
            part.unlock(serial)


def _other_kind(kind: Hold, receipt: Receipt) -> ReceiptRefused:
    return ReceiptRefused(f"{receipt}: it is a {receipt.kind.name}, not a {kind.name}")
