"""K35: host pages were evicted while they were being loaded back.

The load made room on the device, making room evicted, and the eviction reached the very pages that were about to be
read. Here a hold owns a reference to each of its pages from IO commit to the end of the copies, and what is owned
cannot be reclaimed.
"""

from __future__ import annotations

import pytest

from stagehold import HostMode
from stagehold.lifecycle.copies import PromptCopies
from stagehold.specs.hold import HoldState
from stagehold.testing.hand import Hand


class Held(PromptCopies):
    """Copies that are reported as ended only once `open`."""

    open = True

    def poll(self, tick: int) -> list[int]:
        return super().poll(tick) if self.open else []


def hosted(hand, pages: int = 8) -> tuple[Hand, Held, list[int]]:
    """`pages` pages in the host tier alone, each byte 9; staging has room for a few more only."""
    copies = Held()
    h = hand(parts=2, page_part_bytes=32, host_memory_mode=HostMode.CACHE, staging_pages=12, load_limit_fraction=1.0,
             engine_options={"copies": copies})  # fmt: skip
    tokens = h.prompt(pages)
    a = h.arrive("writer", tokens)
    h.admit(a)
    slots = h.engine.extend(a, pages * 16 + 1).slots
    h.core.tensors.device.tensor[:, list(slots)] = 9
    h.engine.publish(a, pages * 16)
    h.engine.finish(a)
    h.until(lambda: not h.core.writes, 100)
    h.shrink(tokens, 0)
    assert pages == len(h.core.host)
    return h, copies, [h.core.host._pages[h.chain(tokens).page_key(page)].page for page in range(pages)]


def pressed(h: Hand) -> None:
    """Another request wants all of staging."""
    h.put(h.prompt(12, 2), body=bytes([222]) * 64)
    h.arrive("big", h.prompt(12, 2))
    h.tick(8)


def test_pages_of_a_ready_hold_are_not_reclaimed(hand):
    """A fetch that wants all of staging parks."""
    h, _, pages = hosted(hand)
    a = h.arrive("a", h.prompt(8))
    h.tick()
    assert (HoldState.READY, pages) == (h.hold_of(a).state, h.hold_of(a).data.staging)
    pressed(h)
    assert {2} == {h.core.staging.references(page) for page in pages}
    assert {9} == {
        value for slot in h.admit(a).slots for value in h.core.tensors.device.tensor[:, slot].flatten().tolist()
    }


def test_the_tier_gives_up_pages_that_nobody_has_borrowed(hand):
    """Those that are lent stay where they are found, although they were used longer ago."""
    h, _, pages = hosted(hand, pages=4)
    a = h.arrive("a", h.prompt(4))
    h.tick()
    assert HoldState.READY is h.hold_of(a).state
    b = h.arrive("b", h.prompt(4, 3))
    h.serve(b)
    h.until(lambda: not h.core.writes, 100)
    assert (8, 4) == (len(h.core.host), h.core.staging.free_count)
    h.put(h.prompt(8, 2), body=bytes([222]) * 64)
    h.arrive("big", h.prompt(8, 2))
    h.tick(2)
    assert [h.core.host._pages[h.chain(h.prompt(4)).page_key(page)].page for page in range(4)] == pages
    assert 4 == len(h.core.host)


def test_pages_under_a_copy_are_not_reclaimed_either(hand):
    """Until the copies have ended, whatever happens to the request."""
    h, copies, pages = hosted(hand)
    a = h.arrive("a", h.prompt(8))
    h.tick()
    hold = h.hold_of(a)
    copies.open = False
    h.admit(a)
    h.engine.abort(a)
    pressed(h)
    assert HoldState.LOADING is hold.state
    assert all(h.core.staging.references(page) >= 1 for page in pages)
    assert {9} == {value for page in pages for value in bytes(h.core.tensors.page(page))}
    copies.open = True
    h.tick()
    assert HoldState.SPLICED is hold.state


def test_making_room_on_the_device_cannot_reach_the_anchor(hand):
    """The load itself evicts; what it will be joined to is locked from the plan on."""
    h = hand(device_pages=40)
    tokens = h.prompt(8)
    h.put(tokens)
    h.grow(tokens, 3)
    h.grow(h.prompt(37, 2), 37)
    a = h.arrive("a", tokens)
    h.tick(3)
    assert 0 == h.core.device.free_count
    admission = h.admit(a)
    assert (48, 80) == (admission.device_hit_tokens, admission.store_hit_tokens)
    assert 8 == h.live(tokens)


@pytest.mark.parametrize("wanted", [1, 8, 64])
def test_an_eviction_during_the_load_takes_none_of_its_pages(hand, wanted):
    """The published tail is under the load's own span until the copies have ended."""
    copies = Held()
    h = hand(engine_options={"copies": copies})
    h.put(h.prompt(8))
    h.grow(h.prompt(8, 2), 8)
    a = h.arrive("a", h.prompt(8))
    h.tick(3)
    copies.open = False
    h.admit(a)
    h.engine.abort(a)
    h.core.tree.evict(wanted)
    assert 8 == h.live(h.prompt(8))
    copies.open = True
    h.tick()
