"""The main job: what it reports, what it proves, and what it leaves behind."""

from __future__ import annotations

import gzip
import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from stagehold import Engine, HostMode
from stagehold.cache.stores.protocol import Buffer, Store, Verdict
from stagehold.lab.replay import Replay, ReplayOptions
from stagehold.lab.report import ReplayReport
from stagehold.serving.runner import PatternRunner

TOKEN_BYTES = 8192


def conversations(path: Path, *, sessions: int = 6, turns: int = 5) -> Path:
    """A trace of sessions whose turns grow by two blocks each, one turn of every session after the other."""
    lines = []
    for turn in range(turns):
        for session in range(sessions):
            blocks = [0, *(1000 * (session + 1) + i for i in range(2 * (turn + 1)))]
            at = {"timestamp": 3000 * turn + 300 * session, "input_length": 512 * len(blocks), "output_length": 96}
            lines.append(json.dumps({**at, "hash_ids": blocks}))
    path.write_bytes(gzip.compress("\n".join(lines).encode()))
    return path


def options(folder: Path, **changes: Any) -> ReplayOptions:
    trace = conversations(folder / "trace.gz")
    given = {"trace": trace, "audit": folder / "audit.jsonl", "device_pages": 24, "strict": True}
    return ReplayOptions(**{**given, **changes})


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


def hit_tokens(report: ReplayReport) -> int:
    return report.device_hit_tokens + report.store_hit_tokens


def assert_sound(report: ReplayReport) -> None:
    assert [] == report.faults()
    assert report.max_retries <= 8
    assert report.compared_bytes >= TOKEN_BYTES * hit_tokens(report)
    assert report.queried_hit_tokens == report.spliced_tokens + sum(report.losses.values())


@pytest.mark.parametrize("mode", list(HostMode))
def test_evicted_prefixes_come_back_from_the_store(tmp_path: Path, mode: HostMode) -> None:
    """A pool smaller than the working set: later turns hit in the store, and every byte is right."""
    report = Replay(options(tmp_path, mode=mode)).run()

    assert_sound(report)
    assert 30 == report.requests
    assert report.store_hit_tokens > 0
    assert hit_tokens(report) + report.recomputed_tokens >= report.ideal_hit_tokens


@pytest.mark.parametrize("mode", list(HostMode))
def test_a_fresh_engine_finds_what_the_last_one_wrote(tmp_path: Path, mode: HostMode) -> None:
    """After a restart nothing is on the device, and the next turns come from the store."""
    report = Replay(options(tmp_path, mode=mode, restart_after=18, device_pages=120)).run()

    assert_sound(report)
    assert report.store_hit_tokens > 0
    assert 2 == report.state_entries["attachment.attached"]


def test_the_same_seed_gives_the_same_log(tmp_path: Path) -> None:
    """Real files and threads notwithstanding, two runs write the same records; another seed does not."""
    logs = []
    for name, seed in (("a", 3), ("b", 3), ("c", 4)):
        log = tmp_path / f"{name}.jsonl"
        Replay(options(tmp_path, audit=log, seed=seed)).run()
        logs.append(log.read_bytes())

    assert logs[0] == logs[1]
    assert logs[0] != logs[2]


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No thread, no open file, no temporary folder, and no owner in the books."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    before = (threading.active_count(), open_files())

    report = Replay(options(tmp_path, restart_after=12)).run()

    assert 0 == report.violations
    assert before == (threading.active_count(), open_files())
    assert [] == list((tmp_path / "tmp").iterdir())


def test_an_interrupted_replay_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads end and the store's folder goes, wherever the user stops it."""
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    threads = threading.active_count()

    def interrupt(done: int, _whole: int) -> None:
        if done >= 7:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Replay(options(tmp_path), interrupt).run()

    assert threads == threading.active_count()
    assert [] == list((tmp_path / "tmp").iterdir())


def test_progress_is_told_request_by_request(tmp_path: Path) -> None:
    """The last call says that all are finished, also over a restart."""
    told: list[tuple[int, int]] = []

    Replay(options(tmp_path, restart_after=12), lambda done, whole: told.append((done, whole))).run()

    assert (30, 30) == told[-1]
    assert sorted(told) == told


class Damaging(Replay):
    """Damages every page file when an engine is ready: the second one finds what the first one wrote."""

    damage: Callable[[list[Path]], None]
    alarms: Counter[Verdict]
    folder: Path

    def open_store(self, folder: Path) -> Store:
        store = super().open_store(folder)
        self.folder = folder
        self.alarms = store.inner.blocking.alarms  # type: ignore[attr-defined]
        return store

    def new_runner(self, engine: Engine) -> PatternRunner:
        pages = page_files(self.folder)
        if len(pages) > 1:  # a new store holds the page of its self-test alone
            type(self).damage(pages)
        return super().new_runner(engine)


def page_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and p.stat().st_size > 16 * TOKEN_BYTES)


def truncate(pages: list[Path]) -> None:
    for page in pages:
        os.truncate(page, page.stat().st_size // 2)


def flip_a_bit(pages: list[Path]) -> None:
    for page in pages:
        body = bytearray(page.read_bytes())
        body[-7] ^= 4
        page.write_bytes(body)


def rename(pages: list[Path]) -> None:
    """Give every page the name of the next one."""
    bodies = [page.read_bytes() for page in pages]
    for page, body in zip(pages, bodies[1:] + bodies[:1], strict=True):
        page.write_bytes(body)


@pytest.mark.parametrize(
    ("damage", "reason"),
    [(truncate, Verdict.TORN), (flip_a_bit, Verdict.CORRUPT), (rename, Verdict.FOREIGN)],
)
def test_a_damaged_page_is_a_miss_with_a_reason(
    tmp_path: Path, damage: Callable[[list[Path]], None], reason: Verdict
) -> None:
    """Truncated, flipped or renamed files are never published; the run recomputes and its bytes stay right."""
    kind = type("Kind", (Damaging,), {"damage": staticmethod(damage)})
    run = kind(options(tmp_path, restart_after=18, device_pages=120))

    report = run.run()

    assert_sound(report)
    assert run.alarms[reason] > 0
    assert report.losses.get("failed", 0) + report.losses.get("cut", 0) > 0


class Lying(Replay):
    """A store whose buffers change after they were verified."""

    ready = False

    def new_runner(self, engine: Engine) -> PatternRunner:
        self.ready = True
        return super().new_runner(engine)

    def open_store(self, folder: Path) -> Store:
        self.ready = False
        store = super().open_store(folder)
        get_into, poll = store.get_into, store.poll
        lent: dict[int, list[Buffer]] = {}

        def lend(ticket: int, keys: Any, buffers: Any, tick: int) -> None:
            lent[ticket] = list(buffers)
            get_into(ticket, keys, buffers, tick)

        def spoil(tick: int) -> Any:
            told = poll(tick)
            for progress in told:
                for buffer in lent.pop(progress.ticket, ()) if progress.done and self.ready else ():
                    buffer[5] ^= 1
            return told

        store.get_into, store.poll = lend, spoil  # type: ignore[method-assign]
        return store


def test_a_wrong_page_is_seen(tmp_path: Path) -> None:
    """A planted fault: one byte changed in every fetched page is a wrong byte, and its token a phantom."""
    report = Replay(options(tmp_path, restart_after=18, device_pages=120)).run()
    assert report.store_hit_tokens > 0

    report = Lying(options(tmp_path, restart_after=18, device_pages=120)).run()

    assert report.wrong_bytes > 0
    assert report.phantom_hit_tokens > 0
    assert {"wrong bytes", "phantom hit tokens"} <= {" ".join(f.split()[1:]) for f in report.faults()}


class Unwritten(PatternRunner):
    """Leaves the last page of each prompt's first chunk without its bytes: published, and never there."""

    def forward(self, batch: Any) -> list[int]:
        answers = super().forward(batch)
        for work in batch:
            if work.first == 0 and work.last >= self.layout.page_size:
                self._pool[:, int(work.slots[work.last // self.layout.page_size - 1])] = torch.zeros(1).to(torch.uint8)
        return answers


class Early(Replay):
    """Publishes pages that are not there."""

    def new_runner(self, engine: Engine) -> PatternRunner:
        assert engine.device_bytes is not None
        return Unwritten(self.layout, engine.device_bytes.tensor)


def test_early_publication_is_seen(tmp_path: Path) -> None:
    """A planted fault: a page in the tree before its bytes gives phantom hit tokens."""
    assert Early(options(tmp_path, device_pages=120)).run().phantom_hit_tokens > 0


def test_the_report_has_the_fields_that_programs_read(tmp_path: Path) -> None:
    """Names and order of the JSON object."""
    names = (
        "requests prompt_tokens ideal_hit_tokens device_hit_tokens store_hit_tokens recomputed_tokens "
        "queried_hit_tokens fetched_tokens local_tokens spliced_tokens losses open_claim_tokens written_tokens "
        "redundant_write_tokens failed_puts offered_tokens stored_tokens kept_tokens refused_tokens dropped_tokens "
        "evicted_unwritten_tokens declines phantom_hit_tokens max_retries "
        "ticks violations compared_bytes wrong_bytes state_entries audit_log"
    )

    assert names.split() == list(Replay(options(tmp_path, requests=3)).run().as_json())


@pytest.mark.soak
@pytest.mark.parametrize("mode", list(HostMode))
def test_a_long_replay_is_sound(tmp_path: Path, mode: HostMode) -> None:
    """3,000 requests of the shipped trace with a restart in the middle."""
    report = Replay(ReplayOptions(audit=tmp_path / "a.jsonl", requests=3000, restart_after=1500, mode=mode)).run()

    assert_sound(report)
