"""Traces that were made to be dear: bombs, deep and wide lines, damage. Odd fields are tried with the readers."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from stagehold.lab.readers import lines
from stagehold.lab.traces import TraceError, read_trace
from stagehold.testing.hostile import attempt, corpus, damaged

HOSTILE = settings.get_profile("hostile")
CORPUS = corpus(Path(__file__).parent / "corpus" / "traces")
SESSION = b"""
{"id": "a", "block_size": 64, "hash_id_scope": "local", "requests": [{"t": 0, "in": 128, "out": 1, "hash_ids": [[0, 2]]
}, {"type": "subagent", "t": 3, "requests": [{"t": 1, "in": 64, "out": 2, "hash_ids": []}]}]}
""".replace(b"\n", b"")
OURS = b"""{"format": "stagehold-trace", "version": 1, "block_tokens": 8}
{"arrival_ms": 5, "prompt_tokens": 20, "output_tokens": 1, "blocks": [[3, 2]], "session": "x"}
"""
SOUND = [
    b'{"timestamp": 1, "input_length": 600, "output_length": 3, "hash_ids": [4, 9]}\n' * 2,
    b'{"session": 1, "timestamp": 0.5, "input_length": 64, "output_length": 1, "block_ids": [[0, 4]]}\n',
    b"TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.97,4808,10\n2023-11-16 18:17:04.03,3180,8\n",
    SESSION,
    OURS,
]
PACKED = [*SOUND, *map(gzip.compress, SOUND), *map(zstandard.compress, SOUND)]
WORDS = [b'"requests":[', b'{"type":"subagent","t":0,"requests":[', b"1e308", b"NaN", b"\xef\xbb\xbf", b"\r", b"\0"]


def read_on(path: Path) -> None:
    """To the end, or to the first line that is wrong."""
    for _ in read_trace(path):
        pass


def read(path: Path, raw: bytes) -> None:
    attempt(path, raw, read_on, refusals=TraceError, most=(48 << 20) + 100 * len(raw))


@settings(HOSTILE)
@given(raw=damaged(PACKED, WORDS))
def test_any_damage_is_read_or_refused(tmp_path: Path, raw: bytes) -> None:
    """In plain files and in packed ones, of every format."""
    read(tmp_path / "t", raw)


@settings(HOSTILE, max_examples=max(10, HOSTILE.max_examples // 4))
@given(
    depth=st.integers(1, 3000),
    opening=st.sampled_from([b"[", b'{"requests":[', b'{"hash_ids":', b'{"type":"subagent","t":0,"requests":[']),
    closed=st.booleans(),
)
def test_any_depth_is_read_or_refused(tmp_path: Path, depth: int, opening: bytes, closed: bool) -> None:
    """Of lists and of subagents within subagents."""
    closing = b"".join({b"[": b"]", b"{": b"}"}[bytes([c])] for c in reversed(opening) if c in b"[{")
    line = b'{"id":"a","block_size":64,"requests":[' + opening * depth + (closing * depth if closed else b"") + b"]}"
    read(tmp_path / "t", line)


PACKS: list[Callable[[bytes], bytes]] = [gzip.compress, zstandard.compress]


@pytest.mark.parametrize("pack", PACKS)
def test_a_bomb_of_one_line_is_refused(tmp_path: Path, pack: Callable[[bytes], bytes]) -> None:
    """A line without end that takes a few kilobytes in the file."""
    bomb = pack(b'{"timestamp": 1, "x": "' + b"A" * (80 << 20))
    assert len(bomb) < 128 << 10
    with pytest.raises(TraceError, match="lines of at most 64 MiB"):
        attempt(tmp_path / "t", bomb, read_on, refusals=(), most=200 << 20)


@pytest.mark.parametrize("pack", PACKS)
def test_a_bomb_of_many_lines_is_refused(
    tmp_path: Path, pack: Callable[[bytes], bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions that all begin late are kept until then: a file may hold so many times its size and no more."""
    monkeypatch.setattr(lines, "UNPACKED_BYTES", 1 << 16)
    monkeypatch.setattr(lines, "UNPACKED_TIMES", 20)
    one = b'{"id":1,"block_size":64,"requests":[{"t":1000000000,"in":1,"out":1,"hash_ids":[]}]}\n'
    with pytest.raises(TraceError, match="at most 20 times its size"):
        attempt(tmp_path / "t", pack(one * 5_000), read_on, refusals=(), most=48 << 20)


@pytest.mark.parametrize("one", [b"{}", b"[]", b'{"a":1.5}', b'"ab"'])
def test_a_line_of_many_small_things_is_refused(tmp_path: Path, one: bytes) -> None:
    """Before they are made: each takes many times what it has in the file."""
    line = b'{"timestamp":1,"hash_ids":[' + b",".join([one] * 3_000_000) + b"]}\n"
    with pytest.raises(TraceError, match="lines of at most 1,048,576 commas"):
        attempt(tmp_path / "t", gzip.compress(line, 1), read_on, refusals=(), most=3 * len(line) + (1 << 20))


def test_what_is_believed_fits_into_one_line(tmp_path: Path) -> None:
    """The longest prompt with all its ids spelt out is read."""
    ids = b",".join([b"7"] * ((1 << 24) // 512))
    line = b'{"timestamp":1,"input_length":16777216,"output_length":0,"hash_ids":[' + ids + b"]}\n"
    (tmp_path / "t").write_bytes(line)
    (request,) = read_trace(tmp_path / "t")
    assert 1 << 15 == len(request.blocks)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_what_once_went_wrong_is_read_or_refused(tmp_path: Path, path: Path) -> None:
    """The inputs that were found; a line of the longest that is read takes twice its own length."""
    attempt(tmp_path / "t", path.read_bytes(), read_on, refusals=TraceError, most=200 << 20)
