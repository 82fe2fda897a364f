"""A small world is searched to its last situation: every rule holds in each, and from each everything ends."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from stagehold.testing.explore import WORLDS, Budget, SmallWorld, parse, play, search
from stagehold.testing.explore.choices import Move, moves
from stagehold.testing.explore.pair import Pair
from stagehold.testing.explore.search import NOBODY, Search
from stagehold.testing.explore.ways import lasting, limit_of

NAMED = {world.name: world for world in WORLDS}
SMALL = replace(NAMED["alone"], budget=Budget(total=1, late=1))
TINY = replace(NAMED["alone"], budget=Budget(total=1, late=0, sibling=0, fault=0, lag=0), arrived=0)


@pytest.fixture(scope="module")
def found() -> Search:
    """The whole search of one request, one trouble on a way."""
    return Search(SMALL).run()


def test_nothing_is_found(found: Search) -> None:
    """Two thousand situations, none of them cut off, and no rule broken."""
    assert [] == found.violations
    assert not found.cut_off
    assert 2_000 < len(found.graph.by) < found.graph.transitions


def test_everything_ends_from_everywhere(found: Search) -> None:
    """An ordinary scheduler comes to the end from each situation, within what the limits allow."""
    ways = lasting(found.graph)

    assert () == ways.endless
    assert 0 == ways.unknown
    assert 0 < ways.ticks <= limit_of(SMALL)


def test_the_troubles_of_the_world_happen(found: Search) -> None:
    """Pages go, a sibling splits what is live, a request is aborted, the store fails, one rank is late, or both."""
    moves = [" ".join(map(str, move)) for move in found.graph.by]

    for trouble in ("evict", "sibling 0", "abort 0", "tick XT", "tick ST", "tick PP", "tick FT", "tick FF"):
        assert trouble in moves, f"{trouble} was not tried"


def test_every_situation_can_be_reached_without_a_snapshot(found: Search) -> None:
    """The moves that lead to a situation, made anew from the beginning, lead to it again."""
    numbers = {number: told for told, number in found.graph.numbers.items()}
    for number in range(7, len(numbers), len(numbers) // 12):
        pair = Pair(SMALL)
        for move in found.graph.way_to(number):
            pair.do(move)

        assert numbers[number] == pair.told(), found.graph.way_to(number)


def test_moves_that_commute_need_one_order_only() -> None:
    """With completions apart from their ticks, and arrivals at any time, no tick ends where none did before."""
    reduced, whole = (Search(TINY, whole=one).run() for one in (False, True))

    assert len(reduced.graph.by) < len(whole.graph.by)
    assert after_ticks(whole) == after_ticks(reduced)


def after_ticks(run: Search) -> set[bytes]:
    assert not run.violations
    assert not run.cut_off
    return {told for told, number in run.graph.numbers.items() if run.graph.ticked[number]}


def test_no_shorter_way_is_known() -> None:
    """Breadth first: whoever found a situation was found no later than anybody else who leads to it."""
    graph = Search(TINY).run().graph
    far = []
    for parent in graph.parents:
        far.append(0 if parent == NOBODY else far[parent] + 1)

    assert far == sorted(far)


@pytest.mark.parametrize(("live", "pinned"), [(1, 0.375), (2, 0.0)], ids=["pinned", "unpinned"])
def test_a_fault_or_an_eviction_breaks_nothing(live: int, pinned: float) -> None:
    """The quickest searches that meet failed fetches and lost anchors: planted bugs are held against them."""
    budget = Budget(total=1, late=0, abort=0, lag=0, sibling=0)
    found = search(replace(SMALL, live=(live,), budget=budget, settings={"pin_fraction": pinned}))

    assert () == found.violations
    assert found.whole
    assert 0 < found.liveness_bound <= found.liveness_limit


def test_a_split_of_an_anchor_breaks_nothing() -> None:
    """A sibling that parts from the prompt inside a pinned node."""
    budget = Budget(total=1, late=0, abort=0, lag=0, fault=0, evict=0)
    found = search(replace(SMALL, live=(2,), siblings=(((1, 5), 2),), budget=budget))

    assert () == found.violations
    assert found.whole


def test_a_search_that_is_cut_off_says_so() -> None:
    """What was not looked at is no proof."""
    cut = search(SMALL, most=50)

    assert not cut.whole
    assert cut.holds
    assert 50 < cut.states < 100


def test_every_world_begins_and_is_told_apart() -> None:
    """All worlds can be built, and a program that names one plays there."""
    assert len(NAMED) == len(WORLDS)
    for world in WORLDS:
        chosen, program = parse([f"world {world.name}", "tick  # the first pass"], WORLDS)
        pair = Pair(chosen)
        before = pair.cores[0].clock.tick
        play(pair, program)

        assert before + 1 == pair.cores[0].clock.tick


def test_equal_situations_have_equal_futures() -> None:
    """Two ways to what is told as one situation can be gone on in the same moves, and stay equal."""
    world = replace(SMALL, believed=False, stored=(2,), budget=Budget(total=1, late=1, lag=0))  # lagging ranks may swap
    run = Doubled(world, most=1_200).run()
    dice = random.Random(5)
    for first, second in dice.sample(run.doubles, 30):
        pairs = [played(run.world, way) for way in (first, second)]
        for _ in range(12):
            told, can = {pair.told() for pair in pairs}, moves(pairs[0])

            assert 1 == len(told), f"{first} and {second} were told as one"
            assert can == moves(pairs[1])
            move = dice.choice(can)
            for pair in pairs:
                pair.do(move)


class Doubled(Search):
    """A search that remembers the second ways to what it has found."""

    def _enter(self, pair, frontier, parent, move):
        before = len(self.graph.by)
        number = super()._enter(pair, frontier, parent, move)
        if number < before and number not in (0, parent):
            self.doubles.append((self.graph.way_to(number), [*self.graph.way_to(parent), move]))
        return number

    @property
    def doubles(self) -> list[tuple[list[Move], list[Move]]]:
        return self.__dict__.setdefault("_doubles", [])


def played(world: SmallWorld, way: list[Move]) -> Pair:
    pair = Pair(world)
    for move in way:
        pair.do(move)
    return pair
