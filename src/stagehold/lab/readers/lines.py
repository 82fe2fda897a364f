"""Lines of a trace file, plain, gzip or zstd, one at a time: which line it is, and what is wrong there, in words.

It owns decompression and the longest line that is read. Compression is known by content, not by name.
"""

from __future__ import annotations

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from stagehold.lab.readers.record import TraceError

LINE_BYTES = 64 << 20
"""Longest line: a session of many hours with all of its block ids spelt out is a few MiB."""
LINE_COMMAS = 1 << 20
"""Most in a line: the longest prompt that is believed has as many ids in blocks of 16 tokens. Whatever a line holds
takes some two hundred bytes of memory for each."""
UNPACKED_BYTES = 256 << 20
UNPACKED_TIMES = 200
"""A packed file may always unpack to so many bytes, and to more up to so many times its size: traces shrink to a
twentieth."""
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
ZSTD_STEP = 1 << 10
"""Compressed bytes taken at a time: a block of a few bytes may stand for 128 KiB, so this bounds the memory."""
ZSTD_WINDOW = 128 << 20
NO_LIMIT = 1 << 62


class Lines:
    """The lines of one file that are not blank, with trailing white space cut off; `line` is where it stands, from 1.

    Iterating raises `TraceError` where the file cannot be read or a line is too long. The file is closed at the end,
    or by the generator's own end where the reader stops early.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.line = 0
        self._lines = self._read()
        self._first: bytes | None = None

    def first(self) -> bytes | None:
        """The line that will come next, looked at ahead; None at the end."""
        if self._first is None:
            self._first = next(self._lines, None)
        return self._first

    def __iter__(self) -> Iterator[bytes]:
        if self._first is not None:
            ahead, self._first = self._first, None
            yield ahead
        yield from self._lines

    def error(self, expected: str, found: str) -> TraceError:
        """What to raise about the present line."""
        return TraceError(self.path, self.line, expected, found)

    def _read(self) -> Iterator[bytes]:
        try:
            stream, left = _open(self.path)
            with stream:
                while raw := stream.readline(LINE_BYTES + 1):
                    self.line += 1
                    left -= len(raw)
                    self._refuse_excess(raw, left)
                    if text := raw.rstrip():
                        yield text
        except _Packed as error:
            raise TraceError(self.path, self.line + 1, error.expected, error.found) from error
        except OSError as error:  # gzip reports a bad header or checksum as one, too
            expected = "gzip data" if isinstance(error, gzip.BadGzipFile) else "a readable file"
            raise self.error(expected, str(error.strerror or error)) from error
        except (EOFError, zlib.error) as error:
            raise TraceError(self.path, self.line + 1, "whole gzip data", "an end in the middle") from error

    def _refuse_excess(self, raw: bytes, left: int) -> None:
        if len(raw) > LINE_BYTES:
            raise self.error(f"lines of at most {LINE_BYTES >> 20} MiB", "a longer one")
        if raw.count(b",") > LINE_COMMAS:
            raise self.error(f"lines of at most {LINE_COMMAS:,} commas", "more")
        if left < 0:
            raise self.error(f"a packed file of at most {UNPACKED_TIMES} times its size", "more in this line")


class _Packed(Exception):
    """Zstandard data that cannot be unpacked."""

    def __init__(self, expected: str, found: str) -> None:
        super().__init__(expected)
        self.expected = expected
        self.found = found


def _open(path: Path) -> tuple[BinaryIO, int]:
    """The unpacked bytes of a file, and how many of them may come: no limit where it is plain, or of unknown size."""
    stream = path.open("rb")
    magic, size = stream.peek(len(ZSTD_MAGIC)), path.stat().st_size
    most = max(UNPACKED_BYTES, UNPACKED_TIMES * size) if size else NO_LIMIT
    if magic.startswith(GZIP_MAGIC):
        return cast("BinaryIO", _Gzip(stream)), most
    if magic.startswith(ZSTD_MAGIC):
        return cast("BinaryIO", io.BufferedReader(_Unzstd(stream))), most
    return stream, NO_LIMIT


class _Gzip(gzip.GzipFile):
    """A gzip file that closes what it reads from."""

    def __init__(self, packed: BinaryIO) -> None:
        super().__init__(fileobj=packed)
        self._packed = packed

    def close(self) -> None:
        super().close()
        self._packed.close()


class _Decompressor(Protocol):
    eof: bool
    unused_data: bytes

    def decompress(self, data: bytes) -> bytes: ...


class _Unzstd(io.RawIOBase):
    """The bytes behind zstd data, frame after frame; an end within a frame is an error."""

    def __init__(self, packed: BinaryIO) -> None:
        super().__init__()
        try:
            import zstandard
        except ImportError as error:
            packed.close()
            expected = "the package zstandard, which reads zstd (`pip install stagehold[trace]`)"
            raise _Packed(expected, "none installed") from error
        self._library = zstandard
        self._packed = packed
        self._frame: _Decompressor | None = None
        self._rest = b""
        self._ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._ready:
            if not self._more():
                return 0
        count = min(len(buffer), len(self._ready))
        buffer[:count] = self._ready[:count]
        self._ready = self._ready[count:]
        return count

    def _more(self) -> bool:
        """Unpack the next few bytes; false at the end of the file."""
        data = self._rest or self._packed.read(ZSTD_STEP)
        self._rest = b""
        if not data:
            if self._frame is not None:
                raise _Packed("whole zstd data", "an end in the middle")
            return False
        if self._frame is None:
            unpacker = self._library.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
            self._frame = cast("_Decompressor", unpacker.decompressobj())
        try:
            self._ready = memoryview(self._frame.decompress(data))
        except self._library.ZstdError as error:
            raise _Packed("zstd data", str(error)) from error
        if self._frame.eof:
            self._rest, self._frame = self._frame.unused_data, None
        return True

    def close(self) -> None:
        self._packed.close()
        super().close()
