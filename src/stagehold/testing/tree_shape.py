"""What a trial of the live tree is about, how its texts become tokens, and what must happen now and then.

Owns shapes, marks and small helpers of the trial. Knows no tree.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from stagehold.cache.errors import CacheRefused
from stagehold.specs.outcomes import Eviction

SPACES = ("left", "right")
LETTERS = "abc"
TEXTS = 12


@dataclass(frozen=True, slots=True)
class Shape:
    """What a trial is about; `reach` is the window in pages."""

    page_size: int = 64
    reach: int = 3
    room: int = 48
    window_gates: bool = True
    state_gates: bool = True
    mapped: bool = False
    eviction: Eviction = Eviction.LRU


class Mark(Enum):
    """What must have happened now and then for a trial to mean anything."""

    DEAD_RECEIPT = "a lock died because its window was attached anew"
    ATTACHED = "a window was repaired"
    CUT = "an attach cut a run"
    REBUILT = "a tombstone was rebuilt from new slots, its old FULL slots freed"
    KEPT = "a tombstone of a held run was filled and kept its FULL slots"
    CLAIMED = "a second load over a claimed span was refused"
    TRIMMED = "a leaf was shortened"
    TOMBSTONE = "a window went and its pages stayed"
    TORN = "a held leaf lost its window"
    RETREATED = "a joint match ended before the FULL match"
    SPLIT_HELD = "a held run was cut"
    TWO_SPACES = "two namespaces were live"
    EMPTY = "an eviction had nothing to free"
    LATE = "a leaf was offered after the ring had passed it"
    SEEN_AGAIN = "a run came back that the ghost remembered"
    SPENT = "a leaf of main paid for its place"


OF_ONE_ORDER = {Mark.LATE: Eviction.LRU, Mark.SEEN_AGAIN: Eviction.S3FIFO, Mark.SPENT: Eviction.S3FIFO}
"""Marks that trials of one order alone can reach."""


def marks_of(eviction: Eviction) -> set[Mark]:
    """What trials of an order must reach."""
    return {mark for mark in Mark if OF_ONE_ORDER.get(mark, eviction) is eviction}


def page_tokens(letter: str, page_size: int) -> list[int]:
    """Tokens of a page: pages of different letters differ in their last token alone."""
    return [7] * (page_size - 1) + [ord(letter)]


def text_tokens(text: str, page_size: int) -> list[int]:
    """Tokens of a text, one letter a page."""
    return [token for letter in text for token in page_tokens(letter, page_size)]


def refused(kind: type[CacheRefused], call: Callable[[], Any]) -> bool:
    """Whether a call is refused in this way; any other refusal goes on."""
    try:
        call()
    except kind:
        return True
    return False
