"""How the parts of an engine are put together: rules are bound to machines here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from stagehold.kernels.copies import DeviceBytes, StagingBytes, check_round_trip
from stagehold.lifecycle.admission import AdmissionRules
from stagehold.lifecycle.breaker import BreakerData, BreakerRules, LinkData, LinkRules
from stagehold.lifecycle.claims import ClaimRules
from stagehold.lifecycle.copies import Bytes, Copies
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.errors import Diverged
from stagehold.lifecycle.facts import unpack
from stagehold.lifecycle.holds import HoldRules
from stagehold.lifecycle.launch import LaunchRules
from stagehold.lifecycle.ranks.solo import Facts
from stagehold.lifecycle.running import Running
from stagehold.lifecycle.tick import Tick
from stagehold.lifecycle.visits import Deliver, Visits
from stagehold.lifecycle.writes import WriteRules
from stagehold.machines import Arm, HandleKey, Journal, Machine, Sink, Stepper, bind
from stagehold.specs.attachment import ATTACHMENT, AttachmentState
from stagehold.specs.config import EngineConfig
from stagehold.specs.declare import Deadline, MachineSpec
from stagehold.specs.hold import HOLD, HoldState
from stagehold.specs.outcomes import Agreed, DivergencePolicy
from stagehold.specs.request import REQUEST
from stagehold.specs.store import STORE
from stagehold.specs.tick import TICK, TickState
from stagehold.specs.write import WRITE, WriteState


class Together:
    """Several rule objects as one: a name is looked up in each, in order."""

    def __init__(self, *rules: object) -> None:
        self._rules = rules

    def __getattr__(self, name: str) -> Any:
        for rules in self._rules:
            if hasattr(rules, name):
                return getattr(rules, name)
        raise AttributeError(name)


class TickRules:
    """Decision `agreed`; effects of the two rows that are recorded."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def agreed(self, _m: Machine, facts: Any) -> Agreed:
        """SAME when every rank closed the same block last; what else happens is the policy's."""
        if unpack(facts).same:
            return Agreed.SAME
        stop = self.core.config.divergence_policy is DivergencePolicy.STOP
        return Agreed.DIVERGED if stop else Agreed.QUARANTINE

    def quarantine(self, _m: Machine, _arg: Any) -> None:
        """Go on without the store tier: every rank detaches in this very tick, before it applies anything."""
        if self.core.link.state in (AttachmentState.ATTACHING, AttachmentState.ATTACHED):
            self.core.post(self.core.steps.attachment.detach, self.core.link)

    def halt(self, _m: Machine, _arg: Any) -> None:
        """Nothing is left to do when the engine closes."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What an engine is made of."""

    core: Core
    launches: LaunchRules
    holds: HoldRules
    visits: Visits
    running: Running
    phases: Tick
    tick: Machine
    silent: Stepper  # steps the ordinary pass, which leaves no record
    recorded: Stepper  # steps what stops a pass, or changes what it does

    def agree(self, agreed: Facts) -> None:
        """Ranks that did not record the same stop here, before anything of this tick is applied."""
        step = self.silent if unpack(agreed).same else self.recorded
        if step.agreed(self.tick, agreed) is Agreed.DIVERGED:
            self.phases.record()
            raise Diverged(f"tick {self.core.clock.tick}: the ranks' blocks of the tick before are not the same")
        self.core.settle()

    def drop_all(self) -> None:
        """Every hold and write that is not bound to an IO is told to stop."""
        core = self.core
        for h in list(core.holds.values()):
            if h.state in (HoldState.PARKED, HoldState.FETCHING, HoldState.READY):
                core.steps.hold.drop(h)
                core.settle()
        for w in list(core.writes.values()):
            w.data.unwanted = True
            if w.state in (WriteState.QUEUED, WriteState.STORING):
                core.steps.write.drop(w)
                core.settle()

    def let_go_of_the_store(self) -> None:
        """The same, and nobody waits to ask the store again."""
        self.drop_all()
        self.launches.detached()

    def drop_queued(self) -> None:
        """Every write that has not begun is given up."""
        core = self.core
        for w in list(core.writes.values()):
            if w.state is WriteState.QUEUED:
                core.steps.write.drop(w)
                core.settle()

    def run_out(self) -> None:
        """The store is closed, so every IO has ended: give its buffers back, by operation number."""
        operations = self.core.operations
        for operation in sorted(operations.live.values(), key=lambda operation: operation.number):
            if not operations.withdraw(operation):
                operations.retire(operation)
            operation.good = 0
            self.phases.end(operation)
            if operations.live and operation.number in operations.live:
                raise AssertionError("an operation began while the engine was closing")

    def stop(self) -> None:
        """The pass is over for good, unless a divergence has ended it before; the last block is closed."""
        if self.tick.state is not TickState.STOPPED:
            self.recorded.halt(self.tick)
        if self.core.config.tier:
            self.phases.record()

    def take_apart(self) -> None:
        """Cut the ties that lead from the parts back to each other, so that a closed engine is freed at once."""
        for stepper in (*vars(self.core.steps).values(), self.silent, self.recorded):
            stepper.unbind()
        vars(self.core.steps).clear()
        self.phases.link_rules.decree = _no_decree


def _no_decree() -> None:
    """What is told to drop everything once nothing is left."""


@dataclass(frozen=True, slots=True)
class Binding:
    """How the machines of one engine are bound: refusals that raise, and the oracle that looks on."""

    strict: bool
    shadow_oracle: bool

    def bind(self, spec: MachineSpec, rules: object, journal: Journal | None, arm: Arm | None = None) -> Stepper:
        """A stepper over `rules`; with the oracle it stops at the first step that `transitions` takes differently."""
        # The tick is stepped by the engine alone, so that a refusal there is never a service's to go on from.
        strict = self.strict or spec is TICK
        bound = bind(spec, decisions=rules, effects=rules, journal=journal, arm=arm, strict=strict)
        if not self.shadow_oracle:
            return bound
        from stagehold.machines.oracle import shadowed  # `transitions` is loaded only where it is asked for

        return shadowed(bound)


def assemble(config: EngineConfig, sink: Sink, copies: Copies, deliver: Deliver, *, binding: Binding) -> Parts:
    """Build the parts of one engine and bind its machines."""
    journal = Journal(sink=sink)
    kept = journal if config.tier else None  # without ticks nobody would ever close a block
    core = Core(config, journal, copies, attach_bytes(config))
    launches = LaunchRules(core)
    claims = ClaimRules(core, launches)
    admission = AdmissionRules(core, launches, claims)
    holds = HoldRules(core)
    writes = WriteRules(core, launches)
    breaker = BreakerRules(core, launches)
    link = LinkRules(core)
    arm = Arming(core, launches)
    rules: dict[str, tuple[Any, object]] = {
        "request": (REQUEST, Together(launches, claims, admission)),
        "hold": (HOLD, holds),
        "write": (WRITE, writes),
        "store": (STORE, breaker),
        "attachment": (ATTACHMENT, link),
    }
    steps = SimpleNamespace()
    for name, (spec, rule) in rules.items():
        setattr(steps, name, binding.bind(spec, rule, kept, arm.of(name)))
    core.steps = steps
    core.breaker = steps.store.birth(BreakerData(), HandleKey("store", 0, b""))
    core.link = steps.attachment.birth(LinkData(), HandleKey("attachment", 0, b""))
    recorded = binding.bind(TICK, TickRules(core), kept)
    silent = binding.bind(TICK, TickRules(core), None)
    tick = recorded.birth(None, HandleKey("tick", 0, b""))
    phases = Tick(core, launches, holds, breaker, link)
    visits = Visits(core, admission, holds, deliver)
    running = Running(core, admission, writes)
    parts = Parts(core, launches, holds, visits, running, phases, tick, silent, recorded)
    link.decree = parts.let_go_of_the_store
    return parts


def attach_bytes(config: EngineConfig) -> Bytes | None:
    """The tensors of a configuration that asks for them."""
    if config.parts == 0:
        return None
    device = DeviceBytes(config.parts, config.page_part_bytes, config.device_pages)
    staging = StagingBytes(config.parts, config.page_part_bytes, max(1, config.staging_pages))
    check_round_trip(device, staging)
    return Bytes(device, staging)


class Arming:
    """Starts the clock of a state that was just entered, from the limit that its declaration names."""

    def __init__(self, core: Core, launches: LaunchRules) -> None:
        self.core = core
        self.launches = launches

    def of(self, kind: str) -> Callable[[Machine, Deadline], None]:
        """The hook for one machine."""

        def arm(m: Machine, deadline: Deadline) -> None:
            if deadline.limit == "retry_interval_ticks":
                self.launches.pace(m)
            else:
                self.core.clock.arm(kind, m, (m.state, deadline.event), self._ticks(m, deadline.limit))

        return arm

    def _ticks(self, m: Machine, limit: str) -> int:
        if limit == "open_limit":
            rest: int = m.data.rest
            return rest
        ticks: int = getattr(self.core.limits, limit)
        return ticks
