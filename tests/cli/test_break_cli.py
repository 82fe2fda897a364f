"""The command under bad input and bad luck: one line that names the place, nothing overwritten, nothing left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import orjson
import pytest
from typer.testing import CliRunner, Result

from stagehold import AuditLog
from stagehold.cli.main import app
from stagehold.lab.replay import Replay
from stagehold.machines.audit_diff import parted
from stagehold.machines.audit_read import blocks
from stagehold.machines.records import RECORD

ONE = {"timestamp": 0, "input_length": 5, "output_length": 1, "hash_ids": [0]}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "200"})


@pytest.fixture(name="trace")
def _trace(tmp_path: Path) -> Path:
    """A trace of one short request."""
    path = tmp_path / "trace.jsonl"
    path.write_bytes(orjson.dumps(ONE) + b"\n")
    return path


@pytest.mark.parametrize("again", ["trace.jsonl", "soft.jsonl", "hard.jsonl"])
def test_a_replay_does_not_write_over_its_trace(trace: Path, again: str) -> None:
    """Under its own name, behind a symbolic link, or under a second name."""
    trace.with_name("soft.jsonl").symlink_to(trace)
    trace.with_name("hard.jsonl").hardlink_to(trace)
    before = trace.read_bytes()
    done = run("replay", "--trace", trace, "--audit", trace.with_name(again))
    assert (2, before) == (done.exit_code, trace.read_bytes())
    assert f"--audit {trace.with_name(again)}: expected another file" in done.stderr


@pytest.mark.parametrize("verb", [("diagram", "--html"), ("bench", "machine", "--keep")])
def test_no_verb_writes_over_the_log_that_it_reads(run_log: Path, verb: tuple[str, ...]) -> None:
    """A page and a mix are made from a log, and lie elsewhere."""
    before = run_log.read_bytes()
    done = run(*verb, run_log, "--log", run_log)
    assert (2, before) == (done.exit_code, run_log.read_bytes())
    assert f"{verb[-1]} {run_log}: expected another file" in done.stderr


def test_a_log_that_is_being_written_is_left_alone(trace: Path, tmp_path: Path) -> None:
    """The second replay is told so; the first one's log is whole, and free once it is closed."""
    path = tmp_path / "a.jsonl"
    with AuditLog(path) as log:
        log.summary(1, held=True)
        before = path.read_bytes()
        done = run("replay", "--trace", trace, "--audit", path)
        assert (2, before) == (done.exit_code, path.read_bytes())
        assert f"stagehold: {path}: somebody else is writing this log\n" == done.stderr
    assert 0 == run("replay", "--trace", trace, "--audit", path).exit_code
    assert b"summary" not in path.read_bytes()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a Linux device")
def test_a_full_disk_is_said_of_the_log(trace: Path) -> None:
    """Not of some file or other."""
    done = run("replay", "--trace", trace, "--audit", "/dev/full")
    assert (2, "stagehold: /dev/full: No space left on device\n") == (done.exit_code, done.stderr)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_replay_that_is_told_to_end_leaves_nothing_but_a_sound_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """In the middle of its ticks: no folder of pages, no thread, the status that shells expect, and no traceback."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    # A runner may ignore these, as one that was told to survive its terminal does.
    signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    passes, one_pass, threads = count(), Replay._pass, threading.active_count()

    def interrupted(self: Replay, *given: Any) -> Any:
        if next(passes) == 20:
            assert [path for path in tmp_path.iterdir() if path.is_dir()]
            signal.raise_signal(number)
        return one_pass(self, *given)

    monkeypatch.setattr(Replay, "_pass", interrupted)
    log = tmp_path / "a.jsonl"
    done = run("replay", "--requests", 30, "--audit", log)
    assert (128 + number, "") == (done.exit_code, done.stderr)
    assert ([log], threads) == (list(tmp_path.iterdir()), threading.active_count())
    assert 0 == run("audit", "verify", log).exit_code
    assert signal.SIG_DFL is signal.getsignal(signal.SIGTERM)


def test_a_reader_that_has_seen_enough_is_no_error(run_log: Path) -> None:
    """`stagehold audit stats LOG | head -1` says nothing on stderr."""
    command = [sys.executable, "-c", "from stagehold.cli.main import app; app()", "audit", "stats", str(run_log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.close()
        assert (b"", 1) == (program.stderr.read(), program.wait())


def test_more_requests_than_anybody_counts_are_refused(trace: Path, tmp_path: Path) -> None:
    """By the option, not by the iterator that takes them."""
    done = run("replay", "--trace", trace, "--audit", tmp_path / "a.jsonl", "--requests", 10**23)
    assert (2, True) == (done.exit_code, "--requests" in done.stderr)


def test_block_ids_that_would_share_tokens_are_refused(trace: Path, tmp_path: Path) -> None:
    """An id of 55 bits would be cut to another one's."""
    trace.write_bytes(orjson.dumps({**ONE, "hash_ids": [1 << 54]}))
    done = run("replay", "--trace", trace, "--audit", tmp_path / "a.jsonl")
    assert (2, f"stagehold: {trace}:1: expected `hash_ids`") == (done.exit_code, done.stderr.partition(", a list")[0])


WRONG_URLS = {
    "http://[": "Invalid IPv6",
    "file:///a%00b": "zero byte",
    "file://{folder}?workers=257": "from 1 to 256",
    "file://{folder}?deadline=" + "9" * 400: "at most 1,000,000",
    "file://{folder}?capacity=" + "9" * 400: "expected a size",
}


@pytest.mark.parametrize("verb", ["check", "bench"])
@pytest.mark.parametrize(("url", "says"), WRONG_URLS.items(), ids=WRONG_URLS.values())
def test_a_wrong_url_is_named_before_anything_is_started(verb: str, url: str, says: str, tmp_path: Path) -> None:
    """No thread, no directory."""
    threads = threading.active_count()
    done = run("store", verb, url.format(folder=tmp_path / "made" / "store"))
    assert (2, True) == (done.exit_code, says in done.stderr)
    assert done.stderr.startswith(f"stagehold: {url[:7]}")
    assert (threads, []) == (threading.active_count(), list(tmp_path.iterdir()))


def test_a_relative_url_is_refused_by_the_bench_as_by_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It writes neither here nor at the root."""
    monkeypatch.chdir(tmp_path)
    done = run("store", "bench", "file:relative")
    assert (2, []) == (done.exit_code, list(tmp_path.iterdir()))
    assert "expected an absolute directory" in done.stderr


def test_a_bench_of_a_store_that_fails_says_how() -> None:
    """The URL, the call and the verdict, in one line."""
    done = run("store", "bench", "sim:?fail=1")
    assert (2, "stagehold: sim:?fail=1: put: FAILED for page 0\n") == (done.exit_code, done.stderr)


WRONG_RUNS = {
    "ttft_ms": 5,
    "ttft_ms_sorted": ["soon"],
    "slowest": {"request": "a"},
    "losses": [1],
    "series": {"seconds": ["x"]},
}


@pytest.mark.parametrize(("field", "value"), WRONG_RUNS.items(), ids=WRONG_RUNS)
def test_a_run_of_the_wrong_form_is_refused_by_its_field(field: str, value: Any, tmp_path: Path) -> None:
    """One line, and no page."""
    names = ("requests", "prompt_tokens", "ideal_hit_tokens", "device_hit_tokens", "store_hit_tokens")
    given, page = tmp_path / "run.json", tmp_path / "report.html"
    given.write_bytes(orjson.dumps({**dict.fromkeys(names, 1), field: value}))
    done = run("report", given, "--out", page)
    assert (2, False) == (done.exit_code, page.exists())
    assert done.stderr.startswith(f"stagehold: {given}: expected `{field}`")


def test_a_title_that_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    """It comes from bytes on the command line that are no UTF-8."""
    given = tmp_path / "run.json"
    assert 0 == run("simulate", "--requests", 1, "--scale", 8, "--out", given).exit_code
    done = run("report", given, "--out", tmp_path / "report.html", "--title", "\udcff")
    assert (2, True) == (done.exit_code, done.stderr.startswith("stagehold: --title"))


WRONG_SIMULATIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "endless steps": (("--step-ms", "inf"), "--step-ms"),
    "steps beyond any clock": (("--step-ms", "1e300"), "--step-ms"),
    "an endless store": (("--store-gb", "inf"), "--store-gb"),
    "an endless link": (("--store-gbps", "inf"), "--store-gbps"),
    "an endless wait": (("--store-latency-ms", "9" * 400), "--store-latency-ms"),
    "more pages than memory": (("--device-pages", "999999999999999"), "--device-pages"),
    "more staging than memory": (("--staging-pages", "999999999999999"), "--staging-pages"),
    "two files in one": (("--out", "same", "--audit", "./same"), "expected another file than the audit log"),
}


@pytest.mark.parametrize(("options", "says"), WRONG_SIMULATIONS.values(), ids=WRONG_SIMULATIONS)
def test_a_simulation_that_cannot_be_is_refused_by_its_option(
    trace: Path, options: tuple[str, ...], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before it begins; nothing is written."""
    monkeypatch.chdir(trace.parent)
    done = run("simulate", "--trace", trace, *options)
    assert (2, [trace]) == (done.exit_code, list(trace.parent.iterdir()))
    assert says in done.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="a Linux device")
def test_a_full_disk_is_said_of_a_run_and_of_a_page(trace: Path, tmp_path: Path) -> None:
    """By its name, too."""
    full = (2, "stagehold: /dev/full: No space left on device\n")
    done = run("simulate", "--trace", trace, "--out", "/dev/full")
    assert full == (done.exit_code, done.stderr)
    given = tmp_path / "run.json"
    run("simulate", "--trace", trace, "--out", given)
    done = run("report", given, "--out", "/dev/full")
    assert full == (done.exit_code, done.stderr)


def test_a_conversion_writes_to_a_pipe_and_leaves_it_one(trace: Path, tmp_path: Path) -> None:
    """What is no file is not put aside for one: a device would be gone from the machine."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    done = run("trace", "convert", trace, pipe)
    assert (0, True) == (done.exit_code, pipe.is_fifo())
    reader.join(timeout=10)
    assert [2] == [len(raw.splitlines()) for raw in read]


def test_a_conversion_touches_no_file_but_its_own(trace: Path) -> None:
    """Neither its source under a name like that of an unfinished file, nor a link to where it writes."""
    source, target, link = (trace.with_name(name) for name in ("new.jsonl.part", "new.jsonl", "link.jsonl"))
    source.write_bytes(trace.read_bytes())
    link.symlink_to(target)
    for out in (target, link):
        done = run("trace", "convert", source, out)
        assert (0, trace.read_bytes()) == (done.exit_code, source.read_bytes())
    assert (True, 2) == (link.is_symlink(), len(target.read_bytes().splitlines()))
    assert {source, target, link, trace} == set(trace.parent.iterdir())


def test_logs_that_differ_in_any_bit_are_told_apart(run_log: Path) -> None:
    """Where both records, or both births, read the same in words, the numbers are told, too."""
    block = next(placed.block for placed in blocks(run_log) if placed.block.records and placed.block.births)
    others = []
    for bit in range(8 * RECORD.itemsize):
        records = bytearray(block.records)
        records[bit // 8] ^= 1 << bit % 8
        others.append(replace(block, records=bytes(records)))
    first, *rest = block.births
    key = replace(first.key, namespace=b"another")
    others.append(replace(block, births=(replace(first, key=key), *rest)))
    for other in others:
        found = parted(block, other)
        assert found is not None
        assert found.expected != found.found
