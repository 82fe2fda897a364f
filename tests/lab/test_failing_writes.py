"""A store that fails one put in five, at a random page: no wrong byte, no false belief, an end for each token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from stagehold import Engine
from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.protocol import Verdict
from stagehold.cache.stores.simulated import Delays, Medium, SimulatedStore
from stagehold.lab.puts import CountedPuts, Puts
from stagehold.lab.replay import Replay, ReplayOptions

SIZES = {"requests": 60, "tenants": 4, "device_pages": 260, "hang_ups": 3.0}


class Checked(Replay):
    """Before an engine is closed, what it believes is looked up; afterwards, what was acknowledged is read."""

    believed = missing = read = unreadable = 0

    @contextmanager
    def _engine(self, folder: Path, audit: Path) -> Iterator[Engine]:
        with super()._engine(folder, audit) as engine:
            yield engine
            there = {name[:32] for name in self._sums.puts.there}
            beliefs = engine._parts.core.beliefs._stored
            self.believed += len(beliefs)
            self.missing += sum(key not in there for key in beliefs)
        store, buffer = FileStore(folder), memoryview(bytearray(self.config.page_bytes))
        told: list[Verdict] = []
        for name in self._sums.puts.there:
            store.get_into([name], [buffer], lambda _index, verdict: bool(told.append(verdict)) or True)
        self.read, self.unreadable = len(told), sum(verdict is not Verdict.HIT for verdict in told)
        store.close()


def test_one_put_in_five_fails_and_nothing_is_wrong_for_it(tmp_path):
    """The report's own faults are checked with it: bytes, phantoms, invariants, and both token ledgers."""
    run = Checked(ReplayOptions(audit=tmp_path / "a.jsonl", fail_writes=20, strict=True, **SIZES))
    report = run.run()
    assert [] == report.faults()
    assert report.failed_puts > 20
    assert run.believed > 500
    assert 0 == run.missing
    assert run.read > 500
    assert 0 == run.unreadable
    ended = report.stored_tokens + report.refused_tokens + report.dropped_tokens + report.evicted_unwritten_tokens
    assert report.offered_tokens == ended > 0


@pytest.mark.parametrize("mode", ["buffer_only", "cache"])
def test_hardly_a_token_is_written_that_was_there(tmp_path, mode):
    """At most one in a hundred."""
    report = Replay(ReplayOptions(audit=tmp_path / "a.jsonl", mode=mode, **SIZES)).run()
    assert 100 * report.redundant_write_tokens <= report.written_tokens
    assert report.written_tokens > 10_000


def test_a_redundant_put_is_counted():
    """Planted: the same page twice."""
    puts = Puts()
    store = CountedPuts(SimulatedStore(delays=Delays((1, 1), (1, 1), (1, 1)), medium=Medium()), puts)
    for ticket in (1, 2):
        store.put(ticket, [b"n" * 32], [memoryview(b"body")], ticket)
        store.poll(ticket + 1)
    assert (2, 1) == (puts.pages, puts.redundant_pages)


def test_a_put_that_fails_says_where():
    """The pages before it are stored and said to be, the others were not looked at."""
    puts = Puts()
    store = CountedPuts(SimulatedStore(delays=Delays((1, 1), (1, 1), (1, 1))), puts, fail_share=1.0, seed=3)
    names = [bytes([number]) * 32 for number in range(8)]
    store.put(1, names, [memoryview(b"body")] * 8, 1)
    (report,) = store.poll(2)
    good = report.good
    assert 0 < good < 8
    assert (Verdict.STORED,) * good + (Verdict.FAILED,) + (Verdict.UNREAD,) * (7 - good) == report.verdicts
    assert names[:good] == list(puts.there)
