"""Known KV bytes: they depend on everything that they should, and a difference is counted where it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from stagehold.serving.pattern import Layout, Pattern

LAYOUT = Layout(page_size=4)
TOKENS = np.arange(100, 122, dtype=np.uint32)
SLOTS = np.array([9, 2, 7, 0, 5, 3], dtype=np.int64)


def new_pool(slots: int = 10) -> torch.Tensor:
    return torch.zeros((LAYOUT.parts, slots, LAYOUT.page_part_bytes), dtype=torch.uint8)


def filled(first: int = 0) -> torch.Tensor:
    pool = new_pool()
    Pattern(LAYOUT, "a").fill(pool, SLOTS, TOKENS[first:], first)
    return pool


def row(namespace: str = "a", token: int = 7, position: int = 3) -> torch.Tensor:
    return Pattern(LAYOUT, namespace).expected(np.array([token], dtype=np.uint32), position)


def test_a_token_has_eight_kibibytes() -> None:
    """Four layers of K and V with one KiB each."""
    assert 8192 == LAYOUT.token_bytes == row().numel()


@pytest.mark.parametrize("other", [{"namespace": "b"}, {"token": 8}, {"position": 4}])
def test_bytes_depend_on_namespace_token_and_position(other: dict[str, int | str]) -> None:
    """Changing any one of them changes every 64-bit word."""
    same = row().view(torch.int64) == row(**other).view(torch.int64)  # type: ignore[arg-type]

    assert not bool(same.any())


def test_bytes_depend_on_layer_and_side() -> None:
    """No two of the eight parts agree in any word."""
    parts = row().view(torch.int64)[:, 0]

    assert LAYOUT.parts * parts.shape[1] == len(torch.unique(parts))


@pytest.mark.parametrize("cut", [0, 1, 4, 6, 21])
def test_chunks_fill_what_a_whole_pass_fills(cut: int) -> None:
    """A prompt may be filled in pieces that end anywhere in a page."""
    pool = filled(cut)
    Pattern(LAYOUT, "a").fill(pool, SLOTS, TOKENS[:cut], 0)

    assert torch.equal(filled(), pool)


def test_what_was_filled_compares_right() -> None:
    """All bytes are looked at, from any first token."""
    found = Pattern(LAYOUT, "a").compare(filled(), SLOTS, TOKENS[3:], 3)

    assert (19 * 8192, 0, ()) == (found.compared_bytes, found.wrong_bytes, found.wrong_positions)


def test_one_flipped_bit_is_one_wrong_byte() -> None:
    """The token is named by its position, in a whole page and in a partial one."""
    pool = filled()
    pool[5, SLOTS[2], 1077] ^= 1
    pool[0, SLOTS[5], 3] ^= 1

    found = Pattern(LAYOUT, "a").compare(pool, SLOTS, TOKENS, 0)

    assert (2, (9, 20)) == (found.wrong_bytes, found.wrong_positions)


def test_swapped_pages_are_wrong() -> None:
    """Right bytes in the wrong slots do not pass."""
    found = Pattern(LAYOUT, "a").compare(filled(), SLOTS[[1, 0, 2, 3, 4, 5]], TOKENS, 0)

    assert tuple(range(8)) == found.wrong_positions


def test_bytes_outside_the_span_are_left_alone() -> None:
    """Filling touches the request's own tokens only."""
    pool = filled()
    untouched = [s for s in range(10) if s not in SLOTS.tolist()]

    assert not bool(pool[:, untouched].any())
    assert not bool(pool[:, SLOTS[5], 2 * LAYOUT.token_part_bytes :].any())


def test_long_spans_go_in_chunks() -> None:
    """A span of many chunks is filled and compared like a short one."""
    tokens = np.arange(4 * 50 + 2, dtype=np.uint32)
    slots = np.random.default_rng(5).permutation(60)[:51].astype(np.int64)
    pool = new_pool(60)
    pattern = Pattern(LAYOUT, "a")

    pattern.fill(pool, slots, tokens, 0)

    assert 0 == pattern.compare(pool, slots, tokens, 0).wrong_bytes
    pool[1, slots[40], 0] ^= 255
    assert (160,) == pattern.compare(pool, slots, tokens, 0).wrong_positions
