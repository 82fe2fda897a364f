"""What ranks say of themselves once they differ, and which of it is told as the first difference."""

from __future__ import annotations

from stagehold.lifecycle.ranks import testimony
from stagehold.machines import Block
from stagehold.testing.hand import Hand

START = {"page_size": "16"}


def block() -> Block:
    with Hand(store=None) as hand:
        hand.tick()
        found = hand.engine.last_block()
    assert found is not None
    return found


def test_a_rank_that_has_closed_no_block_is_compared_by_what_it_flies() -> None:
    """Blocks are compared where both have one; what flies is compared without what only one rank knows."""
    told = testimony.Testimony(START, block(), ("3 fetch of 7 at 0 flies, 2 good",), "d")
    others = [
        testimony.Testimony(START, None, ("3 fetch of 7 at 0 done, 4 good",), "d"),
        testimony.Testimony(START, None, ("3 fetch of 7 at 1 flies, 2 good",), "d"),
    ]

    assert testimony.compare([told, others[0]]) is None
    found = testimony.compare([told, others[1]])
    assert found is not None
    assert (0, 1, "other operations are in flight", None) == (found.right, found.wrong, found.what, found.difference)


def test_the_minority_is_wrong() -> None:
    """Whoever differs from what most have, though it is the first; and ranks that started apart cannot be saved."""
    usual, odd = testimony.Testimony(START, None, (), "d"), testimony.Testimony({"page_size": "32"}, None, (), "d")
    found = testimony.compare([odd, usual, usual])

    assert found is not None
    assert (1, 0, False) == (found.right, found.wrong, found.salvageable)
    assert "started with another page_size: expected 16, found 32" == found.what
