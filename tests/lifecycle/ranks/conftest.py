"""Three ranks that serve the same crowd in turns, each on a store of its own, and what one of them may do wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from stagehold import AuditLog, Diverged, Plan
from stagehold.cache.stores.simulated import Delays, SimulatedStore
from stagehold.machines import Block
from stagehold.testing.hand import Hand
from stagehold.testing.ranks import Outcome, in_turns

Wrong = Callable[[Hand], None]

DELAYS = (Delays((1, 3), (1, 6), (1, 4)), Delays((1, 1), (1, 2), (1, 1)), Delays((2, 4), (2, 7), (2, 5)))


@dataclass(slots=True)
class Rank:
    """What is kept of one rank: its engine by hand, and its blocks."""

    hand: Hand
    blocks: list[Block] = field(default_factory=list)


@dataclass(slots=True)
class Crowd:
    """How a crowd of three ranks went; `seen` holds the last block of each rank when it ended."""

    ranks: dict[int, Rank]
    outcomes: Sequence[Outcome[int]]
    exchanges: int
    gathers: int
    logs: list[Path]
    seen: dict[int, Block | None]

    def diverged(self) -> list[Diverged]:
        """What each rank raised, all of them this."""
        errors = [outcome.error for outcome in self.outcomes]
        assert all(isinstance(error, Diverged) for error in errors), errors
        return errors  # type: ignore[return-value]


def serve(hand: Hand, ticks: int, hooks: dict[int, Wrong]) -> int:
    """Requests of six families, two a tick at first; who can be admitted is served at once, one is aborted."""
    waiting: list[Any] = []
    for tick in range(ticks):
        if tick in hooks:
            hooks[tick](hand)
        for number in (2 * tick, 2 * tick + 1) if tick < 14 else ():
            tokens = hand.prompt(8, number % 6 + 1)
            if number < 12:
                hand.put(tokens, 0, 3 + number % 5)
            waiting.append(hand.arrive(f"r{number}", tokens))
        hand.tick()
        if tick == 9:
            hand.engine.abort(waiting.pop())
        for handle in list(waiting):
            plan = hand.engine.select(handle, 1000)
            if isinstance(plan, Plan) and hand.engine.commit(plan).admitted:
                hand.compute(handle)
                hand.engine.finish(handle)
                waiting.remove(handle)
        if tick % 4 == 3:
            hand.core.tree.evict(min(12, hand.core.tree.evictable))
    return len(waiting)


@pytest.fixture
def crowd(tmp_path: Path) -> Callable[..., Crowd]:
    """Serves a crowd: `wrong` is done to rank 1 before the first tick, `later` before the tick of its key."""

    def run(wrong: Wrong | None = None, *, ticks: int = 40, later: dict[int, Wrong] | None = None, **settings: Any):
        ranks: dict[int, Rank] = {}
        seen: dict[int, Block | None] = {}
        logs = [tmp_path / f"rank{rank}.jsonl" for rank in range(3)]

        def program(member: Any) -> int:
            blocks: list[Block] = []
            store = SimulatedStore(member.rank, delays=DELAYS[member.rank])
            with AuditLog(logs[member.rank]) as log:

                def sink(block: Block) -> None:
                    blocks.append(block)
                    log.block(block)

                options = {"group": member, "sink": sink, "strict": False}
                hand = Hand(store=store, engine_options=options, device_pages=48, **settings)
                ranks[member.rank] = Rank(hand, blocks)
                if member.rank == 1 and wrong is not None:
                    wrong(hand)
                try:
                    return serve(hand, ticks, (later or {}) if member.rank == 1 else {})
                finally:
                    seen[member.rank] = hand.engine.last_block()
                    hand.engine.close()

        group, outcomes = in_turns(3, 5, program)
        return Crowd(ranks, outcomes, group.exchanges, group.gathers, logs, seen)

    return run
