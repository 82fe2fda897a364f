"""Faults planted in copies of the tables or in the rules of the world: the search must see each of them."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Any

import pytest

from stagehold.machines.explorer import Product, WorldResult, explore
from stagehold.machines.explorer import board as at
from stagehold.machines.explorer.board import Board
from stagehold.machines.explorer.tables import DECLARED, RowFacts
from stagehold.specs.declare import MachineSpec, Row
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import Commit, Cut, Evaluate, Fetched, IoCommit, Launch, PrefetchPolicy, PutEnded
from stagehold.specs.request import RequestState
from stagehold.specs.worlds import Breaker, World
from stagehold.specs.write import WriteState

Specs = dict[str, MachineSpec]


def alone(**facts: Any) -> World:
    """A world of one request."""
    return World(name="alone", why="one request", wants=(0,), **facts)


def pair(**facts: Any) -> World:
    """A world of two requests that share a span, with one launch each and no wait budget."""
    return World(name="pair", why="two requests", issue_limit=1, policy=PrefetchPolicy.BEST_EFFORT, **facts)


def changed(machine: str, event: str, outcome: IntEnum | None = None, **change: Any) -> Specs:
    """A copy of the machine in which the rows on (event, outcome) are changed."""
    spec = DECLARED[machine]
    found = [row for row in spec.rows if row.event == event and row.outcome is outcome]
    assert found, f"no row of {machine} on {event}"
    rows = [row.model_copy(update=change) if row in found else row for row in spec.rows]
    return {machine: spec.model_copy(update={"rows": tuple(rows)})}


def without(machine: str, drop: Callable[[Row], bool]) -> Specs:
    """A copy of the machine without some of its rows."""
    spec = DECLARED[machine]
    rows = tuple(row for row in spec.rows if not drop(row))
    assert len(rows) < len(spec.rows)
    return {machine: spec.model_copy(update={"rows": rows})}


def without_deadlines(machine: str, *states: IntEnum) -> Specs:
    """A copy of the machine in which these states wait without a limit."""
    spec = DECLARED[machine]
    kept = [s.model_copy(update={"deadline": None}) if s.name in states else s for s in spec.states]
    return {machine: spec.model_copy(update={"states": tuple(kept)})}


def repeats(result: WorldResult) -> list[str]:
    """The endless loop of a counterexample."""
    told = list(result.counterexample)
    return told[told.index("and then for ever:") + 1 :]


class Patient(Product):
    """A world without a wait clock: a visit that is skipped starts nothing."""

    def skip(self, who: int, request: int) -> None:
        """Skipped for ever."""


class ArmsInOutages(Product):
    """A world that arms a timer whatever the breaker says."""

    def arm(self, board: Board, request: int) -> None:
        """Looks at nothing."""
        board[request + at.TIMER] = at.ARMED


class WakesInOutages(Product):
    """A world in which a stored write wakes retries even during an outage."""

    def wake(self, board: Board) -> None:
        """Looks at nothing."""
        self.send_due(board, (0, at.ARMED))


class DeafRecovery(Product):
    """A world in which the recovery of the store wakes nobody."""

    def store_recover(self, board: Board, store: int, row: RowFacts) -> None:
        """Only the outage is over."""
        for request in self.layout.requests:
            board[request + at.PAID] = 0


class DelayedAdmission(Product):
    """A world in which an armed retry delays admission."""

    def may_admit(self, request: int) -> bool:
        """Only who waits for nothing."""
        return self.now[request + at.TIMER] == 0


class SkipsForEver(Product):
    """A world in which a visit skips a hold that is not ready whatever the wait clock says."""

    def visit_unwaited(self, who: int, request: int) -> None:
        """Skipped."""


class DecreesInVisits(Product):
    """A world in which a flush or detach does not look for open visits."""

    def may_decree(self) -> bool:
        """As long as there are requests."""
        return not self.over


class ForgetfulLeave(Product):
    """A world in which the last claim leaves without a word."""

    def leave(self, board: Board, request: int) -> None:
        """Drops nothing, unplans nothing."""


class EvictsPinned(Product):
    """A world in which eviction does not look at pins and locks."""

    def protected_height(self, seen: Any, tree: int) -> int:
        """Nothing is protected."""
        return self.floor


def test_a_buffer_freed_at_the_cut_is_found() -> None:
    """A fetch limit that gives staging back while the IO runs breaks the first rule of buffers."""
    freed = changed(
        "hold", "cut", Cut.HOPELESS, target=HoldState.EXPIRED, releases=("staging", "pin", "io"), effect="tell"
    )

    (breach,) = explore(alone(), freed).invariant_breaches

    assert breach.endswith("staging freed while its IO still writes")


def test_waits_without_any_limit_deadlock() -> None:
    """No wait clock, no park limit, no ready limit: with hung IO nothing would ever happen again."""
    endless = without_deadlines("hold", HoldState.PARKED, HoldState.READY)

    assert explore(alone(), endless, rules=Patient).deadlocks > 0


def test_without_the_wait_clock_alone_the_limits_still_bound_every_wait() -> None:
    """The limits of lookup and hold bound the same states, so nothing is found: the search does not cry wolf."""
    assert explore(alone(), rules=Patient).holds


def test_without_the_ready_limit_a_visit_is_given_back_for_ever() -> None:
    """Visit and release repeat on the ready clock only, and so do visits that are skipped for room."""
    result = explore(alone(), without_deadlines("hold", HoldState.READY))

    assert result.unfair_cycles > 0
    assert result.deadlocks > 0


def test_an_uncounted_decline_repeats_for_ever() -> None:
    """DECLINED on `due` must count."""
    result = explore(alone(declines=True), changed("request", "due", Launch.DECLINED, counts=None))

    assert ["request 0: due DECLINED"] == repeats(result)


def test_an_uncounted_short_launch_chases_covered_for_ever() -> None:
    """TOO_SHORT on `due` must count, or covered and retry chase each other."""
    result = explore(alone(), changed("request", "due", Launch.TOO_SHORT, counts=None))

    assert "request 0: due TOO_SHORT" == repeats(result)[0]


def test_an_uncounted_known_launch_fetches_for_ever() -> None:
    """KNOWN on `due` must count, or a hold that expires is opened again without end."""
    result = explore(alone(), changed("request", "due", Launch.KNOWN, counts=None))

    assert "request 0: due KNOWN" in repeats(result)


def test_an_uncounted_launch_on_a_timer_repeats_in_an_outage() -> None:
    """STORE_OPEN uncounted and with its timer armed: `due` repeats while the breaker is open."""
    uncounted = changed("request", "due", Launch.STORE_OPEN, counts=None, effect="decline")

    class Unpaid(ArmsInOutages):
        def launch(self, board: Board, request: int, event: str, outcome: Launch) -> None:
            self.step(board, request, event, outcome)

    result = explore(alone(breaker=Breaker.OPEN), uncounted, rules=Unpaid)

    assert ["request 0: due STORE_OPEN"] == repeats(result)


def test_a_timer_armed_in_an_outage_costs_a_second_launch() -> None:
    """An outage may cost a request one launch."""
    armed = changed("request", "due", Launch.STORE_OPEN, effect="decline")

    result = explore(alone(breaker=Breaker.LIVE, issue_limit=3), armed, rules=ArmsInOutages)

    assert ("a second launch spent in one outage",) == result.invariant_breaches


def test_a_stored_write_that_wakes_in_an_outage_costs_a_second_launch() -> None:
    """Nobody may be woken for a store that is not asked."""
    result = explore(
        alone(breaker=Breaker.LIVE, writer=True, staging=1, policy=PrefetchPolicy.BEST_EFFORT), rules=WakesInOutages
    )

    assert ("a second launch spent in one outage",) == result.invariant_breaches


def test_a_recovery_that_wakes_nobody_is_found() -> None:
    """A retry without a timer while the store answers waits for nothing."""
    result = explore(alone(breaker=Breaker.LIVE), rules=DeafRecovery)

    assert ("a retry without a timer while the store answers",) == result.invariant_breaches


def test_an_armed_retry_that_delays_admission_is_found() -> None:
    """A visit that can be afforded commits."""
    result = explore(alone(), rules=DelayedAdmission)

    assert ("a request that can be afforded is not admitted by its visit",) == result.invariant_breaches


def test_a_skip_after_the_wait_clock_is_found() -> None:
    """The wait clock bounds how long a request is held back."""
    result = explore(alone(), rules=SkipsForEver)

    assert ("a visit is skipped although the wait clock has run out",) == result.invariant_breaches


@pytest.mark.parametrize("outcome", [Commit.UNFIT, Commit.PARTIAL])
def test_a_visitor_that_keeps_its_claim_is_found(outcome: Commit) -> None:
    """Who goes to retry or capped owns nothing."""
    result = explore(pair(), changed("request", "commit", outcome, releases=("lock",)))

    assert result.invariant_breaches
    assert all("does not own what its table says" in breach for breach in result.invariant_breaches)


def test_a_decree_in_a_visit_is_found() -> None:
    """A visitor has no row for the end of its hold."""
    result = explore(alone(flush_detach=True), rules=DecreesInVisits)

    assert ("request: 'hold_ended' DROPPED has no row in anchor_locked",) == result.invariant_breaches


def test_a_last_claim_that_drops_nothing_is_found() -> None:
    """A hold lives as long as its claims or its IO."""
    breaches = explore(alone(), rules=ForgetfulLeave).invariant_breaches

    assert "a live hold without a claim, or a claim without a live hold" in breaches


def test_an_anchor_evicted_under_its_pin_is_found() -> None:
    """A pinned anchor is in the live tree."""
    assert "a pinned anchor that is not in the live tree" in explore(alone(), rules=EvictsPinned).invariant_breaches


def test_a_dropped_release_is_a_leak() -> None:
    """A request that finishes and keeps its lock has leaked it."""
    result = explore(alone(), changed("request", "finish", releases=("slots",)))

    assert result.leaks > 0
    assert "ended, and still owns something" in result.counterexample[-1]


def test_a_lost_io_ticket_is_found() -> None:
    """The ticket ends with the IO, not before and not after."""
    kept = changed("hold", "fetched", Fetched.WHOLE, releases=())

    assert "hold: ready does not own what its table says" in explore(alone(), kept).invariant_breaches


def test_a_missing_outcome_row_is_found() -> None:
    """Every answer of a decision needs its row."""
    silent = without("request", lambda row: row.outcome is Evaluate.UNWAITED and row.event == "evaluate")

    assert ("request: 'evaluate' UNWAITED has no row in staged",) == explore(alone(), silent).invariant_breaches


def test_a_state_without_abort_is_found() -> None:
    """The caller may abort at any moment."""
    breaches = explore(alone(), without("request", lambda row: row.event == "abort")).invariant_breaches

    assert "request: 'abort' has no row in committed" in breaches


def test_pages_published_unverified_are_found() -> None:
    """No way leads to `load` without a row that says verified."""
    trusting = changed("hold", "fetched", Fetched.WHOLE, effect=None)

    (breach,) = explore(alone(), trusting).invariant_breaches

    assert breach.endswith("pages published that nothing has verified")


def test_a_write_that_keeps_staging_between_tries_is_found() -> None:
    """A queued write owns backlog only."""
    sitting = changed("write", "put_ended", PutEnded.FAILED, releases=("io",))

    breaches = explore(alone(issue_limit=1, writer=True, root=True), sitting).invariant_breaches

    assert "write: queued does not own what its table says" in breaches


def test_a_write_that_retries_without_counting_repeats_for_ever() -> None:
    """Failed puts must count."""
    result = explore(
        alone(issue_limit=1, writer=True, root=True), changed("write", "put_ended", PutEnded.FAILED, counts=None)
    )

    assert "write: put_ended FAILED" in repeats(result)


def test_a_write_that_waits_without_a_limit_deadlocks() -> None:
    """A queued write behind a store that never answers must time out."""
    result = explore(
        alone(issue_limit=1, writer=True, breaker=Breaker.OPEN), without_deadlines("write", WriteState.QUEUED)
    )

    assert result.deadlocks > 0


def test_a_park_that_goes_nowhere_is_no_wait_on_a_clock() -> None:
    """A repeated IO commit must run on the park clock, or it is a move that repeats for ever."""
    free = changed("hold", "io_commit", IoCommit.NO_STAGING, clock=None)

    result = explore(alone(issue_limit=1, writer=True), free)

    assert ["hold of span 0: io_commit NO_STAGING"] == repeats(result)


def test_a_trap_has_no_way_to_the_end() -> None:
    """A committed request that nothing finishes or retracts can only be aborted."""
    trap = without("request", lambda row: row.source is RequestState.COMMITTED)

    class NeverRuns(Product):
        def scheduler(self) -> None:
            if not any(self.now[request] == RequestState.COMMITTED for request in self.layout.requests):
                super().scheduler()

    result = explore(alone(issue_limit=1, root=True), trap, rules=NeverRuns)

    assert result.cannot_end > 0
    assert result.deadlocks > 0


def test_a_counterexample_can_be_played() -> None:
    """Its moves, made one after the other from a beginning, are possible and lead to what it says."""
    freed = changed("request", "finish", releases=("slots",))
    told = explore(alone(), freed).counterexample
    product = Product(alone(), {**DECLARED, **freed})
    now = next(product.beginnings())

    for move in told[:-2]:
        now = next(after for label, after in product.moves(now) if product.labels.text(label) == move)
    product.moves(now)

    assert told[-2:] == next((product.labels.text(label), breach.sentence) for label, breach in product.found)


def test_an_effect_without_a_rule_is_refused() -> None:
    """A new effect needs its meaning in the abstract world before anything can be proved about it."""
    with pytest.raises(ValueError, match=r"Effects\.hold_evaporate"):
        explore(alone(), changed("hold", "loaded", effect="evaporate"))


def test_an_unknown_resource_is_refused() -> None:
    """A new resource class needs its place in the ledger."""
    with pytest.raises(ValueError, match="'crayon' is unknown to the explorer"):
        explore(alone(), changed("hold", "loaded", releases=("staging", "crayon")))
