"""What a running request has of a component: the arithmetic of its page table, or of its one state."""

from __future__ import annotations

import pytest

from stagehold.cache.components.shares import StateShare


@pytest.mark.parametrize(("hit", "shown", "checkpoints"), [(0, [], 1), (4, [7], 1), (4, [], 0)])
def test_a_state_that_began_in_the_middle_is_no_checkpoint(hit, shown, checkpoints):
    """Only one that began at the root, or with the checkpoint of its hit, is the state of its prefix."""
    share = StateShare(hit, shown)
    share.grow([3])

    assert checkpoints == share.fresh(whole=True)
    assert 0 == share.fresh(whole=False)
