"""What two situations must have in common to be the same one: everything the future depends on, and nothing else.

Ticks, numbers and slots are taken out: clocks count as what is left of them, machines by their order, pages of the
tree by their keys and the order of their last use. What all ranks share is told apart from what one of them knows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stagehold.cache.snapshot import nodes_of
from stagehold.lifecycle.clock import Clock
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.parts import Parts
from stagehold.testing.explore.chosen import ChosenCopies, ChosenStore

Told = tuple[Any, ...]
"""Nested tuples and lists of integers, bytes and None."""


def shared(parts: Parts) -> Told:
    """What must be equal on all ranks after every move."""
    core, retries = parts.core, parts.retries
    order = {number: place for place, number in enumerate([*core.requests, *core.holds, *core.writes])}
    order[core.breaker.number] = -1
    order[core.link.number] = -2
    return (
        [_request(core, m, order) for m in core.requests.values()],
        [_hold(core, h, order) for h in core.holds.values()],
        [_write(core, w) for w in core.writes.values()],
        _standing(core),
        [_timers(clock, order) for clock in (core.clock, core.pacing)],
        sorted(due - core.clock.tick for due in core.clock._calls if due > core.clock.tick),  # noqa: SLF001
        _places(retries.untimed, order),
        [(key, _places(waiting, order)) for key, waiting in sorted(retries.waiting.items())],
        _places([m.number for m in parts.phases.queued()], order),
        core.news != parts.phases._looked_at,  # noqa: SLF001
        _tree(core),
        [(o.kind.value, order.get(o.owner, -3), o.good, o.keys, o.place < 0) for o in core.operations.live.values()],
        _advice(core),
        _backlog(core, order),
        (core.uneven, len(core.unsent), len(core.held_back.pages)),
        (core.device.free_count, core.staging.free_count, core.reserved, core.committed, core.quarantined),
    )


def local(core: Core) -> Told:
    """What one rank knows and the others need not: how far each operation is here, and what its store holds."""
    facts, store, copies = core.operations._local, core.store, core.copies  # noqa: SLF001
    assert isinstance(store, ChosenStore), "a small world attaches no other store"
    assert isinstance(copies, ChosenCopies), "a small world has no other copies"
    far = []
    for number, operation in core.operations.live.items():
        asked = store.asked.get(number)
        flies = number in copies.flying if asked is None else not asked.done
        good = 0 if asked is None else asked.good
        here = facts[:, operation.place].tolist() if operation.place >= 0 else []
        far.append((flies, good, here))
    return far, sorted(store.pages)


def _places(numbers: Iterable[int], order: dict[int, int]) -> list[int]:
    return [order.get(number, -3) for number in numbers]


def _timers(clock: Clock, order: dict[int, int]) -> list[Told]:
    """Ticks left to each timer, in the order in which they fire."""
    return [
        (due - clock.tick, order.get(timer.machine.number, -3), int(timer.state), timer.event)
        for due, timers in sorted(clock._wheel.items())  # noqa: SLF001
        for _, timer in sorted(timers.items())
        if clock.applies(timer)
    ]


def _reach(core: Core, receipt: Any) -> int:
    """Where the path that a receipt protects ends; 0 for none, and for an empty one."""
    node = None if receipt is None else core.tree.holds.holders.get(receipt.serial)
    return 0 if node is None else node.end


def _request(core: Core, m: Any, order: dict[int, int]) -> Told:
    data = m.data
    most = max(core.limits.wait_cap_ticks, core.config.wait_complete_ticks)  # no budget is larger
    waited = min(core.clock.tick - data.wait_from, most) if data.wait_from >= 0 else -1
    lesson = data.look_again and core.beliefs.learned(data.chain.page_key(data.missing), data.asked_at)
    asked = (
        data.known_end,
        data.covered_end,
        data.asked_from,
        data.asked_to,
        data.query > 0,
        data.look_again,
        lesson,
        waited,
    )
    room = (data.n_tokens, data.published, data.reserve, len(data.slots), data.claim_tokens, data.barred)
    held = (order.get(data.hold, -1), _reach(core, data.lock), m.number in core.visits)
    return (data.handle.rid, data.handle.attempt, int(m.state), m.issues, m.defers, asked, data.wanted, room, held)


def _hold(core: Core, h: Any, order: dict[int, int]) -> Told:
    data = h.data
    span = (data.key, data.start, data.last, data.base, len(data.staging), data.passed, data.operation > 0)
    pinned = -1 if data.pin is None else data.pin.pages
    joined = core.spans.get((data.key, data.start, data.last)) == h.number
    return (int(h.state), span, _places(data.claims, order), pinned, _reach(core, data.span), data.visitor > 0, joined)


def _write(core: Core, w: Any) -> Told:
    data = w.data
    pause = max(0, data.not_before - core.clock.tick)
    return (int(w.state), list(data.keys), data.first, len(data.staging), pause, data.unwanted, w.tries,
            _reach(core, data.span))  # fmt: skip


def _standing(core: Core) -> Told:
    breaker, link, now = core.breaker, core.link, core.clock.tick
    window = [(now - tick, fault) for tick, fault in breaker.data.window if now - tick < core.limits.suspect_window]
    tests = [-1 if test is None else int(test.reading) for test in (breaker.data.test, link.data.test)]
    young = now - breaker.data.recovered_at < breaker.data.rest
    trips = (breaker.data.trips_left, link.data.trips_left, breaker.data.rest, young)
    return (int(breaker.state), int(link.state), window, tests, trips, len(core.former))


def _tree(core: Core) -> list[Told]:
    """Nodes from the least recently used on: equal trees in another order of use are different."""
    pinned = core.tree.holds.pinheld
    nodes = sorted(nodes_of(core.tree), key=lambda node: node.stamp)
    return [(node.keys, node.start, node.end, node.tokens, node.held, pinned.get(node, 0)) for node in nodes]


def _advice(core: Core) -> Told:
    """What is believed, in the order in which it goes; what is on its way; what staging keeps, by its last use.

    Beliefs are never so old in a search that they count no more.
    """
    beliefs, host, now = core.beliefs, core.host, core.clock.tick
    flying = sorted(beliefs._in_flight.items())  # noqa: SLF001
    absent = [(key, until - now) for key, until in beliefs._absent.items()]  # noqa: SLF001
    kept = sorted(host._pages, key=lambda key: host._pages[key].used)  # noqa: SLF001
    shared = [core.staging.references(host._pages[key].page) for key in kept]  # noqa: SLF001
    every = [host._ends, *host._lanes.values()]  # noqa: SLF001
    return list(beliefs._stored), absent, flying, kept, shared, [list(ends) for two in every for ends in two]  # noqa: SLF001


def _backlog(core: Core, order: dict[int, int]) -> Told:
    """Which queued write stands where, and who is asked after next."""
    backlog, now = core.backlog, core.clock.tick
    lanes = [
        (name, _places(lane.small, order), _places(lane.large, order), lane.passed)
        for name, lane in sorted(backlog._lanes.items())  # noqa: SLF001
    ]
    behind = [(order.get(number, -3), _places(lane, order)) for number, lane in backlog._behind.items()]  # noqa: SLF001
    paused = [
        (due - now, [order.get(w.number, -3) for w in writes if w.number in backlog._place])  # noqa: SLF001
        for due, writes in sorted(backlog._paused.items())  # noqa: SLF001
    ]
    rota = _places(backlog._rota, order)  # noqa: SLF001
    return lanes, behind, paused, rota, backlog.unfinished
