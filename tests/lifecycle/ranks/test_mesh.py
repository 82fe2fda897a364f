"""Which ranks share scheduling, whose bytes are whose, and one object for those that hold the same."""

from __future__ import annotations

from typing import Any

import pytest

from stagehold import Mesh, Misuse, OneCopy, RankCoordinates
from stagehold.cache.stores.simulated import Delays, Medium, SimulatedStore
from stagehold.testing.hand import Hand
from stagehold.testing.ranks import in_turns, values


def test_everybody_who_works_on_the_same_requests_shares_scheduling() -> None:
    """Context ranks with tensor ranks, stages with each other, and no replica with another."""
    mesh = Mesh(tensor=2, context=2, pipeline=2, data=2)
    assert (16, 4) == (mesh.size, mesh.width)
    for rank in range(16):
        assert rank in mesh.exchanging(rank)
        assert set(mesh.exchanging(rank)) <= set(mesh.sharing(rank))
        assert (rank // 8, rank // 4 % 2) == (mesh.replica(rank), mesh.stage(rank))
    assert (4, 5, 6, 7) == mesh.exchanging(6)
    assert tuple(range(8)) == mesh.sharing(6)
    assert (12, 13, 14, 15) == mesh.exchanging(12)


def test_no_two_ranks_of_a_replica_have_the_same_bytes_unless_it_is_said() -> None:
    """Replicas share their objects; latent KV is one object a stage."""
    mesh = Mesh(tensor=2, context=2, pipeline=2, data=2)
    own = [mesh.coordinates(rank) for rank in mesh.sharing(0)]
    assert 8 == len(set(own))
    assert own == [mesh.coordinates(rank) for rank in mesh.sharing(8)]
    same = {mesh.coordinates(rank, same_bytes=True) for rank in mesh.sharing(0)}
    assert {RankCoordinates(0, 1, 0, 2), RankCoordinates(0, 1, 1, 2)} == same


def test_nonsense_is_refused() -> None:
    """Ranks that are not, ways that have none."""
    with pytest.raises(Misuse, match="rank 4: expected 0 to 3"):
        Mesh(tensor=4).coordinates(4)
    with pytest.raises(Misuse, match="expected at least one rank each way"):
        Mesh(tensor=0)


class Counted(SimulatedStore):
    """Counts the pages that it was asked to write."""

    written = 0

    def put(self, ticket: int, keys: Any, buffers: Any, tick: int) -> None:
        self.written += len(keys)
        super().put(ticket, keys, buffers, tick)


def test_pages_that_all_ranks_hold_are_written_once_and_read_by_all() -> None:
    """Three ranks on one medium: as many objects as pages, each rank writes some, and every hit is the same."""
    medium = Medium()
    stores = [Counted(rank, delays=Delays((1, 2), (1, 3), (1, 3)), medium=medium) for rank in range(3)]

    def program(member: Any) -> tuple[bytes, int, int]:
        store = OneCopy(stores[member.rank], member.rank, 3)
        hand = Hand(store=store, engine_options={"group": member}, parts=2, page_part_bytes=64)
        for number in range(12):
            hand.run(f"r{number}", hand.prompt(6, number % 6 + 1))
            hand.tick(8)
            hand.core.tree.evict(hand.core.tree.evictable)
        handle = hand.arrive("again", hand.prompt(6, 2))
        hand.tick(10)
        hit = hand.admit(handle).store_hit_tokens
        stored = hand.engine.stats().stored_pages
        hand.engine.close()
        return hand.engine.digest(), hit, stored

    told = values(in_turns(3, 7, program)[1])
    assert 1 == len(set(told))
    _, hit, stored = told[0]
    assert (16 * 6, 36) == (hit, stored)
    assert 36 + 1 == len(medium.names())  # and the test page
    assert 36 + 1 == sum(store.written for store in stores)
    assert all(store.written > 0 for store in stores)
