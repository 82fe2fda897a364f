"""What a run must have, what is said of it, and how charts and tables are made of it."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from stagehold.lab.reports.charts import Axes, Line, lines, nice, rates, short
from stagehold.lab.reports.overview import overview
from stagehold.lab.reports.page import Extra, page, write_report
from stagehold.lab.reports.run import RunError, as_run, read_run
from stagehold.lab.reports.sentences import comparison, summary
from stagehold.lab.reports.tables import bars, number, parted, table, words

FOUND: dict[str, Any] = {
    "requests": 4,
    "prompt_tokens": 1000,
    "ideal_hit_tokens": 500,
    "device_hit_tokens": 150,
    "store_hit_tokens": 250,
}
MORE = {
    "queried_hit_tokens": 400,
    "spliced_tokens": 250,
    "losses": {"lost": 50, "expired": 100},
    "phantom_hit_tokens": 0,
    "ttft_ms": {"p50": 100.0, "p95": 900.0},
}


def test_the_summary_says_what_was_found() -> None:
    """Tiers, the bound, waits, the largest loss, phantoms; and nothing of what is not known."""
    assert (
        "4 requests with 1,000 prompt tokens: 40.0 % were hits, 150 tokens from the device and 250 from the store. "
        "A cache that never forgets would have hit 500; 80.0 % of that was reached. "
        "Half of the first tokens came within 100 ms, 95 % within 900 ms. "
        "Of 400 queried hit tokens 250 were spliced and 150 lost, most of them as expired (100). "
        "No phantom hit token."
    ) == " ".join(summary(as_run("a", FOUND | MORE)))
    assert 2 == len(list(summary(as_run("a", FOUND))))
    assert ["7 phantom hit tokens."] == list(summary(as_run("a", FOUND | {"phantom_hit_tokens": 7})))[2:]


def test_a_rank_that_is_not_known_is_not_nothing() -> None:
    """A run with a median alone says nothing of the others, in its sentence or in the table."""
    half = as_run("b", FOUND | {"ttft_ms": {"p50": 100.0}})

    assert "Half of the first tokens came within 100 ms." in list(summary(half))
    assert 1 == "".join(overview([half])).count(">-<")


def test_runs_are_compared_with_the_first() -> None:
    """In hits and, where both know it, in waits."""
    other = FOUND | MORE | {"store_hit_tokens": 50, "ttft_ms": {"p50": 250.0}}

    assert ["b hit 200 tokens, 0.50 times as many as a; its median wait was 2.50 times as long."] == list(
        comparison([as_run("a", FOUND | MORE), as_run("b", other)])
    )


def test_of_many_runs_the_ends_are_told() -> None:
    """The best and the worst in hits and in waits, not a sentence for each; and each is folded up."""
    runs = [as_run(f"r{n}", FOUND | {"store_hit_tokens": 10 * n, "ttft_ms": {"p50": 500.0 - n}}) for n in range(20)]
    told = " ".join(comparison(runs))

    assert "20 runs." in told
    assert "r19 reached the most, 68.0 %, and r0 the least, 30.0 %." in told
    assert "that of r19, 481 ms, the longest that of r0, 500 ms." in told
    assert 20 == page(runs).count("<details><summary>r")
    assert 0 == page(runs[:4]).count("<details>")


def test_waits_are_drawn_from_what_is_known() -> None:
    """All times where they are there, ranks where only those are; one rank alone is no curve."""
    ranks = {"p50": 10.0, "p90": 100.0, "p99": 1000.0}
    drawn = [
        "".join(overview([as_run("a", FOUND | {"ttft_ms": ranks, "ttft_ms_sorted": times})]))
        for times in (None, [1.0, 10.0, 100.0])
    ]

    assert "M48.0 100.0L209.0 28.0L370.0 11.8" in drawn[0]
    assert "M48.0 190.0L209.0 100.0L370.0 10.0" in drawn[1]
    assert "<svg" not in "".join(overview([as_run("a", FOUND | {"ttft_ms": {"p50": 9.0}})]))


def test_bars_in_parts_are_of_one_scale() -> None:
    """The longest takes the whole width, and what is written beside a bar are shares of its own."""
    drawn = parted(("a", "b"), [("x", [1, 1]), ("y", [1, 0]), ("z", [0, 0])])

    assert ["50.00", "50.00", "50.00", "0.00", "0.00", "0.00"] == re.findall(r"width:([\d.]+)%", drawn)
    assert "a 50.0 %, b 50.0 %" in drawn
    assert "<span>a 100.0 %</span>" in drawn


@pytest.mark.parametrize(
    ("found", "told"),
    [
        ([], "a run as one JSON object, found []"),
        ({"requests": 1}, "`prompt_tokens`, a whole number"),
        (FOUND | {"requests": True}, "`requests`, a whole number"),
        (FOUND | {"losses": [1]}, "`losses`, tokens by reason"),
        (FOUND | {"series": {"x": [1]}}, "one of them `seconds`"),
        (FOUND | {"series": {"seconds": [1], "x": [1, 2]}}, "columns of one length"),
        (FOUND | {"series": {"seconds": ["a"]}}, "`series` of numbers"),
    ],
)
def test_what_is_no_run_is_refused(tmp_path: Path, found: object, told: str) -> None:
    """The file is named, and what was expected there."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps(found))

    with pytest.raises(RunError, match=re.escape(str(path))) as caught:
        read_run(path)
    assert told in str(caught.value)


def test_a_file_that_is_no_json_is_refused(tmp_path: Path) -> None:
    """As a page needs a run, a run needs JSON."""
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RunError, match="one JSON object"):
        read_run(tmp_path / "run.json")
    with pytest.raises(RunError, match="at least one run"):
        page([])


def test_rates_add_up_to_the_sums() -> None:
    """Whatever the number of stretches, rate x time is the growth."""
    seconds, sums = [0.0, 1.0, 1.0, 3.0, 6.0], [0.0, 10.0, 10.0, 50.0, 56.0]
    for bins in (1, 2, 3, 90):
        xs, ys = rates(seconds, sums, bins)
        ends = [0.0, *xs]
        assert 56 == pytest.approx(sum(y * (b - a) for y, a, b in zip(ys, ends, xs, strict=False)))
        assert len(xs) <= bins + 1
    assert ([], []) == rates([1.0], [5.0])


def test_ticks_are_round_and_numbers_short() -> None:
    """Few ticks, none above the most, and units instead of zeros."""
    assert [0, 250, 500, 750, 1000] == nice(1000)
    assert [0, 0.5, 1, 1.5] == nice(1.7)
    assert ["999", "1.2k", "35.1M", "0.25"] == [short(value) for value in (999, 1200, 35_123_456, 0.25)]


def test_stacked_areas_lie_on_each_other() -> None:
    """The upper curve ends at the sum, which is the top of the chart."""
    drawn = lines("t", Axes("s", "n"), [Line("a", [0, 1], [1, 1]), Line("b", [0, 1], [1, 3])], stacked=True)

    lower, upper = re.findall(r'class="area s\d" d="([^"]+)Z"', drawn)
    assert "M48.0 145.0L370.0 145.0L370.0 190.0L48.0 190.0" == lower
    assert "M48.0 100.0L370.0 10.0L370.0 145.0L48.0 145.0" == upper


def test_every_curve_has_a_colour() -> None:
    """However many runs there are, each is drawn in a colour that the style sheet has."""
    drawn = lines("t", Axes("s", "n"), [Line(str(number), [0, 1], [1, 2]) for number in range(20)])
    style = (files("stagehold.lab.reports") / "report.css").read_text()

    assert all(f".line.{name} {{" in style for name in re.findall(r'class="line (s\d+)"', drawn))
    assert 20 == drawn.count('class="line ')


def test_what_comes_from_a_trace_is_escaped() -> None:
    """Names of runs, requests and reasons are text, not HTML."""
    bad = "<script>x</script>"
    found = FOUND | {"losses": {bad: 1}, "slowest": [{"request": bad, "ttft_ms": 1, "finished_ms": 2}]}
    text = page([as_run(bad, found)], title=bad, extras=[Extra(bad, "<p>mine</p>")])

    assert bad not in text
    assert "<p>mine</p>" in text
    assert bad not in table(bad, [bad], [[words(bad)]]) + bars([(bad, 1, bad)])
    assert 'data-by="1234.5">1,234<' in table("t", ["n"], [[number(1234.5)]])


def test_a_page_of_bare_figures_needs_no_more(tmp_path: Path) -> None:
    """Whoever has only the sums gets sentences and tables, and no address of anything else."""
    write_report(tmp_path / "r.html", [as_run("a", FOUND), as_run("b", FOUND)])
    text = (tmp_path / "r.html").read_text()

    assert "<svg" not in text
    assert not any(word in text for word in ("http:", "https:", "@import", 'src="', "url("))
