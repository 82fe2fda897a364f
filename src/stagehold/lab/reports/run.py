"""A run as the report reads it: figures by name, and if they were sampled, columns over time.

It owns what a run must have to be reported on. `stagehold simulate --out` writes all of it, `stagehold replay --out`
the figures; whoever has other runs makes an object with the same names.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

NEEDED = ("requests", "prompt_tokens", "ideal_hit_tokens", "device_hit_tokens", "store_hit_tokens")
"""Whole numbers that every run has. `losses` maps reasons to tokens; all else is shown where it is there."""


class RunError(ValueError):
    """A run that cannot be reported on: its name, what was expected and found."""

    def __init__(self, name: str, expected: str, found: object) -> None:
        shown = repr(found)
        super().__init__(f"{name}: expected {expected}, found {shown if len(shown) <= 60 else shown[:57] + '...'}")


@dataclass(frozen=True, slots=True)
class Run:
    """One run: the name it goes by on the page, its figures, its columns (all of one length, `seconds` among them)."""

    name: str
    found: Mapping[str, Any]
    series: Mapping[str, list[float]]

    def number(self, name: str) -> float:
        """A figure; 0 where the run has none of that name."""
        value = self.found.get(name, 0)
        return value if isinstance(value, int | float) else 0

    def has(self, name: str) -> bool:
        """Whether the run says anything of that figure."""
        return self.found.get(name) is not None

    @property
    def hits(self) -> int:
        """Hit tokens of both tiers."""
        return int(self.number("device_hit_tokens") + self.number("store_hit_tokens"))

    @property
    def losses(self) -> dict[str, int]:
        """Tokens by the reason for which they were lost, the largest first."""
        found: dict[str, int] = self.found.get("losses", {})
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0])))

    @property
    def waits(self) -> Mapping[str, float]:
        """Times to first token in ms by rank: `p50`, `p95`, ...; empty where they are not known."""
        found: Mapping[str, float] = self.found.get("ttft_ms") or {}
        return found


def read_run(path: Path) -> Run:
    """The run in a file, by the file's name. `RunError` where it is none; `OSError` where it cannot be read."""
    return as_run(path.stem, _object(path), str(path))


def read_runs(path: Path) -> list[Run]:
    """The run in a file, or where it has an object of runs by name, as `replay --modes` writes it, all of them."""
    found = _object(path)
    if isinstance(found, dict) and found and all(isinstance(one, dict) for one in found.values()):
        return [as_run(f"{path.stem}: {name}", one, f"{path}: {name}") for name, one in found.items()]
    return [as_run(path.stem, found, str(path))]


def _object(path: Path) -> object:
    try:
        return orjson.loads(path.read_bytes())
    except orjson.JSONDecodeError as error:
        raise RunError(str(path), "a run as one JSON object", str(error)) from error


def as_run(name: str, found: object, place: str = "") -> Run:
    """An object as a run; `place` is what errors call it."""
    place = place or name
    if not isinstance(found, dict):
        raise RunError(place, "a run as one JSON object", found)
    for field in NEEDED:
        value = found.get(field)
        if type(value) is not int or value < 0:
            raise RunError(place, f"`{field}`, a whole number, as `stagehold simulate --out` writes it", value)
    losses = found.get("losses", {})
    if not isinstance(losses, dict) or not all(type(tokens) is int for tokens in losses.values()):
        raise RunError(place, "`losses`, tokens by reason", losses)
    _refuse_what_cannot_be_shown(place, found)
    return Run(name, found, _columns(place, found.get("series") or {}))


def _refuse_what_cannot_be_shown(place: str, found: Mapping[str, Any]) -> None:
    """Times and slowest requests need not be there, but are of one form."""
    waits, times, slowest = (found.get(name) for name in ("ttft_ms", "ttft_ms_sorted", "slowest"))
    if waits and not (isinstance(waits, dict) and _numbers(waits.values())):
        raise RunError(place, "`ttft_ms`, milliseconds by rank", waits)
    if times and not (isinstance(times, list) and _numbers(times)):
        raise RunError(place, "`ttft_ms_sorted`, a list of milliseconds", times)
    if slowest and not (isinstance(slowest, list) and all(map(_is_request, slowest))):
        raise RunError(place, "`slowest`, a list of requests with their numbers", slowest)


def _is_request(row: object) -> bool:
    return isinstance(row, dict) and _numbers(value for name, value in row.items() if name != "request")


def _numbers(values: Iterable[object]) -> bool:
    return all(isinstance(value, int | float) for value in values)


def _columns(place: str, series: object) -> dict[str, list[float]]:
    if not isinstance(series, dict) or (series and "seconds" not in series):
        raise RunError(place, "`series`, columns by name, one of them `seconds`", series)
    lengths = {len(column) if isinstance(column, list) else -1 for column in series.values()}
    if len(lengths) > 1 or -1 in lengths:
        raise RunError(place, "`series` of columns of one length", sorted(lengths))
    if not all(isinstance(value, int | float) for column in series.values() for value in column):
        raise RunError(place, "`series` of numbers", "something else")
    return series
