"""Retries of *request*: when one that waits in `retry` is launched again.

One timer a request, shortened by our own writes and by the store's recovery. Whatever is armed for a request is armed
when it enters `retry` and cleared when it leaves, by `pace` and `leave_retry` alone; `due` is sent by `send_due` alone.
"""

from __future__ import annotations

from typing import Any

from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import RequestData
from stagehold.machines import Machine
from stagehold.specs.request import RequestState


class RetryRules:
    """The effect `due_now`, and what else arms a retry, wakes it, or clears it."""

    def __init__(self, core: Core) -> None:
        self.core = core
        self.untimed: dict[int, None] = {}  # requests in `retry` without a timer, in order of arrival there
        self.waiting: dict[bytes, dict[int, None]] = {}  # last wanted page key -> requests that a write may wake

    # Arming and clearing

    def pace(self, m: Machine) -> None:
        """Arm the retry of a request that enters `retry`.

        Nothing is armed while the breaker is open: its recovery sends `due`. Where a write has stored the first
        missing page since the store was asked, the retry is due at once; else the write of the last one wakes it.
        """
        core, data = self.core, m.data
        look_again, data.look_again = data.look_again, False
        missing = data.chain.page_key(data.missing)
        learned = not core.store_open and core.beliefs.learned(missing, data.asked_at)
        if look_again and (learned or core.hosted_end(data.chain, data.asked_from, data.hit_limit)):
            core.post(self._send_due, m)
            return
        self.arm(m, core.limits.retry_interval(m.issues))
        if not core.store_open:
            data.wanted = self._wanted_key(data)
            self.waiting.setdefault(data.wanted, {})[m.number] = None

    def arm(self, m: Machine, interval: int) -> None:
        """The timer alone, of `interval` ticks; where there is none, the store's recovery makes the retry due."""
        core = self.core
        if core.store_open or interval == 0:
            core.pacing.disarm(m)
            self.untimed[m.number] = None
        else:
            core.pacing.arm("request", m, (RequestState.RETRY, "due"), interval)

    def _wanted_key(self, data: RequestData) -> bytes:
        """The end of what is missing: the last page that a write of ours is bringing, else the last page of all."""
        beliefs = self.core.beliefs
        if beliefs.flying:
            tags = [stock.tag for stock in self.core.stocks][::-1]
            for page in range(data.hit_limit - 1, data.asked_from - 1, -1):
                for tag in tags:
                    if beliefs.in_flight(key := data.chain.page_key(page) + tag):
                        return key
        return data.chain.page_key(data.hit_limit - 1)

    def leave_retry(self, m: Machine) -> None:
        """Clear whatever was armed; called by every effect that may take a request out of `retry`."""
        self.core.pacing.disarm(m)
        self.untimed.pop(m.number, None)
        waiting = self.waiting.get(m.data.wanted)
        if waiting is not None:
            waiting.pop(m.number, None)
            if not waiting:
                del self.waiting[m.data.wanted]

    # What makes a retry due

    def due_now(self, m: Machine, _arg: Any) -> None:
        """The next launch comes before the next admission."""
        self.core.post(self._send_due, m)

    def send_due(self, m: Machine) -> None:
        """What was armed is consumed by the one event that it sends; nothing, where the request has moved on."""
        if m.state is RequestState.RETRY:
            self.leave_retry(m)
            self.core.steps.request.due(m)

    def _send_due(self, m: Machine, _arg: Any) -> None:
        self.send_due(m)

    def wake(self, keys: list[bytes]) -> None:
        """Our own write of `keys` was acknowledged: retries that miss just up to one of them are due."""
        if self.core.store_open:
            return
        for key in keys:
            for number in list(self.waiting.get(key, ())):
                self.core.post(self._send_due, self.core.requests[number])

    def detached(self) -> None:
        """No store is asked any more: every retry is due, and finds that. What the last one had is of no use."""
        for m in self.core.requests.values():
            m.data.known_end, m.data.consulted = 0, False
            if m.state is RequestState.RETRY:
                self.core.post(self._send_due, m)

    def recovered(self) -> None:
        """The store answers again: every retry without a timer is due."""
        for number in list(self.untimed):
            self.core.post(self._send_due, self.core.requests[number])
