"""Replay in virtual time: the real engine and scheduler on a simulated store, without bytes.

It owns the choice of what stands in for disk and model; the clock and the loop are the replay's. The same options
give the same figures, and minutes of trace take seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from stagehold import Chain, Engine, EngineConfig, HostMode, Limits, Namespace
from stagehold.cache.stores.simulated import Delays, Medium, SimulatedStore
from stagehold.lab.clock import passes, warm_up
from stagehold.lab.observe import Event, Observed
from stagehold.lab.oracle import Judgement, judge
from stagehold.lab.workload import Workload
from stagehold.serving.runner import Work
from stagehold.serving.scheduler import Scheduler


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualOptions:
    """Sizes in pages, times in ticks."""

    device_pages: int
    staging_pages: int
    mode: HostMode = HostMode.BUFFER_ONLY
    page_size: int = 16
    token_budget: int = 512
    delays: Delays = field(default_factory=Delays)
    limits: Limits = field(default_factory=Limits)
    seed: int = 0
    tick_ms: int = 50


NAMESPACE = Namespace(model="virtual")


class SilentRunner:
    """Stands for a model where only counts matter: the next token follows from the request and its length."""

    def forward(self, batch: Sequence[Work]) -> list[int]:
        """One token for each work, distinct for distinct requests, so that answers are shared by nobody."""
        return [(hash_of(work.rid) * 1_000_003 + work.last) % 2**31 for work in batch]

    def read(self, work: Work) -> None:
        """There is nothing to read."""


def hash_of(rid: str) -> int:
    """A number for a request id that is equal in every process (unlike `hash`)."""
    return int.from_bytes(rid.encode(), "little") % 2_147_483_647


@dataclass(slots=True)
class VirtualRun:
    """What one virtual replay leaves behind."""

    judgement: Judgement
    hit_tokens: int
    prompt_tokens: int
    queried: int
    spliced: int
    fetched: int
    losses: dict[str, int]
    ticks: int
    max_reissues: int
    audit_digest: str

    @property
    def waste(self) -> float:
        """Fetched tokens that were not spliced, as a share of the fetched ones."""
        return 1 - self.spliced / self.fetched if self.fetched else 0.0


def replay_virtually(workload: Workload, options: VirtualOptions, *, medium: Medium | None = None) -> VirtualRun:
    """Serve the workload to its end; the engine is closed afterwards."""
    events: list[Event] = []
    store = SimulatedStore(options.seed, delays=options.delays, medium=medium or Medium())
    engine = Engine(_config(workload, options), store=Observed(store, events))
    scheduler = Scheduler(engine, SilentRunner(), token_budget=options.token_budget)
    hits = _serve(engine, scheduler, workload, options, events)
    engine.drain(100_000)
    stats, digest = engine.stats(), engine.digest().hex()
    engine.close()
    pages = {r.rid: _pages(Chain(NAMESPACE, r.tokens, options.page_size)) for r in workload.requests}
    return VirtualRun(
        judgement=judge(events, pages, options.page_size),
        hit_tokens=hits,
        prompt_tokens=workload.prompt_tokens,
        queried=stats.queried,
        spliced=stats.spliced,
        fetched=stats.fetched + stats.local,
        losses=stats.losses,
        ticks=stats.ticks,
        max_reissues=stats.max_reissues,
        audit_digest=digest,
    )


def _config(workload: Workload, options: VirtualOptions) -> EngineConfig:
    return EngineConfig(
        page_size=options.page_size,
        device_pages=options.device_pages,
        staging_pages=options.staging_pages,
        largest_request_tokens=workload.largest_request_tokens,
        host_memory_mode=options.mode,
        prefetch_threshold_tokens=options.page_size,
        limits=options.limits,
    )


def _serve(
    engine: Engine, scheduler: Scheduler, workload: Workload, options: VirtualOptions, events: list[Event]
) -> int:
    """One pass is `tick_ms` of trace time. Returns hits of first admissions, each of which is noted in `events`."""
    warm_up(engine)
    seen, hits = set(), 0
    for here in passes(scheduler, workload.requests, options.tick_ms):
        for request in here:
            scheduler.submit(request.rid, request.tokens, NAMESPACE, request.output_tokens)
        for one in scheduler.step().admitted:
            if one.rid not in seen:
                seen.add(one.rid)
                hit = one.admission.hit_tokens
                hits += hit
                events.append({"admitted": one.rid, "tick": engine.stats().ticks, "hit_tokens": hit})
    return hits


def _pages(chain: Chain) -> list[str]:
    """Page keys that the request may hit: its whole pages that leave a token to compute."""
    return [chain.page_key(page).hex() for page in range((chain.n_tokens - 1) // chain.page_size)]
