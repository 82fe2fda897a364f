"""What a store is to the engine: five calls, all of them returning at once.

Operations are named by a ticket that the engine chooses (ascending integers). Their completions are collected
by `poll`, once a tick; nothing acts on arrival. A verdict is given for every key; only `HIT` of a
`get_into` says that the buffer holds the verified page, and only `STORED` that a page can be believed. A
`get_into` may end at its first key that is not a hit: the keys after it are then `UNREAD`. A `CuttableStore` ends
an operation early once nobody wants it. A `TenantStore` is told whom an operation is for.

A store that blocks (files, a client library) implements `BlockingStore` and is run by `workers.WorkerStore`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol, runtime_checkable


class Verdict(IntEnum):
    """What happened to one key. Everything above `STORED` is a miss with its reason."""

    HIT = 0
    STORED = 1
    MISS = 2
    TORN = 3  # header or body shorter than the header says
    CORRUPT = 4  # checksum does not match
    FOREIGN = 5  # another key, layout, schema or magic
    FAILED = 6  # the store reported an error
    TIMED_OUT = 7  # the deadline of the operation ran out
    REFUSED = 8  # capacity or free-space floor
    UNREAD = 9  # not looked at: the operation ended before

    @property
    def is_fault(self) -> bool:
        """Whether the verdict counts against the store's health (a plain miss does not)."""
        return self not in (Verdict.HIT, Verdict.STORED, Verdict.MISS, Verdict.REFUSED, Verdict.UNREAD)


@dataclass(frozen=True, slots=True)
class Progress:
    """Where an operation stands. `good` counts the leading keys with a good verdict so far (HIT or STORED).

    For `exists`, `HIT` means present. While `done` is false, `verdicts` may be shorter than the keys; pages
    past `good` may be half written and must not be looked at.
    """

    ticket: int
    done: bool
    good: int
    verdicts: tuple[Verdict, ...]


Buffer = memoryview
"""One page's bytes, contiguous, format 'B', exactly `page_bytes` long; writable for `get_into`."""


@runtime_checkable
class Store(Protocol):
    """A store as the engine sees it. `tick` is the engine's clock; stores with real threads ignore it."""

    name: str

    def exists(self, ticket: int, keys: Sequence[bytes], tick: int) -> None:
        """Ask which of `keys` (object names, 16 to 64 bytes each) are present; renews nothing."""

    def get_into(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """Read pages into `buffers`; a buffer belongs to the store until the ticket is reported done."""

    def put(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """Write pages from `buffers`; a buffer belongs to the store until the ticket is reported done."""

    def poll(self, tick: int) -> list[Progress]:
        """All tickets that moved since the last poll, in ticket order. Never blocks."""

    def close(self) -> None:
        """End all workers. Tickets in flight end first; none is reported afterwards. Idempotent."""


@runtime_checkable
class CuttableStore(Store, Protocol):
    """A store that can end an operation early, once nobody wants it any more."""

    def cut(self, ticket: int, tick: int) -> None:
        """Let this operation end between two pages: keys that were not begun are UNREAD, pages of a put not written.

        Its buffers are the store's until `poll` reports it done, as always. A ticket that is not known, or has ended,
        changes nothing. Returns at once.
        """


def cut_short(store: Store | None, ticket: int, tick: int) -> None:
    """Cut an operation where the store can; elsewhere it goes on to its end."""
    if isinstance(store, CuttableStore):
        store.cut(ticket, tick)


@runtime_checkable
class TenantStore(Store, Protocol):
    """A store that can keep tenants apart, so that what one of them writes evicts nothing of another."""

    def assign(self, ticket: int, namespace: bytes) -> None:
        """Say that the operation `ticket`, which is the next to come, is for the namespace of this digest (32 bytes).

        An operation of which that is not said is for no tenant, like the engine's test pages. Returns at once.
        """


def assign_tenant(store: Store | None, ticket: int, namespace: bytes) -> None:
    """Say whom the next operation is for where the store can keep tenants apart; elsewhere all are alike."""
    assign = getattr(store, "assign", None)  # with isinstance it would cost as much as the operation's own bookkeeping
    if assign is not None:
        assign(ticket, namespace)


@runtime_checkable
class WaitableStore(Store, Protocol):
    """A store whose operations go on by themselves, in wall time."""

    def wait(self, seconds: float) -> None:
        """Block until an operation ended that was not polled yet, or until `seconds` are over."""


OnPage = Callable[[int, Verdict], bool]
"""Called once for each key, in key order, with its verdict; False means: stop here, answer for no further
key."""


class BlockingStore(Protocol):
    """What a storage engine has to offer: calls that block, from several threads at once.

    Each call reports its keys in order through `on_page`, and returns early once that answers False. Errors
    of single keys are verdicts; an exception ends the operation and makes the remaining keys FAILED.
    """

    name: str

    def exists(self, keys: Sequence[bytes], on_page: OnPage) -> None:
        """Report HIT for each key that is present, MISS for the others; renews nothing."""

    def get_into(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        """Read and verify each page into its buffer; report HIT only for verified ones."""

    def put(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        """Write each page; report STORED for those that a get would now find."""

    def close(self) -> None:
        """Give back connections and file descriptors. Called once, when no call is running."""


@runtime_checkable
class BoundedStore(Protocol):
    """What a `BlockingStore` has besides if its calls can end by themselves in time."""

    def bind(self, seconds_left: Callable[[], float]) -> None:
        """Take a function that tells how many seconds the calling thread's operation has left."""


@runtime_checkable
class BlockingTenants(Protocol):
    """What a `BlockingStore` has besides if it keeps tenants apart."""

    def of(self, namespace: bytes) -> BlockingStore:
        """Return the part of one tenant, by the digest of its namespace; it is closed with the whole. Never blocks."""
