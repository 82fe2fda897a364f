"""Runs that are cells of one table: their names, and what is drawn over each option that is a number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import orjson
import pytest

from stagehold.lab.reports.page import page
from stagehold.lab.reports.run import RunError
from stagehold.lab.reports.swept import extras, read_all, read_cells, runs_of

FOUND: dict[str, Any] = {
    "requests": 4,
    "prompt_tokens": 1000,
    "ideal_hit_tokens": 500,
    "device_hit_tokens": 100,
    "store_hit_tokens": 0,
}


def record(**cell: Any) -> dict[str, Any]:
    """A cell with its figures: the faster the link, the more is hit."""
    return {**FOUND, "cell": cell, "store_hit_tokens": round(10 * cell.get("store_gbps", 1))}


TABLE = [
    record(trace="t", store_gbps=gbps, mode=mode, options={"limits": {"tries": 3}, "store_latency_ms": [1, 2]})
    for gbps in (0.5, 2.0, 40.0)
    for mode in ("cache", "buffer_only")
]


def test_a_run_is_named_by_what_differs() -> None:
    """Options that are the same in all are in no name, wherever in the cell they stand."""
    names = [run.name for run in runs_of(TABLE, "x")]
    limits = runs_of([record(options={"limits": {"tries": tries}}) for tries in (1, 2)], "x")

    assert ["store_gbps=0.5 mode=cache", "store_gbps=0.5 mode=buffer_only"] == names[:2]
    assert "store_gbps=40 mode=buffer_only" == names[-1]
    assert ["tries=1", "tries=2"] == [run.name for run in limits]
    assert ["cell 1"] == [run.name for run in runs_of(TABLE[:1], "x")]


def test_a_line_that_stands_there_twice_is_one_run(tmp_path: Path) -> None:
    """Two sweeps at a time write every cell twice."""
    lines = [orjson.dumps(one) + b"\n" for one in TABLE]
    (tmp_path / "s.jsonl").write_bytes(b"".join(lines[:2] + lines))

    assert [run.name for run in runs_of(TABLE, "x")] == [run.name for run in read_cells(tmp_path / "s.jsonl")]


def test_each_number_has_its_charts() -> None:
    """A curve for each combination of the other options, every value marked, the axis logarithmic where it is long."""
    runs = runs_of(TABLE[::-1], "x")
    (by,) = extras(runs)
    hits = by.html.partition("</figure>")[0]

    assert "By store_gbps" == by.title
    assert 2 == hits.count('class="line ')
    assert 6 == hits.count("<circle")
    assert ["mode=buffer_only", "mode=cache"] == re.findall(r"</i>([^<]+)</span>", hits)
    assert ">10</text>" in hits
    dots = [(float(x), float(y)) for x, y in re.findall(r'dot s0" cx="([\d.]+)" cy="([\d.]+)"', hits)]
    assert sorted(dots, key=lambda dot: (dot[0], -dot[1])) == sorted(dots, key=lambda dot: -dot[1]) == dots
    text = page(runs, extras=[by])
    assert text.index("By store_gbps") < text.index("<summary>store_gbps=0.5 mode=cache")


def test_too_many_combinations_are_said() -> None:
    """More curves than colours would tell nobody anything."""
    runs = runs_of([record(store_gbps=gbps, seed=seed) for gbps in (1.0, 2.0) for seed in range(7)], "x")
    by = {extra.title: extra.html for extra in extras(runs)}

    assert "The first 6 of 7 combinations are drawn." in by["By store_gbps"]
    assert "combinations" not in by["By seed"]


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (b"{", "c.jsonl:2: expected a cell as one JSON object"),
        (b"[1]", "expected `cell`, the options that it was asked for"),
        (b'{"cell":{"seed":2}}', "c.jsonl:2: expected `requests`, a whole number"),
    ],
)
def test_a_line_that_is_no_cell_is_refused(tmp_path: Path, line: bytes, told: str) -> None:
    """By file and line."""
    path = tmp_path / "c.jsonl"
    path.write_bytes(orjson.dumps(record(seed=1)) + b"\n" + line + b"\n")

    with pytest.raises(RunError, match=re.escape(told)):
        read_cells(path)


def test_a_file_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    """A table by its first line, whatever its name; one object is a run, over however many lines."""
    path = tmp_path / "x"
    path.write_bytes(b"".join(orjson.dumps(one) + b"\n" for one in TABLE))
    table = read_all(path)
    for option in (0, orjson.OPT_INDENT_2):
        path.write_bytes(orjson.dumps(FOUND, option=option))
        assert ["x"] == [run.name for run in read_all(path)]

    assert 6 == len(table)
