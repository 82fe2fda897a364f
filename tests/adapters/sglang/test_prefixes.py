"""How far a prefix can be restored, against a count of every length by its definition."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from stagehold.adapters.sglang import prefixes

PRESENT = st.lists(st.booleans(), max_size=12)


@given(PRESENT, st.integers(0, 5))
def test_a_trailing_pool_needs_the_last_pages_of_a_prefix(present: list[bool], trailing: int) -> None:
    """Every length is looked at by itself."""
    need = max(1, trailing)
    expected = [end for end in range(1, len(present) + 1) if all(present[max(0, end - need) : end])]
    assert expected == prefixes.lengths("trailing_pages", present, trailing)


@given(PRESENT)
def test_a_whole_pool_needs_all_of_it(present: list[bool]) -> None:
    """Lengths up to the first page that is missing."""
    expected = [end for end in range(1, len(present) + 1) if all(present[:end])]
    assert expected == prefixes.lengths("all_pages", present, 0)
    assert len(expected) == prefixes.leading(present)
