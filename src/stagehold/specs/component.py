"""What an engine is told of each kind of KV that the model has beside full attention.

Data and relations only; nothing is guessed from a shape.
"""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from stagehold.specs.outcomes import ComponentKind, WindowWrites


class ComponentConfig(BaseModel):
    """One component: its kind, its pools and its layout. Sizes are pages, or checkpoints, unless the name says tokens.

    pydantic's ValidationError, a ValueError, for what cannot be meant: a window without its length, a ring of states.

    >>> kind = ComponentKind.SLIDING_WINDOW
    >>> part = ComponentConfig(name="swa", kind=kind, window_tokens=500, device_pages=64, staging_pages=32)
    >>> part.window_pages(page_size=64)
    8
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=32, description="its part in object names and books")
    kind: ComponentKind = Field(description="a window of pages, or a checkpoint at a boundary")
    device_pages: int = Field(ge=1, description="slots of its device pool")
    staging_pages: int = Field(ge=0, description="its part of the host buffer")
    window_tokens: int | None = Field(
        default=None, ge=1, description="sliding_window: tokens that attention looks back"
    )
    gates: bool = Field(default=True, description="whether a prefix can only be gone on from where it is whole")
    ring: bool = Field(default=False, description="sliding_window: the last slot may be promised, too")
    writes: WindowWrites = Field(default=WindowWrites.ALL, description="sliding_window: which pages are stored")
    parts: int = Field(default=0, ge=0, description="layers x (K, V), or x states, of its tensors; 0 attaches none")
    page_part_bytes: int = Field(default=0, ge=0, description="bytes of one page, or checkpoint, in one part")

    @property
    def windowed(self) -> bool:
        """Whether it has a window."""
        return self.kind is ComponentKind.SLIDING_WINDOW

    def window_pages(self, page_size: int) -> int:
        """ceil(window / page size): every boundary that lies on a page needs so many pages before it; 0 without one."""
        return -(-(self.window_tokens or 0) // page_size)

    @model_validator(mode="after")
    def _refuse_what_cannot_be_meant(self) -> Self:
        if self.windowed != (self.window_tokens is not None):
            raise ValueError(
                f"component {self.name!r}: kind={self.kind.value} with window_tokens={self.window_tokens}; "
                "a sliding window needs one, a checkpoint has none"
            )
        if not self.windowed and (self.ring or self.writes is not WindowWrites.ALL):
            raise ValueError(f"component {self.name!r}: ring and writes are options of a sliding window")
        if (self.parts == 0) != (self.page_part_bytes == 0):
            raise ValueError(
                f"component {self.name!r}: parts={self.parts} and page_part_bytes={self.page_part_bytes}; "
                "set both to attach tensors, or neither"
            )
        return self

    def refuse_too_small(self, page_size: int, chunk_pages: int, *, tier: bool) -> None:
        """Raise ValueError, with the arithmetic, where no request could run or no hold be staged."""
        window = self.window_pages(page_size)
        if self.windowed:
            need = 2 * window + max(chunk_pages, window) + 1 + (not self.ring)
            what = f"2 x {window} + max({chunk_pages}, {window}) + {need - 2 * window - max(chunk_pages, window)} pages"
        else:
            need, what = 3, "one to compute in, one to go on from, and one free: 3"
        if self.device_pages < need:
            raise ValueError(
                f"component {self.name!r}: device_pages={self.device_pages}, but one request can need {need} ({what}); "
                "enlarge it, or set chunk_tokens to the largest piece of a prompt that is computed at once"
            )
        staged = 2 * max(1, window)
        if tier and self.staging_pages < staged:
            raise ValueError(
                f"component {self.name!r}: staging_pages={self.staging_pages}, but two holds need {staged} "
                f"(2 x {max(1, window)})"
            )
