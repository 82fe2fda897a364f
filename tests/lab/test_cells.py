"""Cells: equal options give equal records, a table goes on where it was, and what a cell cannot be is told."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from stagehold import HostMode
from stagehold.lab import cells
from stagehold.lab.cells import Cell, read, run, run_all
from stagehold.lab.readers.record import TraceRequest
from stagehold.lab.sessions import BETWEEN_SESSIONS_MS, by_users

SMALL = {"trace": "miniswe", "requests": 12, "device_pages": 400, "staging_pages": 400, "options": {"users": 6}}


def test_the_same_cell_gives_the_same_record() -> None:
    """Figures are of the trace's clock, and nothing of this machine is in them."""
    assert run(Cell(**SMALL)) == run(Cell(**SMALL))


def test_a_table_goes_on_where_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three cells two are there, the last line of them cut short: two are run, and the records are those of a whole
    run."""
    wanted = [Cell(**SMALL, seed=seed) for seed in range(3)]
    whole = run_all(wanted, tmp_path / "whole.jsonl")
    out = tmp_path / "cut.jsonl"
    out.write_bytes((tmp_path / "whole.jsonl").read_bytes()[:-300].rpartition(b"\n")[0] + b'\n{"cell":{"tr')
    left, ran = len(read(out)), []
    real = cells.run
    monkeypatch.setattr(cells, "run", lambda cell: ran.append(cell) or real(cell))
    assert (2, whole) == (left, run_all(wanted, out))
    assert [2] == [cell.seed for cell in ran]
    assert whole == list(read(out).values())
    assert whole == run_all(wanted, out)
    assert 1 == len(ran)


def test_processes_change_no_record(tmp_path: Path) -> None:
    """Two processes, the same figures, in the order that was asked for."""
    wanted = [Cell(**SMALL, seed=seed) for seed in range(2)]
    assert run_all(wanted, tmp_path / "one.jsonl") == run_all(wanted, tmp_path / "two.jsonl", processes=2)


def test_a_key_names_all_that_decides_the_figures() -> None:
    """No two of these cells are taken for each other, and the path of a trace is in none."""
    base = Cell(**SMALL)
    others = [
        Cell(**{**SMALL, **change})
        for change in (
            {"trace": "agentic"}, {"requests": 13}, {"policy": "none"}, {"mode": HostMode.CACHE}, {"store_gbps": 1.0},
            {"device_pages": 401}, {"staging_pages": 401}, {"seed": 1}, {"options": {"users": 7}},
        )
    ]  # fmt: skip
    assert len(others) + 1 == len({cell.key() for cell in (base, *others)})
    assert base.key() == Cell(**SMALL, path=Path("somewhere")).key()
    assert orjson.loads(base.key()) == base.plain()


@pytest.mark.parametrize("wrong", [{"options": {"user": 3}}, {"trace": "nowhere"}, {"policy": "best"}])
def test_what_a_cell_cannot_be_is_told(wrong: dict) -> None:
    """At once, with what there is instead."""
    with pytest.raises(ValueError, match=r"it has: |one of conversation|there are: none"):
        Cell(**wrong)


def test_a_file_of_something_else_is_told(tmp_path: Path) -> None:
    """By name and line."""
    (tmp_path / "other.jsonl").write_text('{"cell": {}}\n[1]\n')
    with pytest.raises(ValueError, match=r"other\.jsonl:2: expected the record of a cell"):
        run_all([Cell(**SMALL)], tmp_path / "other.jsonl")


def test_a_file_of_something_else_is_left_as_it_is(tmp_path: Path) -> None:
    """A run or a note without a last newline is no line that was cut short, nor is what a device gives without end."""
    for text in ("to buy: milk", '{"kind": "stagehold-simulation"}', '{"cell": {}}\n{"cell": {\n{"cell', "{}"):
        (tmp_path / "mine").write_text(text)
        with pytest.raises(ValueError, match=r"mine:\d: expected the record of a cell"):
            run_all([Cell(**SMALL)], tmp_path / "mine")
        assert text == (tmp_path / "mine").read_text()
    with pytest.raises(ValueError, match="/dev/zero: expected a file"):
        run_all([Cell(**SMALL)], Path("/dev/zero"))


def test_a_record_of_another_version_is_told(tmp_path: Path) -> None:
    """It lacks a figure that is read now; cells that nobody asked for may lack what they will."""
    out, cell = tmp_path / "old.jsonl", Cell(**SMALL)
    whole = dict.fromkeys(cells.READ, 0)
    del whole["retries"]
    out.write_bytes(orjson.dumps({"cell": cell.plain(), **whole}) + b"\n")

    with pytest.raises(ValueError, match=r"old\.jsonl: expected `retries` in the record of .* begin a new file"):
        run_all([cell], out)
    assert [] == run_all([], out)


def test_users_take_one_session_after_the_other() -> None:
    """Two users, three sessions: the third begins when the first of them to end has ended; long pauses are cut."""
    rows = [("a", 0), ("a", 100_000), ("b", 5_000), ("b", 6_000), ("c", 7_000), ("c", 7_500)]
    trace = [TraceRequest(n, at, 10, 1, (), session=name) for n, (name, at) in enumerate(rows, start=1)]
    dealt = [(one.session, one.arrival_ms) for one in by_users(trace, 2, 10_000)]
    c = 1_000 + BETWEEN_SESSIONS_MS
    assert [("a", 0), ("b", 0), ("b", 1_000), ("c", c), ("c", c + 500), ("a", 10_000)] == dealt
