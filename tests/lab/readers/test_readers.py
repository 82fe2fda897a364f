"""Every format: what is read from it, how it is known, and where a bad line is said to be."""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path

import pytest
import zstandard

from stagehold.lab.readers import lines, own
from stagehold.lab.readers.record import TraceRequest
from stagehold.lab.traces import Format, TraceError, read_trace, respaced, shipped_trace

MOONCAKE = {"timestamp": 5, "input_length": 513, "output_length": 7, "hash_ids": [3, 4]}
LMCACHE = {"session": 2, "timestamp": 1.25, "input_length": 50, "output_length": 3, "block_ids": [[7, 2], [1, 1]]}
TURN = {"t": 1.5, "type": "n", "in": 130, "out": 4, "hash_ids": [[1, 2]]}
SUB = {"t": 0.5, "type": "subagent", "requests": [{"t": 0.25, "in": 64, "out": 1, "hash_ids": [[9, 1]]}]}
SESSION = {"id": "a", "block_size": 64, "hash_id_scope": "local", "requests": [TURN, SUB]}
HEADER = {"format": "stagehold-trace", "version": 1, "block_tokens": 8}
OWN = {"arrival_ms": 4, "prompt_tokens": 20, "output_tokens": 2, "blocks": [[5, 3]], "session": "x"}
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
MOMENT = "2023-11-16 18:17:03.9799600"


def write(path: Path, *rows: object) -> Path:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def failure(path: Path, of: Format | None = None) -> TraceError:
    with pytest.raises(TraceError) as caught:
        list(read_trace(path, of))
    return caught.value


@pytest.fixture(name="trace")
def _trace(tmp_path: Path) -> Path:
    return tmp_path / "t.jsonl"


def test_mooncake(trace: Path) -> None:
    """Milliseconds, blocks of 512, the last one partial, no sessions."""
    assert [TraceRequest(1, 5, 513, 7, (3, 4))] == list(read_trace(write(trace, MOONCAKE)))


def test_lmcache(trace: Path) -> None:
    """Seconds become milliseconds, ranges are spelt out, and an empty prompt is a request, too."""
    empty = {**LMCACHE, "timestamp": 2, "input_length": 0, "block_ids": []}

    assert [
        TraceRequest(1, 1250, 50, 3, (7, 8, 1), 16, "2"),
        TraceRequest(2, 2000, 0, 3, (), 16, "2"),
    ] == list(read_trace(write(trace, LMCACHE, empty)))


def test_agentic_sessions_come_a_minute_apart(trace: Path) -> None:
    """Subagents stand in their place, sessions overlap in order of arrival, and share no id."""
    later = {**SESSION, "id": "b", "requests": [{**TURN, "t": 0}]}
    long = {**SESSION, "requests": [*SESSION["requests"], {**TURN, "t": 61}]}  # type: ignore[misc]

    assert [
        TraceRequest(1, 750, 64, 1, (9,), 64, "a"),
        TraceRequest(1, 1500, 130, 4, (1, 2), 64, "a"),
        TraceRequest(2, 60_000, 130, 4, (11, 12), 64, "b"),
        TraceRequest(1, 61_000, 130, 4, (1, 2), 64, "a"),
    ] == list(read_trace(write(trace, long, later)))


def test_azure(trace: Path) -> None:
    """Arrivals count from the first row, and nothing has blocks."""
    rows = [AZURE, f"{MOMENT},4808,10", "", "2023-11-16 18:17:05.0319600,3180,8"]

    assert [TraceRequest(2, 0, 4808, 10, ()), TraceRequest(4, 1052, 3180, 8, ())] == list(
        read_trace(write(trace, *rows))
    )


def test_our_own_format(trace: Path) -> None:
    """A header, then requests; blocks and session may be missing."""
    bare = {"arrival_ms": 9, "prompt_tokens": 1, "output_tokens": 0}

    assert [TraceRequest(2, 4, 20, 2, (5, 6, 7), 8, "x"), TraceRequest(3, 9, 1, 0, (), 8)] == list(
        read_trace(write(trace, HEADER, OWN, bare))
    )


@pytest.mark.parametrize("rows", [[MOONCAKE], [LMCACHE], [SESSION], [AZURE, f"{MOMENT},9,1"], [HEADER, OWN]])
@pytest.mark.parametrize("pack", [gzip.compress, zstandard.compress, lambda raw: b"\n" + raw])
def test_packed_files_read_alike(trace: Path, rows: list[object], pack: object) -> None:
    """Format and compression are known by content, whatever the name says, blank lines before or not."""
    plain = [(r.arrival_ms, r.blocks) for r in read_trace(write(trace, *rows))]
    trace.write_bytes(pack(trace.read_bytes()))  # type: ignore[operator]

    assert plain
    assert plain == [(r.arrival_ms, r.blocks) for r in read_trace(trace)]


def test_frames_of_zstd_follow_each_other(trace: Path) -> None:
    """Files that were appended to are read to their end."""
    packed = zstandard.compress(json.dumps(MOONCAKE).encode() + b"\n")
    trace.write_bytes(packed * 3)

    assert 3 == len(list(read_trace(trace)))


@pytest.mark.parametrize(("pack", "name"), [(gzip.compress, "gzip"), (zstandard.compress, "zstd")])
def test_an_end_in_the_middle_is_named(trace: Path, pack: object, name: str) -> None:
    """A packed file that was cut is an error, not a shorter trace."""
    raw = write(trace, *[{**MOONCAKE, "hash_ids": [n, n + 1]} for n in range(2000)]).read_bytes()
    trace.write_bytes(pack(raw)[:-9])  # type: ignore[operator]

    assert f"whole {name} data, found an end in the middle" in str(failure(trace))


def test_zstd_without_its_package_is_told(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What to install is said in the one sentence."""
    trace.write_bytes(zstandard.compress(b"{}"))
    monkeypatch.setitem(sys.modules, "zstandard", None)

    assert "pip install stagehold[trace]" in str(failure(trace))


def test_a_line_that_has_no_end_is_refused(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A packed file of megabytes may hold a line of gigabytes: reading stops at the longest line allowed."""
    monkeypatch.setattr(lines, "LINE_BYTES", 1 << 20)
    trace.write_bytes(gzip.compress(b"{" * (3 << 20)))

    assert 1 == failure(trace).line
    assert "lines of at most 1 MiB" in str(failure(trace))


@pytest.mark.parametrize(
    ("rows", "line", "expected"),
    [
        (['{"session_id": 1, "append": "x"}'], 1, "the first line of one of mooncake, agentic"),
        (["{"], 1, "the first line of one of"),
        ([LMCACHE, {**LMCACHE, "input_length": -1}], 2, "`input_length`"),
        ([LMCACHE, {**LMCACHE, "timestamp": "1"}], 2, "`timestamp`, seconds"),
        ([LMCACHE, {**LMCACHE, "timestamp": 1e300}], 2, "`timestamp`, seconds"),
        ([LMCACHE, {**LMCACHE, "timestamp": 1.2}], 2, "not before the last one, 1250"),
        ([LMCACHE, {**LMCACHE, "block_ids": [[0, 10**12]]}], 2, "3 ids in `block_ids`"),
        ([LMCACHE, {**LMCACHE, "block_ids": [[0, -1]]}], 2, "a list of [start, length]"),
        ([LMCACHE, {**LMCACHE, "session": [1]}], 2, "`session`, a text or a number"),
        ([SESSION, {**SESSION, "block_size": 0}], 2, "`block_size`"),
        ([SESSION, {**SESSION, "hash_id_scope": "none"}], 2, "`hash_id_scope`, local or global"),
        ([SESSION, {**SESSION, "requests": [1]}], 2, "`requests`, a list of objects"),
        ([SESSION, {**SESSION, "requests": [{**TURN, "in": 10**9}]}], 2, "`in`, at most"),
        ([SESSION, {**SESSION, "requests": [{**TURN, "hash_ids": [[2**54 - 2, 2]]}]}], 2, "ids of all sessions below"),
        ([AZURE, "yesterday,1,1"], 2, "a timestamp such as"),
        ([AZURE, f"{MOMENT},1"], 2, "3 columns"),
        ([AZURE, f"{MOMENT},0,1"], 2, "tokens, a whole number from 1"),
        ([AZURE, f"{MOMENT},1,1", "2023-11-16 18:17:01,1,1"], 3, "not before the first one"),
        ([{**HEADER, "version": 2}], 1, 'a header with "format": "stagehold-trace" and "version": 1'),
        ([{**HEADER, "block_tokens": 10**6}], 1, "`block_tokens`, at most"),
        ([HEADER, {**OWN, "blocks": [[5, 4]]}], 2, "0 to 3 ids in `blocks`"),
        ([HEADER, {**OWN, "tokens": 1}], 2, "fields of a request only, found ['tokens']"),
    ],
)
def test_a_bad_line_is_named(trace: Path, rows: list[object], line: int, expected: str) -> None:
    """The error tells file, line and what was expected."""
    error = failure(write(trace, *rows))

    assert str(error).startswith(f"{trace}:{line}: expected ")
    assert expected in str(error)


def test_a_format_that_is_named_is_held_to(trace: Path) -> None:
    """No detection behind the caller's back."""
    assert "`input_length`" in str(failure(write(trace, MOONCAKE | {"input_length": None}), Format.MOONCAKE))
    assert "a header with" in str(failure(trace, Format.STAGEHOLD))


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    """The shipped trace in our own format is the same trace, line numbers apart, and packed it is small."""
    written = own.write(read_trace(shipped_trace()), tmp_path / "own.jsonl.gz")
    pairs = zip(read_trace(shipped_trace()), read_trace(tmp_path / "own.jsonl.gz"), strict=True)

    assert 12_031 == written
    assert all(
        (a.arrival_ms, a.prompt_tokens, a.output_tokens, a.blocks, a.block_tokens)
        == (b.arrival_ms, b.prompt_tokens, b.output_tokens, b.blocks, b.block_tokens)
        for a, b in pairs
    )
    assert shipped_trace().stat().st_size > (tmp_path / "own.jsonl.gz").stat().st_size


def test_a_file_has_blocks_of_one_size(tmp_path: Path) -> None:
    """A trace that mixes them is refused, and no half file is left."""
    mixed = [TraceRequest(1, 0, 64, 1, (1,), 64), TraceRequest(2, 0, 16, 1, (1,), 16)]

    with pytest.raises(TraceError, match="blocks of 64 tokens throughout, found one of 16"):
        own.write(mixed, tmp_path / "own.jsonl")
    assert [] == list(tmp_path.iterdir())


def test_sessions_can_be_begun_at_another_pace() -> None:
    """Each begins so much after the one before it, keeps its own times, and all come in order of arrival."""
    requests = [
        TraceRequest(1, 100, 1, 1, (), session="a"),
        TraceRequest(2, 900, 1, 1, (), session="a"),
        TraceRequest(3, 5000, 1, 1, (), session="b"),
        TraceRequest(4, 6000, 1, 1, ()),
    ]

    assert [(1, 0), (3, 300), (4, 600), (2, 800)] == [(r.line, r.arrival_ms) for r in respaced(requests, 300)]
