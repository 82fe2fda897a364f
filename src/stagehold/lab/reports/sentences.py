"""The summary in sentences: what a reader should know before any chart. It owns the words; figures come from runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stagehold.lab.reports.run import Run

COMPARED_MAX = 4
"""Of more runs a sentence each would be read by nobody."""


def summary(run: Run) -> Iterator[str]:
    """What one run found."""
    prompts, ideal = run.number("prompt_tokens"), run.number("ideal_hit_tokens")
    yield (
        f"{run.number('requests'):,.0f} requests with {prompts:,.0f} prompt tokens: {share(run.hits, prompts)} were "
        f"hits, {run.number('device_hit_tokens'):,.0f} tokens from the device and "
        f"{run.number('store_hit_tokens'):,.0f} from the store."
    )
    if ideal:
        yield f"A cache that never forgets would have hit {ideal:,.0f}; {share(run.hits, ideal)} of that was reached."
    if "p50" in run.waits:
        tail = f", 95 % within {run.waits['p95']:,.0f} ms" if "p95" in run.waits else ""
        yield f"Half of the first tokens came within {run.waits['p50']:,.0f} ms{tail}."
    lost = run.losses
    if lost:
        reason, tokens = next(iter(lost.items()))
        yield (
            f"Of {run.number('queried_hit_tokens'):,.0f} queried hit tokens {run.number('spliced_tokens'):,.0f} were "
            f"spliced and {sum(lost.values()):,} lost, most of them as {reason.replace('_', ' ')} ({tokens:,})."
        )
    if run.has("phantom_hit_tokens"):
        phantoms = run.number("phantom_hit_tokens")
        yield f"{phantoms:,.0f} phantom hit tokens." if phantoms else "No phantom hit token."


def comparison(runs: Sequence[Run]) -> Iterator[str]:
    """How each further run differs from the first; of many runs, the ends of what was reached."""
    first = runs[0]
    if len(runs) > COMPARED_MAX:
        yield from _ends(runs)
        return
    for other in runs[1:]:
        told = f"{other.name} hit {other.hits:,} tokens, {times(other.hits, first.hits)} as many as {first.name}"
        if first.waits.get("p50") and other.waits.get("p50"):
            told += f"; its median wait was {times(other.waits['p50'], first.waits['p50'])} as long"
        yield told + "."


def _ends(runs: Sequence[Run]) -> Iterator[str]:
    """The best and the worst of many runs, in hits and in waits."""
    bounded = [run for run in runs if run.number("ideal_hit_tokens")]
    yield f"{len(runs):,} runs."
    if bounded:
        reached = {run.name: run.hits / run.number("ideal_hit_tokens") for run in bounded}
        most, least = max(bounded, key=lambda run: reached[run.name]), min(bounded, key=lambda run: reached[run.name])
        yield (
            f"Of what a cache that never forgets would have hit, {most.name} reached the most, "
            f"{100 * reached[most.name]:.1f} %, and {least.name} the least, {100 * reached[least.name]:.1f} %."
        )
    waited = [run for run in runs if run.waits.get("p50")]
    if waited:
        quick, slow = (pick(waited, key=lambda run: run.waits["p50"]) for pick in (min, max))
        yield (
            f"The shortest median wait was that of {quick.name}, {quick.waits['p50']:,.0f} ms, the longest that of "
            f"{slow.name}, {slow.waits['p50']:,.0f} ms."
        )


def share(part: float, whole: float) -> str:
    """A part in per cent; of nothing there is no part."""
    return f"{100 * part / whole:.1f} %" if whole else "none"


def times(value: float, yardstick: float) -> str:
    """A ratio in words."""
    return f"{value / yardstick:.2f} times" if yardstick else "any number of times"
