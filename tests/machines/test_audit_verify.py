"""What `audit.verify` accepts, and how it names each kind of damage and its place."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest

from stagehold.machines import MACHINES, Birth, Block, HandleKey, Journal, audit, decode, encode
from stagehold.machines.audit import Damage
from stagehold.machines.logs import AuditLog
from stagehold.machines.records import chain, rest, tag
from stagehold.specs.hold import HOLD
from stagehold.specs.outcomes import Loss
from stagehold.specs.request import REQUEST, RequestState
from stagehold.specs.tick import TICK


def lines_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def rewrite(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_bytes(b"".join(orjson.dumps(line) + b"\n" for line in lines))


def forge(path: Path, change: Callable[[Block], Block]) -> None:
    """Rewrite every block by `change` and chain all of them anew, so that only the rows can tell."""
    forged, previous = lines_of(path), bytes(16)
    for n, line in enumerate(forged):
        if line["event"] == "block":
            block = change(dataclasses.replace(decode(line), previous=previous))
            previous = chain(block)
            forged[n] = {"event": "block", **encode(dataclasses.replace(block, digest=previous))}
    rewrite(path, forged)


def with_record(at: int, record: int, **fields: int) -> Callable[[Block], Block]:
    """A change of some fields of one record of one block."""

    def change(block: Block) -> Block:
        if block.index != at:
            return block
        table = block.table().copy()
        for name, value in fields.items():
            table[name][record] = value
        return dataclasses.replace(block, records=table.tobytes())

    return change


def line_of(path: Path, block: int) -> int:
    """The number of the line, from 1, on which the log's block of that index stands."""
    return next(n for n, line in enumerate(lines_of(path), start=1) if line.get("index") == block)


def row_number(event: str, outcome: str) -> int:
    """A request's row word by its event and outcome."""
    rows = list(REQUEST.expanded())
    found = [n for n, row in enumerate(rows) if row.event == event and row.outcome and row.outcome.name == outcome]
    return MACHINES.index(REQUEST) << 8 | found[0]


def damage(path: Path) -> tuple[Damage, int] | None:
    """What is wrong with the log, and on which line."""
    fault = audit.verify(path).fault
    return None if fault is None else (fault.damage, fault.line)


def test_a_sound_log_is_sound(run_log: Path) -> None:
    """Blocks, records, instances and tokens are counted, and no fault is found."""
    found = audit.verify(run_log)

    assert found.sound
    assert (12, 33, 6) == (found.blocks, found.records, found.instances)
    assert (300, 270, 30) == (found.totals.queried, found.totals.spliced, found.totals.losses[Loss.COVERED])
    assert 3 == found.totals.refused


def test_verification_agrees_with_replay(run_log: Path) -> None:
    """Both readers give the same totals and the same last digest."""
    found, replayed = audit.verify(run_log), audit.replay(run_log)

    assert (replayed.totals, replayed.digest) == (found.totals, found.digest)


def test_batches_make_no_difference(run_log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log checked a block at a time gives what it gives at once."""
    whole = audit.verify(run_log)
    monkeypatch.setattr("stagehold.machines.audit_read.BATCH", 1)

    assert whole == audit.verify(run_log)


def test_open_claims_are_no_damage(tmp_path: Path, write_log: Callable[..., bytes]) -> None:
    """A run that stopped with a claim open balances: its tokens are open."""
    write_log(tmp_path / "log", unfinished=True)
    found = audit.verify(tmp_path / "log")

    assert found.sound
    assert 100 == found.totals.open


def test_a_torn_last_line_is_a_truncated_tail(run_log: Path) -> None:
    """A last line that was not written to its end is named with its number."""
    rewrite(run_log, lines_of(run_log)[:-1])
    text = run_log.read_bytes()
    run_log.write_bytes(text[:-40])

    assert (Damage.TRUNCATED, text.count(b"\n")) == damage(run_log)


def test_a_tail_cut_between_lines_is_seen_by_the_head(run_log: Path) -> None:
    """Only the published digest tells a log cut at a line's end from a shorter run."""
    last = audit.verify(run_log).digest
    cut = line_of(run_log, 10)
    rewrite(run_log, lines_of(run_log)[:cut])
    found = audit.verify(run_log, head=last)

    assert audit.verify(run_log).sound
    assert found.fault is not None
    assert (Damage.CUT, cut) == (found.fault.damage, found.fault.line)


def test_an_altered_record_is_named(run_log: Path) -> None:
    """One flipped bit in a record breaks the digest of its block."""
    lines = lines_of(run_log)
    records = bytearray(base64.b64decode(lines[5]["records"]))
    records[8] ^= 1
    lines[5]["records"] = base64.b64encode(records).decode()
    rewrite(run_log, lines)

    assert (Damage.ALTERED, 6) == damage(run_log)


@pytest.mark.parametrize("field", ["tick", "births", "digest"])
def test_every_field_of_a_block_is_sealed(run_log: Path, field: str) -> None:
    """The tick, the births and the digest cannot be changed unseen."""
    lines = lines_of(run_log)
    changed: dict[str, Any] = {"tick": 99, "births": [], "digest": "00" * 16}
    lines[0][field] = changed[field]
    rewrite(run_log, lines)

    assert (Damage.ALTERED, 1) == damage(run_log)


def test_a_missing_block_is_named(run_log: Path) -> None:
    """A line taken out is seen at the line after it."""
    lines = lines_of(run_log)
    del lines[3]
    rewrite(run_log, lines)

    assert (Damage.MISSING_BLOCK, 4) == damage(run_log)


def test_a_missing_start_is_a_missing_block(run_log: Path) -> None:
    """A log begins with block 0."""
    rewrite(run_log, lines_of(run_log)[1:])

    assert (Damage.MISSING_BLOCK, 1) == damage(run_log)


def test_a_block_that_comes_again_is_named(run_log: Path) -> None:
    """A line doubled is a repeated block."""
    lines = lines_of(run_log)
    rewrite(run_log, [*lines[:4], lines[3], *lines[4:]])

    assert (Damage.REPEATED_BLOCK, 5) == damage(run_log)


def test_an_exchanged_block_breaks_the_chain(run_log: Path) -> None:
    """A block that is whole and in its place, but not the one that was written there."""
    lines = lines_of(run_log)
    block = dataclasses.replace(decode(lines[5]), tick=decode(lines[5]).tick + 1)
    lines[5] = {"event": "block", **encode(dataclasses.replace(block, digest=chain(block)))}
    rewrite(run_log, lines)

    assert (Damage.BROKEN_CHAIN, 7) == damage(run_log)


def test_a_foreign_declaration_is_named(run_log: Path) -> None:
    """A log whose blocks are sound but were written by other rows is not judged by ours."""
    forge(run_log, lambda block: dataclasses.replace(block, declaration=b"x" * 16))

    assert (Damage.FOREIGN, 1) == damage(run_log)


def test_other_machines_have_another_hash(run_log: Path) -> None:
    """Reading with fewer machines than the log was written with is reading a foreign log."""
    fault = audit.verify(run_log, machines=(REQUEST, HOLD)).fault

    assert fault is not None
    assert Damage.FOREIGN is fault.damage


def test_a_line_that_is_no_json_is_unreadable(run_log: Path) -> None:
    """A whole line of something else names its number and what was expected."""
    text = run_log.read_text().splitlines(keepends=True)
    run_log.write_text("".join([*text[:2], "{nonsense}\n", *text[2:]]))

    assert (Damage.UNREADABLE, 3) == damage(run_log)


@pytest.mark.parametrize(
    "line",
    [
        {"no": "event"},
        [1, 2],
        {"event": "block"},
        {"event": "block", "index": "one", "tick": 1, "declaration": "", "previous": "", "births": [],
         "records": "", "digest": ""},
        {"event": "block", "index": 12, "tick": 1, "declaration": "00" * 16, "previous": "00" * 16, "births": [],
         "records": "AAAA", "digest": "00" * 16},
    ],
)  # fmt: skip
def test_a_line_that_is_no_block_is_unreadable(run_log: Path, line: object) -> None:
    """JSON that lacks a field, has one of a wrong type or records of a wrong length is no block."""
    run_log.write_text(run_log.read_text() + json.dumps(line) + "\n")

    assert (Damage.UNREADABLE, len(lines_of(run_log))) == damage(run_log)


def test_a_row_from_another_state_is_discontinuous(run_log: Path) -> None:
    """A row whose source is not where its instance stands, in a log that is chained anew."""
    forge(run_log, with_record(6, 2, row=row_number("due", "TOO_SHORT")))
    fault = audit.verify(run_log).fault

    assert fault is not None
    assert (Damage.DISCONTINUOUS, 6, line_of(run_log, 6)) == (fault.damage, fault.block, fault.line)
    assert "a row from state staged" == fault.expected


def test_the_first_fault_of_several_is_told(run_log: Path) -> None:
    """Two records are wrong in different ways; the earlier one is told."""

    def both(block: Block) -> Block:
        later = with_record(9, 0, instance=77)(block)
        return with_record(6, 2, row=row_number("due", "TOO_SHORT"))(later)

    forge(run_log, both)

    assert (Damage.DISCONTINUOUS, line_of(run_log, 6)) == damage(run_log)


def test_a_record_of_nobody_is_unborn(run_log: Path) -> None:
    """An instance number that was never given."""
    forge(run_log, with_record(4, 0, instance=77))

    assert (Damage.UNBORN, line_of(run_log, 4)) == damage(run_log)


def test_a_record_before_its_birth_is_unborn(run_log: Path) -> None:
    """A birth counts from its own block on."""
    number = audit.verify(run_log).instances - 1
    forge(run_log, with_record(0, 0, instance=number))

    assert (Damage.UNBORN, 1) == damage(run_log)


@pytest.mark.parametrize("word", [0x00F0, MACHINES.index(TICK) << 8, 0x7700])
def test_a_row_that_its_machine_lacks_is_illegal(run_log: Path, word: int) -> None:
    """A row number too high, a row of another machine, a machine that there is not."""
    forge(run_log, with_record(4, 0, row=word))

    assert (Damage.ILLEGAL_ROW, line_of(run_log, 4)) == damage(run_log)


def test_a_refusal_without_its_flag_is_illegal(run_log: Path) -> None:
    """Row byte and flag of a refusal go together."""
    forge(run_log, with_record(1, 2, flags=0))

    assert (Damage.ILLEGAL_ROW, 2) == damage(run_log)


def test_a_refusal_of_what_is_accepted_is_false(run_log: Path) -> None:
    """The rows accept `evaluate` in `staged`; a record that says it was refused is wrong."""
    event = REQUEST.events().index("evaluate")
    forge(run_log, with_record(1, 2, detail=RequestState.STAGED << 8 | event))

    assert (Damage.FALSE_REFUSAL, 2) == damage(run_log)


def test_a_refusal_in_another_state_is_discontinuous(run_log: Path) -> None:
    """A refusal says in which state it happened."""
    event = REQUEST.events().index("finish")
    forge(run_log, with_record(1, 2, detail=RequestState.QUEUED << 8 | event))

    assert (Damage.DISCONTINUOUS, 2) == damage(run_log)


def test_a_loss_that_is_none_is_a_bad_detail(tmp_path: Path, write_log: Callable[..., bytes]) -> None:
    """The high half of a loss names a member of `Loss`."""
    write_log(tmp_path / "log", lost=True)
    assert audit.verify(tmp_path / "log").sound
    forge(tmp_path / "log", with_record(2, 4, detail=100 | len(Loss) << 32))

    assert (Damage.BAD_DETAIL, line_of(tmp_path / "log", 2)) == damage(tmp_path / "log")


@pytest.mark.parametrize("tokens", [89, 91])
def test_tokens_that_do_not_balance_are_named(run_log: Path, tokens: int) -> None:
    """A commit that books one token too few or too many is seen at the end of its block."""
    forge(run_log, with_record(2, 4, detail=tokens | 10 << 32))

    assert (Damage.UNBALANCED, line_of(run_log, 2)) == damage(run_log)


@pytest.mark.parametrize(("number", "state"), [(0, 0), (1000, int(RequestState.STAGED))])
def test_a_birth_that_cannot_be_is_named(run_log: Path, number: int, state: int) -> None:
    """A number given before, or a state in which nobody is born."""
    birth = Birth(number, 0, state, HandleKey("r", 0, b""))
    forge(
        run_log, lambda block: dataclasses.replace(block, births=(*block.births, birth)) if block.index == 3 else block
    )

    assert (Damage.BAD_BIRTH, line_of(run_log, 3)) == damage(run_log)


def test_a_fault_reads_as_a_sentence(run_log: Path) -> None:
    """File, line, block, what is wrong, what was expected and what was found, in one line."""
    forge(run_log, with_record(4, 0, instance=77))

    expected = (
        f"{run_log}:6: block 4: a record of an instance that was never born; "
        "expected the birth of its instance before it, found a record of instance 77 (record 0)"
    )
    assert expected == str(audit.verify(run_log).fault)


@pytest.mark.parametrize(
    ("records", "found"),
    [
        ([("agreeing", "agreed", "QUARANTINE"), ("issuing", "halt", None)], None),
        ([("between", "halt", None), ("agreeing", "agreed", "DIVERGED")], Damage.DISCONTINUOUS),
    ],
    ids=["rows in between left no record", "a stopped tick goes nowhere"],
)
def test_a_sparse_machine_may_be_found_anywhere_before_its_end(
    tmp_path: Path, records: list[tuple[str, str, str | None]], found: Damage | None
) -> None:
    """Some of the tick's rows leave no record, so a record may find it elsewhere, unless it had stopped."""
    rows = [
        (row.source.name.lower(), row.event, row.outcome.name if row.outcome is not None else None)
        for row in TICK.expanded()
    ]
    with AuditLog(tmp_path / "log") as log:
        journal = Journal(sink=log.block)
        number = journal.born(MACHINES.index(TICK), int(TICK.initial), HandleKey("tick", 0, b""))
        for record in records:
            journal.records += [tag(number), rest(MACHINES.index(TICK), rows.index(record))]
        journal.close_block(1)

    damaged = damage(tmp_path / "log")
    assert found is (damaged[0] if damaged else None)
