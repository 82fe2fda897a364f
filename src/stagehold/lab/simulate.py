"""A whole trace through the real engine and scheduler in virtual time, by a cost model and a simulated store.

It owns the loop and the clock: a pass lasts as long as the cost model says, requests come by the trace's own times,
and nothing waits for anything real. The same options give the same figures and the same digest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from stagehold import AttachmentState, AuditLog, Chain, Engine, EngineConfig, FetchGate, HostMode, Limits, Namespace
from stagehold.lab.clock import StoreUnusable
from stagehold.lab.expand import Scale, prompt_of
from stagehold.lab.foresight import Future
from stagehold.lab.policies.policy import Policy
from stagehold.lab.policies.shipped import LIVE
from stagehold.lab.sessions import by_users
from stagehold.lab.simulate_series import Outcome, Samples, Tally
from stagehold.lab.stats_prefixes import Prefixes
from stagehold.lab.traces import Format, TraceError, TraceRequest, read_trace, shipped_trace
from stagehold.lab.virtual_costs import CostModel
from stagehold.lab.virtual_reads import Relaunches
from stagehold.lab.virtual_runner import BODY_BYTES, VirtualRunner, VirtualScheduler
from stagehold.lab.virtual_store import LinkSpeed, VirtualClock, VirtualStore

STAGING_RATIO = {HostMode.BUFFER_ONLY: 1.2, HostMode.CACHE: 2.0}
IDLE_NS = 5_000_000
"""How long a pass without work lasts: an idle loop is paced."""
QUIET_PASSES = 8
"""So many passes with nothing to do and nothing under way, and time may jump to the next arrival."""
STALLED_PASSES = 20_000
DRAIN_TICKS = 200_000

OnProgress = Callable[[int, int], None]
"""Called with (requests finished, requests in all)."""


class Stalled(RuntimeError):
    """No request moved for `STALLED_PASSES` passes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """What to simulate. `device_pages` and `staging_pages` of 0 follow from `device_tokens` and the mode.

    `policy` says how pages are brought back; one without a tier has neither host memory nor a store, which is what the
    others are measured against.
    `token_budget` tokens may be computed in a pass, which stands for `steps_per_pass` decode steps (0: what makes about
    10 ms). Without a `store` host memory serves alone. `store_bytes` of 0: the store keeps everything. With `users` the
    trace's sessions are dealt out to so many, and pauses within a session cut to `longest_pause_s`. `settings` are
    further ones of `EngineConfig`; they go before all others, and the policy's own before them. With `belady` pages
    leave the device by their next use in the trace, the farthest first. Where the fetch gate is on, it is told what the
    cost model computes in the time of an idle pass, unless `settings` say otherwise. With `audit` the audit log is
    written there.
    """

    cost: CostModel
    device_tokens: int
    trace: Path = field(default_factory=shipped_trace)
    trace_format: Format | None = None
    requests: int | None = None
    users: int = 0
    longest_pause_s: float = 30.0
    scale: Scale = field(default_factory=lambda: Scale(512))
    page_size: int = 64
    device_pages: int = 0
    staging_pages: int = 0
    mode: HostMode = HostMode.BUFFER_ONLY
    policy: Policy = LIVE
    token_budget: int = 2048
    running_limit: int = 128
    steps_per_pass: int = 0
    store: bool = True
    link: LinkSpeed = field(default_factory=LinkSpeed)
    store_bytes: int = 0
    limits: Limits = field(default_factory=Limits)
    pin_fraction: float = 0.5
    belady: bool = False
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    strict: bool = False
    audit: Path | None = None


@dataclass(frozen=True, slots=True)
class _Alive:
    """A request between arrival and end."""

    number: int
    arrival_ns: int
    outcome: Outcome


class Simulation:
    """One simulation, from options to `Samples` and report."""

    def __init__(self, options: SimulationOptions, progress: OnProgress | None = None) -> None:
        self.options = options
        self.requests = _requests(options)
        if not self.requests:
            raise TraceError(options.trace, 0, "at least one request", "none")
        self.config = self._config()
        self.clock = VirtualClock()
        self.page_bytes = options.page_size * options.cost.kv_token_bytes
        self.tally = Tally()
        self._progress = progress or (lambda _done, _all: None)
        self._namespace = Namespace(model="virtual")
        self._prefixes = Prefixes()
        self.relaunches = Relaunches()
        self._future = self._foreseen() if options.belady else None
        self._alive: dict[str, _Alive] = {}
        self._come = 0

    def run(self) -> Samples:
        """Serve every request to its end; the engine is closed afterwards."""
        options = self.options
        if options.audit is None:
            return self._serve(None)
        options.audit.parent.mkdir(parents=True, exist_ok=True)
        with AuditLog(options.audit) as log:
            return self._serve(log)

    def _config(self) -> EngineConfig:
        options, scale = self.options, self.options.scale
        sizes = (scale.length(r.prompt_tokens) + scale.length(r.output_tokens) for r in self.requests)
        device = options.device_pages or options.device_tokens // options.page_size
        staging = options.staging_pages or int(STAGING_RATIO[options.mode] * device)
        chosen: dict[str, Any] = {
            "page_size": options.page_size,
            "device_pages": device,
            "staging_pages": staging if options.policy.tier else 0,
            "largest_request_tokens": max(sizes) + 2,
            "host_memory_mode": options.mode,
            "pin_fraction": options.pin_fraction,
            "parts": 1,
            "page_part_bytes": BODY_BYTES,
            "limits": options.limits,
        }
        chosen |= {**options.settings, **options.policy.settings}
        if chosen.get("fetch_gate") == FetchGate.AUTO:
            idle = options.cost.prefill_tokens_per_second * IDLE_NS / 1e9
            chosen.setdefault("prefill_tokens_per_tick", max(1, round(idle)))
        return EngineConfig(**chosen)

    def _foreseen(self) -> Future:
        """What every request will use, as `_arrivals` names and numbers them."""
        options = self.options
        prompts = (prompt_of(request, options.scale, place) for place, request in enumerate(self.requests, start=1))
        return Future(Chain(self._namespace, tokens, options.page_size) for tokens in prompts)

    def _serve(self, log: AuditLog | None) -> Samples:
        options = self.options
        store = VirtualStore(
            self.clock, self.page_bytes, BODY_BYTES, options.link, seed=options.seed, capacity_bytes=options.store_bytes
        )
        watch: dict[str, Any] = {"foresight": self._future and self._future.next_use}
        watch["sink"] = self.relaunches.block
        if log is not None:
            self.relaunches = Relaunches(log.block)
            watch |= {"sink": self.relaunches.block, "on_violation": log.violation}
        policy = options.policy
        own = store if self._asks else None
        engine = Engine(self.config, store=own, strict=options.strict, machines=policy.machines, **watch)
        with closing(engine):
            self._warm_up(engine)
            store.begin()
            assert engine.device_bytes is not None, "the simulation attaches a number to each page"
            pool = engine.device_bytes.tensor.numpy().view(np.uint64).reshape(-1)
            runner = VirtualRunner(pool, options.page_size, store.reads, mends=policy.charges_ahead)
            scheduler = VirtualScheduler(
                engine,
                runner,
                page_size=options.page_size,
                steps=options.steps_per_pass or options.cost.steps_per_pass,
                token_budget=options.token_budget,
                running_limit=options.running_limit,
            )
            samples = Samples(engine, store, runner, self.tally, self.page_bytes)
            self._loop(scheduler, runner, store, samples)
            engine.drain(DRAIN_TICKS, self._idle)
            samples.take(self.clock.now_ns, len(self._alive))
            samples.end()
        return samples

    @property
    def _asks(self) -> bool:
        """Whether there is a store."""
        return self.options.policy.tier and self.options.store

    def _warm_up(self, engine: Engine) -> None:
        """Let the store's self-test pass before time begins."""
        while engine.attachment is AttachmentState.ATTACHING:
            self._idle()
            engine.tick()
        if self._asks and engine.attachment is not AttachmentState.ATTACHED:
            raise StoreUnusable(f"the store failed its self-test: {self._told_of_store()}")
        self.clock.now_ns = 0

    def _told_of_store(self) -> str:
        options = self.options
        least, most = options.link.latency_ms
        room = f", with room for {options.store_bytes / 1e9:g} GB" if options.store_bytes else ""
        return (
            f"no page came back over {options.link.bytes_per_second / 1e9:g} GB/s, {least:g} to {most:g} ms an "
            f"operation{room}: expected one of {self.page_bytes:,} bytes within {options.limits.attach_limit} passes"
        )

    def _idle(self) -> None:
        self.clock.now_ns += IDLE_NS

    def _loop(self, scheduler: VirtualScheduler, runner: VirtualRunner, store: VirtualStore, samples: Samples) -> None:
        quiet = stalled = 0
        while True:
            if scheduler.idle and quiet >= QUIET_PASSES:
                if self._come == len(self.requests):
                    return
                self.clock.now_ns = max(self.clock.now_ns, self.requests[self._come].arrival_ms * 1_000_000)
            self._arrivals(scheduler, runner)
            samples.take_if_due(self.clock.now_ns, len(self._alive))
            moved = self._pass(scheduler, runner)
            quiet = 0 if moved or not (scheduler.idle and store.quiet) else quiet + 1
            stalled = 0 if moved or scheduler.idle else stalled + 1
            if stalled > STALLED_PASSES:
                raise Stalled(f"no request moved for {STALLED_PASSES:,} passes; {self.tally.finished:,} have finished")

    def _arrivals(self, scheduler: VirtualScheduler, runner: VirtualRunner) -> None:
        scale, size = self.options.scale, self.options.page_size
        while self._come < len(self.requests):
            request = self.requests[self._come]
            if request.arrival_ms * 1_000_000 > self.clock.now_ns:
                return
            self._come += 1
            tokens = prompt_of(request, scale, self._come)
            rid, answer = self._name(request), max(1, scale.length(request.output_tokens))
            words = runner.expect(rid, tokens, answer)
            use = self._prefixes.use(words.tolist(), request.arrival_ms)
            ideal = min(use.known, (len(tokens) - 1) // size) * size
            outcome = Outcome(rid, request.arrival_ms, len(tokens), answer, ideal)
            self._alive[rid] = _Alive(self._come - 1, request.arrival_ms * 1_000_000, outcome)
            scheduler.submit(rid, tokens, self._namespace, answer)

    def _name(self, request: TraceRequest) -> str:
        return f"{self._come}" if not request.session else f"{self._come}:{request.session}"

    def _pass(self, scheduler: VirtualScheduler, runner: VirtualRunner) -> bool:
        """One pass, its time, and what it did for whom; whether it computed or admitted anything."""
        begun, phantoms = self.clock.now_ns, runner.phantom_tokens
        done = scheduler.step()
        work = scheduler.work
        work.prefill_tokens += runner.phantom_tokens - phantoms  # they are computed after all
        spent = self.options.cost.pass_ns(work.prefill_tokens, work.steps, work.context_tokens)
        self.clock.now_ns += spent or IDLE_NS
        self.tally.computed_tokens += work.prefill_tokens
        for one in done.admitted:
            alive = self._alive[one.rid]
            self.tally.admit(one, alive.outcome, begun - alive.arrival_ns)
            if self._future is not None:
                self._future.admitted(alive.number)
        for rid in done.retracted:
            self._alive[rid].outcome.retractions += 1
        for rid in work.answered:
            alive = self._alive[rid]
            if alive.outcome.ttft_ns is None:
                alive.outcome.ttft_ns = self.clock.now_ns - alive.arrival_ns
        for rid in done.finished:
            alive = self._alive.pop(rid)
            alive.outcome.finished_ns = self.clock.now_ns - alive.arrival_ns
            self.tally.finish(alive.outcome)
            runner.forget(rid)
        if done.finished:
            self._progress(self.tally.finished, len(self.requests))
        return bool(done.admitted or done.computed_tokens)


def _requests(options: SimulationOptions) -> list[TraceRequest]:
    """What is served, in order of arrival."""
    read = read_trace(options.trace, options.trace_format)
    if options.users:
        read = iter(by_users(read, options.users, round(1000 * options.longest_pause_s)))
    return list(islice(read, options.requests))
