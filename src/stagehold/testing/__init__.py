"""What users run to test their own: the seeded World, rule machines, faults, and the stores' conformance kit.

The names of the World are loaded at first use. `WorldRules`, and `MixRules` over worlds of several components, need
the `hypothesis` package; `mixed(seed)` is the shape of such a world. `trial(seed)` is a World for a scheduler of yours.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stagehold.testing.mixes import mixed
    from stagehold.testing.rules import MixRules, WorldRules
    from stagehold.testing.shapes import WorldShape
    from stagehold.testing.steps import Walk, walk
    from stagehold.testing.tried import trial
    from stagehold.testing.watch import WorldBroken
    from stagehold.testing.world import World

_HOME_OF = {
    "MixRules": "rules",
    "Walk": "steps",
    "World": "world",
    "WorldBroken": "watch",
    "WorldRules": "rules",
    "WorldShape": "shapes",
    "mixed": "mixes",
    "trial": "tried",
    "walk": "steps",
}

__all__ = ["MixRules", "Walk", "World", "WorldBroken", "WorldRules", "WorldShape", "mixed", "trial", "walk"]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'stagehold.testing' has no attribute {name!r}")
    return getattr(import_module(f"stagehold.testing.{home}"), name)
