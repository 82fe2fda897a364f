"""How the pages of one host pool lie in memory, what they are called in the store, and how they get there.

A page is one object, or one for each stretch of memory that the pool names for it (keys and values lie apart). The
name covers all that decides its bytes: model, namespace, pool, dtype, layout, sizes, the rank's place, and the key
that SGLang made from the tokens. So a page of another dtype or layout is a page of another name: a miss.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from stagehold.cache.stores.protocol import Buffer

NAME_SCHEMA = 1
"""Raised whenever the same page would get another name."""

MOST_STRETCHES = 4
"""A pool whose pages lie in more pieces than this (layers first) hands over whole pages by copy instead."""

TOLD = ("dtype", "layout", "layer_num", "head_num", "head_dim", "storage_format_tag")
"""What a pool says of its pages, as far as it has a word for it."""

ADDRESSES_UNKNOWN = (AttributeError, AssertionError, NotImplementedError, TypeError, ValueError)
"""How pools say that they cannot name the addresses of a page."""


@dataclass(frozen=True, slots=True)
class Place:
    """What a rank's pages depend on besides the pool: model, namespace and coordinates, as text."""

    model: str
    namespace: str
    tensor: str
    rest: str

    def of(self, pool: str, *, replicated: bool) -> tuple[str, ...]:
        """What stands in front of a pool's own description; `replicated` pages are the same on every tensor rank."""
        return (self.model, self.namespace, pool, "" if replicated else self.tensor, self.rest)


def cut_by_heads(name: str, pool: Any) -> bool:
    """Whether tensor ranks differ in this pool even where all have the same KV: states, and drafts that have heads."""
    return name == "mamba" or (name.startswith("draft") and hasattr(pool, "head_num"))


class Pages:
    """The pages of `pool`; `before` is `Place.of`. `direct`: without a copy, where the pool knows addresses.

    `sizes` are the bytes of each stretch of a page.
    """

    def __init__(self, pool: Any, before: tuple[str, ...], *, direct: bool) -> None:
        self.pool = pool
        self.page_size: int = getattr(pool, "page_size", 1) or 1
        self.sizes = _stretches(pool, self.page_size) if direct else ()
        self.direct = bool(self.sizes)
        if not self.direct:
            self.sizes = (_bytes_of(pool.get_dummy_flat_data_page()),)
        told = (getattr(pool, name, None) for name in TOLD)
        how = "direct" if self.direct else "flat"
        self._before = _prefixed(str(NAME_SCHEMA), *before, how, str(self.page_size), *map(str, told))

    def names(self, key: str) -> list[bytes]:
        """Object names (32 bytes) of the page that SGLang calls `key`, one a stretch."""
        return [
            sha256(self._before + struct.pack("<QQ", index, size) + key.encode()).digest()
            for index, size in enumerate(self.sizes)
        ]

    def paired(self, indices: Any, keys: int) -> bool:
        """Whether `indices` are the slots of `keys` pages."""
        return indices is not None and len(indices) == keys * self.page_size

    def slots(self, indices: Any, keys: int) -> list[int]:
        """First token slot of each page. Raises ValueError unless `indices` are the slots of `keys` pages."""
        if not self.paired(indices, keys):
            found = "no" if indices is None else str(len(indices))
            raise ValueError(f"{keys} keys with {found} host indices: expected {self.page_size} a key")
        return [int(indices[page * self.page_size]) for page in range(keys)]

    def addressed(self, indices: Any) -> list[Buffer]:
        """The stretches of each page in turn, over the pool's own memory."""
        addresses, sizes = self.pool.get_page_buffer_meta(indices)
        every = [sizes] * len(addresses) if isinstance(sizes, int) else sizes
        return [_memory(address, size) for address, size in zip(addresses, every, strict=True)]

    def copied(self, slots: Sequence[int]) -> list[Buffer]:
        """The bytes of pages that are in the pool."""
        return [bytes_of(self.pool.get_data_page(slot, flat=True).contiguous()) for slot in slots]

    def blank(self, pages: int) -> tuple[list[Any], list[Buffer]]:
        """Pages to read into, and their bytes."""
        made = [self.pool.get_dummy_flat_data_page() for _ in range(pages)]
        return made, [bytes_of(page) for page in made]

    def place(self, slot: int, page: Any) -> None:
        """Copy a page that was read to its slot of the pool."""
        self.pool.set_from_flat_data_page(slot, page)


def _stretches(pool: Any, page_size: int) -> tuple[int, ...]:
    """Bytes of each stretch of a page; empty where the pool cannot say, or has it in too many pieces."""
    import torch

    try:
        addresses, sizes = pool.get_page_buffer_meta(torch.arange(page_size))
    except ADDRESSES_UNKNOWN:
        return ()
    every = [sizes] * len(addresses) if isinstance(sizes, int) else list(sizes)
    return tuple(every) if 0 < len(every) <= MOST_STRETCHES else ()


def _bytes_of(tensor: Any) -> int:
    return int(tensor.numel()) * int(tensor.element_size())


def bytes_of(tensor: Any) -> Buffer:
    """The bytes of a contiguous tensor in host memory, whatever its dtype (numpy has no bfloat16, no fp8).

    They keep its memory alive: a store that hangs in a call may still write there after everybody has given up.
    """
    if not tensor.is_contiguous() or tensor.device.type != "cpu":
        raise ValueError(f"expected a contiguous tensor in host memory, got {tuple(tensor.shape)} on {tensor.device}")
    import torch

    return memoryview(tensor.reshape(-1).view(torch.uint8).numpy())


def _memory(address: int, size: int) -> Buffer:
    return memoryview((ctypes.c_char * size).from_address(address)).cast("B")


def _prefixed(*fields: str) -> bytes:
    """Fields one after another, each behind its length, so that no two lists of fields read the same."""
    parts = [b"stagehold.sglang"]
    for field in fields:
        raw = field.encode()
        parts += (struct.pack("<I", len(raw)), raw)
    return b"".join(parts)
