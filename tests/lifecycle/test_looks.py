"""How often the live tree is matched: once for an IO commit, once for a visit, and again only if it has changed."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from typing import Any

import pytest

from stagehold import RequestState
from stagehold.testing.hand import SLOW_GETS


@contextmanager
def counted(h: Any) -> Any:
    """Calls of either match, by name."""
    tree, calls = h.core.tree, Counter()
    originals = {name: getattr(tree, name) for name in ("full_match", "joint_match")}

    def watch(name):
        def call(*args):
            calls[name] += 1
            return originals[name](*args)

        return call

    for name in originals:
        setattr(tree, name, watch(name))
    yield calls
    for name in originals:
        delattr(tree, name)


@pytest.mark.parametrize("live", [0, 3, 8])
def test_an_io_commit_costs_one_full_match(hand, live):
    """Decision and effect share it, whether it pins, finds no anchor, or finds the span covered."""
    h = hand(delays=SLOW_GETS)
    tokens = h.prompt(8)
    h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick()
    h.grow(tokens, live)
    with counted(h) as calls:
        h.tick()
    # The answer has cost another, which says where the hold begins: where the request could go on without it.
    assert (1, 1) == (calls["full_match"], calls["joint_match"])
    assert (RequestState.COVERED if live == 8 else RequestState.STAGED) is h.engine.state_of(a)


def test_a_parked_hold_that_is_tried_again_is_matched_once_each_time(hand):
    """Matching again at its turn is what parking for free costs."""
    h = hand(delays=SLOW_GETS, staging_pages=8)
    for family in (1, 2):
        h.put(h.prompt(8, family))
        h.arrive(f"r{family}", h.prompt(8, family))
    h.tick(2)
    h.core.news += 1
    with counted(h) as calls:
        h.tick()
    assert {"full_match": 1} == dict(calls)


@pytest.mark.parametrize("pages", [0, 3, 8])
def test_a_visit_without_a_claim_costs_one_joint_match(hand, pages):
    """Selected and admitted on the same look."""
    h = hand(store=None)
    tokens = h.prompt(8)
    h.grow(tokens, pages)
    a = h.arrive("a", tokens)
    h.tick()
    with counted(h) as calls:
        assert h.admit(a).hit_tokens == 16 * pages
    assert {"joint_match": 1} == dict(calls)


def test_a_visit_with_a_claim_costs_one_match_of_each_kind(hand):
    """FULL says where the splice begins, the joint match whether it is needed."""
    h = hand()
    tokens = h.prompt(8)
    h.put(tokens)
    h.grow(tokens, 3)
    a = h.arrive("a", tokens)
    h.tick(3)
    with counted(h) as calls:
        assert 80 == h.admit(a).store_hit_tokens
    assert {"joint_match": 1, "full_match": 1} == dict(calls)


def test_a_cover_is_looked_at_once(hand):
    """Still covered, planned and admitted on one look."""
    h = hand()
    tokens = h.prompt(8)
    h.grow(tokens, 8)
    a = h.arrive("a", tokens)
    h.tick()
    assert RequestState.COVERED is h.engine.state_of(a)
    with counted(h) as calls:
        assert 128 == h.admit(a).hit_tokens
    assert {"joint_match": 1} == dict(calls)


def test_a_request_that_waits_is_not_matched_again_while_the_tree_stands_still(hand):
    """However often the scheduler comes by."""
    h = hand(delays=SLOW_GETS)
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(2)
    h.visit(a)
    with counted(h) as calls:
        for _ in range(20):
            h.tick()
            h.visit(a)
    assert {} == dict(calls)


@pytest.mark.parametrize(("before", "after"), [(2, 6), (6, 2)])
def test_a_tree_that_moves_during_a_visit_is_matched_again(hand, before, after):
    """What is admitted is what lives at the commit, not what lived at the select."""
    h = hand(store=None)
    tokens = h.prompt(8)
    h.grow(tokens, before)
    a = h.arrive("a", tokens)
    h.tick()
    plan = h.engine.select(a, 1000)
    h.grow(tokens, after)
    h.shrink(tokens, after)
    assert 16 * after == h.engine.commit(plan).hit_tokens
