"""The explorer: request, hold, write and store together in abstract worlds, searched to the last situation.

Owns the proof that the rows of `stagehold.specs` fit together: no deadlock, no leak, no endless loop, no broken
invariant in any world of `stagehold.specs.worlds`. It keeps no second copy of the tables: the world decides which
outcomes are possible, the rows say what happens then. It never runs an engine and moves no byte.

Where to look: `board` is the layout of a situation, `facts` what can be seen in it, `steps` takes rows, `claims`,
`request_effects` and `effects` say what the named effects mean, `visits`, `ticks`, `writer` and `traffic` what may
happen next, `product` what must always hold, `search` and `fairness` find the rest.
"""

from stagehold.machines.explorer.check import explore, table_check
from stagehold.machines.explorer.product import Product
from stagehold.machines.explorer.results import WorldResult

__all__ = ["Product", "WorldResult", "explore", "table_check"]
