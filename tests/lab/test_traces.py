"""Reading Mooncake traces: what is accepted, and where a bad line is said to be."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from stagehold.lab.traces import TraceError, TraceRequest, read_mooncake, shipped_trace

GOOD = {"timestamp": 5, "input_length": 513, "output_length": 7, "hash_ids": [3, 4]}


def write(path: Path, *lines: object) -> Path:
    path.write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    return path


def failure(path: Path) -> TraceError:
    with pytest.raises(TraceError) as caught:
        list(read_mooncake(path))
    return caught.value


def test_the_shipped_trace_is_whole() -> None:
    """All 12,031 requests of the conversation trace are read."""
    requests = list(read_mooncake(shipped_trace()))

    assert 12_031 == len(requests)
    assert TraceRequest(1, 0, 6758, 500, tuple(range(14))) == requests[0]


def test_plain_and_gzipped_files_read_alike(tmp_path: Path) -> None:
    """Compression is known by content, not by name."""
    plain = write(tmp_path / "a", GOOD, "", GOOD)
    packed = tmp_path / "b"
    packed.write_bytes(gzip.compress(plain.read_bytes()))

    assert list(read_mooncake(plain)) == list(read_mooncake(packed))
    assert [1, 3] == [r.line for r in read_mooncake(plain)]


@pytest.mark.parametrize(
    ("bad", "expected"),
    [
        ("{", "a JSON object"),
        ("[1]", "a JSON object"),
        ({**GOOD, "timestamp": -1}, "`timestamp`"),
        ({**GOOD, "input_length": 0}, "`input_length`"),
        ({**GOOD, "input_length": True}, "`input_length`"),
        ({**GOOD, "output_length": "7"}, "`output_length`"),
        ({**GOOD, "hash_ids": [3]}, "2 `hash_ids` for 513 tokens"),
        ({**GOOD, "hash_ids": [3, -4]}, "`hash_ids`, a list"),
        ({k: v for k, v in GOOD.items() if k != "hash_ids"}, "`hash_ids`, a list"),
        ({**GOOD, "timestamp": 4}, "not before the last one, 5"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, bad: object, expected: str) -> None:
    """The error tells file, line and what was expected."""
    error = failure(write(tmp_path / "t.jsonl", GOOD, bad))

    assert 2 == error.line
    assert str(error).startswith(f"{tmp_path / 't.jsonl'}:2: expected ")
    assert expected in str(error)


def test_good_lines_before_a_bad_one_are_streamed(tmp_path: Path) -> None:
    """A reader that stops early never meets the bad line."""
    path = write(tmp_path / "t.jsonl", GOOD, "{")

    assert 1 == next(read_mooncake(path)).line


def test_a_truncated_archive_is_named(tmp_path: Path) -> None:
    """A gzip file that ends in the middle is an error, not a shorter trace."""
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress(write(tmp_path / "t", *[GOOD] * 50).read_bytes())[:-12])

    assert "whole gzip data" in str(failure(path))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    """A path that leads nowhere is said in one line."""
    assert f"{tmp_path / 'none'}: expected a readable file" in str(failure(tmp_path / "none"))
