"""Chained page keys: what names a prefix in the tree, in the stores and in the beliefs.

Owns the key schema. A chain key stands at every multiple of max(page size, 64) tokens and is the SHA-256 of
the chain key before it and the tokens since, as little-endian uint32; the key of a page that ends between
two of them follows the same formula from the last chain key. The first parent is the namespace digest, so
equal keys mean equal namespaces and equal tokens. Never looks at a tree and never recomputes a key.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt

from stagehold.cache.errors import CacheRefused, InvariantBroken

KEY_SCHEMA = 1
"""Raised whenever the same tokens would get another key; part of every namespace digest and object name."""

BLOCK_TOKENS = 64
"""Shortest stretch of tokens that gets a chain key: below it, one hash call per page would cost more than the
bytes that it names (0.6 µs of call overhead for 4 bytes at page size 1)."""

TokenArray = npt.NDArray[np.uint32]
_LITTLE = np.dtype("<u4")
_WIDE = np.dtype("<i8")


def block_pages(page_size: int) -> int:
    """How many pages one chain key covers: 1 from 64 tokens a page on, else 64 ÷ page size.

    Raises CacheRefused for a page size that neither divides a block nor covers one.
    """
    if not isinstance(page_size, int) or not 1 <= page_size < 1 << 32:
        raise CacheRefused(f"page size {page_size!r}: expected a whole number of tokens, below 2**32")
    if page_size >= BLOCK_TOKENS:
        return 1
    if BLOCK_TOKENS % page_size:
        raise CacheRefused(f"page size {page_size}: expected a divisor of {BLOCK_TOKENS}, or at least that many")
    return BLOCK_TOKENS // page_size


def _prefixed(*fields: bytes) -> bytes:
    """Fields one after another, each behind its length, so that no two lists of fields read the same."""
    return b"".join(struct.pack("<I", len(field)) + field for field in fields)


@lru_cache(maxsize=4096)
def _namespace_digest(model: str, extra_key: str, cache_salt: str, page_size: int) -> bytes:
    head = struct.pack("<II", KEY_SCHEMA, page_size)
    return sha256(
        b"stagehold.namespace" + head + _prefixed(model.encode(), extra_key.encode(), cache_salt.encode())
    ).digest()


@dataclass(frozen=True, slots=True)
class Namespace:
    """Whose cache it is. `model` is the fingerprint: name, revision, dtype, layout, heads per rank.

    Raises CacheRefused for a part that is not text, or cannot be written as UTF-8.

    >>> one, other = Namespace("my-model, bf16"), Namespace("my-model, bf16", cache_salt="tenant b")
    >>> one.digest(page_size=64) == other.digest(page_size=64)
    False
    """

    model: str
    extra_key: str = ""
    cache_salt: str = ""

    def __post_init__(self) -> None:
        for part in (self.model, self.extra_key, self.cache_salt):
            try:
                part.encode()
            except (AttributeError, UnicodeEncodeError) as error:
                raise CacheRefused(f"namespace: expected text that UTF-8 can write, got {part!r}") from error

    def digest(self, page_size: int) -> bytes:
        """Return the 32-byte first parent of every chain of this namespace at this page size."""
        return _namespace_digest(self.model, self.extra_key, self.cache_salt, page_size)


def _as_tokens(tokens: npt.NDArray[Any] | Sequence[int]) -> npt.NDArray[Any]:
    """Token ids as one flat array of integers that all fit uint32; refuses any others."""
    try:
        array = np.asarray(tokens)
    except (ValueError, TypeError, OverflowError) as error:
        raise CacheRefused(f"tokens: expected one row of integers ({error})") from error
    if array.ndim != 1:
        raise CacheRefused(f"tokens: expected one dimension, got shape {array.shape}")
    if array.dtype == _LITTLE or not array.size:
        return array
    if array.dtype.kind not in "iu":
        raise CacheRefused(f"tokens: expected integers, got {array.dtype}")
    # An id fits if the upper half of its eight bytes is zero; comparing bytes costs a third of a numpy reduction.
    upper = np.ascontiguousarray(array, _WIDE).view(_LITTLE)[1::2].tobytes()
    if upper != bytes(len(upper)):
        raise CacheRefused("tokens: expected ids from 0 to 2**32 - 1")
    return array


class Chain:
    """The tokens of one request and the keys of their prefixes; made once, extended, never recomputed.

    `keys[j]` (32 bytes) names the prefix that ends with block j; `root_key` is the namespace digest; `hint`
    is the number of blocks that the last match found, a guess that may be wrong at no cost but time.

    Token ids are integers in [0, 2**32), one dimension; CacheRefused for others, and for a page size that neither
    divides 64 nor is at least that.

    >>> short, long = (Chain(Namespace("my-model"), range(n), page_size=16) for n in (40, 100))
    >>> short.n_pages, long.n_pages
    (2, 6)
    >>> short.page_key(1) == long.page_key(1)
    True
    """

    __slots__ = (
        "_buffer",
        "block_pages",
        "hint",
        "keys",
        "n_pages",
        "n_tokens",
        "namespace",
        "page_size",
        "root_key",
    )

    def __init__(self, namespace: Namespace, tokens: npt.NDArray[Any] | Sequence[int], page_size: int) -> None:
        self.namespace = namespace
        self.page_size = page_size
        self.block_pages = block_pages(page_size)
        self.root_key = namespace.digest(page_size)
        self.keys: list[bytes] = []
        self.hint = 0
        self.n_tokens = self.n_pages = 0
        first = _as_tokens(tokens)
        # Room for an eighth more: a growing chat then reallocates a few times in its life, not on each turn.
        self._buffer: TokenArray = np.empty(first.size + max(1024, first.size >> 3), _LITTLE)
        self._append(first)

    @property
    def tokens(self) -> TokenArray:
        """All tokens so far: uint32, shape (n_tokens,), a read-only view that later extensions leave as it is."""
        view = self._buffer[: self.n_tokens]
        view.flags.writeable = False
        return view

    def extend(self, tokens: npt.NDArray[Any] | Sequence[int]) -> None:
        """Append tokens; only blocks that become whole are hashed."""
        more = _as_tokens(tokens)
        need = self.n_tokens + more.size
        if need > self._buffer.size:
            grown = np.empty(need + max(1024, need >> 3), _LITTLE)
            grown[: self.n_tokens] = self._buffer[: self.n_tokens]
            self._buffer = grown
        self._append(more)

    def _append(self, more: npt.NDArray[Any]) -> None:
        start = self.n_tokens
        end = self.n_tokens = start + more.size
        self._buffer[start:end] = more
        self.n_pages = end // self.page_size
        block = self.page_size * self.block_pages
        done, whole = len(self.keys), end // block
        if whole == done:
            return
        raw = self._buffer[done * block : whole * block].tobytes()
        key, step, append = self.keys[-1] if done else self.root_key, block * 4, self.keys.append
        for at in range(0, len(raw), step):
            key = sha256(key + raw[at : at + step]).digest()
            append(key)

    def page_bytes(self, start: int, end: int) -> bytes:
        """Tokens of pages [start, end) as bytes, four to a token."""
        return self._buffer[start * self.page_size : end * self.page_size].tobytes()

    def page_key(self, page: int) -> bytes:
        """Key (32 bytes) of the prefix that ends with `page` (from 0); refuses a page that is not whole."""
        if not 0 <= page < self.n_pages:
            raise CacheRefused(f"page {page}: the chain has {self.n_pages} whole pages")
        block, rest = divmod(page + 1, self.block_pages)
        if not rest:
            return self.keys[block - 1]
        return self.key_behind(block, self.page_bytes(block * self.block_pages, page + 1))

    def key_behind(self, block: int, tokens: bytes) -> bytes:
        """Key of the prefix that goes on with these token bytes behind the chain's first `block` blocks."""
        return sha256((self.keys[block - 1] if block else self.root_key) + tokens).digest()


@dataclass(frozen=True, slots=True)
class RankCoordinates:
    """Where a rank stands in the group, as far as it changes the bytes of a page."""

    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1


ALONE = RankCoordinates()


@lru_cache(maxsize=1024)
def _object_suffix(component: str, at: RankCoordinates) -> bytes:
    numbers = struct.pack("<IIIII", KEY_SCHEMA, at.tp_rank, at.tp_size, at.pp_rank, at.pp_size)
    return sha256(b"stagehold.object" + _prefixed(component.encode(), numbers)).digest()[:16]


def object_name(page_key: bytes, *, component: str, at: RankCoordinates = ALONE) -> bytes:
    """Name of one page of one component of one rank in a store: 48 bytes, the page key first."""
    return page_key + _object_suffix(component, at)


_VECTOR = {
    1: "169b7d7b3672d0cf3774e6c2de003eb63a48705dc8de11415f6c77f8cb8f6d88",
    16: "cb76565c75a3cc239bcc4a693bb2e60c0b4e248924c6aacb2c87f27553e13e4c",
    64: "7b243764de28602e6b43ccc74ae18152bdb0b54c83c162a466877d89dead304d",
    128: "7eb28ab4d7dd96c8edd8d2f49e02a763fad7bec73282a2b0a07e383063f25e80",
}  # fmt: skip
_VECTOR_NAME = "0000000000000000000000000000000000000000000000000000000000000000a2f1e6a3e143bb851da5512e52e5e69e"


def self_test() -> None:
    """Raise InvariantBroken if this process would name the pages of a fixed vector otherwise."""
    space = Namespace("vector", "adapter", "salt")
    for page_size, expected in _VECTOR.items():
        chain = Chain(space, np.arange(300, dtype=np.int64) * 431, page_size)
        found = sha256(b"".join(chain.page_key(page) for page in range(chain.n_pages))).hexdigest()
        if found != expected:
            raise InvariantBroken(f"key self-test at page size {page_size}: expected {expected}, got {found}")
    name = object_name(bytes(32), component="full", at=RankCoordinates(1, 2, 3, 4)).hex()
    if name != _VECTOR_NAME:
        raise InvariantBroken(f"object name self-test: expected {_VECTOR_NAME}, got {name}")
