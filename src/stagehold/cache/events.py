"""What changed in the tree, as values for routers and logs.

Owns the shape of a change. A tree records changes only when asked to, since nobody may ever drain them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple


class Change(StrEnum):
    """What happened to a span."""

    STORED = "stored"
    REMOVED = "removed"


class Tier(StrEnum):
    """Where it happened."""

    DEVICE = "device"


class Reason(StrEnum):
    """Why it happened."""

    INSERTED = "inserted"
    ATTACHED = "attached"
    EVICTED = "evicted"
    DELETED = "deleted"
    FLUSHED = "flushed"


class ChangeEvent(NamedTuple):
    """One change of one component over pages [start, end) of a path.

    `keys` name the index entries that came or went with it: every page from 64 tokens a page on; below
    that, the block ends and the first page of a run. Empty where only a component beside FULL changed.
    """

    change: Change
    tier: Tier
    reason: Reason
    component: str
    start: int
    end: int
    keys: tuple[bytes, ...]
