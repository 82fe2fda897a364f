"""`explain` gives the true cause: over many seeds, what the World saw happen is what the log alone tells.

The World looks at the live tree, at its own clocks and at what `commit` gave back; it never reads the log.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stagehold.lifecycle.data import Admission, Handle, Plan
from stagehold.machines.audit_causes import Attempt, Cause, Verdict
from stagehold.machines.audit_explain import Teller, explain
from stagehold.machines.logs import AuditLog
from stagehold.machines.records import HandleKey
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import Loss
from stagehold.specs.request import RequestState
from stagehold.testing.guests import Guest
from stagehold.testing.scenes import anchored, crowd
from stagehold.testing.storm import Storm, storm_shape
from stagehold.testing.visiting import Ending
from stagehold.testing.watched import Delivers
from stagehold.testing.world import World

S = RequestState
SEEDS, REQUESTS = (*range(8), 21, 25), 50
SCENES = 5
"""Before each storm: so often an anchor is made to go, and siblings are made to meet."""


@dataclass(frozen=True)
class Stand:
    """Where a guest stands: its state, and the hold that it has a claim on."""

    state: RequestState
    issues: int
    hold: int = 0
    start: int = 0
    last: int = 0
    hold_state: HoldState | None = None
    tokens: int = 0


@dataclass(frozen=True)
class Seen:
    """Something that the World saw happen to a guest, in the block of a tick."""

    tick: int
    cause: Cause
    tokens: int


class WatchingWorld(World):
    """Notes for every guest what becomes of its claims, and why, from the live tree and its own clocks."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed, storm_shape())
        self.seen: dict[Handle, list[Seen]] = defaultdict(list)
        self.why: dict[Handle, Cause | None] = {}
        self.reused: dict[Handle, tuple[int, int, int, Cause | None]] = {}
        self.many_steps: set[Handle] = set()
        """Guests whose last reason the World cannot name: a tick took them further than it can see from outside."""
        self.fetches_failed = False
        self.parked: dict[int, int] = {}
        """By hold: the tick in which it was first seen parked."""
        self.crowds: dict[int, tuple[int, int, int]] = {}
        """By tick: pages that holds span, lookups in flight, requests that run."""

    def stands(self) -> dict[Handle, Stand]:
        """Where everybody stands now."""
        return {guest.handle: self._stand(guest.handle) for guest in self.guests}

    def _stand(self, handle: Handle) -> Stand:
        m = self.engine._roster.find(handle)
        if not m.data.hold:
            return Stand(m.state, m.issues)
        hold = self.core.holds[m.data.hold]
        span = hold.data.start, hold.data.last
        return Stand(m.state, m.issues, hold.number, *span, hold.state, m.data.claim_tokens)

    def live(self, guest: Guest, pages: int) -> int:
        """Pages of the guest's text that the device holds, up to `pages`."""
        return self.core.tree.full_match(guest.chain, pages)

    def note(self, guest: Guest, cause: Cause, tokens: int, *, visit: bool) -> None:
        """A claim has ended, or was cut; what a visit does stands in the next tick's block."""
        self.seen[guest.handle].append(Seen(self.tick_number + visit, cause, tokens))
        if cause not in (Cause.TREE_COVERS, Cause.TREE_COVERS_AT_IO, Cause.SIBLING):
            self.why[guest.handle] = cause

    # Ticks

    def tick(self, retries: bool = True) -> None:
        while self.open:
            self.end(0, Ending.RELEASE)
        before, failed = self.stands(), self.core.ledger.losses[Loss.FAILED]
        super().tick(retries)
        self.fetches_failed = failed != self.core.ledger.losses[Loss.FAILED]
        self.crowds[self.tick_number] = self.core.hold_pages, self.core.ledger.totals["query"], self.core.committed
        after = self.stands()
        for stand in after.values():
            if stand.hold_state is HoldState.PARKED:
                self.parked.setdefault(stand.hold, self.tick_number)
        for guest in self.guests:
            if guest.handle in before:
                self._ticked(guest, before[guest.handle], after[guest.handle])

    def _ticked(self, guest: Guest, was: Stand, now: Stand) -> None:
        """What a tick did to a guest, where one step tells all."""
        if was.state is S.LOOKUP and now.state is S.RETRY:
            known = self.engine._roster.find(guest.handle).data.known_end
            if known or now.issues > was.issues or self.fetches_failed:
                self.many_steps.add(guest.handle)  # perhaps found and lost again, or asked again at once
            else:
                self.note(guest, Cause.MISS, 0, visit=False)
        elif was.state in (S.LOOKUP, S.RETRY) and (now.hold or now.state is S.COVERED):
            self.why[guest.handle] = None
            if now.hold_state is HoldState.READY:  # it joined what was ready in the same tick, perhaps a part of it
                self.many_steps.add(guest.handle)
        elif was.state is S.RETRY and now.state is S.CAPPED:
            assert now.issues == self.core.limits.issue_limit, "a request was capped with launches left"
            self.note(guest, Cause.LAUNCHES_SPENT, 0, visit=False)
        elif was.state in (S.QUEUED, S.RETRY) and now.state is S.RETRY and now.issues > was.issues:
            cause = self._declined(guest)
            if cause is None or now.issues > was.issues + 1:
                self.many_steps.add(guest.handle)
            else:
                self.note(guest, cause, 0, visit=False)
        elif was.state is S.STAGED and was.hold_state is HoldState.FETCHING:
            if now.hold == was.hold and now.last < was.last:
                self.note(guest, Cause.FETCHED_SHORT, was.tokens - now.tokens, visit=False)
            elif now.state is S.RETRY:
                self.note(guest, Cause.FETCH_FAILED, was.tokens, visit=False)
        elif was.state is S.STAGED and was.hold_state is HoldState.READY and now.state is S.RETRY:
            self.note(guest, Cause.READY_LIMIT, was.tokens, visit=False)
        elif was.state is S.STAGED and was.hold_state is HoldState.PARKED and not now.hold:
            self.note(guest, self._unparked(guest, was), was.tokens, visit=False)

    def _declined(self, guest: Guest) -> Cause | None:
        """Why a launch was declined, as the store's health, what was heard of it, and the holds still show."""
        if self.core.store_open:
            return Cause.BREAKER_OPEN
        first = self.core.tree.full_match(guest.chain)
        if self.core.beliefs.is_absent(guest.chain.page_key(first)):
            return Cause.ABSENT
        full = self.core.hold_pages >= self.core.config.load_limit_pages
        return Cause.LOAD_LIMIT if full else None

    def _unparked(self, guest: Guest, was: Stand) -> Cause:
        """Why a parked hold was given up, as the tree, the clock and the store show."""
        live = self.live(guest, was.last)
        if live >= was.last:
            return Cause.TREE_COVERS_AT_IO
        if live < was.start:
            return Cause.ANCHOR_GONE_AT_IO
        if self.tick_number - self.parked[was.hold] >= self.core.limits.park_limit:
            return Cause.PARK_LIMIT
        assert self.core.store_open, "a parked hold was given up for no reason that the World can see"
        return Cause.STORE_WENT_DOWN

    # Visits

    def _select(self, who: int, budget: int) -> bool:
        if not self.waiting:
            return False
        guest, before = self.waiting[who % len(self.waiting)], self.stands()
        opened = super()._select(who, budget)
        after = self.stands()
        was, now = before[guest.handle], after[guest.handle]
        if was.state is S.COVERED and now.issues > was.issues:  # it had shrunk, and was launched again
            self.why[guest.handle] = None if now.hold else Cause.SHRANK
        if now.issues > was.issues and now.state in (S.CAPPED, S.RETRY):  # and more, all in one visit
            self.many_steps.add(guest.handle)
        for other in self.guests:
            stood = before[other.handle]
            if stood.state is S.STAGED and stood.hold == was.hold:
                self._looked_at(other, stood, after[other.handle], visited=other is guest)
        return opened

    def _looked_at(self, guest: Guest, was: Stand, now: Stand, *, visited: bool) -> None:
        """A visit looked at a claim: the tree says what must have come of it."""
        if now.hold == was.hold and now.state in (S.STAGED, S.ANCHOR_LOCKED):
            if now.last < was.last:
                self.note(guest, Cause.CUT, was.tokens - now.tokens, visit=True)
            return
        live = self.live(guest, was.last)
        if live >= was.last:
            self.note(guest, Cause.TREE_COVERS, was.tokens, visit=True)
        elif live < was.start:
            self.note(guest, Cause.ANCHOR_GONE, was.tokens, visit=True)
        else:
            assert visited
            assert was.hold_state is not HoldState.READY
            self.note(guest, Cause.UNWAITED, was.tokens, visit=True)
        if now.hold:  # it has claimed again in the same visit
            self.why[guest.handle] = None
        elif now.issues > was.issues:
            self.many_steps.add(guest.handle)

    def _commit(self, guest: Guest, plan: Plan, delivers: Delivers) -> None:
        before = self.stands()
        was = before[guest.handle]
        why = self.why.get(guest.handle)
        if was.state in (S.QUEUED, S.LOOKUP):
            self.why[guest.handle] = Cause.NOT_LAUNCHED if was.state is S.QUEUED else Cause.UNANSWERED
        elif was.hold and delivers is Delivers.NONE:
            self.why[guest.handle] = Cause.UNDELIVERED
        super()._commit(guest, plan, delivers)
        if not guest.running:
            self.why[guest.handle] = why
            if was.hold and self._stand(guest.handle).state is S.CAPPED:
                assert delivers is Delivers.SOME, "a commit capped a request that was delivered all or nothing"
                self.note(guest, Cause.PARTIAL, was.tokens, visit=True)
        if guest.running and was.hold and delivers is not Delivers.NONE:
            for other in self.guests:
                if other is not guest and before[other.handle].hold == was.hold:
                    self.note(other, Cause.SIBLING, before[other.handle].tokens, visit=True)

    def admitted(self, guest: Guest, plan: Plan, admission: Admission) -> None:
        super().admitted(guest, plan, admission)
        computed = guest.prompt - admission.hit_tokens
        hits = admission.device_hit_tokens, admission.store_hit_tokens
        self.reused[guest.handle] = *hits, computed, self.why.get(guest.handle)


def stormed(seed: int, requests: int, folder: Path) -> tuple[WatchingWorld, dict[Handle, Attempt]]:
    """A storm that the World watched, and what its log explains of every attempt."""
    storm = Storm(seed, requests)
    storm.world = world = WatchingWorld(seed)
    dice = random.Random(f"scenes {seed}")
    for _ in range(SCENES):
        anchored(world, dice)
        crowd(world, dice)
    storm.run()
    path = folder / f"{seed}.jsonl"
    with AuditLog(path) as log:
        for block in world.blocks:
            log.block(block)
    keys = [birth.key for block in world.blocks for birth in block.births if birth.machine == 0]
    rids = {key.rid for key in keys if isinstance(key, HandleKey)}
    told = {Handle(rid, a.attempt): a for rid in sorted(rids) for a in explain(path, rid).attempts}
    return world, told


Storms = list[tuple[WatchingWorld, dict[Handle, Attempt]]]


@pytest.fixture(scope="module")
def storms(tmp_path_factory: pytest.TempPathFactory) -> Storms:
    folder = tmp_path_factory.mktemp("storms")
    return [stormed(seed, REQUESTS, folder) for seed in SEEDS]


def moments(attempt: Attempt, *causes: Cause) -> list[Seen]:
    return [Seen(m.tick, m.cause, m.facts.get("tokens", 0)) for m in attempt.moments if m.cause in causes]


BY_VISIT = (Cause.UNWAITED, Cause.ANCHOR_GONE, Cause.TREE_COVERS, Cause.SIBLING, Cause.CUT)
"""The World sees all of these."""


def causes_agree(world: WatchingWorld, told: dict[Handle, Attempt]) -> Counter[Cause]:
    """Everything seen is told, with tick and tokens, and no more than was seen; how often each."""
    counts: Counter[Cause] = Counter()
    for handle, attempt in told.items():
        seen = world.seen.get(handle, [])
        assert set(seen) <= set(moments(attempt, *Cause)), f"{handle}: {attempt.moments}"
        if handle not in world.many_steps:
            assert moments(attempt, *BY_VISIT) == [one for one in seen if one.cause in BY_VISIT], handle
        counts.update(one.cause for one in seen)
    return counts


def reuse_agrees(world: WatchingWorld, told: dict[Handle, Attempt]) -> Counter[Any]:
    """Device, store and computed tokens of every admission, and why it was no more."""
    counts: Counter[Any] = Counter()
    for handle, (device, store, computed, why) in world.reused.items():
        reuse = told[handle].reuse
        assert reuse is not None, handle
        assert store == reuse.store, handle
        if reuse.at_least:
            assert device >= reuse.device, handle
        else:
            assert (device, computed) == (reuse.device, reuse.computed), handle
        assert handle in world.many_steps or why == reuse.because, f"{handle}: {told[handle].moments}"
        counts[reuse.because] += 1
    assert {handle for handle, attempt in told.items() if attempt.reuse} == set(world.reused)
    return counts


def test_what_ended_a_claim_is_what_the_world_saw(storms: Storms) -> None:
    """Capped, lost, covered, short: cause, tick and tokens of each, over all seeds."""
    counts = sum((causes_agree(*storm) for storm in storms), Counter[Cause]())

    met = (Cause.UNWAITED, Cause.TREE_COVERS, Cause.TREE_COVERS_AT_IO, Cause.SIBLING, Cause.MISS, Cause.FETCHED_SHORT)
    assert all(counts[cause] for cause in met), counts
    assert counts[Cause.ANCHOR_GONE] + counts[Cause.ANCHOR_GONE_AT_IO], counts


def test_what_was_recomputed_is_what_the_world_computed(storms: Storms) -> None:
    """Tokens of the device, of the store, and computed, to the token; and the last thing that stood in the way."""
    counts = sum((reuse_agrees(*storm) for storm in storms), Counter[Any]())

    assert all(counts[why] for why in (None, Cause.UNWAITED, Cause.MISS, Cause.NOT_LAUNCHED)), counts


def test_every_attempt_has_its_end(storms: Storms) -> None:
    """After a storm nobody is open, and lost tokens of all attempts are those that the engine lost."""
    for world, told in storms:
        assert all(attempt.over for attempt in told.values())
        losses = world.engine.stats().losses
        kept = ("covered", "trimmed")
        assert sum(a.lost for a in told.values()) == sum(n for loss, n in losses.items() if loss not in kept)


def test_the_scene_around_a_request_is_the_engine_s(storms: Storms) -> None:
    """Pages that holds span, lookups in flight and requests that run, after every tick."""
    for world, _ in storms:
        teller = Teller("nobody")
        for block in world.blocks:
            teller.take(block)
            scene = teller.scene
            assert world.crowds.get(block.tick) in (None, (scene.hold_pages, scene.lookups, scene.running))
        assert len(world.blocks) - 3 <= len(world.crowds)


@pytest.mark.soak
def test_many_more_storms(tmp_path: Path) -> None:
    """Twenty seeds of two hundred requests."""
    for seed in range(100, 120):
        storm = stormed(seed, 200, tmp_path)
        causes_agree(*storm)
        reuse_agrees(*storm)


def test_a_wrong_cause_would_be_seen(storms: Storms, tmp_path: Path) -> None:
    """The comparison fails for a moment that is left out, or is given another cause."""
    world, told = storms[0]
    handle, attempt = next((h, a) for h, a in told.items() if a.first(Verdict.CAPPED))
    capped = attempt.first(Verdict.CAPPED)
    moments_ = [m for m in attempt.moments if m is not capped]
    wrong = Attempt(attempt.number, attempt.attempt, attempt.arrived, attempt.state, moments_, attempt.reuse)

    with pytest.raises(AssertionError):
        causes_agree(world, {**told, handle: wrong})
