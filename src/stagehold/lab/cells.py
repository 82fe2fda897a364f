"""One cell of a table: a simulation told in plain options, its figures as one JSON object, and many of them in a file.

It owns the names of the options and the file: a line a cell, keyed by what the cell was asked for. A cell whose key
stands there already is not run again, so that a table that was interrupted goes on where it was; after a change of
the engine, begin a new file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any

import orjson

from stagehold import HostMode, Limits
from stagehold.lab.expand import Scale
from stagehold.lab.policies.shipped import policy_named
from stagehold.lab.simulate import Simulation, SimulationOptions
from stagehold.lab.simulate_report import faults, figures
from stagehold.lab.traces import SHIPPED, Format, shipped_trace
from stagehold.lab.virtual_costs import AcceleratorName, ModelName, device_tokens, preset
from stagehold.lab.virtual_store import LinkSpeed
from stagehold.lab.workers import workers

PLAIN = ("page_size", "token_budget", "running_limit", "steps_per_pass", "users", "longest_pause_s", "pin_fraction",
         "belady", "store", "strict")  # fmt: skip
"""Options that a simulation takes as they stand."""

DEFAULTS: Mapping[str, Any] = {
    "model": "llama-3.1-8b",
    "accelerator": "h100",
    "accelerators": 4,
    "prefill_rate": None,
    "step_ms": None,
    "format": None,
    "scale": 512,
    "store_latency_ms": [0.5, 2.0],
    "store_gb": 0.0,
    "limits": {},
    "settings": {},
}
"""Further options, and what holds where a cell does not name them; `limits` and `settings` by the engine's names.

A `prefill_rate`, in tokens a second, and `step_ms` go before what the accelerators would do.
"""

READ = ("requests", "ideal_hit_tokens", "device_hit_tokens", "store_hit_tokens", "delivered_hit_tokens",
        "phantom_hit_tokens", "read_tokens", "wasted_read_tokens", "read_bytes", "written_bytes", "retries", "losses",
        "ttft_ms", "digest", "faults")  # fmt: skip
"""Figures that are read from records by those who asked for cells."""

BEGINS = b'{"cell":'
"""Every line."""

OnCell = Callable[[int, int, dict[str, Any]], None]
"""Called with (cells done, cells in all, the last one's record)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What to simulate. `device_pages` and `staging_pages` are the memory of both tiers in pages.

    `trace` is the name of a shipped trace, or any name with its file in `path`; the path is no part of the key.
    `requests`: the first so many; None: all. `options` has further ones by name, see `PLAIN` and `DEFAULTS`.
    """

    trace: str = "conversation"
    path: Path | None = None
    requests: int | None = None
    policy: str = "live"
    mode: HostMode = HostMode.BUFFER_ONLY
    store_gbps: float = 20.0
    device_pages: int = 8192
    staging_pages: int = 9830
    seed: int = 0
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.options) - set(PLAIN) - set(DEFAULTS))
        if unknown:
            known = ", ".join(sorted((*PLAIN, *DEFAULTS)))
            raise ValueError(f"a cell has no option {', '.join(unknown)}; it has: {known}")
        if self.path is None and self.trace not in SHIPPED:
            raise ValueError(f"no trace {self.trace!r} is shipped; give its file, or one of {', '.join(SHIPPED)}")
        policy_named(self.policy)

    def plain(self) -> dict[str, Any]:
        """All that decides the figures, as JSON can hold it."""
        named = {name: getattr(self, name) for name in self.__slots__ if name not in ("path", "options")}
        return {**named, "mode": str(self.mode), "options": dict(sorted(self.options.items()))}

    def key(self) -> str:
        """The same as text: equal for equal cells."""
        return orjson.dumps(self.plain(), option=orjson.OPT_SORT_KEYS).decode()

    def simulation(self) -> SimulationOptions:
        """The options of its simulation."""
        chosen = {**DEFAULTS, **self.options}
        model, accelerator = ModelName(chosen["model"]), AcceleratorName(chosen["accelerator"])
        least, most = chosen["store_latency_ms"]
        cost = preset(model, accelerator, chosen["accelerators"])
        return SimulationOptions(
            cost=replace(
                cost,
                prefill_tokens_per_second=chosen["prefill_rate"] or cost.prefill_tokens_per_second,
                step_ms=chosen["step_ms"] or cost.step_ms,
            ),
            device_tokens=device_tokens(model, accelerator, chosen["accelerators"]),
            trace=self.path or shipped_trace(self.trace),
            trace_format=None if chosen["format"] is None else Format(chosen["format"]),
            requests=self.requests,
            scale=Scale(chosen["scale"]),
            device_pages=self.device_pages,
            staging_pages=self.staging_pages,
            mode=self.mode,
            policy=policy_named(self.policy),
            link=LinkSpeed(self.store_gbps * 1e9, (least, most)),
            store_bytes=ceil(chosen["store_gb"] * 1e9),
            limits=Limits(**chosen["limits"]),
            settings=chosen["settings"],
            seed=self.seed,
            **{name: self.options[name] for name in PLAIN if name in self.options},
        )


def run(cell: Cell) -> dict[str, Any]:
    """Simulate one cell: its options under `cell`, then its figures, and `faults`, which must be none.

    The same cell gives the same object. What a simulation raises comes out.
    """
    simulation = Simulation(cell.simulation())
    found = figures(simulation, simulation.run())
    return {"cell": cell.plain(), **found, "faults": faults(found)}


def run_all(
    cells: Sequence[Cell], out: Path, processes: int = 1, progress: OnCell | None = None
) -> list[dict[str, Any]]:
    """The records of all cells, in their order; those that `out` lacks are run, and added to it as they come.

    With more than one of `processes` the lines may stand in any order; the records are the same. `ValueError` where
    `out` is another kind of file, or has a record of a cell that is wanted and lacks figures, as of another version.
    """
    known = read(out)
    for cell in cells:
        absent = [name for name in READ if name not in known.get(cell.key(), READ)]
        if absent:
            raise ValueError(f"{out}: expected `{absent[0]}` in the record of {cell.key()}; begin a new file")
    missing = list({cell.key(): cell for cell in cells if cell.key() not in known}.values())
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("ab") as lines:
        for record in _records(missing, processes):
            lines.write(orjson.dumps(record) + b"\n")
            lines.flush()
            known[_key(record)] = record
            if progress is not None:
                progress(len(cells) - sum(cell.key() not in known for cell in cells), len(cells), record)
    return [known[cell.key()] for cell in cells]


def read(out: Path) -> dict[str, dict[str, Any]]:
    """The records of a file by key; none where there is no file. A last line that was cut short is cut away.

    `ValueError` at a line that is no record, and then the file is left as it is.
    """
    if not out.exists():
        return {}
    if not out.is_file():
        raise ValueError(f"{out}: expected a file that has the record of a cell in each line")
    *whole, torn = out.read_bytes().split(b"\n")
    found = {}
    for number, line in enumerate(whole, start=1):
        try:
            record = orjson.loads(line)
            found[_key(record)] = record
        except (orjson.JSONDecodeError, KeyError, TypeError) as error:
            raise _no_record(out, number, line) from error
    if torn:
        if torn[: len(BEGINS)] != BEGINS[: len(torn)]:
            raise _no_record(out, len(whole) + 1, torn)
        with out.open("r+b") as file:
            file.truncate(out.stat().st_size - len(torn))
    return found


def _no_record(out: Path, number: int, line: bytes) -> ValueError:
    return ValueError(f"{out}:{number}: expected the record of a cell, found {line[:40]!r}")


def _key(record: dict[str, Any]) -> str:
    return orjson.dumps(record["cell"], option=orjson.OPT_SORT_KEYS).decode()


def _records(cells: Sequence[Cell], processes: int) -> Iterator[dict[str, Any]]:
    if processes == 1 or len(cells) < 2:
        yield from map(run, cells)
        return
    with workers(min(processes, len(cells))) as pool:
        for done in as_completed([pool.submit(run, cell) for cell in cells]):
            yield done.result()
