"""The orders of eviction by name: the one place that knows which class serves which."""

from __future__ import annotations

from typing import assert_never

from stagehold.cache.recency import EvictionOrder, LeafLRU
from stagehold.cache.s3fifo import S3Fifo
from stagehold.specs.outcomes import Eviction


def eviction_order(eviction: Eviction, pages: int) -> EvictionOrder:
    """A new order of this name for a device pool of `pages` pages."""
    match eviction:
        case Eviction.LRU:
            return LeafLRU()
        case Eviction.S3FIFO:
            return S3Fifo(pages)
        case _:
            assert_never(eviction)
