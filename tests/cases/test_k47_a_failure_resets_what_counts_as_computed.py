"""K47: with the policy "recompute", a load that was refused on the spot gave wrong text.

The tokens that it should have brought still counted as computed, so the forward began behind them. Here no count of
computed tokens exists before the commit; what is lost until then, by whatever way, is part of the extend.
"""

from __future__ import annotations

import pytest

from stagehold import Engine, Namespace, PartialDelivery, PrefetchPolicy, RequestState
from stagehold.lifecycle.visits import Visits
from stagehold.serving.pattern import Layout
from stagehold.serving.runner import PatternRunner
from stagehold.serving.scheduler import Scheduler
from stagehold.testing.hand import Hand

LAYOUT = Layout(layers=1, token_part_bytes=16, page_size=16)


def refused_fetch(h: Hand) -> None:
    h.store.fail_next(1)
    h.tick(2)


def damaged_page(h: Hand) -> None:
    h.store.damage(h.names(h.prompt(8))[2])
    h.tick(2)


def pages_gone(h: Hand) -> None:
    for name in h.names(h.prompt(8)):
        h.store.drop(name)
    h.tick(2)


def detached(h: Hand) -> None:
    h.tick(2)
    h.engine.detach()


def flushed(h: Hand) -> None:
    h.tick(2)
    h.engine.flush()


def anchor_gone(h: Hand) -> None:
    h.shrink(h.prompt(8), 0)
    h.tick()


WAYS = (refused_fetch, damaged_page, pages_gone, detached, flushed, anchor_gone)


@pytest.mark.parametrize("lost", WAYS)
def test_after_a_loss_the_extend_begins_behind_what_is_live(hand, lost):
    """Two pages are live, six more were found; when those are lost, hit and extend are those of a request without."""
    h = hand(prefetch_policy=PrefetchPolicy.BEST_EFFORT)
    tokens = h.prompt(8)
    h.put(tokens)
    h.grow(tokens, 2)
    a = h.arrive("a", tokens)
    h.tick()
    lost(h)
    live = h.live(tokens)
    admission = h.admit(a)
    assert (16 * live, 0) == (admission.hit_tokens, admission.store_hit_tokens)
    assert 129 - 16 * live == admission.extend_tokens
    assert live == len(admission.slots)


def test_after_a_broken_promise_nothing_of_it_counts(hand):
    """It is raised, and the next visit starts from what is live."""
    h = hand(engine_options={"deliver": lambda _hold, _live, _promised: 5})
    tokens = h.prompt(8)
    h.put(tokens)
    h.grow(tokens, 2)
    a = h.arrive("a", tokens)
    h.tick(3)
    with pytest.raises(PartialDelivery):
        h.visit(a)
    assert RequestState.CAPPED is h.engine.state_of(a)
    assert 32 == h.admit(a).hit_tokens


def every_second_delivery_is_refused():
    """A hold that brings all, then one that brings nothing."""
    turn = [0]

    def deliver(hold, live, promised):
        turn[0] += 1
        return 0 if turn[0] % 2 else max(hold.last, live, promised)

    return deliver


def second_time(build, runner_of) -> PatternRunner:
    """Twelve prompts come back from the store; every second load is refused at the commit."""
    h = build(
        device_pages=140,
        parts=LAYOUT.parts,
        page_part_bytes=LAYOUT.page_part_bytes,
        engine_options={"deliver": every_second_delivery_is_refused()},
    )
    runner = runner_of(h.engine)
    loop = Scheduler(h.engine, runner)
    for wave in range(2):
        for number in range(12):
            loop.submit(f"r{wave}-{number}", h.prompt(8, number + 1), Namespace("text"), 2)
        while not loop.idle:
            loop.step()
        h.engine.drain(100)
        h.core.tree.evict(10**6)
    assert h.taken("request.anchor_locked.commit.NOTHING") >= 3
    return runner


def a_runner(engine: Engine) -> PatternRunner:
    assert engine.device_bytes is not None
    return PatternRunner(LAYOUT, engine.device_bytes.tensor)


def test_a_model_reads_right_bytes_when_loads_are_refused(hand):
    """Each byte is compared; none is wrong, and none that was promised is missing."""
    runner = second_time(hand, a_runner)
    assert runner.compared_bytes
    assert (0, 0) == (runner.wrong_bytes, runner.phantom_tokens)


def test_a_count_that_stays_after_the_refusal_would_be_seen(monkeypatch):
    """Planted: what the plan promised counts as computed, and pages that nobody filled stand under it."""
    admitted = Visits._admitted

    def promised_counts(self, m, plan):
        admission = admitted(self, m, plan)
        missing = plan.promised_pages - len(admission.slots)
        if missing > 0:
            self.core.reserved -= missing
            m.data.reserve -= missing
            m.data.slots.extend(self.core.allocate_device(missing))
            m.data.n_tokens += missing * 16
            object.__setattr__(admission, "hit_tokens", m.data.n_tokens)
        return admission

    monkeypatch.setattr(Visits, "_admitted", promised_counts)
    runner = second_time(Hand, a_runner)
    assert runner.phantom_tokens > 0
