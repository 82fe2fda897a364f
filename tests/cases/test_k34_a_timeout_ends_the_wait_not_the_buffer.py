"""K34: a timeout freed pages while the thread that read into them was still writing.

The next owner of the pages found foreign bytes in them, or the process died. Here there are two lives: the caller's
result ends at the limit, the buffer's ownership at the end of IO.
"""

from __future__ import annotations

import pytest

from stagehold import HostMode, InvariantBroken
from stagehold.cache.stores.simulated import Delays
from stagehold.lifecycle.holds import HoldRules
from stagehold.machines import Machine
from stagehold.specs.hold import HoldState
from stagehold.specs.write import WriteState
from stagehold.testing.hand import Hand

LATE_GETS = Delays(exists=(1, 1), get=(60, 60), put=(1, 1))
LATE_PUTS = Delays(exists=(1, 1), get=(1, 1), put=(60, 60))


def values(h: Hand, slots) -> set[int]:
    """Every byte in these device slots."""
    return {value for slot in slots for value in h.core.tensors.device.tensor[:, slot].flatten().tolist()}


def small(**settings) -> dict[str, object]:
    """Twelve pages of staging, and reads that come forty ticks after they were given up."""
    return {"parts": 2, "page_part_bytes": 32, "staging_pages": 12, "load_limit_fraction": 1.0, "fetch_limit": 20,
            "retry_interval_ticks": 0, "delays": LATE_GETS, **settings}  # fmt: skip


def given_up(h: Hand) -> Machine:
    """A fetch of eight pages that has run into its limit; its buffer is still being written to."""
    h.put(h.prompt(8, 1), body=bytes([111]) * 64)
    h.arrive("late", h.prompt(8, 1))
    h.tick(2)
    hold = next(iter(h.core.holds.values()))
    h.until(lambda: hold.state is HoldState.DRAINING, 30)
    return hold


def served_meanwhile(h: Hand) -> set[int]:
    """The bytes that a second request is given while the late read comes in."""
    h.put(h.prompt(8, 2), body=bytes([222]) * 64)
    h.store._delays = Delays(exists=(1, 1), get=(1, 1), put=(1, 1))
    other = h.arrive("other", h.prompt(8, 2))
    h.until(lambda: h.machine(other).data.hold and h.hold_of(other).state is HoldState.READY, 100)
    h.tick(70)
    return values(h, h.admit(other).slots)


def test_late_bytes_never_reach_another_request(hand):
    """The second request waits for the end of the late read."""
    h = hand(**small())
    hold = given_up(h)
    assert {222} == served_meanwhile(h)
    assert HoldState.DROPPED is hold.state


def test_a_buffer_freed_at_the_cut_would_be_seen(monkeypatch):
    """Planted: the books break in the tick of the cut, and in a service the next owner reads the late bytes."""

    def free_at_the_cut(self, h, ended):
        self._unpin(h)
        self.core.close_span(h.number)
        self.core.free_staging(self.core.stocks.spine, h.data.staging)
        self.core.ledger.give("staging", h.number)
        h.data.staging = []
        self.core.post(self._tell, h, ended)

    monkeypatch.setattr(HoldRules, "_abandon", free_at_the_cut)
    with pytest.raises(InvariantBroken, match=r"DRAINING and owns \['io'\]"):
        given_up(Hand(**small()))
    h = Hand(engine_options={"strict": False}, **small())
    given_up(h)
    assert 111 in served_meanwhile(h)


def test_a_put_that_runs_late_stores_what_it_was_given(hand):
    """Its source is not reused for a fetch while the store may still read it."""
    h = hand(parts=2, page_part_bytes=32, staging_pages=10, put_limit=20, delays=LATE_PUTS)
    tokens = h.prompt(2, 1)
    a = h.arrive("a", tokens)
    h.admit(a)
    slots = h.engine.extend(a, 33).slots
    h.core.tensors.device.tensor[:, list(slots)] = 77
    h.engine.publish(a, 32)
    h.engine.abort(a)
    h.until(lambda: {w.state for w in h.core.writes.values()} == {WriteState.DRAINING}, 40)
    for family in range(2, 6):
        h.put(h.prompt(8, family), body=bytes([200 + family]) * 64)
        other = h.arrive(f"o{family}", h.prompt(8, family))
        h.tick(3)
        h.engine.abort(other)
    h.until(lambda: not h.core.writes, 80)
    assert [bytes([77]) * 64] * 2 == [h.store.medium.read(name)[-64:] for name in h.names(tokens)]


@pytest.mark.parametrize("mode", list(HostMode))
def test_the_caller_is_told_at_the_limit_and_not_at_the_end_of_io(hand, mode):
    """Sixty ticks of IO do not become sixty ticks of waiting."""
    h = hand(**small(host_memory_mode=mode))
    hold = given_up(h)
    late = h.engine._roster.alive["late"]
    assert ("RETRY", 0) == (late.state.name, late.data.hold)
    assert h.admit(late.data.handle).admitted
    assert HoldState.DRAINING is hold.state
