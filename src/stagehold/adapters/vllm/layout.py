"""How vLLM's groups of layers become the engine's components, and what one page of each component consists of.

A page is the blocks of all layers of one kind for the same tokens, layer by layer, in the order of groups. Groups of
equal windows are one component: their layers see the same tokens, whatever block ids hold them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from stagehold import ComponentConfig, ComponentKind, EngineConfig, HostMode
from stagehold.adapters.vllm.options import ConnectorRefused, Options, sentences

FULL = "full"
FULL_SPECS = ("FullAttentionSpec", "MLAAttentionSpec")
WINDOW_SPECS = ("SlidingWindowSpec",)


@dataclass(frozen=True, slots=True)
class Layer:
    """Where the block of one layer lies in a page: `size` bytes from `offset` on."""

    name: str
    group: int
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Kind:
    """One component. `window` is what attention looks back, the token itself included; None: everything."""

    name: str
    window: int | None
    layers: tuple[Layer, ...]

    @property
    def page_bytes(self) -> int:
        """Bytes of one page."""
        return sum(layer.size for layer in self.layers)

    @property
    def groups(self) -> tuple[int, ...]:
        """The groups of vLLM that it is made of."""
        return tuple(sorted({layer.group for layer in self.layers}))


@dataclass(frozen=True, slots=True)
class Layout:
    """All components, full attention first; `n_blocks` is the size of vLLM's own pool."""

    page_size: int
    n_blocks: int
    n_groups: int
    kinds: tuple[Kind, ...]

    def described(self) -> str:
        """What changes the bytes of a page, as text for the fingerprint."""
        return repr(
            (self.page_size, [(kind.name, [(one.name, one.size) for one in kind.layers]) for kind in self.kinds])
        )


def layout_of(kv_cache_config: Any, block_size: int) -> Layout:
    """Read vLLM's `KVCacheConfig`. Raises ConnectorRefused for a kind of layer that is not served."""
    layers: dict[int | None, list[tuple[str, int, int]]] = {}
    for group, one in enumerate(kv_cache_config.kv_cache_groups):
        for name, spec in _specs(one):
            window = _window(name, spec)
            if spec.block_size != block_size:
                raise ConnectorRefused(f"layer {name}: blocks of {spec.block_size} tokens beside some of {block_size}; "
                                       "expected one size for all")  # fmt: skip
            layers.setdefault(window, []).append((name, group, int(spec.unpadded_page_size_bytes)))
    if None not in layers:
        raise ConnectorRefused(
            f"a model of sliding windows alone ({sorted(filter(None, layers))} tokens) is not served; "
            "start vLLM with --disable-hybrid-kv-cache-manager"
        )
    kinds = [Kind(FULL, None, _placed(layers.pop(None)))]
    kinds += [Kind(f"window_{window}", window, _placed(found)) for window, found in sorted(layers.items(), key=str)]
    return Layout(block_size, kv_cache_config.num_blocks, len(kv_cache_config.kv_cache_groups), tuple(kinds))


def _specs(group: Any) -> Iterator[tuple[str, Any]]:
    """Each layer of a group with its own spec, also where the group's is one of several."""
    own = getattr(group.kv_cache_spec, "kv_cache_specs", {})
    for name in group.layer_names:
        yield name, own.get(name, group.kv_cache_spec)


def _window(name: str, spec: Any) -> int | None:
    kind = type(spec).__name__
    if kind in FULL_SPECS:
        return None
    if kind in WINDOW_SPECS:
        return int(spec.sliding_window)
    raise ConnectorRefused(f"layer {name}: {kind} is not served; served are {', '.join((*FULL_SPECS, *WINDOW_SPECS))}")


def _placed(found: list[tuple[str, int, int]]) -> tuple[Layer, ...]:
    placed: list[Layer] = []
    offset = 0
    for name, group, size in found:
        placed.append(Layer(name, group, offset, size))
        offset += size
    return tuple(placed)


def engine_config(layout: Layout, options: Options, *, model_tokens: int, step_tokens: int) -> EngineConfig:
    """An engine for requests of up to `model_tokens`, of which vLLM computes at most `step_tokens` in a step.

    Raises ConnectorRefused where the pool cannot hold one such request.
    """
    size = layout.page_size
    pool = options.pool_pages or layout.n_blocks
    largest = model_tokens + size  # the page in which the last token lies is asked for whole
    staging = options.staging_pages or max(pool // 4, min(pool, -(-largest // size)))
    chunk = step_tokens + 2 * size
    full, *windows = layout.kinds
    try:
        return EngineConfig(
            page_size=size,
            device_pages=pool,
            staging_pages=staging,
            largest_request_tokens=largest,
            host_memory_mode=HostMode.BUFFER_ONLY,
            prefetch_threshold_tokens=options.threshold_tokens,
            prefetch_policy=options.prefetch_policy,
            pin_fraction=0.5 if pool > -(-largest // size) else 0.0,
            parts=1,
            page_part_bytes=full.page_bytes,
            chunk_tokens=chunk,
            components=tuple(_windowed(kind, options, pool, chunk, size) for kind in windows),
        )
    except ValidationError as error:
        told = f"pools of {pool} pages for requests of {model_tokens} tokens: {sentences(error)}"
        raise ConnectorRefused(told) from error


def _windowed(kind: Kind, options: Options, pool: int, chunk: int, size: int) -> ComponentConfig:
    """The token itself is not looked back at: what it needs of the cache is one token less than vLLM's window."""
    assert kind.window is not None
    back = max(1, kind.window - 1)
    reach = -(-back // size)
    least = 2 * reach + max(-(-chunk // size), reach) + 2
    return ComponentConfig(
        name=kind.name,
        kind=ComponentKind.SLIDING_WINDOW,
        window_tokens=back,
        device_pages=options.window_pages or max(least, pool // 2),
        staging_pages=max(4 * reach, pool // 8),
        parts=1,
        page_part_bytes=kind.page_bytes,
    )
