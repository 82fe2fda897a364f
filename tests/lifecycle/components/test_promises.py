"""What an admission promises of every component can be had, whatever others do meanwhile."""

from __future__ import annotations

from stagehold import Extension


def run_on(h, handle, tokens: int) -> None:
    """Room for so many tokens more, all of them computed and published."""
    found = h.engine.extend(handle, tokens)
    assert isinstance(found, Extension), found
    h.engine.publish(handle, h.machine(handle).data.n_tokens)


def test_a_window_that_ends_in_the_middle_of_a_chunk_is_locked_and_no_more(mixed):
    """Chunks of 4 pages, windows of 3: two requests fill a pool that holds just what both were promised."""
    h = mixed("w", parts={"device": 17}, store=None)
    runs = [h.arrive(f"r{number}", h.prompt(12, number)) for number in range(2)]
    for handle in runs:
        h.admit(handle)
    assert (8, 8) == tuple(h.machine(handle).data.shares["swa"].reserve for handle in runs)
    for step in (63, 64, 64, 2):
        for handle in runs:
            run_on(h, handle, step)


def test_what_a_hit_protects_is_its_window_however_long_its_node_is(mixed):
    """A node of 4 pages, a window of 1: the hit costs 1 slot beside the 1 + 4 + 1 that were promised."""
    h = mixed("w", parts={"window": 16, "device": 8}, store=None)
    h.grow(h.prompt(12), 12, swa=4)
    longer = h.arrive("longer", h.prompt(20, 2, shared=12))
    assert 12 * 16 == h.admit(longer).hit_tokens
