"""The table of policies: every trace under every policy, in both modes, over a slow and a fast store.

It owns the places of the table, the claims that are held against it, and the words of both. The cells themselves are
run by `cells`. Lengths, machine, memory and link stand at a quarter of a server of four accelerators, all alike, so
that a row is affordable: what is left out is only that pages are coarser against prompts.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from stagehold import HostMode
from stagehold.lab.cells import Cell
from stagehold.lab.policies.shipped import POLICIES

QUARTER = {"scale": 128, "accelerators": 1, "token_budget": 512}
STORES = {"slow": 2.5, "fast": 10.0}
"""GB a second between server and store, both ways together."""
BASELINES = ("blind", "paced")
MOST_WASTE = 0.01
LEAST_SHARE_NOT_BEHIND = 0.9
MOST_BEHIND = 0.02

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Place:
    """How a trace is served: its first requests, memory of both tiers in pages, further options of a cell."""

    requests: int
    device_pages: int
    staging_pages: int
    options: Mapping[str, Any] = field(default_factory=dict)


PLACES = {
    "conversation": Place(600, 768, 922),
    "synthetic": Place(250, 800, 960),
    "agentic": Place(120, 3072, 3686, options={"users": 32, "longest_pause_s": 10.0}),
    "miniswe": Place(300, 256, 307, options={"users": 20, "longest_pause_s": 3.0}),
}
"""By trace. Host memory is the same for all policies and in both modes: 1.2 times the device pool."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: trace, mode and store, and the cell of each policy by its name."""

    trace: str
    mode: HostMode
    store: str
    cells: Mapping[str, Cell]

    def __str__(self) -> str:
        return f"{self.trace}, {self.mode}, {self.store} store"


def rows(
    traces: Mapping[str, Path | None], *, requests: int | None = None, policies: Sequence[str] = tuple(POLICIES)
) -> list[Row]:
    """All rows of some traces, each with its file, or None for one that is shipped; `requests` of each, if given.

    A trace that has no place of its own is served like the conversation trace. Without a tier neither mode nor store
    matters, so that *none* has one cell a trace.
    """
    return [
        Row(
            trace,
            mode,
            store,
            {name: _cell(Cell(trace=trace, path=path, policy=name, mode=mode), store, requests) for name in policies},
        )
        for trace, path in traces.items()
        for mode in (HostMode.CACHE, HostMode.BUFFER_ONLY)
        for store in STORES
    ]


def _cell(of: Cell, store: str, requests: int | None) -> Cell:
    """The same cell in its place."""
    place = PLACES.get(of.trace, PLACES["conversation"])
    tier = POLICIES[of.policy].tier
    return replace(
        of,
        requests=place.requests if requests is None else requests,
        mode=of.mode if tier else HostMode.CACHE,
        store_gbps=STORES[store if tier else "fast"],
        device_pages=place.device_pages,
        staging_pages=place.staging_pages,
        options={**QUARTER, **place.options},
    )


def cells_of(table: Sequence[Row]) -> list[Cell]:
    """Every cell of a table once, row by row."""
    found = {cell.key(): cell for row in table for cell in row.cells.values()}
    return list(found.values())


# What a table says


@dataclass(frozen=True, slots=True)
class Finding:
    """One claim about *live*: what is claimed, how it stands, and the rows that break it, each with figures."""

    claim: str
    holds: bool
    says: str
    losers: tuple[str, ...] = ()


def claims(table: Sequence[Row], records: Mapping[str, Record]) -> list[Finding]:
    """How *live* stands against the baselines; `records` by the key of their cells."""
    found = [(row, {name: records[cell.key()] for name, cell in row.cells.items()}) for row in table]
    return [_no_phantoms(found), _little_waste(found), _not_behind(found), _never_far_behind(found)]


Found = list[tuple[Row, dict[str, Record]]]


def _no_phantoms(found: Found) -> Finding:
    wrong = [f"{row}: {by['live']['phantom_hit_tokens']:,}" for row, by in found if by["live"]["phantom_hit_tokens"]]
    total = {name: sum(by[name]["phantom_hit_tokens"] for _, by in found) for name in (*BASELINES, "live")}
    says = ", ".join(f"{name} {tokens:,}" for name, tokens in total.items())
    return Finding(
        "live counts no token as hit that was not delivered", not wrong, f"phantom tokens: {says}", (*wrong,)
    )


def _little_waste(found: Found) -> Finding:
    shares = {name: _waste(by[name] for _, by in found) for name in (*BASELINES, "live")}
    losers = tuple(
        f"{row}: {100 * share:.1f} % of {by['live']['read_tokens']:,} tokens read; {why(by['live'])}"
        for row, by in found
        if (share := _waste([by["live"]])) > MOST_WASTE
    )
    says = "over all rows: " + ", ".join(f"{name} {100 * share:.1f} %" for name, share in shares.items())
    return Finding(f"live wastes at most {100 * MOST_WASTE:.0f} % of what it reads", not losers, says, losers)


def _waste(records: Any) -> float:
    """The share of the tokens read that nobody used."""
    read = wasted = 0
    for one in records:
        read, wasted = read + one["read_tokens"], wasted + one["wasted_read_tokens"]
    return wasted / read if read else 0.0


def _not_behind(found: Found) -> Finding:
    losers = tuple(_behind(found, 0.0))
    share = 1 - len(losers) / (len(found) * len(BASELINES)) if found else 1.0
    says = f"in {100 * share:.0f} % of {len(found) * len(BASELINES)} comparisons"
    claim = f"live hits at least what blind and paced hit, in {100 * LEAST_SHARE_NOT_BEHIND:.0f} % of comparisons"
    return Finding(claim, share >= LEAST_SHARE_NOT_BEHIND, says, losers)


def _never_far_behind(found: Found) -> Finding:
    losers = tuple(_behind(found, MOST_BEHIND))
    says = "never" if not losers else f"{len(losers)} times"
    return Finding(f"live is never more than {100 * MOST_BEHIND:.0f} % behind", not losers, f"{says} further", losers)


def _behind(found: Found, by_more_than: float) -> Iterator[str]:
    """Where *live* delivers less than a baseline, by more than a share of that."""
    for row, by in found:
        ours = by["live"]["delivered_hit_tokens"]
        for name in BASELINES:
            theirs = by[name]["delivered_hit_tokens"]
            if theirs and (theirs - ours) / theirs > by_more_than:
                share = 100 * (theirs - ours) / theirs
                yield f"{row}: {share:.1f} % behind {name} ({ours:,} of {theirs:,} tokens); {why(by['live'])}"


def why(record: Record) -> str:
    """Where most of what was found and not used went, in words: the two largest losses, by the engine's own books."""
    lost = sorted(record["losses"].items(), key=lambda item: (-item[1], item[0]))[:2]
    ends = " and ".join(f"{tokens:,} {reason.replace('_', ' ')}" for reason, tokens in lost)
    return f"tokens found and not used: {ends}" if ends else "all that was found was used"


HEADS = (
    "trace", "mode", "store", "policy", "hit tokens", "of ideal", "x none", "phantom", "read and wasted", "retries",
    "TTFT p50 ms", "p95 ms", "GB read", "GB written",
)  # fmt: skip
NUMBERS_FROM = HEADS.index("policy") + 1
"""Columns from here on are numbers."""


def lines(table: Sequence[Row], records: Mapping[str, Record]) -> Iterator[tuple[str, ...]]:
    """The table as text, a policy a line; hits are those that were delivered, and the yardstick is *none*."""
    for row in table:
        bare = records[row.cells["none"].key()]["delivered_hit_tokens"] if "none" in row.cells else 0
        for name, cell in row.cells.items():
            one = records[cell.key()]
            hits, ttft = one["delivered_hit_tokens"], one["ttft_ms"]
            yield (
                row.trace, str(row.mode), row.store, name, f"{hits:,}", _percent(hits, one["ideal_hit_tokens"]),
                f"{hits / bare:.2f}" if bare else "", f"{one['phantom_hit_tokens']:,}",
                _percent(one["wasted_read_tokens"], one["read_tokens"]), f"{one['retries']:,}",
                f"{ttft['p50']:,.0f}", f"{ttft['p95']:,.0f}",
                f"{one['read_bytes'] / 1e9:,.1f}", f"{one['written_bytes'] / 1e9:,.1f}",
            )  # fmt: skip


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f} %" if whole else ""
