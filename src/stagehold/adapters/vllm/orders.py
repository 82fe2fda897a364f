"""What the scheduler's side tells the worker's in each step, and what it is told back. Data, and nothing else.

Blocks are vLLM's block ids, slots ours; `blocks[i]` and `slots[i]` are the same page of one group.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Copies:
    """Pages of one request to be copied, of one group of layers."""

    group: int
    blocks: tuple[int, ...]
    slots: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """All copies of one request in one direction."""

    rid: str
    copies: tuple[Copies, ...]

    @property
    def blocks(self) -> set[int]:
        """Every block that it touches."""
        return {block for part in self.copies for block in part.blocks}


@dataclass(frozen=True, slots=True)
class Pool:
    """The memory of one component: a file of `pages` pages of `page_bytes` bytes, mapped by both sides."""

    component: str
    path: str
    pages: int
    page_bytes: int


@dataclass(slots=True)
class Orders:
    """One step. `before` is loaded before the forward pass, `beside` while others run; `saves` come after it.

    `broken_before` and `broken_beside` were promised and cannot be made: they are reported as failed at once.
    """

    serial: int
    pools: tuple[Pool, ...]
    before: list[Job] = field(default_factory=list)
    beside: list[Job] = field(default_factory=list)
    saves: list[Job] = field(default_factory=list)
    broken_before: list[Job] = field(default_factory=list)
    broken_beside: list[Job] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Done:
    """The saves of all steps up to `serial` were made, but for those of the requests in `spoiled`."""

    serial: int
    spoiled: frozenset[str] = frozenset()

    def joined(self, other: Done) -> Done:
        """What is true of both."""
        return Done(min(self.serial, other.serial), self.spoiled | other.spoiled)
