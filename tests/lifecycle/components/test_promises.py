"""What an admission promises of every component can be had, whatever others do meanwhile."""

from __future__ import annotations

from stagehold import Extension
from stagehold.testing.places import HeldCopies


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


def test_a_sibling_on_a_running_request_s_window_pays_for_it(mixed):
    """The request counts on the slots of its window when it moves on; whoever holds them as well takes them away.

    Both were promised 3 + 4 + 1 slots, and the sibling's hit protects the 3 of the window: 19 in all, and one more.
    """
    for device, admitted in ((19, False), (20, True)):
        h = mixed("w", parts={"device": device}, store=None)
        first = h.arrive("first", h.prompt(20))
        h.admit(first)
        run_on(h, first, 64)
        sibling = h.arrive("sibling", h.prompt(20, 2, shared=4))
        assert admitted == h.visit(sibling).admitted
        for _ in range(3):
            run_on(h, first, 64)
            if admitted:
                run_on(h, sibling, 64)


def test_a_copy_to_the_store_takes_no_slot_from_a_request_that_moves_on(mixed):
    """Copies of the pages that a request has just published end late; the promises of both requests still hold."""
    h = mixed("w", parts={"device": 17}, engine_options={"copies": HeldCopies()})
    runs = [h.arrive(f"r{number}", h.prompt(20, number)) for number in range(2)]
    h.tick(3)
    for handle in runs:
        h.admit(handle)
    for step in (63, 64, 64, 64):
        for handle in runs:
            run_on(h, handle, step)
        h.tick()
    h.core.copies.free = True


def test_two_requests_with_the_same_pages_rely_on_them_once(mixed):
    """Both compute one prefix, and what the second one publishes is the first one's already."""
    h = mixed("w", parts={"device": 17}, store=None)
    runs = [h.arrive(f"r{number}", h.prompt(20)) for number in range(2)]
    for handle in runs:
        h.admit(handle)
    for _ in range(4):
        for handle in runs:
            run_on(h, handle, 64)
        assert 0 <= h.core.room_of(h.core.stocks.by_name["swa"])
        h.tick()
    third = h.arrive("third", h.prompt(20))
    assert not h.visit(third).admitted


def test_what_is_to_be_computed_keeps_its_window_whenever_the_rest_is_published(mixed):
    """Slots for pages 4 to 7 are given before pages 0 to 3 are published: those still read pages 1 to 3."""
    h = mixed("w", store=None)
    a = h.arrive("a", h.prompt(12))
    h.admit(a)
    h.engine.extend(a, 64)
    h.engine.extend(a, 64)
    h.engine.publish(a, 64)
    table = h.engine.page_slots(a, "swa")
    h.core.tree.evict(40, "swa")
    assert [*table[1:4]] == h.core.tree.slots(h.chain(h.prompt(12)), 1, 4, "swa")
    assert -1 not in table[1:]
    h.engine.extend(a, 64)
    h.core.tree.evict(40, "swa")
    assert [] == h.core.tree.owned("swa")
    assert [-1] * 5 == [*h.engine.page_slots(a, "swa")[:5]]
