"""How far a span can be joined, and what it has to bring: the arithmetic against one that goes page by page."""

from __future__ import annotations

import random
from itertools import product

import numpy as np

from stagehold.cache.components.base import Span
from stagehold.cache.components.full import FULL
from stagehold.cache.components.splice import ends, restorable, staged
from stagehold.cache.components.state import STATE, Checkpoints
from stagehold.cache.components.swa import SWA, SlidingWindow
from stagehold.cache.keys import Chain, Namespace
from stagehold.cache.pools import Pool
from stagehold.cache.tree import Tree

CASES = 100_000
PAGES = 10
TREES = 500
WINDOWS = (1, 2, 3, 5)


# -- page by page, knowing nothing of the code ------------------------------------------------------------------


def needed(window: int, end: int) -> list[int]:
    """Pages that whoever goes on from `end` reads: the last `window` ones; 0 stands for a checkpoint at the end."""
    if window == 0:
        return [end - 1]
    return [*range(end)][-window:]


def brought(window: int, start: int, last: int) -> list[int]:
    """Pages of a component that a span [start, last) brings; none where something needed lies before it."""
    wanted = needed(window, last) if last > start else []
    return wanted if all(page >= start for page in wanted) else []


def valid_ends(windows: list[int], start: int, covered: int, has: dict[tuple[int, int], bool]) -> list[int]:
    """Every end that all components can restore, falling."""
    found = []
    for end in range(start + 1, covered + 1):
        pages = [brought(window, start, end) for window in windows]
        if all(pages) and all(has[place, page] for place, mine in enumerate(pages) for page in mine):
            found.insert(0, end)
    return found


def pages_of(spans: list[Span]) -> list[int]:
    return [page for span in spans for page in range(span.start, span.end)]


# -- the cases --------------------------------------------------------------------------------------------------


PARTS = {
    (place, window): SlidingWindow(window, name=str(place)) if window else Checkpoints(name=str(place))
    for place in range(3)
    for window in (0, *WINDOWS)
}


class Grown:
    """A tree with a live prefix of one chain, random tombstones and checkpoints, and a list of what is there."""

    def __init__(self, dice: random.Random) -> None:
        pools = {FULL: Pool(PAGES, FULL), SWA: Pool(PAGES, SWA), STATE: Pool(PAGES, STATE)}
        self.window = dice.choice(WINDOWS)
        self.tree = Tree(1, pools, components=[SlidingWindow(self.window), Checkpoints()])
        tokens = np.full(PAGES, dice.randrange(1000), dtype=np.uint32)
        self.chain = Chain(Namespace("model"), tokens, 1)
        self.live = dice.randrange(PAGES + 1)
        self.swa: list[bool] = []
        self.state = [False] * (PAGES + 1)
        while len(self.swa) < self.live:
            self._grow(dice, dice.randint(1, min(4, self.live - len(self.swa))))
        self.swa += [False] * (PAGES - self.live)

    def _grow(self, dice: random.Random, pages: int) -> None:
        windows, states = dice.choice((0, pages, dice.randint(0, pages))), dice.randint(0, 1)
        start, end = len(self.swa), len(self.swa) + pages
        counts = {FULL: pages, SWA: windows, STATE: states}
        slots = {name: self.tree.pools[name].alloc(count) for name, count in counts.items()}
        self.tree.insert(self.chain, start, end, {name: taken for name, taken in slots.items() if taken})
        self.swa += [False] * (pages - windows) + [True] * windows
        self.state[end] = states > 0


def test_a_hundred_thousand_spans_bring_and_lack_what_their_pages_say():
    """What a hold declares, what the tree lacks of it, where a match ends, and which pages of FULL are to be loaded."""
    dice = random.Random(1)
    grown = [Grown(dice) for _ in range(TREES)]
    for case in range(CASES):
        one = grown[case % TREES]
        last = dice.randint(1, PAGES)
        start = dice.randrange(last)
        wanted = brought(one.window, start, last)
        span = staged(one.tree.part(SWA), start, last)
        assert wanted == ([] if span is None else [*range(span.start, span.end)])
        assert (last - 1, last) == staged(one.tree.part(STATE), start, last)
        lacking = [page for page in range(start, last) if not one.swa[page]]
        assert lacking == pages_of(one.tree.missing(one.chain, start, last, SWA))
        assert one.state[last] == (one.tree.missing(one.chain, start, last, STATE) == [])
        load = [page for page in range(start, last) if page >= one.live]
        assert load == pages_of(one.tree.missing(one.chain, start, last))
        there = [page for page in range(start, last) if one.swa[page]]
        assert there == pages_of(one.tree.resident(one.chain, start, last, SWA))


def test_a_joint_match_is_the_last_boundary_that_has_all_it_needs():
    """Every boundary is looked at by itself."""
    dice = random.Random(3)
    for one, limit in product([Grown(dice) for _ in range(TREES)], range(PAGES + 1)):
        good = [0] + [
            end
            for end in range(1, min(limit, one.live) + 1)
            if one.state[end] and all(one.swa[page] for page in needed(one.window, end))
        ]
        assert good[-1] == one.tree.joint_match(one.chain, limit)


def test_a_hundred_thousand_lookups_end_where_every_component_can_be_restored():
    """No, one, two or three components beside full attention; pages in the store at random."""
    dice = random.Random(2)
    for _ in range(CASES):
        windows = [dice.choice((0, *WINDOWS)) for _ in range(dice.randrange(4))]
        start, size = dice.randrange(4), dice.randrange(6)
        covered = start + size
        odds = dice.choice((0.3, 0.8, 0.95))
        has = {(place, page): dice.random() < odds for place in range(len(windows)) for page in range(start, covered)}
        parts = [PARTS[place, window] for place, window in enumerate(windows)]
        asked: list[tuple[str, int]] = []

        def look(name: str, page: int, has=has, asked=asked) -> bool:
            asked.append((name, page))
            return has[int(name), page]

        expected = valid_ends(windows, start, covered, has)
        assert expected == [*ends(parts, start, covered, look)]
        assert len(set(asked)) == len(asked), "a page was asked for twice"
        assert all(start <= page < covered for _, page in asked)
        assert (expected[0] if expected else start) == restorable(parts, start, covered, look)
