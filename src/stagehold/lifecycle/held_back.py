"""Pages that are on the device and that nobody has offered to the store yet: what write-back waits with.

Owns what each device slot holds as long as its page is neither stored nor on its way, and counts those that were
evicted first. Decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from stagehold.cache.keys import Chain

Unwritten = tuple[Chain, bytes, int]
"""Chain, namespace and page."""


@dataclass(slots=True)
class HeldBack:
    """`pages` by device slot, in order of publication; `lost` counts those that were evicted unwritten."""

    pages: dict[int, Unwritten] = field(default_factory=dict)
    lost: int = 0

    def forget(self, slots: Iterable[int]) -> None:
        """These slots were evicted."""
        for slot in slots:
            if self.pages.pop(slot, None) is not None:
                self.lost += 1
