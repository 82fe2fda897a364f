"""Windows, checkpoints and a fourth kind of KV in the live tree."""

from __future__ import annotations

import pytest

from stagehold.cache.components.base import Component, Cut, Span, Splice
from stagehold.cache.components.full import FULL
from stagehold.cache.components.state import STATE, Checkpoints
from stagehold.cache.components.swa import (
    SWA,
    IndexMap,
    RequestRing,
    SlidingWindow,
    attach_swa_window,
    swa_tombstone_ranges,
)
from stagehold.cache.errors import AttachRefused, CacheRefused, DeadReceipt, ReceiptRefused, SlotRefused, SpanRefused
from stagehold.cache.keys import Chain, Namespace
from stagehold.cache.pools import Pool
from stagehold.cache.tree import Tree
from stagehold.testing.tree_shape import text_tokens

PAGE = 64
WINDOW = 3

pytestmark = pytest.mark.usefixtures("eviction")


def tree_of(*parts, room=60, **options):
    """A checked tree whose pools have different slot numbers at any time: no mix-up of components goes unseen."""
    pools = {FULL: Pool(room, FULL)} | {part.name: Pool(room + 7 * i + 3, part.name) for i, part in enumerate(parts)}
    for i, part in enumerate(parts):
        pools[part.name].alloc(3 + 7 * i)
    return Tree(PAGE, pools, components=parts, checked=True, **options)


def windowed(**options):
    return tree_of(SlidingWindow(WINDOW, **options))


def chain_of(text):
    return Chain(Namespace("model"), text_tokens(text, PAGE), PAGE)


def put(tree, text, start=None, **bring):
    """Insert pages from `start` on (default: the live prefix) with this many slots of each component."""
    chain = chain_of(text)
    start = tree.full_match(chain) if start is None else start
    n = chain.n_pages - start
    slots = {FULL: tree.pools[FULL].alloc(n)} | {name: tree.pools[name].alloc(k) for name, k in bring.items()}
    return chain, slots, tree.insert(chain, start, chain.n_pages, slots)


def free_counts(tree):
    return {name: pool.free_count for name, pool in tree.pools.items()}


# -- joint match -----------------------------------------------------------------------------------------------


def test_a_path_without_tombstones_is_valid_at_any_length():
    """Even when it is shorter than a window."""
    tree = windowed()
    chain, _, _ = put(tree, "ab", swa=2)
    assert 2 == tree.joint_match(chain)


def test_a_tombstone_within_the_window_rejects_a_boundary():
    """The match falls to the tombstone's start, or goes on as soon as a whole window lies behind it."""
    tree = windowed()
    chain, _, _ = put(tree, "aa", swa=2)
    put(tree, "aab", swa=0)
    for text, valid in (("aabc", 2), ("aabcc", 2), ("aabccc", 6)):
        put(tree, text, swa=1)
        assert valid == tree.joint_match(chain_of(text))
    assert 2 == tree.joint_match(chain)


def test_a_tombstone_at_the_root_spoils_a_short_path():
    """A path shorter than the window needs all of it."""
    tree = windowed()
    chain, _, _ = put(tree, "abc", swa=2)
    assert 0 == tree.joint_match(chain)
    assert 3 == tree.full_match(chain)


def test_checkpoints_are_isolated_ends():
    """A match ends where one stands, and nowhere between."""
    tree = tree_of(Checkpoints())
    put(tree, "aa", state=1)
    chain, _, _ = put(tree, "aaaa", state=0)
    assert 2 == tree.joint_match(chain)
    put(tree, "aaaaa", state=1)
    assert (4, 5) == (tree.full_match(chain), tree.joint_match(chain_of("aaaaa")))
    assert 2 == tree.joint_match(chain_of("aaaaa"), 4)


def test_a_joint_match_suits_every_gating_component():
    """Where the window is valid there is no checkpoint, and the other way round, until both agree."""
    tree = tree_of(SlidingWindow(WINDOW), Checkpoints())
    put(tree, "aa", swa=2, state=1)
    put(tree, "aaa", swa=0, state=1)
    put(tree, "aaabbb", swa=3, state=0)
    chain, _, _ = put(tree, "aaabbbc", swa=1, state=0)
    assert 2 == tree.joint_match(chain)
    put(tree, "aaabbbcd", swa=1, state=1)
    assert 8 == tree.joint_match(chain_of("aaabbbcd"))


def test_a_component_that_does_not_gate_rejects_no_match():
    """Its tombstones count only for those who ask."""
    tree = windowed(gates=False)
    chain, _, _ = put(tree, "abc", swa=0)
    assert 3 == tree.joint_match(chain)
    assert [Span(0, 3)] == tree.missing(chain, 0, 3, SWA)


# -- holes and their filling -----------------------------------------------------------------------------------


def holed(window=WINDOW):
    """Pages 0-2 live, 2-3 and 3-5 tombstones of two runs, 5-7 live, 7-9 a tombstone."""
    tree = tree_of(SlidingWindow(window))
    put(tree, "aa", swa=2)
    put(tree, "aab", swa=0)
    put(tree, "aabcc", swa=0)
    put(tree, "aabccdd", swa=2)
    chain, _, _ = put(tree, "aabccddee", swa=0)
    return tree, chain


@pytest.mark.parametrize(
    ("start", "end", "spans"),
    [
        (0, 9, [(2, 5), (7, 9)]),
        (3, 8, [(3, 5), (7, 8)]),
        (4, 5, [(4, 5)]),
        (0, 2, []),
        (5, 7, []),
        (6, 6, []),
    ],
)
def test_tombstone_ranges_are_maximal_merged_and_clipped(start, end, spans):
    """Runs that touch make one span; nothing outside the asked one is named."""
    tree, chain = holed()
    before = tree.digest()
    assert spans == swa_tombstone_ranges(tree, chain, start, end)
    assert before == tree.digest()


def test_tombstone_ranges_end_with_the_live_prefix():
    """What is not there at all is missing, but no tombstone; `missing` names both as one span."""
    tree, _ = holed()
    longer = chain_of("aabccddeefff")
    assert [(7, 9)] == swa_tombstone_ranges(tree, longer, 5, 12)
    assert [(7, 12)] == tree.missing(longer, 5, 12, SWA)
    assert [(9, 12)] == tree.missing(longer, 5, 12)


def test_an_attach_makes_a_boundary_valid_and_returns_its_cuts():
    """The window of boundary 5 needs pages 2 to 5; the span begins and ends on boundaries that are there."""
    tree, chain = holed()
    slots = tree.pools[SWA].alloc(3)
    assert [] == attach_swa_window(tree, chain, 5, [Span(2, 5)], slots)
    assert slots == tree.slots(chain, 2, 5, SWA)
    assert 7 == tree.joint_match(chain)
    tree.check()


def test_an_attach_cuts_the_runs_that_it_covers_in_part():
    """Boundary 4 needs pages 1 to 4: the run of pages 3 and 4 is cut, and the cut is told."""
    tree, chain = holed()
    assert [Cut(4)] == attach_swa_window(tree, chain, 4, [Span(2, 4)], tree.pools[SWA].alloc(2))
    assert 4 == tree.joint_match(chain, 4)
    assert [(4, 5)] == swa_tombstone_ranges(tree, chain, 0, 5)
    tree.check()


@pytest.mark.parametrize(
    ("spans", "n", "says"),
    [
        ([(2, 5)], 2, "expected 3 slots, got 2"),
        ([(1, 5)], 4, "over a live part"),
        ([(2, 6)], 4, "not behind the boundary"),
        ([(3, 5)], 2, "must all be filled"),
        ([], 0, "must all be filled"),
        ([(3, 5), (2, 3)], 3, "in page order"),
        ([(2, 4), (3, 5)], 4, "disjoint"),
    ],
)
def test_a_wrong_attach_is_refused_and_changes_nothing(spans, n, says):
    """Wrong size, any part over a live window, incomplete coverage."""
    tree, chain = holed()
    before = tree.digest()
    with pytest.raises(AttachRefused, match=says):
        attach_swa_window(tree, chain, 5, [Span(*span) for span in spans], list(range(n)))
    assert before == tree.digest()


def test_an_attach_beyond_the_live_prefix_is_refused():
    """There is nothing to attach to."""
    tree, _ = holed()
    with pytest.raises(SpanRefused, match="9 of them live"):
        attach_swa_window(tree, chain_of("aabccddeef"), 10, [Span(7, 10)], [0, 1, 2])


def test_a_checkpoint_is_attached_at_its_boundary():
    """Cutting the run there, since nothing ended there."""
    tree = tree_of(Checkpoints())
    chain, _, _ = put(tree, "aaaa", state=1)
    missing = tree.missing(chain, 0, 2, STATE)
    assert [Span(1, 2)] == missing
    assert [Cut(2)] == tree.attach(chain, 2, missing, (slot := tree.pools[STATE].alloc(1)), component=STATE)
    assert (2, 4) == (tree.joint_match(chain, 3), tree.joint_match(chain))
    assert slot == tree.slots(chain, 0, 2, STATE)


def test_a_checkpoint_of_another_boundary_is_refused():
    """An attach names the boundary that it is for."""
    tree = tree_of(Checkpoints())
    chain, _, _ = put(tree, "aaaa", state=1)
    with pytest.raises(AttachRefused, match="hole at the boundary"):
        tree.attach(chain, 4, [Span(1, 2)], [0], component=STATE)


def test_inserting_over_a_tombstone_takes_the_new_slots():
    """Only the FULL side of the old slots is released; the window is rebuilt from the new ones."""
    tree, chain = holed()
    before = free_counts(tree)
    _, slots, result = put(tree, "aabcc", start=2, swa=3)
    assert {FULL: [], SWA: []} == result.duplicates
    assert slots[FULL] == tree.slots(chain, 2, 5)
    assert slots[SWA] == tree.slots(chain, 2, 5, SWA)
    assert {FULL: before[FULL], SWA: before[SWA] - 3} == free_counts(tree)
    tree.check()


def test_inserting_over_a_held_tombstone_keeps_its_full_slots():
    """Whoever holds the run computes with them: the new FULL slots are duplicates, the window is taken."""
    tree, chain = holed()
    tree.pin(chain, 5)
    old = tree.slots(chain, 2, 5)
    _, slots, result = put(tree, "aabcc", start=2, swa=3)
    assert {FULL: slots[FULL], SWA: []} == result.duplicates
    assert (old, slots[SWA]) == (tree.slots(chain, 2, 5), tree.slots(chain, 2, 5, SWA))


def test_inserting_over_a_live_window_brings_back_every_slot():
    """Nothing was missing."""
    tree = windowed()
    put(tree, "abc", swa=3)
    _, slots, result = put(tree, "abc", start=1, swa=1)
    assert (3, slots) == result


# -- eviction --------------------------------------------------------------------------------------------------


def test_an_evicted_window_leaves_its_pages():
    """Of a run that something goes on from, only the window goes; a leaf goes whole."""
    tree = windowed()
    put(tree, "aa", swa=2)
    chain, _, _ = put(tree, "aab", swa=1)
    assert 2 == tree.evict(1, SWA)
    assert (3, [(0, 2)]) == (tree.full_match(chain), swa_tombstone_ranges(tree, chain, 0, 3))
    assert 1 == tree.evict(1, SWA)
    assert 2 == tree.full_match(chain)


def test_a_pinned_leaf_can_still_lose_its_window():
    """A pin protects FULL alone; a lock protects the window too."""
    tree = windowed()
    chain, _, _ = put(tree, "aaa", swa=3)
    pin = tree.pin(chain, 3)
    lock = tree.lock(chain, 3)
    assert 0 == tree.evict(3, SWA)
    tree.unlock(lock)
    assert 3 == tree.evict(3, SWA)
    assert [(0, 3)] == swa_tombstone_ranges(tree, chain, 0, 3)
    assert 0 == tree.evict(3)
    tree.unpin(pin)
    assert 3 == tree.evict(3)


def test_the_window_used_longest_ago_goes_first():
    """A use renews the trailing window alone, its end last."""
    tree = windowed()
    for text in ("a", "ab", "abc", "abcd"):
        put(tree, text, swa=1)
    tree.touch(chain_of("abcd"), 4)
    put(tree, "x", swa=1)
    assert 1 == tree.evict(1, SWA)
    assert [(0, 1)] == swa_tombstone_ranges(tree, chain_of("abcd"), 0, 4)
    tree.touch(chain_of("ab"), 2)
    tree.evict(1, SWA)
    assert [(0, 1), (2, 3)] == swa_tombstone_ranges(tree, chain_of("abcd"), 0, 4)


def test_a_lock_protects_one_window_and_not_the_path():
    """Behind it the window slots may go while their pages stay."""
    tree = windowed()
    for text in ("a", "ab", "abc", "abcd", "abcde"):
        put(tree, text, swa=1)
    chain = chain_of("abcde")
    tree.lock(chain, 5)
    assert 2 == tree.evict(9, SWA)
    assert [(0, 2)] == swa_tombstone_ranges(tree, chain, 0, 5)


def test_a_transfer_protects_the_window_slots_of_its_whole_span():
    """They are being read or written, however long the span."""
    tree = windowed()
    for text in ("a", "ab", "abc", "abcd", "abcde"):
        put(tree, text, swa=1)
    chain = chain_of("abcde")
    receipt = tree.hold_span(chain, 1, 5)
    assert 1 == tree.evict(9, SWA)
    tree.release_span(receipt)
    assert 4 == tree.evict(9, SWA)


def test_an_evicted_checkpoint_leaves_its_node():
    """Least recently used first, and never a locked one."""
    tree = tree_of(Checkpoints())
    put(tree, "aa", state=1)
    put(tree, "b", state=1)
    locked = tree.lock(chain_of("aa"), 2)
    assert 1 == tree.evict(2, STATE)
    assert (2, 1, 0) == (
        tree.joint_match(chain_of("aa")),
        tree.full_match(chain_of("b")),
        tree.joint_match(chain_of("b")),
    )
    tree.unlock(locked)
    assert 1 == tree.evict(2, STATE)
    assert 2 == tree.full_match(chain_of("aa"))


def test_a_shortened_leaf_gives_back_its_tail_of_every_component():
    """The checkpoint stood at the old end, and goes with it."""
    tree = tree_of(SlidingWindow(WINDOW), Checkpoints())
    chain, _, _ = put(tree, "aaaaa", swa=5, state=1)
    before = free_counts(tree)
    assert 2 == tree.evict(2)
    assert {FULL: before[FULL] + 2, SWA: before[SWA] + 2, STATE: before[STATE] + 1} == free_counts(tree)
    assert (3, 0) == (tree.full_match(chain), tree.joint_match(chain))
    tree.check()


# -- why a pin takes no window lock ----------------------------------------------------------------------------


def test_a_window_lock_dies_when_its_window_is_attached_anew():
    """What it counted is gone: release is refused by name and changes nothing, and the new window is nobody's."""
    tree, chain = holed()
    receipt = tree.lock(chain, 5)
    attach_swa_window(tree, chain, 5, [Span(2, 5)], tree.pools[SWA].alloc(3))
    assert 3 + 2 + 2 == tree.evictable_slots(SWA)
    before = tree.digest()
    with pytest.raises(DeadReceipt, match="attached anew"):
        tree.unlock(receipt)
    assert before == tree.digest()
    tree.unlock(receipt, forfeit=True)
    with pytest.raises(ReceiptRefused):
        tree.unlock(receipt, forfeit=True)
    tree.check()


def test_a_pin_outlives_the_repair_of_the_window_under_it():
    """It has no window to lose, hence no receipt to die; that is why an anchor takes a pin and no lock."""
    tree, chain = holed()
    pin = tree.pin(chain, 5)
    attach_swa_window(tree, chain, 5, [Span(2, 5)], tree.pools[SWA].alloc(3))
    tree.unpin(pin)
    assert 0 == tree.pinned
    tree.check()


def test_an_insert_that_rebuilds_a_locked_window_kills_the_lock_too():
    """However the slots come."""
    tree, chain = holed()
    receipt = tree.lock(chain, 5)
    put(tree, "aabcc", start=2, swa=3)
    with pytest.raises(DeadReceipt):
        tree.unlock(receipt)


# -- how window slots are found --------------------------------------------------------------------------------


def test_an_index_map_leads_from_full_slots_to_the_window():
    """It follows inserts, evictions, rebuilt tombstones and new owners of a slot."""
    mapped = IndexMap(60)
    tree = windowed(index_map=mapped)
    put(tree, "aa", swa=2)
    chain, _, _ = put(tree, "aab", swa=1)
    full = tree.slots(chain, 0, 3)
    assert tree.slots(chain, 0, 3, SWA) == mapped.translate(full)
    tree.evict(1, SWA)
    with pytest.raises(SlotRefused, match=f"FULL slot {full[0]} has no window slot"):
        mapped.translate(full)
    put(tree, "aa", start=0, swa=2)
    assert tree.slots(chain, 0, 3, SWA) == mapped.translate(tree.slots(chain, 0, 3))
    assert full[:2] != tree.slots(chain, 0, 2)
    tree.evict(1)
    with pytest.raises(SlotRefused):
        mapped.translate(full[2:])


def test_a_request_ring_overwrites_what_left_the_window():
    """Page i lies where page i - size lay; what is handed over are the last pages, in order; the rest is freed."""
    pool = Pool(8, SWA)
    ring = RequestRing(pool, pool.alloc(WINDOW + 1))
    assert ring.slot(1) == ring.slot(WINDOW + 2)
    last = [ring.slot(page) for page in range(2, 6)]
    assert last == ring.hand_over(6)
    short = RequestRing(pool, pool.alloc(4))
    assert [4, 5] == short.hand_over(2)
    assert 2 == pool.free_count


def test_a_ring_s_window_is_published_with_its_pages():
    """The tree owns the handed-over slots then, and earlier pages are born tombstones."""
    tree = windowed(ring=True)
    pool = tree.pools[SWA]
    ring = RequestRing(pool, pool.alloc(WINDOW))
    chain = chain_of("abcde")
    slots = {FULL: tree.pools[FULL].alloc(5), SWA: ring.hand_over(5)}
    tree.insert(chain, 0, 5, slots)
    assert ([(0, 2)], 5) == (swa_tombstone_ranges(tree, chain, 0, 5), tree.joint_match(chain))


# -- a fourth ----------------------------------------------------------------------------------------------------


class Draft(Component):
    """KV of a draft model: every page of the path must have it, and it lives in pages like FULL."""

    name = "draft"
    splice = Splice.TRIMMABLE
    per_page = True
    priority = 1

    def reach(self, end):
        return 0

    def retreat(self, node, at):
        top, up = None, node
        while up.end:
            if not up.cells[self.at].slots:
                top = up
            up = up.parent
        return (node, at) if top is None else (top.parent, top.start)

    def staging_demand(self, anchor, suffix):
        return suffix

    def reservation(self, extend, new, chunk):
        return extend + new


def test_a_fourth_component_needs_no_change_of_the_tree():
    """It gates matches, is evicted, repaired, locked, copied and counted like the others."""
    tree = tree_of(SlidingWindow(WINDOW), Checkpoints(), Draft(), room=40)
    put(tree, "aa", swa=2, state=1, draft=2)
    put(tree, "aab", swa=1, state=1, draft=0)
    chain, _, _ = put(tree, "aabcc", swa=2, state=1, draft=2)
    assert 2 == tree.joint_match(chain)
    assert [(2, 3)] == tree.missing(chain, 0, 5, "draft")
    tree.attach(chain, 5, [Span(2, 3)], tree.pools["draft"].alloc(1), component="draft")
    assert 5 == tree.joint_match(chain)
    receipt = tree.lock(chain, 5)
    assert (0, 0) == (tree.evictable_slots("draft"), tree.evict(1, "draft"))
    tree.touch(chain, 1)
    tree.unlock(receipt)
    assert 1 == tree.evict(1, "draft")
    assert 0 == tree.joint_match(chain)
    tree.check()
    assert [FULL, SWA, STATE, "draft"] == [each.name for each in tree.components]
    assert [5, 3, 1, 5] == [each.staging_demand(2, 5) for each in tree.components]
    assert 5 == tree.flush()
    assert {FULL: 40, SWA: 40, STATE: 40, "draft": 40} == free_counts(tree)


def test_an_unknown_component_is_refused_by_name():
    """The refusal says which there are."""
    with pytest.raises(CacheRefused, match=r"no component 'draft' .*\['full', 'swa'\]"):
        windowed().evict(1, "draft")


@pytest.mark.parametrize("slots", [{SWA: 4}, {SWA: 0, "draft": 1}])
def test_slots_that_no_component_can_take_are_refused(slots):
    """Too many of one, or those of a component that the tree has not."""
    tree = windowed()
    tree.pools["draft"] = Pool(2, "draft")
    with pytest.raises(SpanRefused):
        put(tree, "abc", **slots)
