"""FULL: the KV that every page has, and that carries the tree.

Owns its arithmetic; its slots stand in the nodes.
"""

from __future__ import annotations

from stagehold.cache.components.base import Splice

FULL = "full"

SPINE = FULL
"""The component that carries the tree, for modules that need not know which one that is."""


class Full:
    """What the lifecycle asks a component, answered for the one that the tree itself is made of."""

    name = FULL
    splice = Splice.TRIMMABLE
    per_page = True
    gates = True
    rebuilds = False
    copies_on_use = False
    priority = 2

    def staging_demand(self, anchor: int, suffix: int) -> int:
        """Return one page of staging for each page of the suffix, wherever it is anchored."""
        assert anchor >= 0
        return suffix

    def reservation(self, extend: int, new: int, chunk: int) -> int:
        """Slots that admitting a request reserves: all it will compute, however it is cut into chunks."""
        assert chunk >= 0
        return extend + new

    def fits(self, need: int, room: int) -> bool:
        """Whether a need fits; one slot stays free."""
        return need < room
