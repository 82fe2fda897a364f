"""Programs: a world by its name and moves, one a line, as a search prints them; and the way to run one again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from stagehold.testing.explore.choices import Move, moves
from stagehold.testing.explore.pair import Pair
from stagehold.testing.explore.small import SmallWorld


class BadProgram(ValueError):
    """A program that no search would print; the message names the line."""


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a run, and what there was after it: states of requests, holds and writes, and what flies."""

    line: str
    requests: tuple[str, ...]
    holds: tuple[str, ...]
    writes: tuple[str, ...]
    flying: tuple[str, ...]

    def __str__(self) -> str:
        told = (("requests", self.requests), ("holds", self.holds), ("writes", self.writes), ("flying", self.flying))
        return f"{self.line:24} " + "; ".join(f"{name} {' '.join(there)}" for name, there in told if there)


def parse(lines: Iterable[str], worlds: Sequence[SmallWorld]) -> tuple[SmallWorld, list[tuple[int, Move]]]:
    """The world, and the moves with the numbers of their lines; empty lines and `#` comments are left out."""
    named = {world.name: world for world in worlds}
    found: SmallWorld | None = None
    program: list[tuple[int, Move]] = []
    for number, line in enumerate(lines, start=1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        head, _, rest = text.partition(" ")
        if found is None:
            found = named.get(rest) if head == "world" else None
            if found is None:
                raise BadProgram(f"line {number}: {text!r}, expected 'world' and one of {', '.join(named)}")
            continue
        program.append((number, (head, *(int(word) if word.isdigit() else word for word in rest.split()))))
    if found is None:
        raise BadProgram(
            "the program is empty: expected 'world NAME' on its first line, and a move on each further one"
        )
    return found, program


def play(pair: Pair, program: Iterable[tuple[int, Move]], tell: Callable[[Step], None] | None = None) -> None:
    """Make the moves; what a rule or an engine raises comes out, with the line as a note."""
    for number, move in program:
        line = " ".join(map(str, move))
        if move not in moves(pair, whole=True):
            can = ", ".join(" ".join(map(str, one)) for one in moves(pair, whole=True))
            raise BadProgram(f"line {number}: {line!r} cannot be made here, expected one of: {can}")
        try:
            pair.do(move)
            pair.told()
        except Exception as error:
            error.add_note(f"line {number}: {line}")
            raise
        if tell is not None:
            tell(step_of(pair, line))


def step_of(pair: Pair, line: str) -> Step:
    """What there is now."""
    core = pair.cores[0]
    return Step(
        line,
        tuple(f"{m.data.handle.rid}:{m.state.name.lower()}" for m in core.requests.values()),
        tuple(f"{h.data.start}-{h.data.last}:{h.state.name.lower()}" for h in core.holds.values()),
        tuple(f"{w.data.first}-{w.data.last}:{w.state.name.lower()}" for w in core.writes.values()),
        tuple(f"{one.kind.value}" for one in core.operations.live.values()),
    )
