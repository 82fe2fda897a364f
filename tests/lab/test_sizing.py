"""Sizes: the search finds what looking at every pair would find, and what a trace needs by arithmetic."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from stagehold.lab.cell_options import OptionError
from stagehold.lab.cells import Cell, run_all
from stagehold.lab.reports.sized import chart as section_chart
from stagehold.lab.reports.sized import section
from stagehold.lab.sizing import Bar, Grid, Judge, Place, Sized, settled, size, staircase, steps
from stagehold.lab.sizing_words import as_json, assumptions, chart, paragraph
from stagehold.lab.virtual_costs import MODELS, ModelName

BLOCKS = 16
PAGE = 64
PAGE_BYTES = PAGE * MODELS[ModelName.LLAMA_3_1_8B].kv_token_bytes


@pytest.fixture(name="trace", scope="module")
def _trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three prompts of 128 pages, twice, in turn, long after each other; a pool of 150 pages holds one of them."""
    path = tmp_path_factory.mktemp("sizes") / "t.jsonl"
    lines = [
        {"timestamp": 20_000 * n, "input_length": 512 * BLOCKS + 1, "output_length": 2,
         "hash_ids": [*range(100 * (n % 3), 100 * (n % 3) + BLOCKS), 10_000 + n]}
        for n in range(6)
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def searched(trace: Path, *, host: str = "0.5-4", gbps: str = "0.25-16", judge: Judge = Judge.HITS) -> Sized:
    def simulated(cells: Sequence[Cell]) -> list[dict[str, Any]]:
        return run_all(cells, trace.with_suffix(".cells"))

    grid = Grid(steps("--host-gb", host), steps("--store-gbps", gbps))
    return size({"trace": str(trace), "device_pages": 150}, grid, Bar(0.02, judge), simulated)


def test_a_trace_whose_needs_are_known(trace: Path) -> None:
    """All 128 pages of a prompt must fit in the nine tenths of host memory that fetches may have, 1.19 GB: 2 of the
    grid. They must come within the wait for so many pages, 32 + 128 / 4 ticks of 5 ms: 1.07 GB in 0.32 s, so 4 GB/s.
    """
    least_gb = 128 / 0.9 * PAGE_BYTES / 1e9
    least_gbps = 128 * PAGE_BYTES / 1e9 / 0.32
    found = searched(trace)

    assert 1 < least_gb <= 2
    assert 2 < least_gbps <= 4
    assert (2, 4) == (found.grid.host_gb[found.answer[0]], found.grid.store_gbps[found.answer[1]])
    assert (None, None, 4, 4) == found.stairs
    assert found.even
    assert len(found.runs) < 4 * 7


def test_the_search_finds_what_every_pair_would_tell(trace: Path) -> None:
    """Each pair simulated, and asked in the same way; the same search twice is the same."""
    found, again = (searched(trace, gbps="1-8", judge=Judge.BOTH) for _ in range(2))
    rows, columns = len(found.grid.host_gb), len(found.grid.store_gbps)
    whole = {
        (row, column): searched(trace, host=f"{gb:g}", gbps=f"{gbps:g}").largest
        for row, gb in enumerate(found.grid.host_gb)
        for column, gbps in enumerate(found.grid.store_gbps)
    }
    good = {place: found.bar.holds(run, found.largest) for place, run in whole.items()}
    first = [next((at for at in range(columns) if good[row, at]), None) for row in range(rows)]

    assert tuple(first) == found.stairs
    assert all(whole[place] == run for place, run in found.runs.items())
    assert as_json(found) == as_json(again)


def test_any_staircase_is_found_with_few_questions() -> None:
    """Drawn ones, of all shapes; no question twice, and far fewer than places."""
    dice = random.Random(9)
    for _ in range(200):
        rows, columns = dice.randrange(1, 12), dice.randrange(1, 12)
        stairs = sorted((dice.randrange(columns + 1) for _ in range(rows)), reverse=True)
        asked: list[Place] = []

        def ask(places: Sequence[Place], stairs: list[int] = stairs, asked: list[Place] = asked) -> list[bool]:
            asked += places
            return [column >= stairs[row] for row, column in places]

        found = staircase(rows, columns, ask)

        assert [at if at < columns else None for at in stairs] == found
        assert len(asked) == len(set(asked)) <= rows + columns + 2


def test_an_answer_from_which_less_is_enough_moves_on() -> None:
    """Where more was not better, the search would stop too high; it goes down as long as a step is good enough."""
    good = {(3, 3), (2, 3), (2, 2)}

    def ask(places: Sequence[Place]) -> list[bool]:
        return [place in good for place in places]

    assert ((2, 2), False) == settled((3, 3), ask)
    assert ((2, 2), True) == settled((2, 2), ask)
    assert ((0, 0), True) == settled((0, 0), ask)


def record(hits: int, wait: float) -> dict[str, Any]:
    return {
        "ideal_hit_tokens": 1000,
        "device_hit_tokens": 100,
        "store_hit_tokens": hits - 100,
        "ttft_ms": {"p50": wait},
    }


@pytest.mark.parametrize(
    ("hits", "wait", "judge", "good"),
    [
        (980, 1.0, Judge.HITS, True),
        (979, 1.0, Judge.HITS, False),
        (0, 1020.0, Judge.TTFT, True),
        (1000, 1021.0, Judge.TTFT, False),
        (980, 1020.0, Judge.BOTH, True),
        (979, 1020.0, Judge.BOTH, False),
        (980, 1021.0, Judge.BOTH, False),
    ],
)
def test_the_bar(hits: int, wait: float, judge: Judge, good: bool) -> None:
    """Hits of the ideal, waits of the largest pair's, or both; and of short waits a pass more is no difference."""
    assert good is Bar(0.02, judge).holds(record(hits, wait), record(1000, 1000.0))
    assert Bar(0.02, Judge.TTFT).holds(record(0, 25.0), record(0, 15.0))
    assert not Bar(0.02, Judge.TTFT).holds(record(0, 25.1), record(0, 15.0))
    assert Bar(0.02, Judge.HITS, 0.5).holds(record(490, 1.0), record(500, 1.0))
    assert not Bar(0.02, Judge.HITS, 0.5).holds(record(489, 1.0), record(500, 1.0))


def test_what_is_out_of_reach_is_said(trace: Path) -> None:
    """With what the largest pair reaches, which is then what the others are measured against."""
    found = searched(trace, host="0.25-0.5")
    told = paragraph(found)

    assert (1, 4) == found.answer
    assert 0.3 < found.bar.reachable < 0.5
    assert not as_json(found)["ideal_in_reach"]
    assert told.startswith("No pair comes within 2 % of what a cache that never forgets hits: 0.5 GB of host memory")
    assert "Measured against that, 0.5 GB of host memory and 4 GB/s to the store will do: that hits 46.1 %" in told
    assert "98 % of what the largest pair hits" in told


def test_the_answer_in_words_and_charts(trace: Path) -> None:
    """What it gives, what else would do, what it rests on; the same pairs as characters and as a picture."""
    found = searched(trace)
    drawn = list(chart(found))
    html = section(found).html

    assert paragraph(found).startswith("2 GB of host memory and 4 GB/s to the store will do: that hits 100.0 %")
    assert "a median time to first token" in paragraph(found)
    assert "all 6 requests" in " ".join(assumptions(found)).replace("the first", "all")
    assert f"{len(found.runs)} of 28 pairs" in " ".join(assumptions(found))
    assert ["0.25", "0.5", "1", "2", "4", "8", "16"] == drawn[1].split()
    assert ["4", "2", "1", "0.5"] == [line.split()[0] for line in drawn[2:6]]
    assert "[100.0]" in drawn[3]
    for row, line in zip((3, 2, 1, 0), drawn[2:6], strict=True):
        for column, text in enumerate(line.split()[1:]):
            first = found.stairs[row]
            good = first is not None and column >= first
            assert good is (text[-1] in "*+]"), (row, column, text)
            assert ((row, column) in found.runs) is (text not in "+-")
    assert 28 == html.count("<rect ")
    assert 1 == html.count('<rect class="good answer"')
    assert len(found.runs) == html.count("</tr>") - 1


def found_at(answer: Place, *, judge: Judge = Judge.BOTH, wait: float = 50.0) -> Sized:
    """A search of 2 x 2 pairs of which the two smaller ones of memory hit all, and take so long."""
    runs = {(row, column): record(1000, wait if row == 0 else 10.0) for row in range(2) for column in range(2)}
    return Sized(Grid((1.0, 2.0), (4.0, 8.0)), Bar(0.02, judge), runs, (None, 0), answer, even=True)


@pytest.mark.parametrize(
    ("answer", "told", "untold"),
    [
        ((1, 1), ["The next smaller size of either", "More host memory was not", "More bandwidth"], "Less"),
        ((1, 0), ["The next smaller host memory is", "Less bandwidth to the store was not"], "Less host"),
        ((0, 0), ["Less host memory was not looked at", "Less bandwidth to the store was not"], "next smaller"),
    ],
)
def test_an_answer_at_the_edge_of_the_range_says_so(answer: Place, told: list[str], untold: str) -> None:
    """Nothing is said of pairs that nobody looked at, but that nobody did."""
    says = paragraph(found_at(answer))

    assert all(words in says for words in told), says
    assert untold not in says
    assert "More" not in paragraph(found_at(answer, judge=Judge.HITS))


def test_pairs_that_only_wait_too_long_are_marked() -> None:
    """Who reads 100 % in the chart sees why it is not good enough; where waits do not count, it is."""
    assert ["1", "100.0t", "100.0t"] == list(chart(found_at((1, 0))))[3].split()
    assert ["1", "100.0*", "100.0*"] == list(chart(found_at((1, 0), judge=Judge.HITS)))[3].split()
    assert ">100.0t<" not in section_chart(found_at((1, 0)))


def test_without_a_store_there_is_nothing_to_size(trace: Path) -> None:
    """No size matters then, so that any answer would be wrong."""
    for options in ({"policy": "none"}, {"store": False, "mode": "cache"}):
        with pytest.raises(OptionError, match="expected a store that pages come back from"):
            size({"trace": str(trace), **options}, Grid((1.0,), (1.0,)), Bar(0.02), lambda _cells: [])


def test_ranges_are_powers_of_two() -> None:
    """Within what was given; finer ones between them; a single size is itself."""
    assert (4, 8, 16) == steps("--host-gb", "4-16")
    assert (4, 8) == steps("--host-gb", "3-15")
    assert (0.25, 0.3536, 0.5) == steps("--store-gbps", "0.25-0.5", 2)
    assert (48.0,) == steps("--host-gb", "48")
    for text in ("x", "8-4", "0-4", "1-2-3", "5-7", "inf", "1e-300-1e300"):
        with pytest.raises(OptionError, match=f"--host-gb {text}: expected a"):
            steps("--host-gb", text)
