"""Hours of trouble: storms, rule machines, walks of Worlds and of small worlds in turn, and whether memory stays flat.

Owns the rounds, their seeds, and the line through the sizes of the process. What a round finds is raised by it, with
the seed as a note. Needs the `hypothesis` package, and `/proc` for the size.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stagehold.testing.explore.walks import Walked, walk
from stagehold.testing.explore.worlds import WORLDS
from stagehold.testing.steps import walk as walk_world
from stagehold.testing.storm import Storm

STORM_REQUESTS = 200
WALK_ACTS = 400
RULE_EXAMPLES = 8
EXPLORED = 4_000
"""What one round does of each kind: a few seconds each, so that all of them come in turn."""

WARM_ROUNDS = 3
"""Rounds before the first size counts: until then caches fill, and packages are loaded."""

MOST_GROWTH = 4.0
"""Mebibytes that the process may grow by in a round, on the line through all sizes. A leak of one World is more."""


@dataclass(slots=True)
class Soaked:
    """What was done. `sizes` are (seconds, mebibytes) after each round."""

    seed: int
    rounds: int = 0
    storms: int = 0
    requests: int = 0
    examples: int = 0
    acts: int = 0
    transitions: int = 0
    aborted_in: dict[str, int] = field(default_factory=dict)
    sizes: list[float] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def growth(self) -> float:
        """Mebibytes a round, by least squares over the rounds after the warm ones; 0 for fewer than three of them."""
        return slope(self.sizes[WARM_ROUNDS:])

    @property
    def flat(self) -> bool:
        """Whether memory stays where it was."""
        return self.growth <= MOST_GROWTH


def slope(sizes: Sequence[float]) -> float:
    """The slope of the line through (0, sizes[0]), (1, sizes[1]), and so on; 0 for fewer than three."""
    count = len(sizes)
    if count < 3:
        return 0.0
    middle, mean = (count - 1) / 2, sum(sizes) / count
    above = sum((at - middle) * (size - mean) for at, size in enumerate(sizes))
    return above / sum((at - middle) ** 2 for at in range(count))


def size_of_process() -> float:
    """Mebibytes that this process has in memory."""
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    raise OSError("/proc/self/status has no line VmRSS: expected a Linux system")


def soak(seed: int, seconds: float, tell: Callable[[Soaked], None] | None = None) -> Soaked:
    """Round after round, each with the next seed, until the time is over; at least one. `tell` hears of each."""
    done, start = Soaked(seed), time.perf_counter()
    while not done.rounds or done.seconds < seconds:
        try:
            _round(seed + done.rounds, done)
        except BaseException as error:
            error.add_note(f"soak: seed {seed + done.rounds}")
            raise
        done.rounds += 1
        gc.collect()
        done.sizes.append(size_of_process())
        done.seconds = time.perf_counter() - start
        if tell is not None:
            tell(done)
    return done


def _round(seed: int, done: Soaked) -> None:
    world = Storm(seed, STORM_REQUESTS).run()
    world.close()
    done.storms += 1
    done.requests += STORM_REQUESTS
    done.acts += len(world.acts) + len(walk_world(seed, WALK_ACTS).acts)
    done.examples += _rules(seed)
    walked = walk(WORLDS, seed, transitions=EXPLORED)
    if walked.violation:
        raise AssertionError("\n".join((walked.violation, *walked.program)))
    _add(done, walked)


def _add(done: Soaked, walked: Walked) -> None:
    done.transitions += walked.transitions
    for state, count in walked.aborted_in.items():
        done.aborted_in[state] = done.aborted_in.get(state, 0) + count


def _rules(seed: int) -> int:
    """Examples of the rule machine, drawn from the seed."""
    from hypothesis import HealthCheck, Phase, settings
    from hypothesis import seed as seeded
    from hypothesis.stateful import run_state_machine_as_test

    from stagehold.testing.rules import WorldRules

    class Round(WorldRules):
        """The rules, on a class of its own, so that no seed is left on theirs."""

    options: dict[str, Any] = {
        "max_examples": RULE_EXAMPLES,
        "stateful_step_count": 30,
        "database": None,
        "deadline": None,
        "phases": (Phase.generate, Phase.shrink),
        "suppress_health_check": list(HealthCheck),
    }
    run_state_machine_as_test(seeded(seed)(Round), settings=settings(**options))
    return RULE_EXAMPLES
