"""Engines with other kinds of KV beside full attention, driven by hand."""

from __future__ import annotations

import pytest

from stagehold import ComponentConfig, ComponentKind

BYTES = 8


def parts_of(kinds: str, *, window: int = 48, device: int = 40, staging: int = 12, states: int = 8, **swa):
    """`w` in `kinds` is a sliding window of `window` tokens, `s` are checkpoints; each with tensors of its own."""
    found = []
    if "w" in kinds:
        shape = {"parts": 1, "page_part_bytes": BYTES}
        kind = ComponentKind.SLIDING_WINDOW
        found.append(
            ComponentConfig(
                name="swa", kind=kind, device_pages=device, staging_pages=staging, window_tokens=window, **shape | swa
            )
        )
    if "s" in kinds:
        kind = ComponentKind.CHECKPOINT
        found.append(
            ComponentConfig(
                name="state", kind=kind, device_pages=states, staging_pages=6, parts=1, page_part_bytes=BYTES
            )
        )
    return tuple(found)


@pytest.fixture
def mixed(hand):
    """Builds an engine of a component set: '' (full attention alone), 'w', 's' or 'ws'; all with tensors."""

    def build(kinds: str, *, page: int = 16, parts=None, chunk: int = 4, **settings):
        chosen = {} if parts is None else parts
        components = parts_of(kinds, **{"window": 3 * page, **chosen})
        sizes = {
            "page_size": page,
            "device_pages": 64,
            "largest_request_tokens": 32 * page,
            "prefetch_threshold_tokens": page,
            "chunk_tokens": chunk * page,
            "pin_fraction": 0.0,
        }
        return hand(components=components, parts=1, page_part_bytes=BYTES, **{**sizes, **settings})

    return build


@pytest.fixture(scope="session")
def parts():
    """Components by their letters; see `parts_of`."""
    return parts_of
