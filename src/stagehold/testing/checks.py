"""What must hold after every act of a World, and what must be left when everything has ended.

Owns the questions, in terms of bytes, owners and pages. It compares the engine with the World's own knowledge, never
with what the engine believes of itself alone, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np

from stagehold.cache.components.full import SPINE
from stagehold.cache.keys import Chain
from stagehold.cache.residency import IN_HOST
from stagehold.cache.stores.page import HEADER_BYTES
from stagehold.cache.stores.simulated import Medium
from stagehold.kernels.copies import DeviceBytes
from stagehold.lifecycle.books import check as balance
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.engine import Engine
from stagehold.lifecycle.operations import Kind
from stagehold.lifecycle.stocks import Stock
from stagehold.machines import Machine
from stagehold.specs.hold import HoldState
from stagehold.specs.request import RequestState
from stagehold.specs.write import WriteState
from stagehold.testing.guests import Guest, Known, Library
from stagehold.testing.watch import WAITING, require
from stagehold.testing.watched import WatchedStore

Place = tuple[str, int]
"""A staging page of a component."""

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
    assert core.tensors is not None, "a World has bytes"
    written: set[Place] = set()
    watched = [store for store in (*core.former, core.store) if isinstance(store, WatchedStore)]
    for ticket, addresses in [lent for store in watched for lent in store.lent.items()]:
        places = _places(core, addresses)
        operation = core.operations.live.get(ticket)
        if operation is None or not places:
            require(not places, f"operation {ticket} is over for the engine, and the store still has its buffers")
            continue
        places = places[operation.good - operation.ready :] if operation.kind is Kind.FETCH else places
        owned = _owned(core, operation.owner)
        require(set(places) <= owned, f"operation {ticket} uses staging {places}, its owner has {sorted(owned)}")
        if operation.kind is Kind.FETCH:
            require(written.isdisjoint(places), f"two fetches write to the same of {places}")
            written.update(places)


def _places(core: Core, addresses: Sequence[int]) -> list[Place]:
    """Component and staging page of each address that lies in one."""
    ranges = []
    for stock in core.stocks:
        tensor, size = core.bytes[stock.name].staging.tensor, core.bytes[stock.name].staging.page_bytes
        ranges.append((tensor.data_ptr(), size, stock.staging.size, stock.name))
    return [
        (name, (address - base) // size)
        for address in addresses
        for base, size, pages, name in ranges
        if base <= address < base + size * pages
    ]


def _owned(core: Core, owner: int) -> set[Place]:
    """Staging of a hold or a write."""
    if owner in core.holds:
        data = core.holds[owner].data
        places = {(SPINE, page) for page in data.staging}
        return places.union((name, page) for name, part in data.parts.items() for page in part.staging)
    if owner in core.writes:
        data = core.writes[owner].data
        return {(data.component, page) for page in data.staging}
    return set()


def check_holds(core: Core, library: Library) -> None:
    """Staging of a verified hold has the right bytes; what a pin or a copy protects is in the tree."""
    for h in core.holds.values():
        data = h.data
        if h.state in (HoldState.READY, HoldState.PLANNED, HoldState.LOADING):
            _is_staged(core, h, library)
        if data.pin is not None:
            _is_live(core, data.chain, data.pin.pages, f"the anchor of hold {h.number}")
        if data.span is not None:
            _is_live(core, data.chain, data.span.pages, f"what hold {h.number} loads")
    for w in core.writes.values():
        if w.state is WriteState.COPYING:
            _is_live(core, w.data.chain, w.data.last, f"what write {w.number} copies")
            has = core.tree.resident(w.data.chain, w.data.first, w.data.last, w.data.component)
            require(has == [(w.data.first, w.data.last)], f"write {w.number} copies what has gone: {has} is left")
            require(bool(w.data.staging), f"write {w.number} copies to nowhere")


def _is_staged(core: Core, h: Machine, library: Library) -> None:
    """All that a verified hold declares is in staging, whole and right."""
    data = h.data
    require(len(data.staging) == data.last - data.base, f"hold {h.number} has {data.staging} for {data}")
    staged = [(SPINE, data.base + i, page) for i, page in enumerate(data.staging)]
    for name, part in data.parts.items():
        first = data.last - len(part.staging)
        per_page = core.stocks.part(name).per_page
        require(first == (part.first if per_page else data.last - 1), f"hold {h.number}: {part} of {name} for {data}")
        staged += [(name, first + i, page) for i, page in enumerate(part.staging)]
    for name, at, page in staged:
        found = bytes(core.bytes[name].page(page))
        what = f"hold {h.number} is {h.state.name}, page {at} of {name} is wrong"
        require(found == library.body(data.chain, at, name), what)


def _is_live(core: Core, chain: Chain, pages: int, what: str) -> None:
    live = core.tree.full_match(chain, pages)
    require(live == pages, f"{what} should be live up to page {pages} and is up to {live}")


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


def check_read(engine: Engine, guest: Guest) -> None:
    """Whatever a forward of this request would read has the right bytes, of every component."""
    for one in guest.known:
        slots = engine.page_slots(guest.handle, None if one.name == SPINE else one.name)
        if one.per_page:
            _check_pages(engine, guest, one, slots)
        else:
            _check_state(engine, guest, one, slots)


def _check_pages(engine: Engine, guest: Guest, one: Known, slots: Sequence[int]) -> None:
    positions = np.arange(one.reach(guest.computed), guest.computed)
    pages = np.asarray(slots, dtype=np.int64)[positions // one.page_size]
    nowhere = positions[pages < 0]
    require(not (one.gates and nowhere.size), f"{guest.handle}: {one.name} has no slots at tokens {nowhere.tolist()}")
    positions, pages = positions[pages >= 0], pages[pages >= 0]
    found = _by_token(engine, one)[:, pages, positions % one.page_size]
    wrong = (found != guest.kv[one.name][:, positions]).any(axis=(0, 2))
    require(not wrong.any(), f"{guest.handle}: wrong bytes at tokens {positions[wrong].tolist()} of {one.name}")


def _check_state(engine: Engine, guest: Guest, one: Known, slots: Sequence[int]) -> None:
    """The state that it computes in is that behind all its tokens, unless it could not begin with one."""
    require(len(slots) == 1, f"{guest.handle} computes {one.name} in slots {slots}")
    if guest.computed and one.name not in guest.strayed:
        right = guest.kv[one.name][:, guest.computed - 1]
        found = _by_token(engine, one)[:, slots[0], 0]
        require(bool((found == right).all()), f"{guest.handle}: wrong {one.name} behind token {guest.computed}")


def note_strays(engine: Engine, guest: Guest) -> None:
    """At admission: a state that gates nothing may be missing, and what it computes from there is nobody else's."""
    for one in guest.known:
        if not one.per_page and not one.gates and guest.computed:
            (slot,) = engine.page_slots(guest.handle, one.name)
            if (_by_token(engine, one)[:, slot, 0] != guest.kv[one.name][:, guest.computed - 1]).any():
                guest.strayed.add(one.name)


def write_kv(engine: Engine, guest: Guest, last: int) -> None:
    """What a forward does: the right bytes of tokens [computed, last) in their slots, and each state moves on."""
    positions = np.arange(guest.computed, last)
    for one in guest.known:
        slots = np.asarray(engine.page_slots(guest.handle, None if one.name == SPINE else one.name), dtype=np.int64)
        target, kv = _by_token(engine, one), guest.kv[one.name]
        if one.per_page:
            pages = slots[positions // one.page_size]
            require(
                bool((pages >= 0).all()), f"{guest.handle}: {one.name} has no place for tokens {positions.tolist()}"
            )
            target[:, pages, positions % one.page_size] = kv[:, positions]
        else:
            stray = one.name in guest.strayed
            target[:, slots[0], 0] = ~kv[:, last - 1] if stray else kv[:, last - 1]


def _by_token(engine: Engine, one: Known) -> Any:
    """The pool of a component as (parts, slots, tokens of a page, bytes); a state counts as one token."""
    array = device_bytes(engine, one.name).array()
    return array.reshape(*array.shape[:2], one.page_size if one.per_page else 1, -1)


def device_bytes(engine: Engine, component: str) -> DeviceBytes:
    """The tensor of any component."""
    found = engine.device_bytes if component == SPINE else engine.component_bytes(component)
    assert found is not None, "a World has bytes"
    return found


def check_tree(core: Core, library: Library) -> None:
    """The tree's own count, and the bytes of everything in it that the library can name."""
    core.tree.check()
    for chain in library.chains.values():
        live = core.tree.full_match(chain)
        for one in library.known:
            bytes_of = core.bytes[one.name].device.array()
            for page in range(live):
                if core.tree.missing(chain, page, page + 1, one.name):
                    continue
                (slot,) = core.tree.slots(chain, page, page + 1, one.name)
                right = library.body(chain, page, one.name)
                require(bytes_of[:, slot].tobytes() == right, f"the tree shows a wrong page {page} of {one.name}")


def check_hosts(core: Core, library: Library) -> None:
    """What host memory keeps has the right bytes, of every component."""
    names = {key: name for name, key in library.beliefs.items()}
    for stock in core.stocks:
        if core.book is not None and core.is_tier:
            size, hosted = -len(stock.tag) or None, stock.host.keys()
            core.book.check("in host memory", stock.name, {key[:size] for key in hosted}, IN_HOST)
        for key, kept in stock.host._pages.items():  # noqa: SLF001 - nobody else may look without a use
            found = bytes(core.bytes[stock.name].page(kept.page))
            right = library.bodies[names[key]]
            require(found == right, f"{stock.name} page {key[:4].hex()} is kept in host memory, and is wrong")


def check_beliefs(core: Core, library: Library, medium: Medium, lost: AbstractSet[bytes]) -> None:
    """A store that loses nothing by itself has every page that is believed stored, but those in `lost`."""
    for name, key in library.beliefs.items():
        believed = core.beliefs.knows(key)
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
        "operations": sum(operation.kind not in TESTS for operation in core.operations.live.values()),
        **unreturned(core),
    }
    wrong = {what: count for what, count in left.items() if count}
    require(not wrong, f"at rest there is left: {wrong}")


def unreturned(core: Core) -> dict[str, int]:
    """What nobody may have any more once no machine lives: all of it 0 if everything was given back."""
    return {
        "visits": len(core.visits),
        "spans": len(core.spans),
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
        **{what: count for stock in core.stocks.others for what, count in _left_of(core, stock).items()},
        "entries": sum(resource not in ("link", "probe") for resource, _ in core.ledger.entries),
    }


def _left_of(core: Core, stock: Stock) -> dict[str, int]:
    """The same of another component."""
    return {
        f"{stock.name} reserved": stock.reserved,
        f"{stock.name} written": stock.written,
        f"{stock.name} staging": stock.staging.used - len(stock.host),
        f"{stock.name} device": stock.device.size - stock.device.free_count - len(core.tree.owned(stock.name)),
    }
