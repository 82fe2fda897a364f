"""What a search for sizes found, in words and as a chart of characters: the answer, and what it rests on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from stagehold.lab.sizing import Judge, Place, Sized, reached
from stagehold.lab.virtual_costs import COMPUTE_SHARE, MEMORY_SHARE, PASS_MS

OVERLOAD_MS = 10_000
"""Nobody waits so long for a first token, so that requests queue up for want of arithmetic."""


def paragraph(found: Sized) -> str:
    """The answer, what it gives, and what else would do."""
    return " ".join(_answer(found))


def assumptions(found: Sized) -> Iterator[str]:
    """What the answer rests on, a sentence each."""
    run, grid = found.largest, found.grid
    options = run["cell"]["options"]
    asked = run["cell"]["requests"]
    part = "all" if asked is None or run["requests"] < asked else "the first"
    yield f"The trace: {part} {run['requests']:,} requests of {run['trace']}; a longer one has more to keep."
    yield (
        f"The machine: {run['cost']}, {run['prefill_tokens_per_second']:,.0f} prompt tokens a second and "
        f"{run['step_ms']:.3g} ms a decode step, by {COMPUTE_SHARE:.0%} of its peak and {MEMORY_SHARE:.0%} of its "
        f"memory bandwidth; {run['device_pages'] * run['page_bytes'] / 1e9:,.1f} GB of KV on the device."
    )
    least, most = run["store_latency_ms"]
    room = f"{options['store_gb']:g} GB" if options.get("store_gb") else "room for everything"
    if run["ttft_ms"]["p50"] > OVERLOAD_MS:
        yield (
            f"The machine does not keep up: even with the largest pair half of the requests wait longer than "
            f"{run['ttft_ms']['p50'] / 1000:,.0f} s, and what they share may not be computed yet when they come."
        )
    yield (
        f"The store: a link of constant speed that reads and writes share, {least:g} to {most:g} ms for an operation, "
        f"{room}; host memory is {run['mode']}. Copies from host to device take no time."
    )
    pairs = len(grid.host_gb) * len(grid.store_gbps)
    yield (
        f"The search: {len(found.runs)} of {pairs} pairs of the grid were simulated, "
        f"seed {run['seed']}; the others follow if more of either never hurts. Sizes are those of the grid: what is "
        "really needed may be anything down to the next smaller one."
    )


def chart(found: Sized) -> Iterator[str]:
    """A row for each host memory, the largest first; a column for each link."""
    grid = found.grid
    yield "hit tokens in % of the ideal, by GB of host memory (rows) and GB/s to the store (columns)"
    yield " " * 9 + "".join(f"{gbps:>9g}" for gbps in grid.store_gbps)
    for row in reversed(range(len(grid.host_gb))):
        marks = (mark(found, (row, column)) for column in range(len(grid.store_gbps)))
        yield f"{grid.host_gb[row]:>9g}" + "".join(f"{one:>9}" for one in marks)
    yield "* good enough, [ ] the answer, t hits enough and waits too long"
    yield "+ good enough, - not, both by another pair: not simulated"


def mark(found: Sized, place: Place) -> str:
    """What stands at one place of the chart."""
    if place not in found.runs:
        return "+" if implied(found, place) else "-"
    text = f"{100 * reached(found.runs[place]):.1f}"
    if place == found.answer:
        return f"[{text}]"
    if found.holds(place):
        return f"{text}*"
    return f"{text}t" if replace(found.bar, judge=Judge.HITS).holds(found.runs[place], found.largest) else text


def implied(found: Sized, place: Place) -> bool:
    """Whether a pair is good enough by the staircase."""
    first = found.stairs[place[0]]
    return first is not None and place[1] >= first


def as_json(found: Sized) -> dict[str, Any]:
    """The answer, the staircase and every run, for programs; sizes in GB and GB a second."""
    return {
        "within": found.bar.within,
        "judge": str(found.bar.judge),
        "ideal_in_reach": found.bar.reachable == 1,
        "answer": _pair(found, found.answer),
        "paragraph": paragraph(found),
        "assumptions": list(assumptions(found)),
        "largest": _pair(found, found.grid.top),
        "stairs": [
            {"host_gb": gb, "store_gbps": None if at is None else found.grid.store_gbps[at]}
            for gb, at in zip(found.grid.host_gb, found.stairs, strict=True)
        ],
        "settled_at_once": found.even,
        "contradictions": found.contradictions,
        "runs": [_pair(found, place) for place in sorted(found.runs)],
    }


def _pair(found: Sized, place: Place) -> dict[str, Any]:
    run, largest = found.runs[place], found.largest
    return {
        "host_gb": found.grid.host_gb[place[0]],
        "store_gbps": found.grid.store_gbps[place[1]],
        "good_enough": found.holds(place),
        "hits_of_ideal": reached(run),
        "ttft_p50_ms": run["ttft_ms"]["p50"],
        "ttft_p50_of_largest": run["ttft_ms"]["p50"] / (largest["ttft_ms"]["p50"] or 1),
        "digest": run["digest"],
    }


def _answer(found: Sized) -> Iterator[str]:
    grid, wanted = found.grid, _wanted(found)
    run = found.runs[found.answer]
    if found.bar.reachable < 1:
        yield (
            f"No pair comes within {100 * found.bar.within:g} % of what a cache that never forgets hits: "
            f"{_sizes(found, grid.top)}, the largest that was looked at, {_reaches(found, grid.top)}. Measured against "
            "that,"
        )
    yield f"{_sizes(found, found.answer)} will do: that {_reaches(found, found.answer)}. Wanted were {wanted}."
    if run["ideal_hit_tokens"] == 0:
        yield "No prefix of these requests comes back, so that any size would do."
    others = [
        f"{grid.host_gb[row]:g} GB with {grid.store_gbps[column]:g} GB/s"
        for row, column in enumerate(found.stairs)
        if column is not None and row != found.answer[0] and (row == 0 or found.stairs[row - 1] != column)
    ]
    if others:
        yield f"So would {', or '.join(others)}."
    yield from _edges(found)
    if found.contradictions or not found.even:
        yield "More was not always better here, so that a pair that was not simulated may do with less."


def _edges(found: Sized) -> Iterator[str]:
    """What lies beside the answer, within the range and beyond it."""
    sizes = (("host memory", found.grid.host_gb), ("bandwidth to the store", found.grid.store_gbps))
    ranges = [(name, at, len(values) - 1) for (name, values), at in zip(sizes, found.answer, strict=True)]
    less = [name for name, at, _ in ranges if at]
    if len(less) == len(ranges):
        yield "The next smaller size of either is not good enough, as far as the grid goes."
    elif less:
        yield f"The next smaller {less[0]} is not good enough, as far as the grid goes."
    for name, at, last in ranges:
        if last and not at:
            yield f"Less {name} was not looked at, so that less may do: begin the range lower."
    for name, at, last in ranges:
        if last and at == last and found.bar.judge is not Judge.HITS:
            yield f"More {name} was not looked at, and waits are held against the largest pair's: end the range higher."


def _sizes(found: Sized, place: Place) -> str:
    row, column = place
    return f"{found.grid.host_gb[row]:g} GB of host memory and {found.grid.store_gbps[column]:g} GB/s to the store"


def _reaches(found: Sized, place: Place) -> str:
    run, best = found.runs[place], found.largest["ttft_ms"]["p50"]
    wait = run["ttft_ms"]["p50"]
    compared = "" if place == found.grid.top else f", {wait / (best or 1):.2f} times that of the largest pair"
    return (
        f"hits {100 * reached(run):.1f} % of the ideal, with a median time to first token of {wait:,.0f} ms{compared}"
    )


def _wanted(found: Sized) -> str:
    bar = found.bar
    ideal = "a cache that never forgets" if bar.reachable == 1 else "the largest pair"
    hits = f"{100 * (1 - bar.within):g} % of what {ideal} hits"
    soon = f"a median time to first token within {100 * bar.within:g} %, or {PASS_MS} ms, of the largest pair's"
    return {Judge.HITS: hits, Judge.TTFT: soon, Judge.BOTH: f"{hits} and {soon}"}[bar.judge]
