"""FULL: the KV that every page has, and that carries the tree.

Owns its arithmetic; its slots stand in the nodes.
"""

from __future__ import annotations

from stagehold.cache.components.base import Splice

FULL = "full"


class Full:
    """What the lifecycle asks a component, answered for the one that the tree itself is made of."""

    name = FULL
    splice = Splice.TRIMMABLE
    per_page = True
    gates = True
    rebuilds = False

    def staging_demand(self, anchor: int, suffix: int) -> int:
        """Return one page of staging for each page of the suffix, wherever it is anchored."""
        assert anchor >= 0
        return suffix
