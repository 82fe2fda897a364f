"""What the audit costs a replay: records and blocks, against the processor time of the replay that wrote them.

Owns the measurement. A share of a few per mille cannot be seen by running with and without an audit, so its parts are
measured one by one, in turn with the replay, and the least of several rounds counts for each.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import process_time, thread_time_ns
from typing import Any

from stagehold.lab.bench.machine import bench_machine
from stagehold.lab.bench.mix import recorded_mix
from stagehold.lab.replay import Replay, ReplayOptions
from stagehold.machines import Block, HandleKey, Journal
from stagehold.machines.audit import blocks
from stagehold.machines.logs import AuditLog
from stagehold.machines.records import RECORD, rest

BAR = 0.05
"""The audit may cost a replay this share of its time."""

CALLS = 20_000


def bench_records(requests: int = 100, rounds: int = 5) -> dict[str, Any]:
    """Seconds and nanoseconds, each the least of `rounds` rounds: a replay, then each part of its audit.

    `record_ns` is what an audited step costs more than a bare one, `detail_ns` what a record with a detail adds,
    `birth_ns` what entering a birth costs; `blocks_s` closes every block of the replay again, hashes it and writes its
    line. `audit_s` is their sum over the replay's records, births and blocks, `audit_over_replay` its share.
    """
    with TemporaryDirectory(prefix="stagehold-records-") as folder:
        path = Path(folder) / "replay.jsonl"
        parts = [_round(path, requests) for _ in range(rounds)]
        log = [placed.block for placed in blocks(path)]
    least = {name: min(part[name] for part in parts) for name in parts[0]}
    records = sum(len(block.table()) for block in log)
    detailed = sum(int((block.table()["detail"] != 0).sum()) for block in log)
    births = sum(len(block.births) for block in log)
    steps_ns = records * least["record_ns"] + detailed * least["detail_ns"] + births * least["birth_ns"]
    audit_s = steps_ns / 1e9 + least["blocks_s"]
    return {
        **least,
        "requests": requests,
        "rounds": rounds,
        "records": records,
        "detailed_records": detailed,
        "births": births,
        "blocks": len(log),
        "audit_s": audit_s,
        "audit_over_replay": audit_s / least["replay_s"],
        "bar": BAR,
        "within": audit_s <= BAR * least["replay_s"],
    }


def _round(path: Path, requests: int) -> dict[str, float]:
    """One replay, and each part of what its audit costs."""
    begin = process_time()
    Replay(_crowded(path, requests)).run()
    replay_s = process_time() - begin
    log = [placed.block for placed in blocks(path)]
    steps = bench_machine(recorded_mix(path))
    gc.collect()
    gc.disable()
    try:
        return {
            "replay_s": replay_s,
            "record_ns": steps["audited_step_ns"] - steps["pack_share_ns"] - steps["step_ns"],
            "detail_ns": _detail_ns(),
            "birth_ns": _birth_ns(),
            "blocks_s": _blocks_s(log, path.with_name("again.jsonl")),
        }
    finally:
        gc.enable()


def _crowded(path: Path, requests: int) -> ReplayOptions:
    """The main run's traffic."""
    return ReplayOptions(
        audit=path, requests=requests, tenants=16, hang_ups=3.0, speed=2, device_pages=260, store_delay=24
    )


def _detail_ns() -> float:
    """Packing the rest of a record, which is ready made where there is no detail."""
    begin = thread_time_ns()
    for detail in range(CALLS):
        rest(0, 1, 0, detail)
    return (thread_time_ns() - begin) / CALLS


def _birth_ns() -> float:
    """Entering a birth in the open block."""
    journal, key = Journal(), HandleKey("bench", 0, bytes(16))
    begin = thread_time_ns()
    for _ in range(CALLS):
        journal.born(0, 0, key)
    return (thread_time_ns() - begin) / CALLS


@dataclass(frozen=True, slots=True)
class _Open:
    """A block before it was closed: its tick, its births, and its records in the two pieces that a step leaves."""

    block: Block
    pieces: Sequence[bytes]


def _opened(block: Block) -> _Open:
    starts = range(0, len(block.records), RECORD.itemsize)
    cuts = [(at, at + 4, at + RECORD.itemsize) for at in starts]
    return _Open(block, [block.records[a:b] for start, tag, end in cuts for a, b in ((start, tag), (tag, end))])


def _blocks_s(log: Sequence[Block], path: Path) -> float:
    """Close every block again, hash it, write it."""
    spent, opened = 0, [_opened(block) for block in log]
    with AuditLog(path) as again:
        journal = Journal(sink=again.block)
        for one in opened:
            journal.records[:] = one.pieces
            journal.births[:] = one.block.births
            begin = thread_time_ns()
            closed = journal.close_block(one.block.tick)
            spent += thread_time_ns() - begin
            assert closed.digest == one.block.digest, "the same blocks again have the same digests"
    return spent / 1e9
