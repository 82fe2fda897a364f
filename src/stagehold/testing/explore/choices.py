"""Which moves a situation allows, and which one a scheduler without troubles would make.

Two moves that commute are tried in one order only:

- What an operation does is seen by nobody before the next poll, so completions are part of the tick that polls them.
- An arrival is seen by nobody before the next tick, or a look at that very request, so arrivals come first in a pass.

`whole=True` leaves both rules out, for the test that they lose nothing. A scheduler looks at a request once in a
pass, and gives all visits back before the next.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

from stagehold.lifecycle.core import Core
from stagehold.specs.attachment import AttachmentState
from stagehold.testing.explore.chosen import ChosenCopies, ChosenStore, End
from stagehold.testing.explore.own import AWAY, COMPUTED, RUNS, WAITS
from stagehold.testing.explore.pair import Pair
from stagehold.testing.explore.words import SAID, spent

Move = tuple[Any, ...]

NAMES = {End.FLIES: "F", End.TRUE: "T", End.PART: "P", End.SHORT: "S", End.FAILED: "X"}


def moves(pair: Pair, *, whole: bool = False) -> list[Move]:
    """Everything that may happen next."""
    found = [*_arrivals(pair, whole=whole), *_requests(pair), *_troubles(pair)]
    if not pair.own.plans:
        found += [("tick", *words) for words in tick_words(pair)]
    return [*found, *_ends_at_any_time(pair)] if whole else found


def usual(pair: Pair) -> list[Move]:
    """What an ordinary scheduler does next while nothing goes wrong: the first of these that changes anything.

    Whoever is visited, runs or can be looked at goes on, in order; else comes the next tick, in which all ends well.
    """
    own = pair.own
    first = [("commit", who) for who in own.plans]
    for call, stands in (("compute", RUNS), ("finish", COMPUTED)):
        first += [(call, who) for who, one in enumerate(own.stands) if one == stands]
    if first:
        return first[:1]
    looks = [("select", who) for who, one in enumerate(own.stands) if one == WAITS and who not in own.visited]
    words = ["".join(SAID if end is None else "T" for end in ends) for ends in _ends(pair)]
    return [*looks, ("tick", *words)]


def _arrivals(pair: Pair, *, whole: bool) -> Iterator[Move]:
    if AWAY in pair.own.stands and (pair.own.fresh or whole):
        yield ("arrive", pair.own.stands.index(AWAY))


def _requests(pair: Pair) -> Iterator[Move]:
    own, budget = pair.own, pair.own.budget
    for who, stands in enumerate(own.stands):
        if who in own.plans:
            yield ("commit", who)
            if budget.can("short"):
                yield from (("commit", who, how) for how in ("some", "none"))
            if budget.can("release"):
                yield ("release", who)
        elif stands == WAITS and who not in own.visited:
            yield ("select", who)
        elif stands in (RUNS, COMPUTED):
            yield ("compute" if stands == RUNS else "finish", who)
            if budget.can("retract"):
                yield ("retract", who)
        if budget.can("abort") and stands in (WAITS, RUNS, COMPUTED):
            yield ("abort", who)


def _troubles(pair: Pair) -> Iterator[Move]:
    budget, core = pair.own.budget, pair.cores[0]
    if budget.can("evict") and core.tree.evictable:
        yield ("evict",)
    if budget.can("sibling"):
        for which, (chain, pages) in enumerate(pair.siblings):
            if pair.can_grow(chain, pages):
                yield ("sibling", which)
    if budget.can("lose"):
        yield from (("lose", which) for which in range(len(pair.chains)))
    if budget.can("flush") and not pair.own.plans:
        yield ("flush",)
    if budget.can("detach") and not pair.own.plans and core.link.state is AttachmentState.ATTACHED:
        yield ("detach",)


def _ends_at_any_time(pair: Pair) -> Iterator[Move]:
    """Completions apart from the tick that polls them."""
    for which, ends in enumerate(_ends(pair)):
        for word in _words(*ends):
            if "F" not in word and word != SAID + SAID and min(spent(pair.own.budget, (word,))) >= 0:
                yield ("ends", which, word)


def tick_words(pair: Pair) -> list[tuple[str, ...]]:
    """Every way in which the operations in flight may go on until the next poll, as far as the budget goes."""
    budget = pair.own.budget
    every = product(*(_words(*ends) for ends in _ends(pair)))
    return [words for words in every if min(spent(budget, words)) >= 0]


def _words(*ends: tuple[End, ...] | None) -> list[str]:
    """The words for one operation: `ends` has for each rank the faults that may befall it, None where it has ended."""
    one, other = ends
    if one is None or other is None:
        if one is other:
            return [SAID + SAID]
        return [SAID + letter if one is None else letter + SAID for letter in "FT"]
    return ["FF", "TT", "FT", "TF", *("PP" if end is End.PART else NAMES[end] + "T" for end in one)]


def _ends(pair: Pair) -> list[tuple[tuple[End, ...] | None, ...]]:
    """For each operation in flight, and each rank, which faults may befall it; None where the rank has said its end."""
    return [tuple(_faults(core, number) for core in pair.cores) for number in pair.flying()]


def _faults(core: Core, number: int) -> tuple[End, ...] | None:
    assert isinstance(core.copies, ChosenCopies), "a small world has no other copies"
    if number in core.copies.flying:
        return ()
    for store in (core.store, *core.former):
        if isinstance(store, ChosenStore) and number in store.asked:
            return None if store.asked[number].done else store.ends(number)
    return None
