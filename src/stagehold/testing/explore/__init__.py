"""The real engine, two ranks of it, in small worlds that are searched to the last situation.

Owns the proof by exhaustion. Where the table check of `stagehold.machines.explorer` moves rows in abstract worlds, this
one runs what ships: tree, pools, books, exchange. Nothing here decides what an engine decides.

Where to look: `small` says what a world is and `worlds` which there are; `chosen` has the store, the copies and the
memory whose ends are chosen; `pair` makes the moves and `choices` says which there are; `rules` says what must hold,
`seen` when two situations are the same; `keep` saves and restores; `search` finds all situations and `ways` how long
it takes from each to the end; `walks` goes deep at random; `program` and `report` tell it.
"""

from stagehold.testing.explore.program import BadProgram, parse, play
from stagehold.testing.explore.report import explore, search
from stagehold.testing.explore.small import Budget, SmallWorld
from stagehold.testing.explore.walks import walk
from stagehold.testing.explore.worlds import WORLDS

__all__ = ["WORLDS", "BadProgram", "Budget", "SmallWorld", "explore", "parse", "play", "search", "walk"]
