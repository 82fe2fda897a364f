"""Whatever a file holds, a reader gives requests or says which line is wrong: no crash, no hang, no gigabytes."""

from __future__ import annotations

import gzip
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagehold.lab.readers.record import BLOCK_IDS, BLOCK_TOKENS_MAX
from stagehold.lab.traces import Format, TraceError, read_trace

MEMORY_BYTES = 48 << 20
"""Far above what a few short lines need, far below what their numbers could ask for."""

NUMBERS = st.sampled_from([0, 1, 2, 16, 63, 64, 512, 1 << 20, 1 << 31, BLOCK_IDS - 1, BLOCK_IDS, (1 << 63) - 1, -1])
ODD = NUMBERS | st.floats() | st.text(max_size=4) | st.none() | st.booleans() | st.lists(NUMBERS, max_size=3)
RANGES = st.lists(st.lists(NUMBERS, max_size=3) | ODD, max_size=4)
NAMES = (
    "timestamp", "input_length", "output_length", "hash_ids", "session", "block_ids", "id", "block_size",
    "hash_id_scope", "requests", "t", "in", "out", "format", "version", "block_tokens", "arrival_ms",
    "prompt_tokens", "output_tokens", "blocks", "type",
)  # fmt: skip
VALUES: dict[str, st.SearchStrategy[Any]] = {
    "hash_ids": RANGES | st.lists(NUMBERS, max_size=4),
    "block_ids": RANGES,
    "blocks": RANGES,
    "format": st.just("stagehold-trace") | ODD,
    "hash_id_scope": st.sampled_from(["local", "global"]) | ODD,
    "type": st.sampled_from(["n", "subagent"]),
}
FLAT = st.fixed_dictionaries({}, optional={name: VALUES.get(name, ODD) for name in NAMES})
RECORDS = st.recursive(
    FLAT,
    lambda inner: st.builds(lambda flat, more: {**flat, "requests": more}, FLAT, st.lists(inner, max_size=3)),
    max_leaves=6,
)
MOMENTS = st.sampled_from([b"2023-11-16 18:17:03.1", b"9999-12-31T23:59:59+00:00", b"0001-01-01T00:00:00+23:59"])
LINES = (
    RECORDS.map(lambda record: orjson.dumps(record, option=orjson.OPT_PASSTHROUGH_DATETIME))
    | st.binary(max_size=60)
    | st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass"))
    | st.just(b"TIMESTAMP,ContextTokens,GeneratedTokens")
    | st.builds(lambda *cells: b"%b,%d,%d" % cells, MOMENTS, NUMBERS, NUMBERS)
)
PACKS: list[Callable[[bytes], bytes]] = [
    bytes,
    gzip.compress,
    zstandard.compress,
    lambda raw: gzip.compress(raw)[:-5],
    lambda raw: zstandard.compress(raw)[:-2],
    lambda raw: gzip.compress(raw)[:12] + raw,
    lambda raw: zstandard.compress(raw)[:6] + raw,
]


def read_within(memory: int, path: Path, of: Format | None) -> None:
    told: str | None = None
    tracemalloc.start()
    try:
        try:
            for request in read_trace(path, of):
                assert len(request.blocks) <= -(-request.prompt_tokens // request.block_tokens)
                assert all(0 <= block < BLOCK_IDS for block in request.blocks[:10])
                assert 1 <= request.block_tokens <= BLOCK_TOKENS_MAX
        except TraceError as error:
            told = str(error)
        assert told is None or told.startswith(f"{path}:")
        assert tracemalloc.get_traced_memory()[1] < memory
    finally:
        tracemalloc.stop()


@settings(max_examples=250, deadline=5000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(LINES, max_size=4),
    pack=st.sampled_from(PACKS),
    of=st.none() | st.sampled_from(list(Format)),
)
def test_any_file_is_read_or_refused(
    tmp_path: Path, rows: list[bytes], pack: Callable[[bytes], bytes], of: Format | None
) -> None:
    """Every format's reader on every kind of line, packed well and badly."""
    path = tmp_path / "t"
    path.write_bytes(pack(b"\n".join(rows)))

    read_within(MEMORY_BYTES, path, of)


@settings(max_examples=60, deadline=5000, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=400), magic=st.sampled_from([b"", b"\x1f\x8b\x08", b"\x28\xb5\x2f\xfd"]))
def test_any_bytes_are_read_or_refused(tmp_path: Path, raw: bytes, magic: bytes) -> None:
    """Bytes that only begin as packed ones do."""
    path = tmp_path / "t"
    path.write_bytes(magic + raw)

    read_within(MEMORY_BYTES, path, None)


def test_lengths_beyond_reason_take_no_memory(tmp_path: Path) -> None:
    """Ranges are held against the prompt before they are spelt out, in every format that has them."""
    huge = [[0, BLOCK_IDS - 1]]
    rows: list[dict[str, Any]] = [
        {"session": 1, "timestamp": 0, "input_length": 64, "output_length": 1, "block_ids": huge},
        {"id": 1, "block_size": 64, "requests": [{"t": 0, "in": 128, "out": 1, "hash_ids": huge}]},
        {"format": "stagehold-trace", "version": 1, "block_tokens": 8},
    ]
    for row in rows:
        path = tmp_path / "t"
        path.write_bytes(
            orjson.dumps(row)
            + b'\n{"arrival_ms":0,"prompt_tokens":9,"output_tokens":0,"blocks":[[0,9007199254740992]]}'
        )
        read_within(1 << 20, path, None)
