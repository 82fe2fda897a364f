"""What every reader gives, what it raises, and how far it follows a file that lies about its sizes.

It owns the record of one request and the bounds of its fields; it reads nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

BLOCK_TOKENS = 512
"""Prompt tokens in a block of the Mooncake traces."""
BLOCK_IDS = 1 << 54
"""Bound of block ids: an id and a position in its block, 10 bits of it, are made one number of 64 bits."""
BLOCK_TOKENS_MAX = 1 << 10
PROMPT_TOKENS_MAX = 1 << 24
"""Longest prompt that is believed: well beyond any context window, and its block ids still fit in memory."""
ARRIVAL_MS_MAX = 1 << 50


class TraceError(ValueError):
    """A trace that cannot be read: file, line (from 1; 0: the whole file), what was expected and found."""

    def __init__(self, path: Path, line: int, expected: str, found: str) -> None:
        place = f"{path}:{line}" if line else str(path)
        super().__init__(f"{place}: expected {expected}, found {found}")
        self.path = path
        self.line = line
        self._told = (expected, found)

    def __reduce__(self) -> tuple[type[TraceError], tuple[Path, int, str, str]]:
        """As it goes from one process to another."""
        return type(self), (self.path, self.line, *self._told)


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace: line, arrival in milliseconds, lengths in tokens, ids of its leading prompt blocks.

    Equal leading ids are equal leading blocks of `block_tokens` tokens each. The last block may be partial; tokens
    behind the last block are this request's alone. `session` is empty where the trace names none.
    """

    line: int
    arrival_ms: int
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]
    block_tokens: int = BLOCK_TOKENS
    session: str = ""

    @property
    def whole_blocks(self) -> tuple[int, ...]:
        """The blocks that the prompt fills."""
        return self.blocks[: self.prompt_tokens // self.block_tokens]
