"""K20: four more abort paths, each of which forgot something: host pages, entries keyed by attempt, a remote lock.

Here the declaration says what each state owns, a check at import proves that every row to an end gives all of it back,
and an abort at any tick of a life leaves no trace in any index either.
"""

from __future__ import annotations

import pytest

from stagehold.machines import MACHINES
from stagehold.specs.declare import Kind
from stagehold.testing.hand import Hand


@pytest.mark.parametrize("spec", MACHINES, ids=lambda spec: spec.name)
def test_every_row_to_an_end_releases_what_its_source_owns(spec):
    """Proved from the rows, for every machine: owned plus taken is released."""
    ends = [state.name for state in spec.states if state.kind is Kind.TERMINAL]
    rows = [row for row in spec.expanded() if row.target in ends]
    assert rows
    for row in rows:
        assert {*spec.state(row.source).owns, *row.takes} == {*row.releases}, row


def traces(h: Hand) -> dict[str, int]:
    """Entries that name a request, a hold or an operation anywhere in the engine."""
    core, parts = h.core, h.engine._parts
    return {
        name: size
        for name, size in {
            "requests": len(core.requests),
            "holds": len(core.holds),
            "visits": len(core.visits),
            "spans": len(core.spans),
            "untimed": len(parts.retries.untimed),
            "waiting": len(parts.retries.waiting),
            "alive": len(h.engine._roster.alive),
            "operations": len(core.operations.live),
            "ledger": len(core.ledger.entries) - 1,
            "pinned": core.tree.pinned,
            "holders": len(core.tree.holds.holders),
        }.items()
        if size
    }


@pytest.mark.parametrize("after", range(14))
@pytest.mark.parametrize("stored", [0, 4, 6])
def test_an_abort_at_any_tick_leaves_no_trace(hand, after, stored):
    """Misses, short hits and whole ones; the anchor is live, so that there is a pin to forget."""
    h = hand(retry_interval_ticks=2)
    tokens = h.prompt(8)
    h.grow(tokens, 2)
    h.put(tokens, 2, 2 + stored)
    a = h.arrive("a", tokens)
    h.tick(after)
    h.engine.abort(a)
    h.tick(3)
    assert {} == traces(h)


@pytest.mark.parametrize("after", [0, 1, 2, 3])
def test_an_abort_of_one_attempt_leaves_the_next_alone(hand, after):
    """Entries are keyed by instance: an old attempt's end cannot strike out the new one's."""
    h = hand()
    tokens = h.prompt(8)
    h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick(after)
    h.engine.abort(a)
    again = h.arrive("a", tokens)
    h.tick(4)
    assert 128 == h.admit(again).store_hit_tokens
