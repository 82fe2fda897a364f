"""A Hypothesis rule machine over a World: it searches for a list of acts that breaks something, and shrinks it.

Needs the `hypothesis` package. To run it over worlds of your own, subclass `WorldRules` and override `world_of`.
Rules take lists of moves, and what ends things is rare: single uniform rules end most walks before they meet a race.
"""

from __future__ import annotations

from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from stagehold.testing.content import Prompt
from stagehold.testing.marks import Marks
from stagehold.testing.mixes import mixed
from stagehold.testing.shapes import drawn
from stagehold.testing.visiting import Ending
from stagehold.testing.watched import Delivers
from stagehold.testing.world import World

SMALL = st.integers(0, 7)
PROMPTS = st.builds(Prompt, st.integers(0, 4), st.integers(1, 48), st.integers(0, 3), st.sampled_from((0, 1, 5, 9, 17)))
DELIVERS = st.sampled_from((*[Delivers.ALL] * 6, Delivers.SOME, Delivers.NONE))
ENDINGS = st.sampled_from((*[Ending.COMMIT] * 6, Ending.RELEASE, Ending.ABORT))

MOVES = ("visit", "visit", "visit", "select", "end", "compute", "compute", "compute", "publish", "decode", "finish")
MOVE = st.tuples(st.sampled_from(MOVES), SMALL, ENDINGS, DELIVERS)
"""What a scheduler may do in one pass: which call, to whom, and for visits how they end."""

TROUBLES = (
    "evict",
    "evict",
    "evict",
    "evict",
    "neighbour",
    "neighbour",
    "unstall",
    "unstall",
    "lose",
    "damage",
    "fail",
    "stall",
)
ENDS = (
    "attach",
    "attach",
    "attach",
    "attach",
    "rewind",
    "drain",
    "retract",
    "retract",
    "abort",
    "flush",
    "detach",
    "restart",
)

MOST_GUESTS = 9
"""Beyond this many live requests nobody arrives: a longer queue meets no other race."""


class WorldRules(RuleBasedStateMachine):
    """One World an example; its seed is drawn, its acts are the rules. `steps` and `marks` add up over all examples."""

    steps: ClassVar[int] = 0
    marks: ClassVar[Marks] = Marks()
    world: World

    def world_of(self, seed: int) -> World:
        """The World of a seed."""
        return World(seed, drawn(seed))

    @initialize(seed=st.integers(0, 499))
    def begin(self, seed: int) -> None:
        """A new World, whose store has passed its self-test or not."""
        self.world = self.world_of(seed)

    @rule(prompt=PROMPTS, space=st.sampled_from((0, 0, 0, 1)), answer=st.sampled_from((1, 3, 9)), stored=SMALL)
    def arrive(self, prompt: Prompt, space: int, answer: int, stored: int) -> None:
        """Somebody arrives; a neighbour may have stored the head of the prompt."""
        self._count()
        if len(self.world.guests) < MOST_GUESTS:
            self.world.arrive(prompt, space, answer, 2 * stored)

    @rule(shared=st.integers(8, 48), own=st.lists(st.integers(0, 3), min_size=2, max_size=4), stored=SMALL)
    def crowd(self, shared: int, own: list[int], stored: int) -> None:
        """Siblings arrive together."""
        self._count()
        for fork in own[: MOST_GUESTS - len(self.world.guests)]:
            self.world.arrive(Prompt(0, shared, fork, 5 * fork), 0, 3, 2 * stored)

    @rule(which=SMALL, own=st.sampled_from((1, 6, 13)))
    def follow(self, which: int, own: int) -> None:
        """A conversation goes on."""
        self._count()
        if len(self.world.guests) < MOST_GUESTS:
            self.world.follow(which, own)

    @rule(moves=st.lists(MOVE, max_size=8))
    def scheduler_pass(self, moves: list[tuple[str, int, Ending, Delivers]]) -> None:
        """A tick and some moves behind it, visits open or not."""
        self._count()
        self.world.tick()
        for move in moves:
            self._move(*move)

    @rule(ticks=st.integers(1, 12), moves=st.lists(MOVE, max_size=3))
    def wait(self, ticks: int, moves: list[tuple[str, int, Ending, Delivers]]) -> None:
        """Time goes by between two looks."""
        self._count()
        for _ in range(ticks):
            self.world.tick()
        for move in moves:
            self._move(*move)

    @rule(kind=st.sampled_from(TROUBLES), which=SMALL, size=st.sampled_from((1, 3, 8, 40)))
    def trouble(self, kind: str, which: int, size: int) -> None:
        """Something happens to tree or store."""
        self._count()
        match kind:
            case "neighbour":
                self.world.neighbour(which, size)
            case "stall" | "unstall":
                getattr(self.world, kind)()
            case "evict" | "fail":
                getattr(self.world, kind)(size)
            case _:
                getattr(self.world, kind)(which)

    @rule(kind=st.sampled_from(ENDS), who=SMALL)
    def end(self, kind: str, who: int) -> None:
        """Something ends, begins again, or goes back."""
        self._count()
        match kind:
            case "attach":
                self.world.attach(who == 0)
            case "rewind" | "drain" | "retract" | "abort":
                getattr(self.world, kind)(who)
            case _:
                getattr(self.world, kind)()

    def _move(self, name: str, who: int, ending: Ending, delivers: Delivers) -> None:
        match name:
            case "visit" | "end":
                getattr(self.world, name)(who, ending, delivers)
            case "compute":
                self.world.compute(who, 1 + 9 * who)
            case _:
                getattr(self.world, name)(who)

    def _count(self) -> None:
        type(self).steps += 1

    def teardown(self) -> None:
        """Whatever the rules did, everything must come to its end; unless one of them has found something."""
        if hasattr(self, "world") and self.world.whole:
            self.world.quiesce()
            self.world.close()
            self.marks.update(self.world.marks)


class MixRules(WorldRules):
    """The same over worlds of several components, one combination an example."""

    marks: ClassVar[Marks] = Marks()

    def world_of(self, seed: int) -> World:
        """The World of a seed."""
        return World(seed, mixed(seed))

    @rule(which=SMALL, pages=st.sampled_from((1, 2, 5, 40)))
    def strip(self, which: int, pages: int) -> None:
        """Windows or checkpoints go, and the prefix that they belong to stays."""
        self._count()
        self.world.strip(which, pages)
