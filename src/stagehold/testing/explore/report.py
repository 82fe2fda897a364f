"""What the searches of all worlds have found, as values and as one object; each world may have a process of its own."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from stagehold.testing.explore.choices import Move
from stagehold.testing.explore.search import Search
from stagehold.testing.explore.small import SmallWorld
from stagehold.testing.explore.ways import lasting, limit_of


@dataclass(frozen=True, slots=True)
class Found:
    """What the search of one world has found. `liveness_bound` and `liveness_limit` are ticks, `program` lines."""

    world: str
    states: int
    transitions: int
    violations: tuple[str, ...]
    program: tuple[str, ...]
    liveness_bound: int
    liveness_limit: int
    whole: bool
    seconds: float

    @property
    def holds(self) -> bool:
        """Whether nothing was found."""
        return not self.violations


def line_of(move: Move) -> str:
    """A move as a line of a program."""
    return " ".join(map(str, move))


def program_of(world: SmallWorld, moves: Sequence[Move]) -> tuple[str, ...]:
    """The lines that `stagehold explore --replay` runs."""
    return (f"world {world.name}", *map(line_of, moves))


def search(world: SmallWorld, most: int = 1 << 30) -> Found:
    """Search one world, and follow its usual steps to the end."""
    run = Search(world, most).run()
    ways = lasting(run.graph)
    limit = limit_of(world)
    said = [violation.what for violation in run.violations]
    program = program_of(world, run.violations[0].program) if run.violations else ()
    if not said and ways.endless:
        said.append("from here an ordinary scheduler comes to no end")
        program = program_of(world, run.graph.way_to(ways.endless[0]))
    if not said and ways.ticks > limit:
        said.append(f"from here an ordinary scheduler needs {ways.ticks} ticks, {limit} are allowed")
        program = program_of(world, run.graph.way_to(ways.longest))
    size = len(run.graph.by)
    return Found(
        world.name, size, run.graph.transitions, tuple(said), program, ways.ticks, limit,
        not run.cut_off, round(run.seconds, 1),
    )  # fmt: skip


def explore(
    worlds: Sequence[SmallWorld],
    *,
    processes: int = 1,
    most: int = 1 << 30,
    progress: Callable[[Found], None] | None = None,
) -> dict[str, Any]:
    """Search all worlds, at most `most` situations of each; `progress` is told of each as it is done."""
    found = []
    jobs = [(world, most) for world in worlds]
    if processes == 1:
        results = map(_search, jobs)
        found = [_told(one, progress) for one in results]
    else:
        with multiprocessing.get_context("spawn").Pool(processes, maxtasksperchild=1) as pool:
            found = [_told(one, progress) for one in pool.imap_unordered(_search, jobs)]
    order = {world.name: place for place, world in enumerate(worlds)}
    found.sort(key=lambda one: order[one.world])
    return report(found)


def _search(job: tuple[SmallWorld, int]) -> Found:
    return search(*job)


def _told(one: Found, progress: Callable[[Found], None] | None) -> Found:
    if progress is not None:
        progress(one)
    return one


def report(found: Sequence[Found]) -> dict[str, Any]:
    """One object: sums over all worlds, and each world. `liveness_bound` is the most ticks to the end from anywhere."""
    return {
        "states": sum(one.states for one in found),
        "transitions": sum(one.transitions for one in found),
        "violations": sum(len(one.violations) for one in found),
        "liveness_bound": max((one.liveness_bound for one in found), default=0),
        "seconds": round(sum(one.seconds for one in found), 1),
        "holds": all(one.holds for one in found),
        "worlds": [
            {
                "name": one.world,
                "states": one.states,
                "transitions": one.transitions,
                "whole": one.whole,
                "violations": list(one.violations),
                "program": list(one.program),
                "liveness_bound": one.liveness_bound,
                "liveness_limit": one.liveness_limit,
                "seconds": one.seconds,
            }
            for one in found
        ],
    }
