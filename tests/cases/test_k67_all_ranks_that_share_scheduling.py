"""K67: context-parallel ranks decided differently on what to revoke and what to acknowledge.

Agreement was sought among the tensor ranks alone, and each half of the context ranks came to one of its own. Here the
group is everybody who works on the same requests, whatever is split among them.
"""

from __future__ import annotations

from typing import Any

from stagehold import Mesh
from stagehold.cache.stores.simulated import Delays, SimulatedStore
from stagehold.testing.hand import Hand
from stagehold.testing.ranks import InProcess, Turns, values

MESH = Mesh(tensor=2, context=2)
SPEEDS = (Delays((1, 1), (1, 1), (1, 1)), Delays((1, 2), (1, 3), (1, 2)), Delays((2, 4), (3, 8), (2, 6)), Delays())


def serve(member: Any, rank: int) -> tuple[bytes, tuple[int, ...]]:
    """Requests of which some are revoked while their fetch runs; the digest, and what was hit."""
    store = SimulatedStore(rank, delays=SPEEDS[rank])
    hand = Hand(store=store, engine_options={"group": member, "at": MESH.coordinates(rank)})
    hits = []
    for number in range(20):
        tokens = hand.prompt(6, number % 5 + 1)
        if number > 4:
            hand.core.tree.evict(hand.core.tree.evictable)
        handle = hand.arrive(f"r{number}", tokens)
        hand.tick(8 + number % 7)
        if number % 4 == 3:
            hand.engine.abort(handle)
            continue
        admission = hand.visit(handle)
        if getattr(admission, "admitted", False):
            hits.append(admission.store_hit_tokens)
            hand.compute(handle)
            hand.engine.finish(handle)
        else:
            hand.engine.abort(handle)
    hand.tick(10)
    digest = hand.engine.digest()
    hand.engine.close()
    return digest, tuple(hits)


def run(groups: list[tuple[int, ...]]) -> list[tuple[bytes, tuple[int, ...]]]:
    """All ranks in turns, those of each tuple in a group of their own."""
    turns = Turns(3)
    members: dict[int, Any] = {}
    for ranks in groups:
        group = InProcess(len(ranks), turns.pause)
        members.update((rank, group.member(place)) for place, rank in enumerate(ranks))
    programs = [lambda rank=rank: serve(members[rank], rank) for rank in range(MESH.size)]
    return values(turns.run(programs, lambda rank: members[rank].group.leave(members[rank].rank)))


def test_all_ranks_of_a_stage_decide_alike():
    """Tensor and context ranks in one group."""
    told = run([MESH.exchanging(0)])
    assert 1 == len(set(told))
    assert any(told[0][1])


def test_halves_that_agree_among_themselves_do_not_agree():
    """Planted: one group for the tensor ranks of each context rank."""
    told = run([(0, 1), (2, 3)])
    assert told[0] == told[1]
    assert told[2] == told[3]
    assert told[0] != told[2]
