"""Request traces by path, whatever their format: known by content, read a line at a time, bad lines named.

It owns the list of formats and the order of arrivals. The formats themselves stand in `readers/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from enum import StrEnum
from importlib.resources import files
from pathlib import Path

import orjson

from stagehold.lab.readers import agentic, azure, lmcache, mooncake, own
from stagehold.lab.readers.lines import Lines
from stagehold.lab.readers.record import BLOCK_IDS, BLOCK_TOKENS, TraceError, TraceRequest

__all__ = [
    "BLOCK_IDS",
    "BLOCK_TOKENS",
    "SHIPPED",
    "Format",
    "TraceError",
    "TraceRequest",
    "read_mooncake",
    "read_trace",
    "respaced",
    "shipped_trace",
]

SHIPPED = {
    "conversation": "mooncake/conversation_trace.jsonl.gz",
    "synthetic": "mooncake/synthetic_trace.jsonl.gz",
    "agentic": "agentic/sessions.jsonl.gz",
    "miniswe": "lmcache/miniswe_smollm2_blk16.jsonl.gz",
}
"""The traces that come with the package, by name."""


class Format(StrEnum):
    """What a trace file may be."""

    MOONCAKE = "mooncake"
    AGENTIC = "agentic"
    LMCACHE = "lmcache"
    AZURE = "azure"
    STAGEHOLD = "stagehold"


READERS: dict[Format, Callable[[Lines], Iterator[TraceRequest]]] = {
    Format.MOONCAKE: mooncake.read,
    Format.AGENTIC: agentic.read,
    Format.LMCACHE: lmcache.read,
    Format.AZURE: azure.read,
    Format.STAGEHOLD: own.read,
}

MARKS = {
    "hash_ids": Format.MOONCAKE,
    "block_ids": Format.LMCACHE,
    "requests": Format.AGENTIC,
    "format": Format.STAGEHOLD,
}
"""A field that only this format has in the first object of a file."""


def shipped_trace(name: str = "conversation") -> Path:
    """Where a trace that comes with the package lies; KeyError where none of that name does."""
    return Path(str(files("stagehold.lab") / "data" / SHIPPED[name]))


def read_trace(path: Path, format: Format | None = None) -> Iterator[TraceRequest]:  # noqa: A002
    """The requests of a file in order of arrival; the format is known by the first line where none is given.

    Plain, gzip or zstd; blank lines are passed over. `TraceError` at the first line that is wrong, when it is reached.
    """
    lines = Lines(path)
    last_ms = 0
    for request in READERS[format or _detected(lines)](lines):
        if request.arrival_ms < last_ms:
            raise lines.error(f"a timestamp that is not before the last one, {last_ms}", str(request.arrival_ms))
        last_ms = request.arrival_ms
        yield request


def read_mooncake(path: Path) -> Iterator[TraceRequest]:
    """`read_trace` of a file that must be in the Mooncake format."""
    return read_trace(path, Format.MOONCAKE)


def respaced(requests: Iterable[TraceRequest], every_ms: int) -> list[TraceRequest]:
    """The same requests with a session begun every `every_ms`, in the order of their first requests, as a list.

    A request that names no session is a session of its own.
    """
    starts: dict[str, tuple[int, int]] = {}
    moved = []
    for number, request in enumerate(requests):
        name = request.session or f"\0{number}"
        first, start = starts.setdefault(name, (request.arrival_ms, len(starts) * every_ms))
        moved.append(replace(request, arrival_ms=start + request.arrival_ms - first))
    return sorted(moved, key=lambda request: request.arrival_ms)


def _detected(lines: Lines) -> Format:
    raw = lines.first()
    if raw is None:
        return Format.MOONCAKE  # nothing to read is nothing in every format
    if azure.is_header(raw):
        return Format.AZURE
    try:
        record = orjson.loads(raw)
    except orjson.JSONDecodeError:
        record = None
    for mark, found in MARKS.items():
        if isinstance(record, dict) and mark in record:
            return found
    known = ", ".join(Format)
    raise lines.error(f"the first line of one of {known}", repr(raw[:40].decode("utf-8", "replace")))
