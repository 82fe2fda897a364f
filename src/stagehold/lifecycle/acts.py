"""What the functions of a policy may look at and do, besides the engine's own functions that they stand in for.

Owns no state. Each act keeps the engine's books as the engine itself would; none of them moves a machine.
"""

from __future__ import annotations

from typing import Any

from stagehold.lifecycle.admission import AdmissionRules
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.errors import Misuse
from stagehold.lifecycle.holds import HoldRules
from stagehold.lifecycle.policy import Function, Machines, Own
from stagehold.lifecycle.retries import RetryRules
from stagehold.lifecycle.running import Running
from stagehold.machines import Machine
from stagehold.specs.config import EngineConfig
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import IoCommit


class Acts:
    """Handed to every function of a policy. `m` is the instance that steps; lengths are pages."""

    def __init__(
        self, core: Core, admission: AdmissionRules, holds: HoldRules, *, retries: RetryRules, running: Running
    ) -> None:
        self._core = core
        self._admission = admission
        self._holds = holds
        self._retries = retries
        self._running = running

    # Looking

    @property
    def config(self) -> EngineConfig:
        """The engine's configuration."""
        return self._core.config

    @property
    def running(self) -> int:
        """Requests that are admitted and have not ended."""
        return self._core.committed

    def span(self, m: Machine) -> tuple[int, int]:
        """[first, last) of a hold, or of the hold that a request has a claim on."""
        data = self._hold(m).data
        return data.start, data.last

    def is_ready(self, m: Machine) -> bool:
        """Whether that hold has all its bytes in staging."""
        return self._hold(m).state in (HoldState.READY, HoldState.PLANNED)

    def can_lock(self, m: Machine, pages: int) -> bool:
        """Whether so much of the request's live prefix can be locked, and nobody's promise is touched."""
        return self._core.protectable(m.data.chain, pages)

    def resident(self, m: Machine) -> int:
        """How much of a hold's span, or of a request's prompt, the device has now."""
        data = m.data
        return self._core.matches(data.chain, data.last if m.number in self._core.holds else data.hit_limit)[0]

    def _hold(self, m: Machine) -> Machine:
        return self._core.holds[m.data.hold] if m.number in self._core.requests else m

    # Acting

    def pin(self, m: Machine) -> None:
        """Pin the request's live prefix, as far as the cap and the room allow; give it back with `unpin`."""
        core, data = self._core, m.data
        if data.pin is not None:
            raise Misuse(f"pin({data.handle}): it has a pin; give that back first")
        live = core.matches(data.chain, data.hit_limit)[0]
        pages = live if self._holds.anchor(data, live) is IoCommit.PINNED else 0
        data.pin = core.pin(data.chain, pages, data.namespace)
        core.ledger.take("pin", m.number, data.namespace, pages)

    def unpin(self, m: Machine) -> None:
        """Give the request's pin back, if it has one."""
        core, data = self._core, m.data
        if data.pin is None:
            return
        if core.ledger.give("pin", m.number):
            core.unpin(data.pin, data.namespace)
        data.pin = None
        core.news += 1

    def arm_retry(self, m: Machine) -> None:
        """Let the next launch be due in a retry interval, or when the store is well again, and no sooner."""
        self._retries.arm(m, self._core.limits.retry_interval_ticks)

    def charge(self, m: Machine, pages: int) -> None:
        """Count `pages` behind what was delivered as hit, too, with slots of the request's promise that nobody filled.

        The request was just admitted, and was promised at least so many.
        """
        self._running.extend(m, pages * self.config.page_size, None)
        m.data.store_hit_tokens += pages * self.config.page_size


def in_place(machines: Machines, kind: str, rules: Any, acts: Acts) -> dict[str, Own]:
    """The functions that stand in for rules of the machine `kind`, each bound to the one that it stands in for."""
    named = {name.partition(".")[2]: f for name, f in machines.functions.items() if name.startswith(f"{kind}.")}
    return {name: _bound(function, acts, getattr(rules, name)) for name, function in named.items()}


def _bound(function: Function, acts: Acts, own: Own) -> Own:
    def call(m: Machine, arg: Any = None) -> Any:
        return function(acts, own, m, arg)

    return call
