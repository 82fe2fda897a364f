"""The pass and its parts: poll, exchange and proceed apart; facts of fixed size; one exchange, never skipped."""

from __future__ import annotations

import numpy as np
import pytest

from stagehold import RequestState
from stagehold.lifecycle.facts import TAIL, Capacity, pack, unpack
from stagehold.lifecycle.ranks.solo import Solo
from stagehold.specs.config import MOST_COMPONENTS_BESIDE
from stagehold.testing.hand import Hand


class Counting(Solo):
    """Notes the size of everything that is exchanged."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def exchange(self, facts):
        self.sizes.append(len(facts))
        return super().exchange(facts)


def work(h: Hand) -> None:
    for number in range(6):
        h.put(h.prompt(6, number + 1))
        h.arrive(f"r{number}", h.prompt(8, number + 1))


def test_the_three_parts_by_hand_are_a_tick(hand):
    """Loops that exchange in their own collective get the same records."""
    whole, parts = hand(), hand()
    for h in (whole, parts):
        work(h)
    for _ in range(12):
        whole.engine.tick()
        parts.engine.proceed(Solo().exchange(parts.engine.poll()))
        assert whole.engine.digest() == parts.engine.digest()


def test_polling_acts_on_nothing(hand):
    """What ended is a fact, and an event only once it is agreed."""
    h = hand()
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick()
    facts = h.engine.poll()
    assert RequestState.LOOKUP is h.engine.state_of(a)
    h.engine.proceed(facts)
    assert RequestState.STAGED is h.engine.state_of(a)


def test_a_fact_that_the_group_does_not_agree_on_is_acted_on_later(hand):
    """Another rank has not seen the answer yet: the minimum says so."""
    h = hand()
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick()
    facts = h.engine.poll()
    behind = facts.copy()
    behind[: len(facts) - TAIL] = np.minimum(behind[: len(facts) - TAIL], 0)
    h.engine.proceed(behind)
    assert RequestState.LOOKUP is h.engine.state_of(a)
    h.tick()
    assert RequestState.STAGED is h.engine.state_of(a)


def test_pages_that_only_this_rank_has_are_no_usable_head(hand):
    """A visit that will not wait cuts where every rank can, or nowhere."""
    h = hand(wait_base_ticks=0, wait_per_page_ticks=0.0)
    h.store.limit(1)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.until(lambda: h.machine(a).data.hold)
    for _ in range(4):
        facts = h.engine.poll().copy()
        facts[: len(facts) - TAIL] = np.minimum(facts[: len(facts) - TAIL], 0)
        h.engine.proceed(facts)
    assert not h.engine._parts.holds.usable(h.hold_of(a))
    h.tick()
    assert h.engine._parts.holds.usable(h.hold_of(a))


def test_facts_have_one_size_whatever_happens(hand):
    """And exactly one exchange a tick, with an empty queue, too."""
    group = Counting()
    h = hand(engine_options={"group": group})
    h.tick(5)
    work(h)
    h.tick(20)
    h.store.stall()
    work_again = [h.arrive(f"again{number}", h.prompt(8, 40 + number)) for number in range(4)]
    h.tick(5)
    h.store.release()
    assert (h.now, 1) == (len(group.sizes), len(set(group.sizes)))
    assert work_again


def test_two_polls_without_a_proceed_are_refused(hand):
    """Every pass has its three parts, in order."""
    h = hand()
    facts = h.engine.poll()
    with pytest.raises(Exception, match=r"polling|agreeing|tick"):
        h.engine.poll()
    h.engine.proceed(facts)
    h.tick()


def test_more_operations_than_places_wait_in_order(hand):
    """The window bounds the exchange, not the work."""
    h = hand(operation_window=8, query_limit=64)
    handles = [h.arrive(f"r{number}", h.prompt(4, number + 1)) for number in range(20)]
    h.tick()
    assert (8, 12) == (len(h.store.in_flight()), len(h.core.operations.waiting))
    h.tick()
    done = [h.engine.state_of(handle) is RequestState.RETRY for handle in handles]
    assert [True] * 8 + [False] * 12 == done
    h.tick(2)
    assert all(h.engine.state_of(handle) is RequestState.RETRY for handle in handles)


def test_an_idle_tick_leaves_an_empty_block(hand):
    """And its digest goes on from the one before."""
    h = hand()
    h.tick(3)
    block, before = h.engine.last_block(), h.engine.digest()
    assert (b"", ()) == (block.records, block.births)
    h.tick()
    assert before == h.engine.last_block().previous
    assert before != h.engine.digest()


def test_facts_pack_and_unpack():
    """Operations, what is left on the poorest rank and on the richest, and whether every rank closed the same block."""
    operations = np.arange(24, dtype=np.int64)
    one = pack(operations, b"a" * 16, Capacity(7, 1, 9), mark=5)
    two = pack(operations, b"b" * 16, Capacity(5, 2, 9), mark=5)
    agreed = unpack(np.minimum(one, two))
    assert (Capacity(5, 1, 9), Capacity(7, 2, 9), False) == (agreed.least, agreed.most, agreed.same)
    assert unpack(one).same
    assert operations.tolist() == agreed.operations.tolist()


def test_an_exchange_has_room_for_as_many_components_as_a_configuration_may_have():
    """Staging and device of each."""
    left = Capacity(*range(len(Capacity._fields)))
    assert 1 + 2 * (1 + MOST_COMPONENTS_BESIDE) == len(left)
    assert [(0, 2), (3, 4), (5, 6), (7, 8)] == [left.of(component) for component in range(1 + MOST_COMPONENTS_BESIDE)]


def test_operations_in_other_places_are_no_agreement():
    """The digests are equal, and still the facts would be taken for another operation's."""
    operations = np.zeros(24, dtype=np.int64)
    one, two = pack(operations, b"a" * 16, mark=5), pack(operations, b"a" * 16, mark=6)
    assert not unpack(np.minimum(one, two)).same


def test_a_pass_that_only_polls_a_copy_paces_no_retry(hand):
    """advance_retries=False: such passes could not have admitted."""
    h = hand()
    a = h.arrive("a", h.prompt(8))
    h.until(lambda: h.engine.state_of(a) is RequestState.RETRY)
    for _ in range(50):
        h.engine.tick(advance_retries=False)
    assert RequestState.RETRY is h.engine.state_of(a)
    h.tick(8)
    assert RequestState.LOOKUP is h.engine.state_of(a)


def test_completions_do_not_wait_for_the_queue(hand):
    """Whoever is visited, and whether anybody is: the tick applies what ended."""
    h = hand()
    for number in range(30):
        h.put(h.prompt(2, number + 1))
    handles = [h.arrive(f"r{number}", h.prompt(2, number + 1)) for number in range(16)]
    h.tick(3)
    assert 2 * 16 == h.admit(handles[-1]).store_hit_tokens
