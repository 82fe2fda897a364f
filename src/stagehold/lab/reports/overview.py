"""Several runs side by side: figures, where prompt tokens came from, where hit tokens ended, how long people waited.

It owns the first section of the page. A run by itself is the page's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stagehold.lab.reports.charts import Axes, Line, lines
from stagehold.lab.reports.run import Run
from stagehold.lab.reports.sentences import share
from stagehold.lab.reports.tables import Cell, number, parted, table, words

FIGURES = (
    ("requests", "requests"),
    ("prompt_tokens", "prompt tokens"),
    ("ideal_hit_tokens", "ideal hits"),
    ("device_hit_tokens", "device hits"),
    ("store_hit_tokens", "store hits"),
    ("recomputed_tokens", "recomputed"),
    ("fetched_tokens", "fetched"),
    ("spliced_tokens", "spliced"),
    ("phantom_hit_tokens", "phantoms"),
    ("retries", "retries"),
    ("deferrals", "deferrals"),
    ("read_bytes", "bytes read"),
    ("written_bytes", "bytes written"),
    ("ticks", "ticks"),
)
SOURCES = ("device", "store", "computed")
RANKS = (("p50", "first token p50 ms"), ("p95", "first token p95 ms"))
SHARES = (("p50", 50.0), ("p90", 90.0), ("p95", 95.0), ("p99", 99.0), ("most", 100.0))
UNKNOWN = Cell("-", -1.0)
"""Where a run does not say."""
CURVES_MAX = 12
"""So many runs are told apart in one chart; of more, the first are drawn, and the title says so."""


def overview(runs: Sequence[Run]) -> Iterator[str]:
    """The section's parts as HTML."""
    yield _figures(runs)
    if len(runs) > 1:
        yield "<h3>Where prompt tokens came from</h3>"
        yield parted(SOURCES, [(run.name, _sources(run)) for run in runs])
        yield _ends(runs)
    yield _waits(runs)


def _figures(runs: Sequence[Run]) -> str:
    shown = [(name, head) for name, head in FIGURES if any(run.has(name) for run in runs)]
    ranks = RANKS if any(run.waits for run in runs) else ()
    heads = ["run", "hits of ideal", *(head for _, head in ranks), *(head for _, head in shown)]
    rows = [
        [
            words(run.name),
            _reached(run),
            *(number(run.waits[rank]) if rank in run.waits else UNKNOWN for rank, _ in ranks),
            *(number(run.number(name)) for name, _ in shown),
        ]
        for run in runs
    ]
    return table("All runs", heads, rows)


def _reached(run: Run) -> Cell:
    ideal = run.number("ideal_hit_tokens")
    return Cell(share(run.hits, ideal), run.hits / ideal if ideal else 0.0)


def _sources(run: Run) -> tuple[float, ...]:
    """Prompt tokens from the device, from the store or host memory, and computed."""
    return (
        run.number("device_hit_tokens"),
        run.number("store_hit_tokens"),
        max(0, run.number("prompt_tokens") - run.hits),
    )


def _ends(runs: Sequence[Run]) -> str:
    """Hit tokens by how they ended, a run a row; nothing where no run was asked for any."""
    told = [run for run in runs if run.number("queried_hit_tokens")]
    reasons = sorted({reason for run in told for reason in run.losses})
    if not told:
        return ""
    heads = ["run", "queried", "spliced", *(reason.replace("_", " ") for reason in reasons)]
    rows = [
        [
            words(run.name),
            number(run.number("queried_hit_tokens")),
            number(run.number("spliced_tokens")),
            *(number(run.losses.get(reason, 0)) for reason in reasons),
        ]
        for run in told
    ]
    return f"<h3>Where hit tokens ended, in tokens</h3>{table('Where hit tokens ended', heads, rows)}"


def _waits(runs: Sequence[Run]) -> str:
    """Times to first token of all runs in one chart."""
    drawn = [Line(run.name, *curve) for run in runs if len((curve := _curve(run))[0]) > 1]
    title = "Waiting for the first token" + ("" if len(drawn) <= CURVES_MAX else f", first {CURVES_MAX} runs")
    axes = Axes("ms to the first token", "% of requests", log=True, most=100)
    return f'<div class="charts">{lines(title, axes, drawn[:CURVES_MAX])}</div>' if drawn else ""


def _curve(run: Run) -> tuple[list[float], list[float]]:
    """Times in ms, and the share in % that waited no longer: from all times, or from what ranks there are."""
    times = run.found.get("ttft_ms_sorted") or []
    shares = [100 * rank / (len(times) - 1) for rank in range(len(times))] if len(times) > 1 else []
    if not shares:
        known = [(run.waits[rank], share) for rank, share in SHARES if rank in run.waits]
        times, shares = [time for time, _ in known], [share for _, share in known]
    return [max(time, 0.1) for time in times], shares
