"""How large the host buffer is: in pages, by a ratio to the device pool, or in bytes; exactly one of these decides.

Owns the arithmetic from what was set to the pages of each component, and the sentences that show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from stagehold import HostMode

RATIOS = {HostMode.CACHE: 2.0, HostMode.BUFFER_ONLY: 1.2}
"""Without any of the three: a tier has to hold more than the device to be of use, a buffer only what is on its way."""


@dataclass(frozen=True, slots=True)
class Staging:
    """Pages of full attention and of each other component, and how each figure came about."""

    pages: int
    parts: Mapping[str, int] = field(default_factory=dict)
    arithmetic: str = "as set"


def sized(settings: Any) -> Staging:
    """The host buffer that the settings ask for. ValueError where they ask in two ways, or none can be had."""
    ways = [name for name in ("staging_pages", "staging_ratio", "staging_bytes") if getattr(settings, name) is not None]
    if len(ways) > 1:
        raise ValueError(f"{' and '.join(ways)} are set: each of them sizes the host buffer, so keep one")
    if settings.staging_pages is not None:
        return Staging(settings.staging_pages, {one.name: _own(one, None) for one in settings.components})
    ratio, shown = _ratio(settings)
    pages = int(ratio * settings.device_pages)
    if pages == 0:
        raise ValueError(
            f"the host buffer derives to zero: floor({shown} * {settings.device_pages}) = 0 pages; enlarge "
            "staging_ratio or staging_bytes, or set staging_pages=0 to have no tier on purpose"
        )
    return Staging(
        pages,
        {one.name: _own(one, ratio) for one in settings.components},
        f"floor({shown} * {settings.device_pages}) = {pages}",
    )


def _own(component: Any, ratio: float | None) -> int:
    """What a component's own option says, else its share by the ratio; a window's share holds two of it at least."""
    if component.staging_pages is not None:
        return int(component.staging_pages)
    if ratio is None:
        raise ValueError(
            f"component {component.name!r}: staging_pages is not set; set it, as the engine's own is set in pages, or "
            "set staging_ratio instead of both"
        )
    return int(ratio * component.device_pages)


def _ratio(settings: Any) -> tuple[float, str]:
    """Host buffer by device pool, and the expression that it was computed from."""
    if settings.staging_bytes is None:
        if not isfinite(settings.staging_ratio or 0):
            raise ValueError(f"staging_ratio={settings.staging_ratio}: expected a finite number")
        ratio = settings.staging_ratio if settings.staging_ratio is not None else RATIOS[settings.host_memory_mode]
        return ratio, f"{ratio}"
    pools = [(settings.device_pages, settings.parts * settings.page_part_bytes)]
    pools += [(one.device_pages, one.parts * one.page_part_bytes) for one in settings.components]
    device = sum(pages * size for pages, size in pools)
    if not device:
        raise ValueError(
            f"staging_bytes={settings.staging_bytes}, but no bytes of a page are known: set parts and page_part_bytes "
            "(of components, too), or size the host buffer by staging_ratio"
        )
    shown = " + ".join(f"{pages} * {size}" for pages, size in pools)
    return settings.staging_bytes / device, f"{settings.staging_bytes} / ({shown})"
