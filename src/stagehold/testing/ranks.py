"""Several ranks in one process: programs that take turns, drawn from a seed, and Worlds that are ranks of one group.

Owns who runs when. Each rank has a thread, since an engine belongs to one, but only one of them runs at a time, and
it goes on until it waits for the others in an exchange: the same seed gives the same run.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from stagehold.cache.stores.protocol import Progress
from stagehold.cache.stores.simulated import Delays, Medium, Rates
from stagehold.lifecycle.ranks.group import Group
from stagehold.lifecycle.ranks.in_process import InProcess, Member
from stagehold.lifecycle.ranks.pipeline import staged
from stagehold.testing.shapes import WorldShape, drawn
from stagehold.testing.stage import act
from stagehold.testing.steps import Walk
from stagehold.testing.watched import LateCopies, WatchedStore
from stagehold.testing.world import World

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome(Generic[T]):
    """How one rank's program ended: with a value, or with what it raised."""

    value: T | None
    error: BaseException | None


class Turns:
    """Runs programs one at a time; `pause` lets another one go on, drawn from the seed."""

    def __init__(self, seed: int) -> None:
        self._dice = random.Random(f"turns {seed}")  # noqa: S311 - reproducible on purpose
        self._gates: dict[int, threading.Semaphore] = {}
        self._alive: list[int] = []
        self._running = 0

    def pause(self) -> None:
        """Let another program go on; returns when it is this one's turn again."""
        mine = self._running
        others = [rank for rank in self._alive if rank != mine]
        if others:
            self._pass_to(self._dice.choice(others))
            self._gates[mine].acquire()

    def _pass_to(self, rank: int) -> None:
        self._running = rank
        self._gates[rank].release()

    def run(self, programs: Sequence[Callable[[], T]], left: Callable[[int], None]) -> list[Outcome[T]]:
        """Run all programs to their ends; `left(rank)` is told of each that has ended."""
        outcomes: dict[int, Outcome[T]] = {}
        over = threading.Semaphore(0)
        self._gates = {rank: threading.Semaphore(0) for rank in range(len(programs))}
        self._alive = list(self._gates)

        def body(rank: int) -> None:
            self._gates[rank].acquire()
            try:
                outcomes[rank] = Outcome(programs[rank](), None)
            except BaseException as error:  # noqa: BLE001 - handed to whoever runs the ranks
                outcomes[rank] = Outcome(None, error)
            left(rank)
            self._alive.remove(rank)
            if self._alive:
                self._pass_to(self._dice.choice(self._alive))
            else:
                over.release()

        threads = [threading.Thread(target=body, args=(rank,), name=f"rank {rank}") for rank in self._gates]
        for thread in threads:
            thread.start()
        self._pass_to(self._dice.choice(self._alive))
        over.acquire()
        for thread in threads:
            thread.join()
        return [outcomes[rank] for rank in range(len(programs))]


def in_turns(size: int, seed: int, program: Callable[[Member], T]) -> tuple[InProcess, list[Outcome[T]]]:
    """Run `program` once for each rank of a group in this process; the group, and how each rank ended."""
    turns = Turns(seed)
    group = InProcess(size, turns.pause)
    programs = [lambda rank=rank: program(group.member(rank)) for rank in range(size)]
    return group, turns.run(programs, group.leave)


@dataclass(frozen=True, slots=True)
class Stages:
    """What `in_stages` ran on: the group of each stage, and the mail between them."""

    groups: tuple[InProcess, ...]
    mail: InProcess


def in_stages(
    stages: int, width: int, seed: int, program: Callable[[Group, int], T], *, lag: int = 3
) -> tuple[Stages, list[Outcome[T]]]:
    """Run `program(group, stage)` for each rank of a pipeline of `stages` stages of `width` ranks each."""
    turns = Turns(seed)
    made = Stages(tuple(InProcess(width, turns.pause) for _ in range(stages)), InProcess(stages * width, turns.pause))

    def start(rank: int) -> T:
        stage, place = divmod(rank, width)
        member = made.groups[stage].member(place)
        return program(staged(member, made.mail.member(rank), stage, stages=stages, lag=lag), stage)

    def left(rank: int) -> None:
        stage, place = divmod(rank, width)
        made.groups[stage].leave(place)
        made.mail.leave(rank)

    programs = [lambda rank=rank: start(rank) for rank in range(stages * width)]
    return made, turns.run(programs, left)


def values(outcomes: Sequence[Outcome[T]]) -> list[T]:
    """What all programs returned; the first error that is no echo of another rank's end is raised instead."""
    errors = [outcome.error for outcome in outcomes if outcome.error is not None]
    if errors:
        raise min(errors, key=lambda error: type(error).__name__ == "RankLost")
    return [outcome.value for outcome in outcomes]  # type: ignore[misc]


class DisorderlyStore(WatchedStore):
    """One rank's view of its store: what it reports of a tick comes in an order of its own."""

    def __init__(self, seed: int, shape: WorldShape, medium: Medium) -> None:
        super().__init__(seed, shape, medium)
        self._order = random.Random(f"order {seed}")  # noqa: S311 - reproducible on purpose

    def poll(self, tick: int) -> list[Progress]:
        """See `Store.poll`, but for the order."""
        reports = super().poll(tick)
        self._order.shuffle(reports)
        return reports


class RankWorld(World):
    """A World that is one rank of a group: the same acts as on every rank, on a store and at a speed of its own.

    What befalls the store (lost and damaged pages, failures, stalls) befalls each rank or not, as its own dice fall.
    """

    def __init__(self, seed: int, shape: WorldShape, group: Group) -> None:
        self.group = group
        self._fate = random.Random(f"fate {seed} {group.rank}")  # noqa: S311 - reproducible on purpose
        super().__init__(seed, shape)

    def engine_options(self) -> dict[str, Any]:
        """The group, and copies as slow as this rank's."""
        seed = 1000 * self.seed + 100 * self.group.rank + self._stores
        return {"group": self.group, "copies": LateCopies(seed, self.shape.copy_ticks)}

    def _new_store(self, medium: Medium) -> WatchedStore:
        self._stores += 1
        return DisorderlyStore(1000 * self.seed + 100 * self.group.rank + self._stores, self.shape, medium)

    def _befalls(self) -> bool:
        return self._fate.random() < 1 / self.group.size

    def lose(self, which: int) -> None:
        """The store of this rank loses a page, or not."""
        (super().lose if self._befalls() else self.spare)(which)

    def damage(self, which: int) -> None:
        """A bit of a page stored by this rank flips, or not."""
        (super().damage if self._befalls() else self.spare)(which)

    def fail(self, count: int) -> None:
        """The next operations of this rank's store fail, or not."""
        (super().fail if self._befalls() else self.spare)(count)

    def stall(self) -> None:
        """The store of this rank completes nothing until it is released, or does not stall at all."""
        if self._befalls():
            super().stall()
        else:
            self.spare(0)

    @act
    def spare(self, which: int) -> None:
        """What befell other ranks: an act here, too, so that all have made as many."""


QUICK = Delays((1, 1), (1, 2), (1, 2))
SLOW = (Delays(), Delays((1, 2), (2, 7), (1, 6)), Delays((1, 5), (3, 12), (1, 10)))
BAD = (Rates(), Rates(fail=0.08, stall=0.01), Rates(lose=0.05, corrupt=0.05, short=0.05))


def shape_of(seed: int, rank: int, size: int, shape: WorldShape | None = None) -> WorldShape:
    """The shape of one rank: one configuration for all (the seed's, or that of `shape`), speeds and faults of its own.

    One rank is slow and one has a bad store, perhaps the same; where all were, nothing would ever come of a fetch.
    """
    dice = random.Random(f"ranks {seed}")  # noqa: S311 - reproducible on purpose
    slow, bad = dice.randrange(size), dice.randrange(size)
    delays, rates = dice.choice(SLOW), dice.choice(BAD)
    copies = [dice.choice(((1, 1), (1, 3), (2, 6))) for _ in range(size)]
    return replace(
        shape or drawn(seed),
        delays=delays if rank == slow else QUICK,
        rates=rates if rank == bad else Rates(),
        copy_ticks=copies[rank],
        pages_per_tick=None,
    )


@dataclass(frozen=True, slots=True)
class Walked:
    """What a rank's walk has come to, which is the same on all ranks; `spliced` and `failed` are tokens."""

    digest: bytes
    ticks: int
    ends: dict[str, int]
    spliced: int
    failed: int


def walk_as_ranks(size: int, seed: int, acts: int, shape: WorldShape | None = None) -> tuple[InProcess, list[Walked]]:
    """One walk of a World as `size` ranks of one group, everything brought to its end; raises what any rank raises."""

    def program(member: Member) -> Walked:
        world = RankWorld(seed, shape_of(seed, member.rank, size, shape), member)
        Walk(world).run(acts)
        world.quiesce()
        world.close()
        stats = world.engine.stats()
        return Walked(
            world.engine.digest(), world.tick_number, dict(world.ends), stats.spliced, stats.losses.get("failed", 0)
        )

    group, outcomes = in_turns(size, seed, program)
    return group, values(outcomes)
