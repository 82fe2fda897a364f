"""This project's own format: JSON lines, a header first, then a request a line in order of arrival.

The header is `{"format": "stagehold-trace", "version": 1, "block_tokens": 64}`. A request has `arrival_ms`,
`prompt_tokens`, `output_tokens`, and where it is known `blocks` as [[start, length], ...] and `session`. The blocks
are the leading ones of the prompt; the last may be partial, and tokens behind the last are this request's alone.
"""

from __future__ import annotations

import gzip
from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from os import getpid
from pathlib import Path
from typing import Any, Literal

import orjson

from stagehold.lab.readers import fields
from stagehold.lab.readers.lines import Lines
from stagehold.lab.readers.record import ARRIVAL_MS_MAX, BLOCK_TOKENS_MAX, TraceError, TraceRequest

NAME, VERSION = "stagehold-trace", 1


def read(lines: Lines) -> Iterator[TraceRequest]:
    """The requests in the order of the file."""
    block: int | None = None
    for raw in lines:
        record = fields.parsed(lines, raw)
        if block is None:
            block = _header(lines, record)
            continue
        unknown = sorted(record.keys() - {"arrival_ms", "prompt_tokens", "output_tokens", "blocks", "session"})
        if unknown:
            raise lines.error("fields of a request only", fields.short(unknown))
        prompt = fields.count(lines, record, "prompt_tokens", least=0)
        answer = fields.count(lines, record, "output_tokens", least=0)
        arrival = fields.count(lines, record, "arrival_ms", least=0, most=ARRIVAL_MS_MAX)
        session = fields.text(lines, record, "session")
        spans = fields.ranges(lines, {"blocks": [], **record}, "blocks", least=0, most=-(-prompt // block))
        blocks = tuple(chain.from_iterable(spans))
        yield TraceRequest(lines.line, arrival, prompt, answer, blocks, block, session)


def _header(lines: Lines, record: fields.Fields) -> int:
    if record.get("format") != NAME or record.get("version") != VERSION:
        raise lines.error(f'a header with "format": "{NAME}" and "version": {VERSION}', fields.short(dict(record)))
    return fields.count(lines, record, "block_tokens", least=1, most=BLOCK_TOKENS_MAX)


def write(requests: Iterable[TraceRequest], path: Path) -> int:
    """Write a trace to `path`, gzip where its name ends so; returns how many requests.

    The file appears when it is whole; what is no file, as a pipe or a device, is written to as it stands.
    `TraceError` where the requests' blocks are not all of one size: a file has one.
    """
    if path.exists() and not path.is_file():
        return _fill(requests, path, "wb", path)
    part = path.with_name(f"{path.name}.{getpid()}.part")
    try:
        written = _fill(requests, part, "xb", path)
        part.replace(path.resolve())
    except FileExistsError:
        raise  # somebody else's file lies there
    except BaseException:
        part.unlink(missing_ok=True)
        raise
    return written


def _fill(requests: Iterable[TraceRequest], target: Path, mode: Literal["wb", "xb"], named: Path) -> int:
    with gzip.open(target, mode) if named.suffix == ".gz" else target.open(mode) as out:
        written = sum(out.write(line) > 0 for line in _lines(requests, named))
    return max(0, written - 1)


def _lines(requests: Iterable[TraceRequest], path: Path) -> Iterator[bytes]:
    block: int | None = None
    for request in requests:
        if block is None:
            block = request.block_tokens
            yield orjson.dumps({"format": NAME, "version": VERSION, "block_tokens": block}) + b"\n"
        if request.block_tokens != block:
            raise TraceError(path, 0, f"blocks of {block} tokens throughout", f"one of {request.block_tokens}")
        yield orjson.dumps(_record(request)) + b"\n"


def _record(request: TraceRequest) -> dict[str, Any]:
    record: dict[str, Any] = {
        "arrival_ms": request.arrival_ms,
        "prompt_tokens": request.prompt_tokens,
        "output_tokens": request.output_tokens,
    }
    if request.blocks:
        record["blocks"] = as_ranges(request.blocks)
    if request.session:
        record["session"] = request.session
    return record


def as_ranges(blocks: Sequence[int]) -> list[list[int]]:
    """Ids as [[start, length], ...], consecutive ones together."""
    spans: list[list[int]] = []
    for block in blocks:
        if spans and block == sum(spans[-1]):
            spans[-1][1] += 1
        else:
            spans.append([block, 1])
    return spans
