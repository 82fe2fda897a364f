"""Runs that are cells of one table: named by what differs between them, and drawn over each option that is a number.

It owns the names and the charts of such a table; each run by itself is the page's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from stagehold.lab.reports.charts import COLOURS, Axes, Line, lines
from stagehold.lab.reports.page import Extra, Where
from stagehold.lab.reports.run import Run, RunError, as_run, read_runs

LOG_FROM = 8
"""An axis whose ends differ by that factor is logarithmic."""
FIGURES: tuple[tuple[str, str, Callable[[Run], float]], ...] = (
    ("Hits of ideal", "%", lambda run: 100 * run.hits / (run.number("ideal_hit_tokens") or 1)),
    ("First token, half of them within", "ms", lambda run: run.waits.get("p50", 0)),
    ("First token, 95 % within", "ms", lambda run: run.waits.get("p95", 0)),
    ("Bytes read", "GB", lambda run: run.number("read_bytes") / 1e9),
)


def read_all(path: Path) -> list[Run]:
    """The runs of a file, whether it has a cell a line or runs of another kind. `RunError` where it has none."""
    first = path.read_bytes().partition(b"\n")[0]
    try:
        found = orjson.loads(first)
    except orjson.JSONDecodeError:
        found = None  # an object over several lines is no table
    return read_cells(path) if isinstance(found, dict) and "cell" in found else read_runs(path)


def read_cells(path: Path) -> list[Run]:
    """The runs of a file with a cell a line. `RunError` where a line is none; `OSError` where it cannot be read.

    A line that stands there again, as where two sweeps wrote it, is no other run.
    """
    records: dict[bytes, Any] = {}
    for number, line in enumerate(path.read_bytes().splitlines(), start=1):
        try:
            records[line] = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            raise RunError(f"{path}:{number}", "a cell as one JSON object", str(error)) from error
    return runs_of(list(records.values()), str(path))


def runs_of(records: Sequence[Any], place: str) -> list[Run]:
    """Records as runs, in their order, each by the options that are not the same in all."""
    cells = [_flat(record.get("cell") if isinstance(record, dict) else record, place) for record in records]
    names = list(dict.fromkeys(name for cell in cells for name in cell))
    varied = [name for name in names if len({cell.get(name) for cell in cells}) > 1]
    return [
        as_run(_name(cell, varied) or f"cell {at}", record, f"{place}:{at}")
        for at, (cell, record) in enumerate(zip(cells, records, strict=True), start=1)
    ]


def extras(runs: Sequence[Run]) -> list[Extra]:
    """A section for every option that is a number and has several values."""
    cells = [_flat(run.found.get("cell"), run.name) if run.has("cell") else {} for run in runs]
    names = list(dict.fromkeys(name for cell in cells for name in cell))
    varied = [name for name in names if len({cell.get(name) for cell in cells}) > 1]
    return [
        Extra(
            f"By {name}", "".join(_over(name, [one for one in varied if one != name], cells, runs)), Where.BEFORE_RUNS
        )
        for name in varied
        if all(type(cell.get(name)) in (int, float) for cell in cells)
    ]


def _over(name: str, others: Sequence[str], cells: Sequence[Mapping[str, Any]], runs: Sequence[Run]) -> Iterator[str]:
    """A chart for each figure over one option; a curve for each combination of the others."""
    groups: dict[str, list[tuple[float, Run]]] = {}
    for cell, run in zip(cells, runs, strict=True):
        groups.setdefault(_name(cell, others) or "all", []).append((cell[name], run))
    shown = dict(list(groups.items())[:COLOURS])
    if len(shown) < len(groups):
        yield f"<p>The first {len(shown)} of {len(groups)} combinations are drawn.</p>"
    xs = [x for found in shown.values() for x, _ in found]
    log = min(xs) > 0 and max(xs) >= LOG_FROM * min(xs)
    yield '<div class="charts">'
    for title, unit, figure in FIGURES:
        drawn = []
        for group, found in shown.items():
            points = sorted((x, figure(run)) for x, run in found)
            drawn.append(Line(group, [x for x, _ in points], [y for _, y in points]))
        most = 100 if unit == "%" else None
        yield lines(title, Axes(name, unit, log=log, most=most), drawn, dots=True)
    yield "</div>"


def _name(cell: Mapping[str, Any], varied: Sequence[str]) -> str:
    return " ".join(f"{name}={_told(cell.get(name))}" for name in varied)


def _told(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else f"{value}"


def _flat(cell: object, place: str) -> dict[str, Any]:
    """The options of a cell, those within others among them, as values that can be compared."""
    if not isinstance(cell, dict):
        raise RunError(place, "`cell`, the options that it was asked for", cell)
    found: dict[str, Any] = {}
    for name, value in cell.items():
        if isinstance(value, dict):
            found |= _flat(value, place)
        else:
            found[name] = "-".join(map(str, value)) if isinstance(value, list) else value
    return found
