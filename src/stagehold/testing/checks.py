"""What must hold after every act of a World, and what must be left when everything has ended.

Owns the questions, in terms of bytes, owners and pages. It compares the engine with the World's own knowledge, never
with what the engine believes of itself alone, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from stagehold.cache.keys import Chain
from stagehold.cache.stores.page import HEADER_BYTES
from stagehold.cache.stores.simulated import Medium
from stagehold.lifecycle.books import check as balance
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.operations import Kind
from stagehold.specs.hold import HoldState
from stagehold.specs.request import RequestState
from stagehold.specs.write import WriteState
from stagehold.testing.guests import Guest, Library
from stagehold.testing.watch import WAITING, require
from stagehold.testing.watched import WatchedStore

TESTS = (Kind.PROBE, Kind.SELFTEST)
"""Operations that a resting engine may have under way: they keep nobody's buffer."""


def check_act(core: Core, guests: Sequence[Guest], library: Library) -> None:
    """After any act: books, lent buffers, verified bytes, protected prefixes, and who waits or runs."""
    if not core.visits:
        for violation in balance(core):
            require(False, f"{violation.book}: {violation.what}")
    check_lent(core)
    check_holds(core, library)
    check_guests(core, guests)


def check_lent(core: Core) -> None:
    """Every staging buffer that the store may touch belongs to the machine whose operation it is, and to no other.

    Pages of a fetch that are verified are not touched again: after a cut they are somebody else's.
    """
    tensors = core.tensors
    assert tensors is not None, "a World has bytes"
    base, size = tensors.staging.tensor.data_ptr(), tensors.staging.page_bytes
    written: set[int] = set()
    watched = [store for store in (*core.former, core.store) if isinstance(store, WatchedStore)]
    for ticket, addresses in [lent for store in watched for lent in store.lent.items()]:
        pages = [(address - base) // size for address in addresses if base <= address < base + size * core.staging.size]
        operation = core.operations.live.get(ticket)
        if operation is None or not pages:
            require(not pages, f"operation {ticket} is over for the engine, and the store still has its buffers")
            continue
        pages = pages[operation.good :] if operation.kind is Kind.FETCH else pages
        owner = core.holds.get(operation.owner) or core.writes.get(operation.owner)
        owned = owner.data.staging if owner is not None else []
        require(set(pages) <= set(owned), f"operation {ticket} uses staging pages {pages}, its owner has {owned}")
        if operation.kind is Kind.FETCH:
            require(written.isdisjoint(pages), f"two fetches write to the same of pages {pages}")
            written.update(pages)


def check_holds(core: Core, library: Library) -> None:
    """Staging of a verified hold has the right bytes; what a pin or a copy protects is in the tree."""
    for h in core.holds.values():
        data = h.data
        if h.state in (HoldState.READY, HoldState.PLANNED):
            require(len(data.staging) == data.last - data.start, f"hold {h.number} has {data.staging} for {data}")
            for page, key_page in zip(data.staging, range(data.start, data.last), strict=True):
                right = library.body(data.chain, key_page)
                require(_staged(core, page) == right, f"hold {h.number} is {h.state.name}, page {key_page} is wrong")
        if data.pin is not None:
            _is_live(core, data.chain, data.pin.pages, f"the anchor of hold {h.number}")
        if data.span is not None:
            _is_live(core, data.chain, data.span.pages, f"what hold {h.number} loads")
        if h.state is HoldState.LOADING:
            require(len(data.staging) == data.last - data.start, f"hold {h.number} loads from {data.staging}")
    for w in core.writes.values():
        if w.state is WriteState.COPYING:
            _is_live(core, w.data.chain, w.data.last, f"what write {w.number} copies")
            require(bool(w.data.staging), f"write {w.number} copies to nowhere")


def _is_live(core: Core, chain: Chain, pages: int, what: str) -> None:
    live = core.tree.full_match(chain, pages)
    require(live == pages, f"{what} should be live up to page {pages} and is up to {live}")


def _staged(core: Core, page: int) -> bytes:
    assert core.tensors is not None
    return bytes(core.tensors.page(page))


def check_guests(core: Core, guests: Sequence[Guest]) -> None:
    """The engine knows the World's requests and no other, each where it must be; what runs keeps its prefix."""
    states = {m.data.handle: m for m in core.requests.values()}
    require(set(states) == {guest.handle for guest in guests}, f"alive are {sorted(states)}")
    for guest in guests:
        m = states[guest.handle]
        if guest.running:
            require(m.state is RequestState.COMMITTED, f"{guest.handle} runs and is {m.state.name}")
            _is_live(core, guest.chain, m.data.published, f"what {guest.handle} reads")
        elif m.number in core.visits:
            visited = m.state in WAITING or m.state is RequestState.ANCHOR_LOCKED
            require(visited, f"{guest.handle} is visited and is {m.state.name}")
        else:
            require(m.state in WAITING, f"{guest.handle} waits and is {m.state.name}")


def check_read(core: Core, guest: Guest, slots: Sequence[int]) -> None:
    """Whatever a forward of this request would read has the right bytes."""
    size = core.config.page_size
    positions = np.arange(guest.computed)
    pages = np.asarray(slots, dtype=np.int64)[positions // size]
    found = _by_token(core)[:, pages, positions % size]
    wrong = (found != guest.kv[:, : guest.computed]).any(axis=(0, 2))
    require(not wrong.any(), f"{guest.handle}: wrong bytes at tokens {np.flatnonzero(wrong).tolist()}")


def write_kv(core: Core, guest: Guest, slots: Sequence[int], last: int) -> None:
    """What a forward does: the right bytes of tokens [computed, last) in their slots."""
    size = core.config.page_size
    positions = np.arange(guest.computed, last)
    pages = np.asarray(slots, dtype=np.int64)[positions // size]
    _by_token(core)[:, pages, positions % size] = guest.kv[:, guest.computed : last]


def _by_token(core: Core) -> Any:
    assert core.tensors is not None
    device = core.tensors.device
    return device.array().reshape(device.parts, device.n_slots, core.config.page_size, -1)


def check_tree(core: Core, library: Library) -> None:
    """The tree's own count, and the bytes of everything in it that the library can name."""
    core.tree.check()
    assert core.tensors is not None
    bytes_of = core.tensors.device.array()
    for chain in library.chains.values():
        live = core.tree.full_match(chain)
        for page, slot in enumerate(core.tree.slots(chain, 0, live)):
            require(bytes_of[:, slot].tobytes() == library.body(chain, page), f"the tree shows a wrong page {page}")


def check_beliefs(core: Core, library: Library, medium: Medium, lost: AbstractSet[bytes]) -> None:
    """A store that loses nothing by itself has every page that is believed stored, but those in `lost`."""
    for name in library.bodies:
        believed = core.beliefs.knows(name[:32])
        require(not believed or name in medium or name in lost, f"page {name[:4].hex()} is believed stored, and is not")


def check_medium(library: Library, medium: Medium, lost: AbstractSet[bytes]) -> None:
    """Nothing but right bytes was ever put; what the World spoilt is in `lost`."""
    for name in medium.names():
        raw, right = medium.read(name), None if name in lost else library.bodies.get(name)
        require(right is None or raw is None or raw[HEADER_BYTES:] == right, f"page {name[:4].hex()} was put wrong")


def check_rest(core: Core) -> None:
    """Nobody is left: no machine, no receipt, no operation, no page without a home."""
    left = {
        "requests": len(core.requests),
        "holds": len(core.holds),
        "writes": len(core.writes),
        "visits": len(core.visits),
        "spans": len(core.spans),
        "operations": sum(operation.kind not in TESTS for operation in core.operations.live.values()),
        "receipts": core.tree.stats().holds,
        "pinned": core.tree.pinned,
        "reserved": core.reserved,
        "committed": core.committed,
        "open tokens": core.ledger.open,
        "held pages": core.hold_pages,
        "written pages": core.write_pages,
        "flying beliefs": core.beliefs.flying,
        "staging": core.staging.used - len(core.host),
        "device": core.device.size - core.device.free_count - core.tree.total,
        "entries": sum(resource not in ("link", "probe") for resource, _ in core.ledger.entries),
    }
    wrong = {what: count for what, count in left.items() if count}
    require(not wrong, f"at rest there is left: {wrong}")
