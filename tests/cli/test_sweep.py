"""`stagehold sweep`, as people and programs run it."""

from __future__ import annotations

import json
import os
import signal
from multiprocessing import active_children
from pathlib import Path
from threading import Thread

import pytest
import typer
from typer.testing import CliRunner, Result

from stagehold.cli.main import app
from stagehold.cli.sweep import pairs
from stagehold.lab.cell_options import known_as, names

SMALL = ("--trace", "miniswe", "--requests", 10, "--users", 6, "--device-pages", 300, "--staging-pages", 200)


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["sweep", *(str(a) for a in arguments)])


def test_a_table_a_file_and_a_page(tmp_path: Path) -> None:
    """A line for each cell with ratios to the first one; the file goes on, and makes a page, now or later."""
    out, page = tmp_path / "s.jsonl", tmp_path / "s.html"
    asked = (*SMALL, "--store-gbps=0.05,20", "--mode", "cache", "--out", out)
    done = run(*asked, "--report", page)
    written = out.read_bytes()
    out.write_bytes(written[:-100])
    again = run(*asked, "--json")
    found = json.loads(again.stdout)
    later = CliRunner().invoke(app, ["report", str(out), "--out", str(tmp_path / "later.html")])

    assert 0 == done.exit_code, done.output
    heads, first, second, last = done.stdout.splitlines()
    assert ["store_gbps", "hits", "of", "ideal"] == heads.split()[:4]
    assert ("0.05", "20") == (first.split()[0], second.split()[0])
    assert f"2 cells in {out}, page {page}" == last
    assert written == out.read_bytes()
    assert {"store_gbps": [0.05, 20.0]} == found["varied"]
    assert ["store_gbps=0.05", "store_gbps=20"] == [cell["name"] for cell in found["cells"]]
    assert [json.loads(line)["digest"] for line in written.splitlines()] == [cell["digest"] for cell in found["cells"]]
    assert 0 == later.exit_code, later.output
    for html in (page, tmp_path / "later.html"):
        assert "By store_gbps" in html.read_text()


def test_where_the_first_cell_hits_nothing_there_is_no_ratio(tmp_path: Path) -> None:
    """A single request has nothing to hit; its time to first token is its own."""
    (tmp_path / "t.jsonl").write_text('{"timestamp": 0, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}')
    done = run("--trace", tmp_path / "t.jsonl", "--device-pages", 20, "--staging-pages", 20, "--out", tmp_path / "s")

    assert 0 == done.exit_code, done.output
    hits, ratio, _, of_itself, *_ = done.stdout.splitlines()[1].split()
    assert ("none", "-", "1.00") == (hits, ratio, of_itself)


def test_any_option_of_a_simulation_can_be_swept() -> None:
    """By the same name; but for what is written, what is measured, and what `--policy none` and `--store false` say."""
    of_simulate = {name for command in typer.main.get_command(app).commands["simulate"].params for name in command.opts}
    others = {"--calibrate", "--tier", "--no-store", "--audit", "--out", "--json"}

    assert set() == {name for name in of_simulate - others if known_as(name[2:].replace("-", "_")) not in names()}
    assert {"retry_max_reissues": "1,2"} == pairs(["--retries", "1,2"])


def test_the_options_can_be_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with what it means; nothing is run."""
    monkeypatch.chdir(tmp_path)
    done = run("--options")

    assert 0 == done.exit_code
    for name in ("--store-gbps", "--host-gb", "--prefetch-policy", "--fetch-limit"):
        assert f"\n{name} " in done.stdout
    assert [] == list(tmp_path.iterdir())


def test_a_worker_that_is_gone_is_told_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: as when the kernel ends one that has taken too much memory."""
    pids: list[int] = []
    start = Thread.start

    def shot(thread: Thread) -> None:
        start(thread)
        for child in active_children():
            if child.pid not in pids:
                pids.append(child.pid)
                os.kill(child.pid, signal.SIGKILL)

    monkeypatch.setattr(Thread, "start", shot)
    done = run(*SMALL, "--seed", "1,2", "--processes", 2, "--out", tmp_path / "s.jsonl")

    assert 1 == done.exit_code, done.output
    assert pids
    assert done.stderr.startswith("stagehold: a worker was ended from outside")


def test_a_full_disk_is_told_with_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is written there is on no disk; the error of a write names no file by itself."""
    (tmp_path / "s.jsonl").symlink_to("/dev/full")
    monkeypatch.setattr("stagehold.lab.cells.read", lambda _out: {})
    done = run(*SMALL, "--out", tmp_path / "s.jsonl")

    assert 2 == done.exit_code
    assert f"stagehold: {tmp_path / 's.jsonl'}: No space left on device\n" == done.stderr


def test_a_fault_is_said_and_ends_with_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: a cell with phantoms fails the command, after its figures were printed."""
    monkeypatch.setattr("stagehold.lab.cells.faults", lambda _found: ["7 phantom hit tokens"])
    done = run(*SMALL, "--json", "--out", tmp_path / "s.jsonl")

    assert 1 == done.exit_code
    assert done.stderr.startswith("stagehold: 7 phantom hit tokens, in {'trace': 'miniswe'")
    assert 1 == len(json.loads(done.stdout)["cells"])


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--store-gbps", "1,fast"], "--store-gbps fast: expected a valid number"),
        (["--store-gpbs", "1"], "--store-gpbs: expected --store-gbps"),
        (["--store-gbps"], "--store-gbps: expected a value, or several with commas"),
        (["gbps", "3"], "gbps: expected an option such as --store-gbps 1,5,20"),
        (["--seed", "1", "--seed=2"], "--seed=2: expected once, with commas between its values"),
        (["--device-pages", "10"], "no such request could ever run"),
        (["--out", "{t}/other"], "other:1: expected the record of a cell"),
        (["--trace", "{t}/other"], "other:1: expected the first line of one of"),
        (["--trace", "{t}/other", "--out", "{t}/other"], "expected another file than"),
    ],
)
def test_bad_input_is_one_line(tmp_path: Path, arguments: list[str], told: str) -> None:
    """Exit status 2; the option is named, and what was expected."""
    (tmp_path / "other").write_text("[1]\n")
    base = dict(zip(SMALL[::2], SMALL[1::2], strict=True)) | {"--out": tmp_path / "s.jsonl"}
    given = [argument.replace("{t}", str(tmp_path)) for argument in arguments]
    kept = [word for name, text in base.items() if name not in given for word in (name, text)]
    done = run(*kept, *given)

    assert 2 == done.exit_code, done.output
    assert told in done.stderr
    assert 1 == done.stderr.count("\n")
