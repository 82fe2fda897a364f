"""What is counted, under which names, and where users of SGLang's HiCache find what they know.

Every taken row counts for one counter, `machine_event_outcome`, and adds the tokens of its record. So a counter is
never kept beside the log: it is read from it. Owns the names and the page; counts nothing itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from stagehold.machines import labels
from stagehold.machines.declared import MACHINES, rows_of
from stagehold.machines.matrix import table
from stagehold.specs.declare import Books, Kind, MachineSpec, Row
from stagehold.specs.outcomes import Decline, Launch, Loss

HERE = ("request", "hold", "write", "store", "attachment", "tick")
"""Machines whose rows leave records, in the order of the page. Residency is moved by the tree, which keeps none."""


def counter(spec: MachineSpec, row: Row) -> str:
    """`machine_event_outcome`, or `machine_event` where the event asks no decision; sources share one counter."""
    outcome = "" if row.outcome is None else f"_{row.outcome.name.lower()}"
    return f"{spec.name}_{row.event}{outcome}"


@lru_cache(maxsize=1)
def counters() -> dict[int, str]:
    """Record code (machine index << 8 | row) to counter, for every row of `HERE` that leaves a record."""
    return {
        machine << 8 | place: counter(spec, row)
        for machine, spec in enumerate(MACHINES)
        if spec.name in HERE
        for place, row in enumerate(rows_of(spec))
        if is_recorded(spec, row)
    }


def is_recorded(spec: MachineSpec, row: Row) -> bool:
    """Whether taking the row leaves a record; of the tick only what stops it, or changes what it does, is recorded."""
    return not spec.sparse or row.effect is not None or spec.state(row.target).kind is Kind.TERMINAL


def names() -> list[str]:
    """Every counter once, in order of declaration."""
    return list(dict.fromkeys(counters().values()))


def is_decline(row: Row) -> bool:
    """Whether the row's record has a `Decline` number where others have tokens."""
    return row.outcome is Launch.DECLINED


@lru_cache(maxsize=1)
def decline_codes() -> frozenset[int]:
    """Record codes of the rows that decline a launch."""
    return frozenset(
        machine << 8 | place
        for machine, spec in enumerate(MACHINES)
        for place, row in enumerate(rows_of(spec))
        if is_decline(row)
    )


TOKENS = {
    Books.QUERIED: "claim opened",
    Books.SPLICED: "loaded",
    Books.LOSS: "lost, by reason",
}

UNBOOKED = {
    "miss": "found, too few to fetch",
    "verified": "verified",
    "unlock": "put off",
    "enqueue": "admitted",
    "refuse": "refused",
    "copy": "given up: evicted unwritten",
    "stored": "stored",
    "back_off": "stored before it failed",
    "unqueue": "dropped",
    "give_up": "dropped",
    "keep": "kept in host memory, with no store in use",
    "let_drain": "dropped",
}
"""What the tokens in a record are, by the effect that gave them, where no token book says it."""


def meaning(row: Row) -> str:
    """What the tokens of the row's counter are; a dash where it has none."""
    return TOKENS.get(row.books) or UNBOOKED.get(row.effect or "", "-")


def _either(event: str) -> str:
    return f"`request_issue_{event}` + `request_due_{event}`"


DROPPED = (
    "tokens of `write_offer_uncovered`, `write_offer_full`, `write_offer_never_fits`, `write_start_copy`, "
    "`write_start_gone`, `write_timeout`, `write_drop`, `write_copied_unwanted`, `write_put_ended_spent`"
)
WAITS = "`hold_io_commit_no_staging` + `hold_io_commit_pin_full` + `hold_io_commit_head_busy`"

ELSEWHERE: tuple[tuple[str, str, str], ...] = (
    ("prefetched_tokens_total", "tokens of `hold_fetched_whole`", "verified ones; a kept head: `hold_fetched_head`"),
    ("storage_prefetch_hit_tokens_total", f"tokens of `request_answer_hit` + {_either('known')}",
     "claims opened; `Stats.queried` is their sum"),
    ("storage_prefetch_unfulfilled_tokens_total", "`Stats.losses`", "by reason, as follows"),
    ("… below_threshold", "tokens of `request_answer_below_threshold`", "no claim was opened, so it is no loss"),
    ("… host_capacity", "losses `short_staging`, `oversize`", ""),
    ("… device_capacity", "loss `short_device`", ""),
    ("… device_covered", "losses `covered`, `trimmed`", "trimmed: resident before the fetch began"),
    ("… storage_transfer", "losses `failed`, `cut`", "cut: the unread tail of a head that was kept"),
    ("… deadline", "losses `expired`, `unwaited`", "unwaited: the request would not wait any longer"),
    ("… anchor_lost, shrunk", "loss `lost`", ""),
    ("… cache_admission_shortfall", "loss `partial`", "rolled back, and raised"),
    ("… dropped", "losses `dropped`, `aborted`", ""),
    ("… aux_window_trim, device_overlap", "none", "listed there, never counted"),
    ("… unservable_prefix", "none", "there is no such case here"),
    ("storage_prefetch_deferred_tokens_total", "as follows", "each deferral counts, there and here"),
    ("… host_capacity", WAITS, "tries, not tokens"),
    ("… device_capacity", "tokens of `request_commit_no_room` + `request_commit_deferred`", ""),
    ("hicache_prefetch_aux_alloc_failed_tokens_total", "`hold_io_commit_no_staging`",
     "staging of all components is taken together"),
    ("backuped_tokens_total", "tokens of `write_put_ended_stored`", "acknowledged ones only"),
    ("hicache_backup_dropped_tokens_total", DROPPED, "one counter for each reason"),
    ("attempts", "all of `request_issue_…` and `request_due_…`", ""),
    ("issued", _either("lookup"), ""),
    ("issued_assumed_stored", _either("known"), "no second query"),
    ("declined_too_short", _either("too_short"), ""),
    ("declined_rate_limited", _either("declined"), "`Stats.declines` has the reasons"),
    ("declined_anchor_lost", "`hold_io_commit_lost`", "`request_evaluate_lost` where a visit sees it later"),
    ("declined_device_covered", "`hold_io_commit_covered`", ""),
    ("declined_host_oversize", "`hold_io_commit_oversize`", ""),
    ("declined_unservable_prefix", "none", "there is no such case here"),
    ("revoked_insufficient", "`request_answer_below_threshold`", ""),
    ("revoked_full_miss", "`request_answer_miss`", ""),
)  # fmt: skip
"""HiCache's name (without its prefix), ours, and what is different."""


INTRODUCTION = (
    "Every counter is read from the audit records, so that nothing is counted twice and a log gives the same "
    "figures as the engine that wrote it. `Engine.stats().counters` has the count and the tokens of each."
)


def page(digest: str) -> str:
    """The page that lists all counters; `digest` is the hash of the declarations."""
    heads = ("counter", "tokens", "counts rows")
    parts = [
        "# Counters",
        f"<!-- Generated from the declarations by `stagehold diagram`; declaration {digest} -->",
        INTRODUCTION,
        "## Names that users of HiCache know",
        table(("HiCache", "here", "different"), ELSEWHERE),
        "## Reasons",
        table(("where", "reasons"), [
            ("`Stats.declines`: why no lookup was launched", _listed(Decline)),
            ("`Stats.losses`: where queried tokens ended that were not spliced", _listed(Loss)),
        ]),
    ]  # fmt: skip
    for spec in (spec for name in HERE for spec in MACHINES if spec.name == name):
        parts += [f"## {spec.name}", table(heads, _lines(spec))]
    return "\n\n".join(parts) + "\n"


def _listed(reasons: Iterable[Decline | Loss]) -> str:
    return ", ".join(f"`{reason.name.lower()}`" for reason in reasons)


def _lines(spec: MachineSpec) -> Iterable[tuple[str, str, str]]:
    rows: dict[str, list[Row]] = {}
    for row in (row for row in spec.rows if is_recorded(spec, row)):
        rows.setdefault(counter(spec, row), []).append(row)
    for name, counted in rows.items():
        ways = dict.fromkeys(f"{labels.source(row)} → {labels.word(row.target)}: {row.why}" for row in counted)
        yield f"`{name}`", ", ".join(dict.fromkeys(map(meaning, counted))), "<br>".join(ways)
