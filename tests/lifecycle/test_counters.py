"""Every outcome has a counter, every counter moves, and each token is counted where it belongs."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

import pytest

from stagehold import AuditLog, Diverged, Engine, Handle, HostMode, Stats
from stagehold.cache.stores.simulated import Delays
from stagehold.lifecycle.claims import Look
from stagehold.lifecycle.data import WriteData
from stagehold.lifecycle.facts import differing
from stagehold.lifecycle.ranks.solo import Facts, Solo
from stagehold.lifecycle.stats import NEVER, Count
from stagehold.machines import SpanKey, counters, heat
from stagehold.specs.outcomes import Decline, Loss
from stagehold.testing.hand import SLOW_GETS, Hand
from stagehold.testing.shapes import drawn
from stagehold.testing.steps import Walk
from stagehold.testing.world import World

WORLDS = 60
ACTS = 250

OF_GROUPS = {"tick_timeout", "tick_agreed_quarantine"}
"""What no engine of one rank can take."""


# By hand: what a walk of a small world does not come to


def pin_full(h: Hand) -> None:
    for family in (1, 2):
        h.put(h.prompt(8, family))
        h.grow(h.prompt(8, family), 3)
        h.arrive(f"r{family}", h.prompt(8, family))
    h.tick(2)


def oversize(h: Hand) -> None:
    """Spans are shortened to what staging can give when they are opened, so staging shrinks under this one."""
    h.store.stall()
    a = h.arrive("a", h.prompt(8))
    h.tick()
    h.core.steps.request.answer(h.machine(a), 6)
    whole, h.core.config = h.core.config, h.core.config.model_copy(update={"staging_pages": 4})
    h.core.steps.hold.io_commit(h.hold_of(a), Look(0, 0))
    h.core.settle()
    h.core.config = whole


def intent(h: Hand, first: int, last: int) -> None:
    chain = h.chain(h.prompt(8))
    keys = tuple(chain.page_key(page) for page in range(first, min(last, chain.n_pages)))
    data = WriteData(chain, b"", first, last, keys)
    h.core.steps.write.offer(h.core.steps.write.birth(data, SpanKey(b"", keys[-1], first, last)))


def hosted(h: Hand) -> None:
    """Pages that came from the store stay in the host tier; the store has lost them, and nobody needs to copy them."""
    a = found(h)
    h.admit(a)
    h.engine.finish(a)
    h.tick(3)
    h.core.beliefs.forget()
    for name in h.names(h.prompt(8)):
        h.store.drop(name)
    b = h.arrive("b", h.prompt(8))
    h.admit(b)
    h.engine._parts.running.offers.offer_span(h.machine(b).data.chain, b"", 0, 8)
    h.tick(2)


def found(h: Hand) -> Handle:
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(3)
    return a


def defer_cap(h: Hand) -> None:
    a = found(h)
    h.core.reserved += h.core.room()
    h.visit(a)
    h.visit(a)
    h.core.reserved = 0


def put_spent(h: Hand) -> None:
    h.run("a", h.prompt(4))
    h.tick()
    h.store.fail_next(1)
    h.tick(3)


def lost_for_good(h: Hand) -> None:
    """The anchor goes while the lookup is out, and no launch is left."""
    h.put(h.prompt(8))
    h.grow(h.prompt(8), 4)
    h.arrive("a", h.prompt(8))
    h.tick()
    h.shrink(h.prompt(8), 0)
    h.tick(2)


class Drifting(Solo):
    """A group whose other rank has recorded something else."""

    size = 2

    def exchange(self, facts: Facts) -> Facts:
        return differing(facts)


def diverged(h: Hand) -> None:
    with pytest.raises(Diverged):
        h.tick()


BY_HAND: dict[str, tuple[dict[str, object], Callable[[Hand], object], Count]] = {
    "request_resolve_cap": ({"retry_max_reissues": 0}, lost_for_good, Count(1, 0)),
    "request_commit_more": ({"engine_options": {"deliver": lambda *_: 9}}, lambda h: h.admit(found(h)), Count(1, 128)),
    "request_commit_deferred": ({"max_staged_admission_defers": 1}, defer_cap, Count(1, 128)),
    "request_commit_defer_cap": ({"max_staged_admission_defers": 1}, defer_cap, Count(1, 128)),
    "write_put_ended_spent": ({"tries": 1}, put_spent, Count(1, 64)),
    "hold_io_commit_pin_full": ({"pin_fraction": 0.08, "delays": SLOW_GETS}, pin_full, Count(1, 0)),
    "hold_io_commit_oversize": ({"staging_pages": 6}, oversize, Count(1, 0)),
    "write_offer_keyless": ({}, lambda h: intent(h, 4, 10), Count(1, 96)),
    "write_offer_never_fits": ({"staging_pages": 10}, lambda h: intent(h, 0, 3), Count(1, 48)),
    "write_start_hosted": ({"host_memory_mode": HostMode.CACHE}, hosted, Count(2, 0)),
    "tick_agreed_diverged": ({"engine_options": {"group": Drifting()}, "attach": False}, diverged, Count(1, 0)),
}
"""Options, what happens, and the count that it must give."""


@pytest.mark.parametrize("name", BY_HAND)
def test_a_rare_outcome_counts(hand, name):
    """Once, with its tokens."""
    options, act, expected = BY_HAND[name]
    h = hand(**options)
    act(h)
    assert expected == h.engine.stats().count(name)


# By walks through small worlds


@pytest.fixture(scope="module")
def driven() -> tuple[Counter[str], Counter[str], Counter[str]]:
    """How often each counter, decline and loss moved in all engines of some worlds."""
    taken, declines, losses = Counter(dict.fromkeys(BY_HAND, 1)), Counter(), Counter()

    def note(engine: Engine) -> None:
        was_open = not engine._closed
        close(engine)
        if was_open:
            stats = engine.stats()
            taken.update({name: count.taken for name, count in stats.counters.items()})
            declines.update(stats.declines)
            losses.update(stats.losses)
            agrees_with_itself(stats)

    close, Engine.close = Engine.close, note
    try:
        for seed in range(WORLDS):
            world = World(seed, drawn(seed))
            Walk(world).run(ACTS)
            world.close()
    finally:
        Engine.close = close
    return taken, declines, losses


def agrees_with_itself(stats: Stats) -> None:
    """What the counters say is what the ledger says: no token twice, none forgotten."""

    def tokens(*names: str) -> int:
        return sum(stats.count(name).tokens for name in names)

    assert stats.queried == tokens("request_answer_hit", "request_issue_known", "request_due_known")
    assert stats.spliced == tokens("request_commit_delivered", "request_commit_more")
    assert sum(stats.declines.values()) == sum(
        stats.count(name).taken for name in ("request_issue_declined", "request_due_declined")
    )
    admitted = stats.count("write_offer_queue").tokens
    ended = stats.stored_pages + stats.host_only_pages + stats.dropped_pages + stats.evicted_unwritten_pages
    assert 0 == admitted % 4
    assert admitted // 4 == ended, "every admitted write has ended when its engine is closed"


@pytest.mark.parametrize("name", [name for name in counters.names() if name not in OF_GROUPS])
def test_every_counter_moves(driven, name):
    """One counter for each outcome of each event, and a run that takes it."""
    assert driven[0][name] > 0


@pytest.mark.parametrize("reason", [reason for reason in Decline if reason is not Decline.LOSING])
def test_every_reason_to_decline_is_counted(driven, reason):
    """By name."""
    assert driven[1][reason.name.lower()] > 0


def test_a_store_that_is_not_asked_for_its_slowness_is_counted(hand):
    """By hand: no walk through a small world has a gate."""
    h = hand(fetch_gate="auto", prefill_tokens_per_tick=1000)
    h.core.gate.lost = 1_000_000
    h.tick()
    h.arrive("a", h.prompt(8))
    h.tick()
    assert {"losing": 1} == h.engine.stats().declines


@pytest.mark.parametrize("reason", [reason for reason in Loss if reason is not Loss.OVERSIZE])
def test_every_loss_is_counted(driven, reason):
    """By name."""
    assert driven[2][reason.name.lower()] > 0


def test_the_loss_of_an_oversize_is_counted(hand):
    """By hand, like its counter."""
    h = hand(staging_pages=6)
    oversize(h)
    assert {"oversize": 96} == h.engine.stats().losses


# Tokens


def test_a_served_request_is_counted_once_in_each_of_its_outcomes(hand):
    """Eight pages of 16 tokens are found, verified and loaded, and one that was computed is written."""
    h = hand()
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(9))
    h.tick(3)
    h.serve(a)
    h.until(lambda: not h.core.writes)
    stats = h.engine.stats()
    expected = {
        "request_issue_lookup": Count(1, 0),
        "request_answer_hit": Count(1, 128),
        "hold_io_commit_no_anchor": Count(1, 0),
        "hold_fetched_whole": Count(1, 128),
        "request_evaluate_locked": Count(1, 0),
        "request_commit_delivered": Count(1, 128),
        "hold_load": Count(1, 0),
        "request_finish": Count(1, 0),
        "write_offer_queue": Count(1, 16),
        "write_put_ended_stored": Count(1, 16),
    }
    assert expected == {name: stats.count(name) for name in expected}


def test_what_was_found_and_is_too_little_has_its_tokens(hand):
    """One page of two."""
    h = hand()
    h.put(h.prompt(8), 0, 1)
    h.arrive("a", h.prompt(8))
    h.tick(2)
    assert Count(1, 16) == h.engine.stats().count("request_answer_below_threshold")


def test_a_deferred_commit_has_the_tokens_that_are_put_off(hand):
    """Each time."""
    h = hand(device_pages=33)
    h.put(h.prompt(8))
    h.admit(h.arrive("other", h.prompt(24, 2)))
    a = h.arrive("a", h.prompt(8), new=16)
    h.tick(3)
    for _ in range(3):
        h.visit(a)
    assert Count(3, 3 * 128) == h.engine.stats().count("request_commit_no_room")


def test_counts_are_those_of_this_moment(hand):
    """What the open block holds is counted, too, and not twice when it closes."""
    h = hand(store=None)
    a = h.arrive("a", h.prompt(2))
    h.admit(a)
    before = h.engine.stats().count("request_admit")
    h.tick()
    assert Count(1, 0) == before == h.engine.stats().count("request_admit")


def test_a_name_that_nobody_counts_is_zero(hand):
    """Also before anything has happened."""
    assert NEVER == hand().engine.stats().count("request_admit")


def test_the_log_gives_the_same_counts_as_its_engine(hand, tmp_path):
    """Rows counted from the file, against counters of the engine that wrote it."""
    path = tmp_path / "a.jsonl"
    with AuditLog(path) as log:
        h = hand(engine_options={"sink": log.block}, delays=Delays((1, 2), (1, 3), (1, 3)))
        for number in range(6):
            h.put(h.prompt(8, number), 0, number)
            h.serve(h.arrive(f"r{number}", h.prompt(8, number)))
            h.tick(3)
        h.engine.close()
    told = Counter()
    seen = heat.stats(path)
    for spec in counters.MACHINES:
        for row, times in zip(spec.rows, seen.taken[spec.name], strict=True):
            if spec.name in counters.HERE and times:
                told[counters.counter(spec, row)] += times
    assert dict(told) == {name: count.taken for name, count in h.engine.stats().counters.items()}


# Names


def test_a_counter_is_named_machine_event_outcome():
    """And no two machines share one."""
    names = counters.names()
    assert len(names) == len(set(names))
    assert {"request_issue_lookup", "hold_fetched_head", "write_offer_full", "store_result_tripped"} <= set(names)


def test_every_name_on_the_page_exists():
    """What HiCache's names are mapped to is there: counters, losses, figures of `Stats`."""
    known = {*counters.names(), *(loss.name.lower() for loss in Loss), *(f"Stats.{f.name}" for f in fields(Stats))}
    for theirs, ours, different in counters.ELSEWHERE:
        for name in re.findall(r"`([^`]+)`", ours + different):
            beginning = name.removesuffix("…")
            assert name in known or any(k.startswith(beginning) for k in known if "…" in name), (theirs, name)


def test_the_page_lists_every_counter():
    """And is the one that stands in the documents."""
    text = (Path(__file__).parents[2] / "docs" / "machines" / "counters.md").read_text()
    assert [] == [name for name in counters.names() if f"`{name}`" not in text]
