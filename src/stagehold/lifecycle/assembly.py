"""How the parts of an engine are put together: rules are bound to machines here, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from stagehold.cache.components.full import SPINE
from stagehold.cache.foreseen import Foreseen, Foresight
from stagehold.cache.keys import RankCoordinates
from stagehold.kernels.copies import DeviceBytes, StagingBytes, check_round_trip
from stagehold.kernels.device import usable_device
from stagehold.lifecycle.acts import Acts, in_place
from stagehold.lifecycle.admission import AdmissionRules
from stagehold.lifecycle.breaker import BreakerData, BreakerRules, LinkData, LinkRules
from stagehold.lifecycle.claims import ClaimRules
from stagehold.lifecycle.copies import Bytes, Copies, LaneCopies, Tensors
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.holds import HoldRules
from stagehold.lifecycle.launch import LaunchRules
from stagehold.lifecycle.offers import Offers
from stagehold.lifecycle.parts import Parts, TickRules
from stagehold.lifecycle.policy import Machines, Own
from stagehold.lifecycle.retries import RetryRules
from stagehold.lifecycle.running import Running
from stagehold.lifecycle.tick import Tick
from stagehold.lifecycle.visits import Deliver, Visits
from stagehold.lifecycle.writes import WriteRules
from stagehold.machines import Arm, HandleKey, Journal, Machine, Sink, Stepper, bind
from stagehold.specs.component import ComponentConfig
from stagehold.specs.config import EngineConfig
from stagehold.specs.declare import Deadline, MachineSpec


class Together:
    """Several rule objects as one: a name is looked up in each, in order."""

    def __init__(self, *rules: object) -> None:
        self._rules = rules

    def __getattr__(self, name: str) -> Any:
        for rules in self._rules:
            if hasattr(rules, name):
                return getattr(rules, name)
        raise AttributeError(name)


@dataclass(frozen=True, slots=True)
class Binding:
    """How the machines of one engine are bound: refusals that raise, and the oracle that looks on."""

    strict: bool
    shadow_oracle: bool

    def bind(self, spec: MachineSpec, rules: object, journal: Journal | None, arm: Arm | None = None) -> Stepper:
        """A stepper over `rules`; with the oracle it stops at the first step that `transitions` takes differently."""
        # The tick is stepped by the engine alone, so that a refusal there is never a service's to go on from.
        strict = self.strict or spec.name == "tick"
        bound = bind(spec, decisions=rules, effects=rules, journal=journal, arm=arm, strict=strict)
        if not self.shadow_oracle:
            return bound
        from stagehold.machines.oracle import shadowed  # `transitions` is loaded only where it is asked for

        return shadowed(bound)


def assemble(
    config: EngineConfig,
    sink: Sink,
    copies: Copies | None,
    deliver: Deliver,
    *,
    binding: Binding,
    at: RankCoordinates,
    foresight: Foresight | None = None,
    machines: Machines,
) -> Parts:
    """Build the parts of one engine and bind its machines."""
    journal = Journal(machines.specs, sink)
    kept = journal if config.tier else None  # without ticks nobody would ever close a block
    tensors = attach_bytes(config)
    order = None if foresight is None else Foreseen(foresight)
    copies = copies or LaneCopies(*tensors.values())
    core = Core(config, journal, copies, tensors, at, order=order, checked=binding.strict)
    retries = RetryRules(core)
    launches = LaunchRules(core, retries)
    claims = ClaimRules(core)
    admission = AdmissionRules(core, retries, launches, claims)
    holds = HoldRules(core)
    writes = WriteRules(core, retries)
    breaker = BreakerRules(core, retries)
    link = LinkRules(core)
    offers = Offers(core)
    running = Running(core, admission, offers)
    acts = Acts(core, admission, holds, retries=retries, running=running)
    rules: dict[str, Any] = {
        "request": Together(launches, retries, claims, admission),
        "hold": holds,
        "write": writes,
        "store": breaker,
        "attachment": link,
    }
    own = {name: in_place(machines, name, rule, acts) for name, rule in rules.items()}
    arm = Arming(core, retries, own["request"].get("pace"))
    steps = SimpleNamespace()
    for name, rule in rules.items():
        chosen = Together(SimpleNamespace(**own[name]), rule) if own[name] else rule
        setattr(steps, name, binding.bind(machines.of(name), chosen, kept, arm.of(name)))
    core.steps = steps
    core.breaker = steps.store.birth(BreakerData(), HandleKey("store", 0, b""))
    core.link = steps.attachment.birth(LinkData(), HandleKey("attachment", 0, b""))
    recorded = binding.bind(machines.of("tick"), TickRules(core), kept)
    silent = binding.bind(machines.of("tick"), TickRules(core), None)
    tick = recorded.birth(None, HandleKey("tick", 0, b""))
    phases = Tick(core, retries, holds, writes=writes, offers=offers, breaker=breaker, link=link)
    visits = Visits(core, admission, holds, deliver)
    parts = Parts(core, retries, holds, visits, running, phases, tick, silent, recorded)
    link.decree = parts.let_go_of_the_store
    return parts


def attach_bytes(config: EngineConfig) -> Tensors:
    """The tensors of every component, where the configuration asks for them."""
    tensors = Tensors()
    if config.parts:
        where = usable_device(config.kv_device)
        tensors[SPINE] = _bytes(config, config.device_pages, config.staging_pages, where)
        for one in config.components:
            tensors[one.name] = _bytes(one, one.device_pages, one.staging_pages, where)
    return tensors


def _bytes(layout: EngineConfig | ComponentConfig, device_pages: int, staging_pages: int, where: str) -> Bytes:
    device = DeviceBytes(layout.parts, layout.page_part_bytes, device_pages, where)
    staging = StagingBytes(layout.parts, layout.page_part_bytes, max(1, staging_pages), pinned=where != "cpu")
    check_round_trip(device, staging)
    return Bytes(device, staging)


class Arming:
    """Starts the clock of a state that was just entered, from the limit that its declaration names."""

    def __init__(self, core: Core, retries: RetryRules, pace: Own | None = None) -> None:
        self.core = core
        self.retries = retries
        self._pace = pace

    def of(self, kind: str) -> Callable[[Machine, Deadline], None]:
        """The hook for one machine."""

        def arm(m: Machine, deadline: Deadline) -> None:
            if deadline.limit != "retry_interval_ticks":
                self.core.clock.arm(kind, m, (m.state, deadline.event), self._ticks(m, deadline.limit))
            elif self._pace is not None:
                self._pace(m, None)
            else:
                self.retries.pace(m)

        return arm

    def _ticks(self, m: Machine, limit: str) -> int:
        if limit == "open_limit":
            rest: int = m.data.rest
            return rest
        ticks: int = getattr(self.core.limits, limit)
        return ticks
