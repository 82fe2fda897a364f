"""Expanding blocks to tokens, and the bound that an unbounded cache sets."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from stagehold.lab.expand import ReplayRequest, Scale, Unbounded, expand
from stagehold.lab.traces import TraceRequest, read_mooncake, shipped_trace


def one(*blocks: int, prompt: int | None = None, output: int = 1, block_tokens: int = 16) -> ReplayRequest:
    request = TraceRequest(1, 0, 512 * len(blocks) if prompt is None else prompt, output, blocks)
    return next(iter(expand([request], Scale(block_tokens))))


def test_a_block_has_the_same_tokens_everywhere() -> None:
    """Position in the prompt does not change a block's tokens."""
    assert one(7, 9).tokens[16:].tolist() == one(9, 7).tokens[:16].tolist()


def test_blocks_differ_in_their_tokens() -> None:
    """No two blocks of the shipped trace share their tokens, even when shrunk."""
    blocks = {b for r in islice(read_mooncake(shipped_trace()), 500) for b in r.blocks}
    tokens = {one(b).tokens.tobytes() for b in blocks}

    assert len(blocks) == len(tokens)


def test_lengths_shrink_alike() -> None:
    """Whole blocks come out whole, a partial one keeps its share, and nothing disappears."""
    request = one(1, 2, prompt=512 + 33, output=65)

    assert 16 + 2 == len(request.tokens)
    assert 3 == request.output_tokens
    assert 1 == one(1, prompt=1, output=0).output_tokens == len(one(1, prompt=1).tokens)


def test_full_scale_keeps_every_length() -> None:
    """512 tokens a block leave the trace's own lengths."""
    request = one(1, 2, prompt=700, output=43, block_tokens=512)

    assert (700, 43) == (len(request.tokens), request.output_tokens)
    assert "as in the trace" in str(Scale(512))


@pytest.mark.parametrize("tokens", [0, 513])
def test_a_scale_outside_a_block_is_refused(tokens: int) -> None:
    """A block can neither vanish nor grow."""
    with pytest.raises(ValueError, match="1 to 512"):
        Scale(tokens)


def test_an_unbounded_cache_hits_whole_shared_pages() -> None:
    """Only leading whole pages count, and one token is always left to compute."""
    cache = Unbounded(4)
    first = np.arange(10, dtype=np.uint32)

    assert 0 == cache.hit(first)
    assert 8 == cache.hit(first)
    assert 4 == cache.hit(first[:8])
    assert 4 == cache.hit(np.array([0, 1, 2, 3, 99, 5, 6, 7, 8], dtype=np.uint32))
    assert 3 == cache.pages
