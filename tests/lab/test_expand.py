"""Expanding blocks to tokens, and the bound that an unbounded cache sets."""

from __future__ import annotations

from itertools import islice

import numpy as np
import pytest

from stagehold.lab.expand import ReplayRequest, Scale, ScaleError, Unbounded, expand
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


def test_tokens_behind_the_blocks_are_their_requests_own() -> None:
    """What the trace does not identify is shared with nobody, not even with the same line's other requests."""
    twice = [TraceRequest(4, 0, 40, 1, (7,), 16), TraceRequest(4, 5, 40, 1, (7,), 16), TraceRequest(5, 5, 0, 1, (), 16)]
    first, second, empty = expand(twice, Scale(512))

    assert ["line-4", "line-4.2", "line-5"] == [first.rid, second.rid, empty.rid]
    assert first.tokens[:16].tolist() == second.tokens[:16].tolist()
    assert not set(first.tokens[16:].tolist()) & set(second.tokens[16:].tolist())
    assert (40, 1) == (len(second.tokens), len(empty.tokens))


def test_blocks_of_other_sizes_shrink_to_whole_tokens_or_not_at_all() -> None:
    """16 tokens at a scale of 32 are one; at 16 they would be half a one."""
    request = TraceRequest(1, 0, 33, 1, (7, 8), 16)

    assert 3 == len(next(iter(expand([request], Scale(32)))).tokens)
    with pytest.raises(ScaleError, match="blocks of 16 tokens cannot be replayed at 16 for 512"):
        list(expand([request], Scale(16)))
