"""Reads a GGUF file: metadata and the places of its tensors. Every count, length and offset is checked first.

It owns the file format, versions 2 and 3, little endian. It maps no file, reads tensors one at a time, and knows no
model.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from math import prod
from os import fstat
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

MAGIC = b"GGUF"
VERSIONS = (2, 3)
DEFAULT_ALIGNMENT = 32

MOST_KEYS = 1 << 12
MOST_TENSORS = 1 << 16
MOST_ITEMS = 1 << 20  # entries of an array; the largest vocabularies have a quarter of that
MOST_ITEMS_IN_ALL = 1 << 22  # a vocabulary has four arrays
MOST_TEXT_BYTES = 1 << 20  # one string; a chat template has some kilobytes
MOST_NAME_BYTES = 256
MOST_DIMENSIONS = 4
MOST_ALIGNMENT = 1 << 16

Value = str | int | float | bool | list[Any]


class GgufError(ValueError):
    """A file that is no usable GGUF: which file, at which byte, what was expected and found."""

    def __init__(self, path: Path, at: int, expected: str, found: str) -> None:
        super().__init__(f"{path}: byte {at}: expected {expected}, found {found}")
        self.path = path
        self.at = at


class Kind(IntEnum):
    """Element types that can be read, by the file's own numbers."""

    F32 = 0
    Q4_1 = 3
    Q8_0 = 8

    @property
    def block(self) -> tuple[int, int]:
        """(elements, bytes) of one block."""
        return _BLOCKS[self]


_BLOCKS = {Kind.F32: (1, 4), Kind.Q4_1: (32, 20), Kind.Q8_0: (32, 34)}


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor of a file: `shape` outermost axis first, its bytes at [start, start + n_bytes) of the file."""

    name: str
    shape: tuple[int, ...]
    kind: Kind
    start: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Gguf:
    """What a file says: metadata by key, tensors by name."""

    path: Path
    metadata: dict[str, Value]
    tensors: dict[str, Tensor]

    def bytes_of(self, tensor: Tensor) -> npt.NDArray[np.uint8]:
        """Read the bytes of one tensor: uint8 [n_bytes]. Raises GgufError where the file was cut meanwhile; OSError."""
        found = np.fromfile(self.path, np.uint8, tensor.n_bytes, offset=tensor.start)
        if len(found) != tensor.n_bytes:
            raise GgufError(self.path, tensor.start, f"{tensor.n_bytes} bytes of {tensor.name!r}", str(len(found)))
        return found

    def get(self, key: str, kind: type | tuple[type, ...]) -> Any:
        """A metadata value that must be there and of that type; GgufError else."""
        value = self.metadata.get(key)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            wanted = "/".join(k.__name__ for k in (kind if isinstance(kind, tuple) else (kind,)))
            raise GgufError(self.path, 0, f"metadata {key!r} as {wanted}", repr(value)[:60])
        return value


def read_gguf(path: Path) -> Gguf:
    """Parse the file's head. Raises GgufError where it breaks off or promises what it does not hold; OSError."""
    with path.open("rb") as file:
        return _parsed(_Reader(path, file))


def _parsed(reader: _Reader) -> Gguf:
    reader.head()
    n_tensors = reader.count("tensors", MOST_TENSORS)
    n_keys = reader.count("metadata entries", MOST_KEYS)
    metadata: dict[str, Value] = {}
    for _ in range(n_keys):
        key = reader.name()
        if key in metadata:
            raise reader.error("every key once", f"{key!r} again")
        metadata[key] = reader.value()
    listed = [reader.tensor() for _ in range(n_tensors)]
    return Gguf(reader.path, metadata, _placed(reader, listed, _alignment(reader, metadata)))


class _Reader:
    """A place in the file that moves on with every value read."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self.at = 0
        self._items = 0
        self._file = file
        self.size = fstat(file.fileno()).st_size

    def error(self, expected: str, found: str) -> GgufError:
        return GgufError(self.path, self.at, expected, found)

    def take(self, n_bytes: int, what: str) -> bytes:
        piece = self._file.read(n_bytes) if n_bytes <= self.size - self.at else b""
        if len(piece) != n_bytes:
            raise self.error(f"{n_bytes} bytes of {what}", f"{self.size - self.at} to the end of the file")
        self.at += n_bytes
        return piece

    def number(self, form: str, what: str) -> Any:
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form), what))[0]

    def count(self, what: str, most: int) -> int:
        at = self.at
        found: int = self.number("Q", f"the number of {what}")
        if found > most:
            raise GgufError(self.path, at, f"at most {most} {what}", str(found))
        return found

    def head(self) -> None:
        magic = self.take(4, "the magic")
        if magic != MAGIC:
            raise GgufError(self.path, 0, f"the magic {MAGIC!r}", repr(magic))
        version = self.number("I", "version")
        if version not in VERSIONS:
            raise GgufError(self.path, 4, f"version {' or '.join(map(str, VERSIONS))}, little endian", str(version))

    def text(self, most: int = MOST_TEXT_BYTES) -> str:
        length = self.count("bytes of a string", most)
        at = self.at
        try:
            return self.take(length, "a string").decode()
        except UnicodeDecodeError as error:
            raise GgufError(self.path, at, "UTF-8", repr(error.object[error.start : error.start + 8])) from error

    def name(self) -> str:
        return self.text(MOST_NAME_BYTES)

    def value(self) -> Value:
        kind = self.number("I", "a value's type")
        if kind != _ARRAY:
            return self._single(kind)()
        inner = self.number("I", "an array's type")
        items = self.count("entries of an array", MOST_ITEMS)
        self._items += items
        if self._items > MOST_ITEMS_IN_ALL:
            raise self.error(f"at most {MOST_ITEMS_IN_ALL} entries of all arrays", str(self._items))
        if inner == _ARRAY:
            raise self.error("an array of single values", "an array of arrays")
        if inner == _TEXT:
            return [self.text() for _ in range(items)]
        form = _FORMS.get(inner)
        if form is None:
            raise self.error("a known value type", str(inner))
        return list(struct.unpack(f"<{items}{form}", self.take(items * struct.calcsize("<" + form), "an array")))

    def _single(self, kind: int) -> Callable[[], Value]:
        if kind == _TEXT:
            return self.text
        form = _FORMS.get(kind)
        if form is None:
            raise self.error("a known value type", str(kind))
        return lambda: self.number(form, "a value")

    def tensor(self) -> tuple[str, tuple[int, ...], Kind, int]:
        """Name, shape, kind, and offset from the start of the data."""
        name = self.name()
        n_dimensions = self.number("I", "a number of dimensions")
        if not 1 <= n_dimensions <= MOST_DIMENSIONS:
            raise self.error(f"1 to {MOST_DIMENSIONS} dimensions of {name!r}", str(n_dimensions))
        sides = tuple(self.count(f"elements along an axis of {name!r}", 1 << 40) for _ in range(n_dimensions))
        number = self.number("I", "a tensor's type")
        try:
            kind = Kind(number)
        except ValueError as error:
            known = ", ".join(f"{k.name} ({k.value})" for k in Kind)
            raise self.error(f"a tensor type among {known} for {name!r}", str(number)) from error
        return name, sides[::-1], kind, self.number("Q", "an offset")


_TEXT, _ARRAY = 8, 9
_FORMS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def _alignment(reader: _Reader, metadata: dict[str, Value]) -> int:
    alignment = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    if isinstance(alignment, int) and 8 <= alignment <= MOST_ALIGNMENT and not alignment & (alignment - 1):
        return int(alignment)
    raise reader.error(f"an alignment of 8 to {MOST_ALIGNMENT}, a power of two", repr(alignment))


def _placed(reader: _Reader, listed: list[tuple[str, tuple[int, ...], Kind, int]], alignment: int) -> dict[str, Tensor]:
    """Tensors with their place in the file: aligned, whole, inside, none over another."""
    base = -(-reader.at // alignment) * alignment
    placed: dict[str, Tensor] = {}
    for name, shape, kind, offset in listed:
        elements, block_bytes = kind.block
        if not prod(shape) or shape[-1] % elements:
            raise reader.error(f"rows of {name!r} in whole blocks of {elements}", f"shape {shape}")
        n_bytes = prod(shape) // elements * block_bytes
        if offset % alignment or base + offset + n_bytes > reader.size:
            wanted = f"{n_bytes} bytes of {name!r} inside the file, at a multiple of {alignment}"
            raise reader.error(wanted, f"offset {offset} of {max(0, reader.size - base)} bytes of data")
        if name in placed:
            raise reader.error("every tensor once", f"{name!r} again")
        placed[name] = Tensor(name, shape, kind, base + offset, n_bytes)
    end, last = 0, ""
    for tensor in sorted(placed.values(), key=lambda t: t.start):
        if tensor.start < end:
            raise reader.error(f"{tensor.name!r} behind {last!r}", f"an overlap at byte {tensor.start}")
        end, last = tensor.start + tensor.n_bytes, tensor.name
    return placed
