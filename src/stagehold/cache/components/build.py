"""Components from what an engine is told of them: the one place that knows which class serves which kind."""

from __future__ import annotations

from collections.abc import Sequence

from stagehold.cache.components.base import Component
from stagehold.cache.components.full import SPINE
from stagehold.cache.components.state import Checkpoints
from stagehold.cache.components.swa import SlidingWindow
from stagehold.cache.errors import CacheRefused
from stagehold.specs.component import ComponentConfig


def build(configs: Sequence[ComponentConfig], page_size: int) -> list[Component]:
    """A component for each configuration, in their order, bound to no tree yet."""
    return [_one(config, page_size) for config in configs]


def _one(config: ComponentConfig, page_size: int) -> Component:
    if config.name == SPINE:
        raise CacheRefused(f"components: {SPINE!r} is the KV of full attention, which every engine has")
    if config.windowed:
        pages = config.window_pages(page_size)
        return SlidingWindow(pages, gates=config.gates, ring=config.ring, name=config.name)
    return Checkpoints(gates=config.gates, name=config.name)
