"""Worlds of several components: which kinds of KV, which window against which page, in which mode. Data, and a draw.

The pools of windows and checkpoints are hardly larger than one request needs, so that windows are lost under live
prefixes all the time. The same seed draws the same world.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product

from stagehold.specs.component import ComponentConfig
from stagehold.specs.config import EngineConfig
from stagehold.specs.outcomes import ComponentKind, HostMode, WindowWrites
from stagehold.testing.content import TOKEN_BYTES
from stagehold.testing.shapes import PAGE, WorldShape, drawn

PAGES = (1, 4, 16, 64)
WINDOWS = ("below", "page", "above")
KINDS = ("full", "swa", "state", "swa+state")

WINDOW, STATE = "swa", "state"


@dataclass(frozen=True, slots=True)
class Mix:
    """One combination. `window` is below, equal to or above a page; `gates`: whether hits wait for the others."""

    page_size: int = PAGE
    kinds: str = "full"
    window: str = "page"
    mode: HostMode = HostMode.BUFFER_ONLY
    writes: WindowWrites = WindowWrites.ALL
    gates: bool = True

    @property
    def has_window(self) -> bool:
        """Whether one of its components has a window."""
        return WINDOW in self.kinds

    @property
    def window_tokens(self) -> int:
        """Half a page, a page, or two pages and a half."""
        size = self.page_size
        return {"below": max(1, size // 2), "page": size, "above": 2 * size + max(1, size // 2)}[self.window]

    def __str__(self) -> str:
        window = f"-{self.window}-{self.writes.value}" if self.has_window else ""
        return f"{self.page_size}-{self.kinds}{window}-{self.mode.value}{'' if self.gates else '-free'}"


_ALL, _LAST = WindowWrites.ALL, WindowWrites.LAST
_BUFFER, _CACHE = HostMode.BUFFER_ONLY, HostMode.CACHE

PAIRWISE = (
    Mix(1, "swa", "page", _BUFFER, _ALL), Mix(1, "swa+state", "above", _CACHE, _LAST),
    Mix(4, "swa+state", "below", _BUFFER, _LAST), Mix(4, "swa", "page", _CACHE, _ALL, gates=False),
    Mix(4, "swa", "above", _BUFFER, _ALL), Mix(4, "state", "page", _CACHE, _ALL),
    Mix(16, "swa", "below", _CACHE, _ALL), Mix(16, "swa+state", "page", _BUFFER, _LAST, gates=False),
    Mix(16, "swa+state", "above", _CACHE, _ALL), Mix(64, "swa", "below", _CACHE, _LAST, gates=False),
    Mix(64, "swa+state", "page", _CACHE, _LAST), Mix(64, "swa", "above", _BUFFER, _LAST),
)  # fmt: skip
"""Every window against every page, each of them in both modes and beside each other component, in twelve worlds."""


def every_mix() -> Iterator[Mix]:
    """All combinations, each once: what has no window has no size of one."""
    seen = set()
    for mix in (Mix(*one) for one in product(PAGES, KINDS, WINDOWS, HostMode, WindowWrites, (True, False))):
        same = mix if mix.has_window else replace(mix, window="page", writes=_ALL)
        if same.page_size == 1 and same.window == "below":
            continue
        same = same if mix.kinds != "full" else replace(same, gates=True)
        if same not in seen:
            seen.add(same)
            yield same


OTHERS = tuple(mix for mix in every_mix() if mix.kinds != "full")
"""Those with other components."""


def mix_of(seed: int) -> Mix:
    """The combination of a seed, of any kind but the one that has no other components."""
    dice = random.Random(f"mix {seed}")  # noqa: S311 - reproducible on purpose
    return dice.choice(OTHERS)


def mixed(seed: int, mix: Mix | None = None) -> WorldShape:
    """The shape of a seed, as `drawn` gives it, for a combination: that of the seed unless it is given."""
    mix = mix_of(seed) if mix is None else mix
    return recut(drawn(seed), mix, random.Random(f"parts {seed}"))  # noqa: S311 - as above


def recut(shape: WorldShape, mix: Mix, dice: random.Random, guests: int = 1) -> WorldShape:
    """The same world in pages of another size, with the components of a combination; `dice` draws their pools.

    They have room for `guests` requests at once, and sometimes for one or three more.
    """
    size, config = mix.page_size, shape.config
    chunk = dice.choice((1, 2, 4))
    backlog = config.write_backlog_tokens
    options = config.model_dump() | {
        "page_size": size,
        "largest_request_tokens": config.largest_request_tokens // PAGE * size,
        "prefetch_threshold_tokens": config.prefetch_threshold_tokens // PAGE * size,
        "write_backlog_tokens": None if backlog is None else backlog // PAGE * size,
        "page_part_bytes": size * TOKEN_BYTES,
        "host_memory_mode": mix.mode,
        "chunk_tokens": chunk * size if mix.kinds != "full" else None,
        "components": _components(mix, chunk, guests + dice.choice((0, 0, 1, 3)), dice),
    }
    return replace(shape, config=EngineConfig.model_validate(options))


def _components(mix: Mix, chunk: int, guests: int, dice: random.Random) -> tuple[ComponentConfig, ...]:
    found = []
    if mix.has_window:
        pages = -(-mix.window_tokens // mix.page_size)
        ring = dice.random() < 0.5
        each = 2 * pages + max(chunk, pages) + 1
        found.append(
            ComponentConfig(
                name=WINDOW,
                kind=ComponentKind.SLIDING_WINDOW,
                device_pages=each * guests + (not ring),
                staging_pages=2 * pages + dice.choice((0, 2, 6)),
                window_tokens=mix.window_tokens,
                gates=mix.gates,
                ring=ring,
                writes=mix.writes,
                parts=2,
                page_part_bytes=mix.page_size * TOKEN_BYTES,
            )
        )
    if STATE in mix.kinds:
        found.append(
            ComponentConfig(
                name=STATE,
                kind=ComponentKind.CHECKPOINT,
                device_pages=1 + guests * dice.choice((2, 3, 5)),
                staging_pages=dice.choice((2, 3, 6)),
                gates=mix.gates,
                parts=1,
                page_part_bytes=TOKEN_BYTES,
            )
        )
    return tuple(found)
