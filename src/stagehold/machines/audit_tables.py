"""The declarations as arrays, so that a million records are looked up at once.

Owns the lookup of rows by their number in a record, and what a row books. It reads no log.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from stagehold.machines.declared import rows_of
from stagehold.machines.records import REFUSED_ROW, Totals
from stagehold.specs.declare import Books, Kind, MachineSpec, Row
from stagehold.specs.outcomes import Loss

WORDS, STATES, EVENTS = 1 << 16, 1 << 8, 1 << 8
"""Sizes of what a record can name: row words, and states and events of a refusal."""

CLAIM = "claim"
"""The resource that a request holds exactly while it has tokens in the books."""

_BOOKS = tuple(Books)
_LOW, _HALF = np.uint64(0xFFFFFFFF), np.uint64(32)

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Tables:
    """Arrays over row words (machine << 8 | row), -1 for words of no row; and over states and events."""

    source: NDArray[np.int16]
    target: NDArray[np.int16]
    books: NDArray[np.int8]
    claims: NDArray[np.int8]
    counts: NDArray[np.int8]
    """Place, among its machine's counters, of the one that the row moves."""
    accepts: NDArray[np.bool_]
    """Shape (machines, STATES, EVENTS): whether any row leaves the state on the event."""
    events: NDArray[np.int64]
    """Shape (machines,): how many events the machine has."""
    follows: NDArray[np.bool_]
    """Shape (machines, STATES, STATES): whether an instance left in one state may be found by a record in another."""
    births: NDArray[np.bool_]
    """Shape (machines, STATES): whether an instance may be born in the state."""


@dataclass(frozen=True, slots=True)
class Flows:
    """Tokens that each record books, shape (n,) each. `bad`: no member of `Loss`; the reason is len(Loss)."""

    queried: Ints
    spliced: Ints
    lost: Ints
    reason: Ints
    bad: NDArray[np.bool_]


@lru_cache(maxsize=8)
def tables(machines: tuple[MachineSpec, ...]) -> Tables:
    """The arrays of `machines`, made once."""
    count = len(machines)
    made = Tables(
        source=np.full(WORDS, -1, np.int16),
        target=np.full(WORDS, -1, np.int16),
        books=np.zeros(WORDS, np.int8),
        claims=np.zeros(WORDS, np.int8),
        counts=np.full(WORDS, -1, np.int8),
        accepts=np.zeros((count, STATES, EVENTS), np.bool_),
        events=np.array([len(spec.events()) for spec in machines], np.int64),
        follows=np.repeat(np.eye(STATES, dtype=np.bool_)[None], count, axis=0),
        births=np.zeros((count, STATES), np.bool_),
    )
    for machine, spec in enumerate(machines):
        if spec.sparse:
            made.follows[machine, [int(state.name) for state in spec.states if state.kind is not Kind.TERMINAL]] = True
        made.births[machine, [int(state) for state in (spec.initial, *spec.births)]] = True
        for index, row in enumerate(rows_of(spec)):
            _enter(made, machine, index, row)
            if row.counts is not None:
                made.counts[machine << 8 | index] = tuple(spec.counters).index(row.counts)
            made.accepts[machine, int(row.source), spec.events().index(row.event)] = True
    return made


def _enter(made: Tables, machine: int, index: int, row: Row) -> None:
    assert index < REFUSED_ROW, "a machine has at most 255 rows"
    word = machine << 8 | index
    made.source[word], made.target[word] = int(row.source), int(row.target)
    made.books[word] = _BOOKS.index(row.books)
    made.claims[word] = (CLAIM in row.takes) - (CLAIM in row.releases)


def flows(made: Tables, records: NDArray[np.void]) -> Flows:
    """What `records` (dtype `RECORD`, shape (n,)) book, row by row. Records that name no row book nothing."""
    books = made.books[records["row"]]
    low = (records["detail"] & _LOW).astype(np.int64)
    high = (records["detail"] >> _HALF).astype(np.int64)
    spliced, loss = books == _BOOKS.index(Books.SPLICED), books == _BOOKS.index(Books.LOSS)
    return Flows(
        queried=np.where(books == _BOOKS.index(Books.QUERIED), low, 0),
        spliced=np.where(spliced, low, 0),
        lost=np.where(spliced, high, np.where(loss, low, 0)),
        reason=np.where(spliced, int(Loss.COVERED), np.where(loss, np.minimum(high, len(Loss)), 0)),
        bad=loss & (high >= len(Loss)),
    )


def book(totals: Totals, flown: Flows) -> None:
    """Add `flown` to `totals`; what is bad in it is left out."""
    totals.queried += int(flown.queried.sum())
    totals.spliced += int(flown.spliced.sum())
    lost = np.zeros(len(Loss) + 1, np.int64)
    np.add.at(lost, flown.reason, flown.lost)
    for loss in Loss:
        totals.losses[loss] += int(lost[loss])
