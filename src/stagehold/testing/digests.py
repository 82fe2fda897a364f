"""One number for what an engine's future depends on, with ticks, numbers and slots taken out of it.

So that a search can tell what it has seen: clocks count as what is left of them, machines by their order, nodes of
the tree by their keys and the order of their last use. Bytes are left out; they follow from the keys, or a check fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

from stagehold.cache.node import Node
from stagehold.cache.snapshot import nodes_of
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.parts import Parts


def digest_of(parts: Parts) -> bytes:
    """16 bytes over machines, tree, pools, operations, beliefs, host tier and simulated stores."""
    core = parts.core
    order = {number: place for place, number in enumerate([*core.requests, *core.holds, *core.writes])}
    left = _timers(core)
    retries = parts.retries
    told = (
        [_request(core, m, order, left) for m in core.requests.values()],
        [_hold(h, order, left) for h in core.holds.values()],
        [_write(core, w, left) for w in core.writes.values()],
        _standing(core, left),
        _named(retries.untimed, order),
        [(key, _named(waiting, order)) for key, waiting in sorted(retries.waiting.items())],
        _named((m.number for m in parts.phases.queued()), order),
        _tree(core),
        [(o.kind, order.get(o.owner), o.good, o.place >= 0) for o in core.operations.live.values()],
        [_store(core, store) for store in (*core.former, core.store) if isinstance(store, SimulatedStore)],
        _advice(core),
        [(stock.device.free_count, stock.staging.free_count, stock.reserved) for stock in core.stocks],
    )
    return blake2b(repr(told).encode(), digest_size=16).digest()


def _named(numbers: Iterable[int], order: dict[int, int]) -> list[int | None]:
    return [order.get(number) for number in numbers]


def _timers(core: Core) -> dict[int, int]:
    """Ticks left of each machine's clock."""
    clock = core.clock
    wheel = clock._wheel.items()  # noqa: SLF001 - nobody else asks when a timer falls due
    return {t.machine.number: due - clock.tick for due, timers in wheel for t in timers.values() if clock.applies(t)}


def _request(core: Core, m: Any, order: dict[int, int], left: dict[int, int]) -> tuple[Any, ...]:
    data = m.data
    waited = core.clock.tick - data.wait_from if data.wait_from >= 0 else -1
    key = data.chain.root_key + data.chain.tokens.tobytes()
    counts = (
        m.issues,
        m.defers,
        data.known_end,
        data.covered_end,
        data.asked_from,
        data.query > 0,
        data.look_again,
        waited,
    )
    room = (data.prompt_tokens, data.max_new_tokens, data.n_tokens, data.published, data.reserve, len(data.slots))
    shares = [(name, [slot >= 0 for slot in share.slots], share.reserve) for name, share in data.shares.items()]
    return (key, m.state, counts, room, shares, order.get(data.hold), left.get(m.number), m.number in core.visits)


def _hold(h: Any, order: dict[int, int], left: dict[int, int]) -> tuple[Any, ...]:
    data = h.data
    pinned = None if data.pin is None else data.pin.pages
    known = (data.key, data.start, data.last, data.base, pinned, len(data.staging), data.operation > 0)
    parts = [(name, part.first, len(part.staging)) for name, part in data.parts.items()]
    return (h.state, known, parts, _named(data.claims, order), data.passed, left.get(h.number))


def _write(core: Core, w: Any, left: dict[int, int]) -> tuple[Any, ...]:
    data = w.data
    pause = max(0, data.not_before - core.clock.tick)
    return (
        w.state,
        data.component,
        data.keys,
        data.first,
        len(data.staging),
        pause,
        data.unwanted,
        w.tries,
        left.get(w.number),
    )


def _standing(core: Core, left: dict[int, int]) -> tuple[Any, ...]:
    breaker, link = core.breaker, core.link
    window = [(core.clock.tick - tick, fault) for tick, fault in breaker.data.window]
    tests = [None if test is None else test.reading for test in (breaker.data.test, link.data.test)]
    clocks = (left.get(breaker.number), left.get(link.number))
    healed = core.clock.tick - breaker.data.recovered_at < breaker.data.rest
    return (breaker.state, breaker.data.rest, breaker.data.trips_left, healed, window, link.state, tests, clocks)


def _tree(core: Core) -> list[tuple[Any, ...]]:
    """Nodes from the least recently used on; equal trees in another order of use are different."""
    pinned = core.tree.holds.pinheld
    nodes = sorted(nodes_of(core.tree), key=lambda node: node.stamp)
    place = {node: number for number, node in enumerate(nodes)}
    rings = [(part.name, [place[node] for node in part.ring_members()]) for part in core.tree.parts]
    told = [
        (node.keys, node.start, node.end, node.tokens, node.held, pinned.get(node, 0), _cells(node)) for node in nodes
    ]
    return [*told, *rings]


def _cells(node: Node) -> list[tuple[int, int]]:
    """What other components have at a node, and how often it is locked."""
    return [(len(cell.slots), cell.locks) for cell in node.cells]


def _advice(core: Core) -> tuple[Any, ...]:
    """What is believed, what is on its way, what the host tier keeps (least recently used first)."""
    beliefs, hosts = core.beliefs, [stock.host.keys() for stock in core.stocks]
    absent = sorted((key, until - core.clock.tick) for key, until in beliefs._absent.items())  # noqa: SLF001
    return (sorted(beliefs._stored), sorted(beliefs._in_flight), absent, hosts)  # noqa: SLF001


def _store(core: Core, store: SimulatedStore) -> tuple[Any, ...]:
    """Pages held, operations under way with the ticks left to them, and whether it stalls."""
    flying = [
        (int(found.kind), found.keys, found.good, store._due[ticket] - core.clock.tick)  # noqa: SLF001
        for ticket, found in sorted(store._operations.items())  # noqa: SLF001
    ]
    return (store.keys(), flying, store._stalled, store._fail_next)  # noqa: SLF001
