"""Acts of a World that are nobody's request: time, other traffic on the device, and what befalls the store.

It owns no rule; whatever it does may happen to a server at any time.
"""

from __future__ import annotations

from stagehold.testing.running import Running
from stagehold.testing.stage import act
from stagehold.testing.visiting import Ending
from stagehold.testing.watch_parts import note_holds
from stagehold.testing.watched import Delivers


class Traffic(Running):
    """Ticks, evictions, lost and damaged pages, failures, stalls, neighbours."""

    @act
    def tick(self, retries: bool = True) -> None:
        """The next pass; visits that are still open are given back first. `retries`: whether their clocks move."""
        while self.open:
            self._end(0, Ending.RELEASE, Delivers.ALL)
        self.engine.tick(advance_retries=retries)
        self.watch.count(self.blocks)
        note_holds(self.marks.note, self.core, self.library, self.launched, self.store.medium.__contains__)

    @act
    def evict(self, pages: int) -> None:
        """Other traffic wants device pages: the least recently used that nobody protects go."""
        self.core.tree.evict(min(pages, self.core.tree.evictable))

    @act
    def strip(self, which: int, pages: int) -> None:
        """The same of another component; nothing where there is none. What it leaves of the prefix is a tombstone."""
        others = self.core.stocks.others
        if others:
            name = others[which % len(others)].name
            self.core.tree.evict(min(pages, self.core.tree.evictable_slots(name)), name)

    @act
    def lose(self, which: int) -> None:
        """The store loses a page."""
        names = self.store.keys()
        if names:
            name = names[which % len(names)]
            self.lost.add(name)
            self.store.drop(name)

    @act
    def damage(self, which: int) -> None:
        """A bit of a stored page flips."""
        names = self.store.keys()
        if names:
            name = names[which % len(names)]
            self.lost.add(name)
            self.store.damage(name)

    @act
    def fail(self, count: int) -> None:
        """The next operations of the store fail."""
        self.store.fail_next(count)

    @act
    def stall(self) -> None:
        """The store completes nothing until it is released."""
        self.store.stall()

    @act
    def unstall(self) -> None:
        """Everything that the store sat on goes on."""
        self.store.release()

    @act
    def neighbour(self, which: int, pages: int) -> None:
        """Another server stores the first pages of a sequence, at last."""
        chain = self.library.pick(which)
        if chain is not None:
            self._store(chain, pages)
