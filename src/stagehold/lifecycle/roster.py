"""Who is alive: requests by id, the attempt that an id has come to, and how requests come and go.

Owns the names. The machines are the core's, and what a state owns is given back by the rules that took it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from stagehold.cache.keys import Chain
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import Handle, RequestData
from stagehold.lifecycle.errors import Misuse, UnknownHandle
from stagehold.lifecycle.parts import Parts
from stagehold.machines import HandleKey, Machine
from stagehold.specs.request import RequestState

PAST_IDS = 1 << 16
"""Ids of which the last attempt is remembered once it is over: more than any scheduler has handles of, and bounded."""


class Roster:
    """Live requests by id. `past` has the last attempts of ids that nobody lives under now, oldest first."""

    def __init__(self) -> None:
        self.alive: dict[str, Machine] = {}
        self.past: OrderedDict[str, int] = OrderedDict()

    def enter(self, parts: Parts, rid: str, chain: Chain, max_new_tokens: int) -> Handle:
        """Bring a request to life; it is launched in the next tick."""
        core, page_size = parts.core, parts.core.config.page_size
        attempt = self.past.pop(rid, -1) + 1  # counted from 0
        handle, namespace = Handle(rid, attempt), chain.namespace.digest(page_size)
        hit_limit = (chain.n_tokens - 1) // page_size
        data = RequestData(handle, chain, namespace, chain.n_tokens, max_new_tokens, hit_limit)
        m: Machine = core.steps.request.birth(data, HandleKey(rid, attempt, namespace))
        core.requests[m.number] = self.alive[rid] = m
        core.news += core.quotas.arrived(namespace, core.clock.tick)
        if core.config.tier:
            parts.phases.arrivals.append(m)
        return handle

    def leave(self, core: Core, m: Machine, step: Callable[[Machine], Any]) -> None:
        """Take a request out of the world by its last step; an open visit to it ends, too."""
        core.visits.pop(m.number, None)
        step(m)
        core.settle()
        core.clock.disarm(m)
        del core.requests[m.number]
        core.quotas.left(m.data.namespace)
        handle: Handle = m.data.handle
        del self.alive[handle.rid]
        self.past[handle.rid] = handle.attempt
        if len(self.past) > PAST_IDS:
            self.past.popitem(last=False)

    def find(self, handle: Handle) -> Machine:
        """The live request of a handle."""
        if not isinstance(handle, Handle):
            raise Misuse(f"expected the Handle that arrive gave, got {handle!r}")
        m = self.alive.get(handle.rid)
        if m is None or m.data.handle != handle:
            raise UnknownHandle(
                f"{handle} is not alive here" + (f"; {handle.rid!r} lives as {m.data.handle}" if m else "")
            )
        return m

    def committed(self, handle: Handle, call: str) -> Machine:
        """The same, and it runs."""
        m = self.find(handle)
        if m.state is not RequestState.COMMITTED:
            raise Misuse(f"{call}({handle}): it is {m.state.name.lower()}; only a committed request runs")
        return m
