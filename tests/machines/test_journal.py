"""The journal: blocks, their chain, and the layout of records down to the byte."""

from __future__ import annotations

from dataclasses import replace

import pytest

from stagehold.machines import (
    MACHINES,
    Birth,
    Block,
    HandleKey,
    Journal,
    LogError,
    SpanKey,
    declaration_hash,
    decode,
    encode,
)
from stagehold.machines.records import REFUSED_FLAG, REFUSED_ROW, chain_digest, rest, tag
from stagehold.specs.hold import HOLD
from stagehold.specs.outcomes import Start
from stagehold.specs.write import WRITE


def test_a_record_is_sixteen_little_endian_bytes() -> None:
    """Golden vector of the final layout: instance, machine and row, flags, detail."""
    record = tag(0x01020304) + rest(machine=1, row=5, detail=0x1122334455667788)
    assert record.hex() == "04030201" + "0501" + "0000" + "8877665544332211"


def test_a_refused_record_carries_row_255_flag_1_state_and_event() -> None:
    """Golden vector of a refusal."""
    record = tag(7) + rest(2, REFUSED_ROW, REFUSED_FLAG, 3 << 8 | 4)
    assert record.hex() == "07000000" + "ff02" + "0100" + "0403000000000000"


def test_a_block_digest_is_blake2b_over_header_births_and_records() -> None:
    """Golden vector of the chain; it must never change."""
    births = (
        Birth(1, 0, 0, HandleKey("r", 2, b"n")),
        Birth(2, 1, 5, SpanKey(b"n", b"k" * 16, 3, 9)),
    )
    digest = chain_digest((bytes(16), bytes(range(16)), 4, 5), births, tag(1) + rest(0, 0))
    assert digest.hex() == "1d7b798088a85b07a4b68bb19b9aa8c6"


def test_machines_are_numbered_in_their_fixed_order() -> None:
    """The number stands in every record."""
    names = ["request", "hold", "write", "store", "attachment", "residency", "tick"]
    assert [spec.name for spec in MACHINES] == names


def test_the_table_of_a_block_gives_its_records_by_field() -> None:
    """The bytes are readable as they are."""
    journal = Journal()
    journal.records += [tag(7), rest(0, 3, detail=12), tag(8), rest(2, REFUSED_ROW, 1, 0x0104)]
    table = journal.close_block(1).table()
    assert table.tolist() == [(7, 3, 0, 12), (8, 0x2FF, 1, 0x0104)]


def test_each_block_names_the_digest_of_the_one_before() -> None:
    """The chain begins with sixteen zero bytes."""
    blocks: list[Block] = []
    journal = Journal(sink=blocks.append)
    for tick in range(3):
        journal.close_block(tick)
    assert [block.previous for block in blocks] == [bytes(16), blocks[0].digest, blocks[1].digest]
    assert [(block.index, block.tick) for block in blocks] == [(0, 0), (1, 1), (2, 2)]
    assert journal.digest == blocks[2].digest


def test_an_empty_tick_still_moves_the_chain() -> None:
    """Two empty blocks differ, so a missing one is seen."""
    journal = Journal()
    assert journal.close_block(0).digest != journal.close_block(0).digest


@pytest.mark.parametrize(
    "change",
    [
        {"tick": 2},
        {"index": 1},
        {"previous": bytes(range(16))},
        {"declaration": bytes(16)},
        {"records": tag(1) + rest(0, 1)},
        {"births": (Birth(0, 0, 0, HandleKey("s", 0, b"ns")),)},
        {"births": ()},
    ],
)
def test_any_altered_field_is_seen_by_the_digest(change: dict[str, object]) -> None:
    """Nothing in a block stands outside the hash."""
    journal = Journal()
    journal.born(0, 0, HandleKey("r", 0, b"ns"))
    journal.records += [tag(0), rest(0, 0)]
    block = journal.close_block(1)
    assert block.expected_digest() == block.digest
    assert replace(block, **change).expected_digest() != block.digest


def test_lengths_keep_the_fields_of_a_key_apart() -> None:
    """The same bytes, cut elsewhere, are another birth."""
    digests = set()
    for key in (SpanKey(b"ab", b"c", 0, 1), SpanKey(b"a", b"bc", 0, 1)):
        journal = Journal()
        journal.born(1, 0, key)
        digests.add(journal.close_block(0).digest)
    assert len(digests) == 2


def test_the_journal_keeps_nothing_of_a_closed_block() -> None:
    """Memory is bounded by one tick; the list itself stays, since steps hold on to it."""
    journal = Journal()
    kept = journal.records
    journal.born(0, 0, HandleKey("r", 0, b""))
    journal.records += [tag(0), rest(0, 0)]
    journal.close_block(0)
    assert journal.records is kept
    assert (journal.records, journal.births) == ([], [])


def test_blocks_survive_json_unchanged() -> None:
    """Both kinds of birth, and records of any content."""
    journal = Journal()
    journal.born(0, 0, HandleKey("r\N{SNOWMAN}", 3, b"\x00\xff"))
    journal.born(1, 0, SpanKey(b"ns", bytes(32), 4, 99))
    journal.records += [tag(0xFFFFFFFF), rest(6, 10, detail=(1 << 64) - 1)]
    block = journal.close_block(12)
    assert decode(encode(block)) == block


def test_a_restored_journal_goes_on_as_it_did_the_first_time() -> None:
    """Numbers, chain and open records are those of the moment that was saved."""
    journal = Journal()
    journal.born(0, 0, HandleKey("r", 0, b""))
    saved = journal.save()
    journal.records += [tag(0), rest(0, 0)]
    first = journal.close_block(1)
    journal.restore(saved)
    journal.records += [tag(0), rest(0, 0)]
    assert journal.close_block(1) == first
    assert journal.next_number() == 1


def test_the_declaration_hash_changes_with_a_row_an_outcome_or_their_order() -> None:
    """Whatever a record's meaning hangs on."""
    rows = HOLD.rows
    variants = [
        HOLD.model_copy(update={"rows": rows[1:]}),
        HOLD.model_copy(update={"rows": (rows[1], rows[0], *rows[2:])}),
        HOLD.model_copy(update={"births": ()}),
        HOLD.model_copy(update={"rows": (rows[0].model_copy(update={"effect": "other"}), *rows[1:])}),
    ]
    hashes = {declaration_hash((spec,)) for spec in [HOLD, *variants]}
    assert len(hashes) == len(variants) + 1


def test_the_declaration_hash_does_not_change_with_wording() -> None:
    """A better sentence does not make old logs foreign."""
    reworded = WRITE.model_copy(
        update={
            "doc": "Other words.",
            "rows": (WRITE.rows[0].model_copy(update={"why": "other words"}), *WRITE.rows[1:]),
        }
    )
    assert declaration_hash((reworded,)) == declaration_hash((WRITE,))


def test_a_journal_refuses_a_declaration_that_its_hash_does_not_cover() -> None:
    """A log must not claim declarations that were not the ones that ran."""
    other = WRITE.model_copy(update={"rows": WRITE.rows[1:]})
    with pytest.raises(ValueError, match="does not know this declaration of machine 'write'"):
        Journal().machine_index(other)


def test_log_errors_are_value_errors() -> None:
    """Who reads logs catches one kind."""
    assert issubclass(LogError, ValueError)
    assert Start.COPY == 0
