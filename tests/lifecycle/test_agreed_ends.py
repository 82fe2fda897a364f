"""A lookup with windows and several ranks: they end it at a boundary that every one of them can restore."""

from __future__ import annotations

from functools import reduce

import numpy as np
import pytest

from stagehold.cache.components.state import Checkpoints
from stagehold.cache.components.swa import SlidingWindow
from stagehold.cache.stores.protocol import Progress, Verdict
from stagehold.lifecycle.operations import Ends, Kind, Operations

PAGES = 12
ROUNDS = PAGES + 2


def rank(ends: Ends, there: dict[str, str]) -> Operations:
    """One rank's lookup from page 0 on, answered: a letter for each page, `x` where the store has it."""
    operations = Operations(4, shared=True)
    operations.begin(Kind.QUERY, 7, lambda _number: None, keys=len(there) * PAGES).ends = ends
    letters = "".join(there[name] for name in ("full", *(gate.name for gate in ends.gates)))
    verdicts = tuple(Verdict.HIT if letter == "x" else Verdict.MISS for letter in letters)
    good = next((at for at, verdict in enumerate(verdicts) if verdict is not Verdict.HIT), len(verdicts))
    operations.note([Progress(1, done=True, good=good, verdicts=verdicts)])
    return operations


def settle(ranks: list[Operations]) -> tuple[int, int]:
    """Exchange until it has ended: the end, the same on all ranks, and the rounds that it took."""
    for round_ in range(1, ROUNDS):
        agreed = reduce(np.minimum, [one.facts() for one in ranks]).copy()
        ended = [one.apply(agreed) for one in ranks]
        if any(ended):
            assert all(ended), "it has ended on some ranks only"
            (good,) = {operation.good for [operation] in ended}
            return good, round_
    raise AssertionError("the ranks found no end")


WINDOW = Ends((SlidingWindow(3),), 0, PAGES)


def test_the_shortest_proposal_may_be_no_end_of_anothers():
    """Ranks that could end at 9 or 6, and at 8 or 6: the least of what they propose is 8, the end is 6."""
    one = rank(WINDOW, {"full": "x" * 12, "swa": "...xxxxxx..."[:6] + "xxx..."})
    assert (9, 2) == settle([one, rank(WINDOW, {"full": "x" * 12, "swa": "x" * 9 + "..."})])
    mine = {"full": "x" * 12, "swa": "xxxxxx.xx" + "..."}
    other = {"full": "x" * 12, "swa": "xxxxx" + "..xxx" + ".."}
    assert 5 == settle([rank(WINDOW, mine), rank(WINDOW, other)])[0]


def test_one_rank_alone_needs_no_second_round():
    """What it can restore is what all can."""
    operations = rank(WINDOW, {"full": "x" * 12, "swa": "x" * 12})
    assert (12, 2) == settle([operations])
    alone = Operations(4)
    alone.begin(Kind.QUERY, 7, lambda _number: None, keys=2 * PAGES).ends = WINDOW
    alone.note([Progress(1, done=True, good=2 * PAGES, verdicts=(Verdict.HIT,) * 2 * PAGES)])
    assert (12, 1) == settle([alone])


@pytest.mark.parametrize("seed", range(40))
def test_the_end_is_the_longest_that_all_can_restore(seed):
    """Counted by hand, over two to four ranks, a window, a checkpoint, or both."""
    dice = np.random.default_rng(seed)
    gates = [(SlidingWindow(2),), (Checkpoints(),), (SlidingWindow(3), Checkpoints())][seed % 3]
    ends = Ends(gates, 0, PAGES)
    ranks = []
    for _ in range(2 + seed % 3):
        there = {name: "".join(dice.choice(list("xxxx."), PAGES)) for name in ("swa", "state")}
        ranks.append({"full": "x" * int(dice.integers(6, PAGES + 1)) + "." * PAGES, **there})
        ranks[-1]["full"] = ranks[-1]["full"][:PAGES]
    good, _ = settle([rank(ends, there) for there in ranks])
    assert good == max(end for end in range(PAGES + 1) if all(can(gates, there, end) for there in ranks))


def can(gates: tuple[SlidingWindow | Checkpoints, ...], there: dict[str, str], end: int) -> bool:
    """Whether one rank can restore `end` pages: all of FULL, and the last of each other component."""
    last = {gate.name: min(end, gate.pages if isinstance(gate, SlidingWindow) else 1) for gate in gates}
    whole = all("." not in there[name][end - pages : end] for name, pages in last.items())
    return "." not in there["full"][:end] and whole
