"""Files that somebody else may have written: damage to sound ones, and what reading any of them may cost.

Needs `hypothesis`. It knows no format: a test gives sound files of its own, and a reader.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hypothesis import strategies as st

NUMBERS = (
    0,
    1,
    2,
    255,
    256,
    1 << 15,
    1 << 16,
    (1 << 31) - 1,
    1 << 31,
    (1 << 32) - 1,
    1 << 40,
    (1 << 63) - 1,
    (1 << 64) - 1,
)
"""Sizes and places that readers of binary files get wrong."""

Edit = Callable[[bytes], bytes]


def damaged(sound: Sequence[bytes], words: Sequence[bytes] = ()) -> st.SearchStrategy[bytes]:
    """One of the `sound` files after up to five edits: bits, runs of bytes, odd numbers, cuts, moves, `words` put in.

    `words` are what means something in the format.
    """
    edits = _edits(st.sampled_from(list(words)) if words else st.binary(max_size=8))
    return st.builds(_edited, st.sampled_from(list(sound)), st.lists(edits, max_size=5))


def _edited(raw: bytes, edits: list[Edit]) -> bytes:
    for edit in edits:
        raw = edit(raw)
    return raw


def _edits(words: st.SearchStrategy[bytes]) -> st.SearchStrategy[Edit]:
    share = st.floats(0, 1, exclude_max=True)
    wide = st.sampled_from([8, 4, 2])
    odd = st.builds(lambda n, size: n.to_bytes(8, "little")[:size], st.sampled_from(NUMBERS), wide)
    put = odd | words | st.binary(min_size=1, max_size=16) | st.sampled_from([b"[" * 3000, b"9" * 5000, b"\0" * 512])
    return (
        st.builds(lambda at, run: lambda raw: _over(raw, at, run), share, put)
        | st.builds(lambda at, run: lambda raw: _into(raw, at, run), share, put)
        | st.builds(lambda at, bit: lambda raw: _flipped(raw, at, bit), share, st.integers(0, 7))
        | st.builds(lambda at: lambda raw: raw[: int(at * len(raw))], share)
        | st.builds(lambda at, to, n: lambda raw: _moved(raw, at, to, n), share, share, st.integers(1, 400))
    )


def _over(raw: bytes, share: float, run: bytes) -> bytes:
    at = int(share * len(raw))
    return raw[:at] + run + raw[at + len(run) :]


def _into(raw: bytes, share: float, run: bytes) -> bytes:
    at = int(share * len(raw))
    return raw[:at] + run + raw[at:]


def _flipped(raw: bytes, share: float, bit: int) -> bytes:
    if not raw:
        return raw
    at = int(share * len(raw))
    return raw[:at] + bytes([raw[at] ^ 1 << bit]) + raw[at + 1 :]


def _moved(raw: bytes, share: float, to: float, count: int) -> bytes:
    at = int(share * len(raw))
    return _into(raw, to, raw[at : at + count])


@contextmanager
def memory_within(most: int) -> Iterator[None]:
    """Fail where Python's own memory grows by more than `most` bytes in here, freed again or not."""
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
        assert peak < most, f"{peak:,} bytes at once, at most {most:,} expected"
    finally:
        tracemalloc.stop()


def corpus(folder: Path) -> list[Path]:
    """Inputs that once went wrong, by name."""
    return sorted(path for path in folder.glob("*") if path.is_file())


def attempt(
    path: Path,
    raw: bytes,
    reader: Callable[[Path], object],
    *,
    refusals: type[Exception] | tuple[type[Exception], ...],
    most: int,
) -> None:
    """Write `raw` to `path` and read it; `refusals` are the answers to a bad file, anything else is raised.

    What fails is kept beside `path`, which the error says.
    """
    path.write_bytes(raw)
    try:
        with memory_within(most):
            try:
                reader(path)
            except refusals as error:
                if not str(error):
                    raise AssertionError(f"{type(error).__name__} says nothing") from error
    except BaseException as error:
        kept = path.with_suffix(".failed")
        kept.write_bytes(raw)
        error.add_note(f"the input is kept as {kept}")
        raise
