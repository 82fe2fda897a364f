"""Reads request traces in the Mooncake format, a line at a time, and says where a bad line is.

It owns the file format: JSON lines with `timestamp` (milliseconds), `input_length`, `output_length` (tokens)
and `hash_ids` (one per block of 512 prompt tokens, the last block partial), plain or gzipped. It never
invents a token.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO, cast

import orjson

BLOCK_TOKENS = 512
BLOCK_IDS = 1 << 54
"""Bound of block ids: an id and a position in its block, 10 bits of it, are made one number of 64 bits."""
GZIP_MAGIC = b"\x1f\x8b"
SHIPPED = "mooncake/conversation_trace.jsonl.gz"


class TraceError(ValueError):
    """A trace that cannot be read: file, line (from 1; 0: the whole file), what was expected and found."""

    def __init__(self, path: Path, line: int, expected: str, found: str) -> None:
        place = f"{path}:{line}" if line else str(path)
        super().__init__(f"{place}: expected {expected}, found {found}")
        self.path = path
        self.line = line


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """One request of a trace: line, arrival in milliseconds, lengths in tokens, ids of its prompt blocks."""

    line: int
    arrival_ms: int
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...]


def shipped_trace() -> Path:
    """Where the conversation trace that comes with the package lies."""
    return Path(str(files("stagehold.lab") / "data" / SHIPPED))


def read_mooncake(path: Path) -> Iterator[TraceRequest]:
    """The requests of a file in order, blank lines passed over; `TraceError` at the first bad line."""
    line = 0
    last_ms = 0
    try:
        with _open(path) as stream:
            for line, raw in enumerate(stream, start=1):
                if raw.strip():
                    request = _request(path, line, raw)
                    if request.arrival_ms < last_ms:
                        expected = f"a timestamp that is not before the last one, {last_ms}"
                        raise TraceError(path, line, expected, str(request.arrival_ms))
                    last_ms = request.arrival_ms
                    yield request
    except OSError as error:  # gzip reports a bad header or checksum as one, too
        expected = "gzip data" if isinstance(error, gzip.BadGzipFile) else "a readable file"
        raise TraceError(path, line, expected, str(error.strerror or error)) from error
    except (EOFError, zlib.error) as error:
        raise TraceError(path, line + 1, "whole gzip data", "an end in the middle") from error


def _open(path: Path) -> BinaryIO:
    with path.open("rb") as stream:
        packed = stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    return cast("BinaryIO", gzip.open(path)) if packed else path.open("rb")


def _request(path: Path, line: int, raw: bytes) -> TraceRequest:
    try:
        record = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise TraceError(path, line, "a JSON object", f"bad JSON ({error})") from error
    if not isinstance(record, dict):
        raise TraceError(path, line, "a JSON object", _short(record))
    prompt = _count(path, line, record, "input_length", least=1)
    blocks = record.get("hash_ids")
    if not isinstance(blocks, list) or not all(type(b) is int and 0 <= b < BLOCK_IDS for b in blocks):
        raise TraceError(path, line, f"`hash_ids`, a list of whole numbers from 0 to {BLOCK_IDS - 1}", _short(blocks))
    due = -(-prompt // BLOCK_TOKENS)
    if len(blocks) != due:
        expected = f"{due} `hash_ids` for {prompt} tokens in blocks of {BLOCK_TOKENS}"
        raise TraceError(path, line, expected, str(len(blocks)))
    return TraceRequest(
        line,
        _count(path, line, record, "timestamp", least=0),
        prompt,
        _count(path, line, record, "output_length", least=0),
        tuple(blocks),
    )


def _count(path: Path, line: int, record: dict[str, object], name: str, *, least: int) -> int:
    value = record.get(name)
    if type(value) is not int or value < least:  # a bool is an int to isinstance
        raise TraceError(path, line, f"`{name}`, a whole number of at least {least}", _short(value))
    return value


def _short(value: object) -> str:
    if value is None:
        return "nothing"
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
