"""Replays a trace through engine and bundled scheduler, on real bytes, and reports where tokens went.

It owns the life of engine, store and temporary folder, and says what one pass stands for. It decides nothing that the
engine or the scheduler decides.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stagehold import AuditLog, Engine, EngineConfig, HostMode, Namespace, Stats, WritePolicy
from stagehold.cache.stores.delayed import DelayedStore
from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.protocol import Store
from stagehold.cache.stores.simulated import Delays
from stagehold.cache.stores.workers import WorkerStore
from stagehold.lab.clock import passes, warm_up
from stagehold.lab.expand import ReplayRequest, Scale
from stagehold.lab.hangups import HangUps
from stagehold.lab.puts import CountedPuts, Puts
from stagehold.lab.report import HitTally, ReplayReport
from stagehold.lab.traces import shipped_trace
from stagehold.lab.workload import Workload, load_workload
from stagehold.serving.pattern import Layout
from stagehold.serving.runner import PatternRunner
from stagehold.serving.scheduler import Scheduler

TICK_MS = 50
STALLED_TICKS = 20_000  # far beyond the sum of all limits on one attempt's way, so that only a wedge gets here
DRAIN_TICKS = 20_000  # a whole backlog at one page a tick, and some
STAGING_RATIO = {HostMode.BUFFER_ONLY: 1.2, HostMode.CACHE: 2.0}

OnProgress = Callable[[int, int], None]
"""Called with (requests finished, requests in all)."""


class Wedged(RuntimeError):
    """No request moved for `STALLED_TICKS` ticks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What to replay and on which sizes; a size of 0 is derived from the requests.

    After `restart_after` requests the engine is closed and a fresh one goes on with the same store.
    `store_delay` is the most ticks that a store's answer is held back, drawn from `seed`. Conversations are dealt to
    `tenants`, who share nothing; `hang_ups` per cent of the clients give up; the trace runs `speed` times as fast.
    Of all puts `fail_writes` per cent fail at a random page. Without a `store` host memory serves alone.
    The store lies in `store_folder` and stays there; without one it is gone after the replay. A token has
    `token_part_bytes` bytes in each layer's K and V, a multiple of 8, which ranks share among them.
    """

    audit: Path
    trace: Path = field(default_factory=shipped_trace)
    requests: int = 500
    mode: HostMode = HostMode.BUFFER_ONLY
    write_policy: WritePolicy = WritePolicy.WRITE_THROUGH
    restart_after: int = 0
    seed: int = 0
    scale: Scale = field(default_factory=Scale)
    page_size: int = 16
    device_pages: int = 0
    staging_pages: int = 0
    token_budget: int = 512
    page_cache_fraction: float = 0.5
    store: bool = True
    store_delay: int = 8
    fail_writes: float = 0.0
    tenants: int = 1
    hang_ups: float = 0.0
    speed: int = 1
    strict: bool = False
    shadow_oracle: bool = False
    store_folder: Path | None = None
    token_part_bytes: int = 1024


@dataclass(slots=True)
class _Sums:
    """What is added up over the engines of one replay."""

    tally: HitTally = field(default_factory=HitTally)
    stats: list[Stats] = field(default_factory=list)
    puts: Puts = field(default_factory=Puts)
    finished: int = 0
    hung_up: int = 0
    compared_bytes: int = 0
    wrong_bytes: int = 0
    phantom_tokens: int = 0


class Replay:
    """One replay, from options to report."""

    def __init__(self, options: ReplayOptions, progress: OnProgress | None = None) -> None:
        self.options = options
        self.workload: Workload = load_workload(
            options.trace,
            requests=options.requests,
            scale=options.scale,
            page_size=options.page_size,
            tenants=options.tenants,
        )
        self.layout = self.new_layout()
        self.config = self._config()
        self._progress = progress or (lambda _done, _all: None)
        self._ideal = dict(zip((r.rid for r in self.workload.requests), self.workload.ideal_hits, strict=True))
        self._namespaces = [Namespace("known-bytes", f"tenant {number}") for number in range(options.tenants)]
        self._hang_ups = HangUps(options.hang_ups, options.seed)
        self._sums = _Sums()

    def run(self) -> ReplayReport:
        """Replay every request; the store's folder is gone afterwards, the audit log stays."""
        cut = self.options.restart_after
        legs = [self.workload.requests[:cut], self.workload.requests[cut:]] if cut else [self.workload.requests]
        with store_folder(self.options) as folder:
            logs = [self._leg(leg, folder, number) for number, leg in enumerate(legs, start=1) if leg]
        return self._report(logs[-1])

    def new_layout(self) -> Layout:
        """What a page of KV looks like."""
        return Layout(page_size=self.options.page_size, token_part_bytes=self.options.token_part_bytes)

    def engine_options(self, log: AuditLog) -> dict[str, Any]:
        """Where an engine's blocks and violations go, and what else it is given."""
        return {"sink": log.block, "on_violation": log.violation}

    def open_store(self, folder: Path) -> Store:
        """The store of one engine: page files, answers held back by a seeded number of ticks."""
        ticks = (1, self.options.store_delay)
        delays = Delays(exists=ticks, get=ticks, put=ticks)
        return DelayedStore(WorkerStore(FileStore(folder)), self.options.seed, delays=delays)

    def new_runner(self, engine: Engine) -> PatternRunner:
        """The runner of one engine, on the engine's own device tensor."""
        assert engine.device_bytes is not None, "the replay attaches tensors"
        return PatternRunner(self.layout, engine.device_bytes.tensor)

    def _config(self) -> EngineConfig:
        options, workload = self.options, self.workload
        device = options.device_pages or workload.device_pages
        return EngineConfig(
            page_size=options.page_size,
            device_pages=device,
            staging_pages=options.staging_pages or int(STAGING_RATIO[options.mode] * device),
            largest_request_tokens=workload.largest_request_tokens,
            host_memory_mode=options.mode,
            write_policy=options.write_policy,
            page_cache_fraction=options.page_cache_fraction,
            prefetch_threshold_tokens=options.page_size,
            parts=self.layout.parts,
            page_part_bytes=self.layout.page_part_bytes,
        )

    @contextmanager
    def _engine(self, folder: Path, audit: Path) -> Iterator[Engine]:
        audit.parent.mkdir(parents=True, exist_ok=True)
        options = self.options
        with ExitStack() as stack:
            log = stack.enter_context(AuditLog(audit))
            store = stack.enter_context(closing(self._counted(self.open_store(folder)))) if options.store else None
            engine = Engine(
                self.config,
                store=store,
                strict=options.strict,
                shadow_oracle=options.shadow_oracle,
                **self.engine_options(log),
            )
            with closing(engine):
                yield engine
        self._sums.stats.append(engine.stats())

    def _counted(self, store: Store) -> CountedPuts:
        options = self.options
        return CountedPuts(store, self._sums.puts, fail_share=options.fail_writes / 100, seed=options.seed)

    def _leg(self, requests: Sequence[ReplayRequest], folder: Path, number: int) -> Path:
        """Serve `requests` with an engine of their own; returns its audit log."""
        audit = self.options.audit
        if number > 1:
            audit = audit.with_name(f"{audit.stem}.{number}{audit.suffix}")
        with self._engine(folder, audit) as engine:
            if self.options.store:
                warm_up(engine)
            runner = self.new_runner(engine)
            self._serve(Scheduler(engine, runner, token_budget=self.options.token_budget), requests)
            engine.drain(DRAIN_TICKS)
            self._sums.compared_bytes += runner.compared_bytes
            self._sums.wrong_bytes += runner.wrong_bytes
            self._sums.phantom_tokens += runner.phantom_tokens
        return audit

    def _serve(self, scheduler: Scheduler, requests: Sequence[ReplayRequest]) -> None:
        """Submit who comes, hang up for those who give up, make one pass, and so on to the end."""
        stalled = 0
        for here in passes(scheduler, requests, TICK_MS * self.options.speed):
            for request in here:
                namespace = self._namespaces[request.tenant]
                scheduler.submit(request.rid, request.tokens, namespace, request.output_tokens)
                self._hang_ups.arrived(request.rid)
            self._sums.hung_up += sum(scheduler.abort(rid) for rid in self._hang_ups.due())
            stalled = 0 if self._pass(scheduler) else stalled + 1
            if stalled > STALLED_TICKS:
                raise Wedged(f"no request moved for {STALLED_TICKS:,} ticks; {self._sums.finished} have finished")

    def _pass(self, scheduler: Scheduler) -> bool:
        """One pass and its bookkeeping; whether anything moved."""
        done = scheduler.step()
        sums = self._sums
        for one in done.admitted:
            sums.tally.admit(one, self._ideal[one.rid])
        if done.finished:
            sums.finished += len(done.finished)
            self._progress(sums.finished, len(self.workload.requests))
        return bool(done.admitted or done.computed_tokens)

    def _report(self, audit: Path) -> ReplayReport:
        sums, workload = self._sums, self.workload

        def tokens(name: str) -> int:
            return self.options.page_size * sum(int(getattr(stats, f"{name}_pages")) for stats in sums.stats)

        return ReplayReport(
            requests=sums.finished + sums.hung_up,
            prompt_tokens=workload.prompt_tokens,
            ideal_hit_tokens=sum(workload.ideal_hits),
            device_hit_tokens=sums.tally.device_hit_tokens,
            store_hit_tokens=sums.tally.store_hit_tokens,
            recomputed_tokens=sums.tally.recomputed_tokens,
            queried_hit_tokens=sum(s.queried for s in sums.stats),
            fetched_tokens=sum(s.fetched for s in sums.stats),
            local_tokens=sum(s.local for s in sums.stats),
            spliced_tokens=sum(s.spliced for s in sums.stats),
            losses=_added(s.losses for s in sums.stats),
            open_claim_tokens=sum(s.open_claims for s in sums.stats),
            written_tokens=sums.puts.pages * self.options.page_size,
            redundant_write_tokens=sums.puts.redundant_pages * self.options.page_size,
            failed_puts=sums.puts.failed_puts,
            offered_tokens=tokens("offered"),
            stored_tokens=tokens("stored"),
            kept_tokens=tokens("host_only"),
            refused_tokens=tokens("refused"),
            dropped_tokens=tokens("dropped"),
            evicted_unwritten_tokens=tokens("evicted_unwritten"),
            declines=_added(s.declines for s in sums.stats),
            phantom_hit_tokens=sums.phantom_tokens,
            max_retries=max(s.max_reissues for s in sums.stats),
            ticks=sum(s.ticks for s in sums.stats),
            violations=sum(s.violations + s.live_machines + sum(s.owned.values()) for s in sums.stats),
            compared_bytes=sums.compared_bytes,
            wrong_bytes=sums.wrong_bytes,
            state_entries=_added(s.state_entries for s in sums.stats),
            audit_log=str(audit),
        )


@contextmanager
def store_folder(options: ReplayOptions) -> Iterator[Path]:
    """The folder that was asked for, which stays; else one that is gone afterwards."""
    if options.store_folder is not None:
        yield options.store_folder
        return
    with TemporaryDirectory(prefix="stagehold-replay-") as folder:
        yield Path(folder)


def _added(parts: Iterator[dict[str, int]]) -> dict[str, int]:
    whole: Counter[str] = Counter()
    for part in parts:
        whole.update(part)
    return dict(whole)
