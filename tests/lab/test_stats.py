"""What a trace holds: figures by hand on small traces, and those that are known of the shipped one."""

from __future__ import annotations

import random
from collections import Counter
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from stagehold.lab.expand import Scale, Unbounded, expand
from stagehold.lab.stats import Spread, TraceStats, spread, trace_stats
from stagehold.lab.stats_prefixes import Fenwick, Prefixes
from stagehold.lab.traces import TraceError, TraceRequest, read_trace, shipped_trace

HERE = Path("trace")


def of(*rows: tuple[int, tuple[int, ...]]) -> TraceStats:
    """Stats of prompts of whole blocks of 4 tokens and one token more, by (arrival in seconds, blocks)."""
    requests = [
        TraceRequest(line, seconds * 1000, 4 * len(blocks) + 1, 1, blocks, 4)
        for line, (seconds, blocks) in enumerate(rows, start=1)
    ]
    return trace_stats(requests, HERE)


def test_the_shipped_trace_is_what_its_publishers_say() -> None:
    """12,031 requests, mean lengths 12,035 and 343, and arrivals on 1,180 moments."""
    found = trace_stats(read_trace(shipped_trace()), shipped_trace())

    assert 12_031 == found.requests
    assert (12_035, 343) == (round(found.prompt_tokens.mean), round(found.output_tokens.mean))
    assert (1_180, 28) == (found.distinct_arrivals, found.most_at_once)
    assert 3_536.999 == found.seconds
    assert 144_793_823 == found.prompt_tokens.total
    assert 54_063_104 == found.ideal_hit_tokens


def test_ideal_hits_are_those_of_a_cache_that_never_forgets() -> None:
    """Two ways to count the same: fingerprints of blocks here, pages of tokens there."""
    requests = list(islice(read_trace(shipped_trace()), 400))
    never_forgets = Unbounded(512)

    hits = sum(never_forgets.hit(one.tokens) for one in expand(requests, Scale(512)))

    assert hits == trace_stats(requests, HERE).ideal_hit_tokens
    assert never_forgets.pages * 512 == trace_stats(requests, HERE).working_set_tokens


def test_a_prefix_is_reused_only_from_its_beginning() -> None:
    """The same block behind another one is another prefix, and a shared head counts as far as it goes."""
    found = of((0, (1, 2, 3)), (0, (9, 2, 3)), (0, (1, 2, 4)))

    assert 8 == found.ideal_hit_tokens
    assert (1, 7 * 4) == (found.requests_with_a_hit, found.working_set_tokens)


def test_a_prompt_of_whole_blocks_leaves_one_to_compute() -> None:
    """A hit of everything is not counted: the last token has to be computed for the first of the answer."""
    request = TraceRequest(1, 0, 8, 1, (1, 2), 4)

    assert 4 == trace_stats([request, request], HERE).ideal_hit_tokens


def test_the_race_window_counts_from_the_first_time_a_prefix_was_there() -> None:
    """Five seconds after its first request, however often the shorter head came before."""
    found = of((0, (1,)), (10, (1, 2)), (15, (1, 2, 3)), (16, (1,)), (200, (1, 2)))

    assert {1: 0, 5: 1, 30: 3, 120: 3} == found.produced_within
    assert 4 == found.requests_with_a_hit


def test_the_distance_of_reuse_is_what_was_used_in_between() -> None:
    """Blocks of other prefixes since the last use, each once; a cache of that size would have kept it."""
    found = of((0, (1, 2)), (1, (5, 6, 7)), (2, (5, 6, 7)), (3, (1, 2)))

    assert Spread(24, 24 / 5, 0, 12, 12, 12) == found.reuse_distance_tokens
    assert {1: 12, 5: 12, 10: 12, 25: 12, 50: 12, 100: 20} == {
        share: round(rate * found.prompt_tokens.total) for share, rate in found.lru_hit_rates.items()
    }


def test_reuse_is_what_a_plain_count_says() -> None:
    """Prompts that branch and come back in any order: leading blocks, distances and first times, counted one by one."""
    dice, prefixes = random.Random(5), Prefixes()
    last: dict[tuple[int, ...], int] = {}
    born: dict[tuple[int, ...], int] = {}
    for number in range(400):
        blocks = [dice.randrange(3) for _ in range(dice.randrange(9))]
        heads = [tuple(blocks[: end + 1]) for end in range(len(blocks))]
        known = [head for head in heads if head in last]
        away = Counter(sum(since > last[head] for since in last.values()) for head in known)

        found = prefixes.use(blocks, number)

        assert (len(known), born[known[-1]] if known else 0) == (found.known, found.produced_ms)
        assert dict(away) == dict(zip(found.distances.tolist(), found.blocks.tolist(), strict=True))
        last |= dict.fromkeys(heads, number)
        born = dict.fromkeys(heads, number) | born
    assert len(last) == len(prefixes)


def test_percentiles_are_values_that_occur() -> None:
    """Nearest rank, with weights, and nothing for nothing."""
    assert Spread(5050, 50.5, 50, 90, 99, 100) == spread(np.arange(100, 0, -1))
    assert Spread(13, 1.3, 1, 1, 4, 4) == spread(np.array([4, 1]), np.array([1, 9]))
    assert Spread(0, 0.0, 0, 0, 0, 0) == spread(np.zeros(0, dtype=np.int64))


def test_sums_by_place_are_right() -> None:
    """Held against plain lists, places being added all the while."""
    dice, tree, plain = random.Random(3), Fenwick(), [0]
    for _ in range(200):
        assert tree.append() == len(plain)
        plain.append(0)
        for _ in range(3):
            place, count = dice.randrange(1, len(plain)), dice.randrange(-5, 9)
            tree.add(place, count)
            plain[place] += count
        upto = dice.randrange(len(plain))
        assert sum(plain[: upto + 1]) == tree.upto(upto)


def test_what_has_no_figures_is_refused() -> None:
    """No request, or blocks of two sizes."""
    with pytest.raises(TraceError, match="at least one request"):
        trace_stats([], HERE)
    with pytest.raises(TraceError, match="blocks of 4 tokens throughout"):
        trace_stats([TraceRequest(1, 0, 4, 1, (1,), 4), TraceRequest(2, 0, 8, 1, (1,), 8)], HERE)


def test_traces_without_content_have_no_reuse() -> None:
    """Lengths alone say nothing of prefixes, and an empty prompt divides by nothing."""
    assert 0 == trace_stats([TraceRequest(1, 0, 700, 1, ())] * 2, HERE).ideal_hit_tokens
    assert 0.0 == trace_stats([TraceRequest(1, 0, 0, 1, ())], HERE).ideal_hit_rate
