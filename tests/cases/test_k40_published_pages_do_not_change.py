"""K40: the decode side read pages of the host while somebody else wrote to them.

Here a page that has a key is never written to again. Whoever computes the same page anew brings his own, and it is
given up where one is there already; a reader owns a reference until he is done.
"""

from __future__ import annotations

from stagehold import HostMode
from stagehold.cache.host import HostTier
from stagehold.specs.hold import HoldState
from stagehold.testing.hand import Hand


def write(h: Hand, rid: str, pages: int, value: int) -> None:
    """A request computes so many pages, each byte `value`; they go out to the host tier and to the store."""
    tokens = h.prompt(pages)
    handle = h.arrive(rid, tokens)
    h.admit(handle)
    slots = list(h.engine.extend(handle, len(tokens)).slots)
    h.core.tensors.device.tensor[:, slots] = value
    h.engine.publish(handle, len(tokens))
    h.engine.abort(handle)
    h.until(lambda: not h.core.writes, 100)
    h.shrink(tokens, 0)


def reader_and_second_writer(build) -> tuple[Hand, list[int]]:
    """Pages of nines in the host tier, a hold that is about to read them, and a second writer who brings sevens.

    He brings two pages more, so that what is in the tier already is copied with them.
    """
    h = build(parts=2, page_part_bytes=32, host_memory_mode=HostMode.CACHE, staging_pages=80)
    write(h, "first", 6, 9)
    h.arrive("reads", h.prompt(6))
    h.tick()
    (hold,) = h.core.holds.values()
    assert HoldState.READY is hold.state
    pages = list(hold.data.staging)
    h.core.beliefs.unteach(h.core.keys(h.chain(h.prompt(6)), 0, 6))
    write(h, "second", 8, 7)
    assert 14 == h.engine.stats().stored_pages
    return h, pages


def test_a_page_that_is_read_stays_as_it_was(hand):
    """The same pages of staging, the same bytes, until the reader has them."""
    h, pages = reader_and_second_writer(hand)
    (hold,) = h.core.holds.values()
    assert pages == hold.data.staging
    assert {9} == {value for page in pages for value in bytes(h.core.tensors.page(page))}
    reads = h.engine._roster.alive["reads"].data.handle
    slots = list(h.admit(reads).slots)
    assert {9} == set(h.core.tensors.device.tensor[:, slots].flatten().tolist())


def test_the_second_page_of_one_key_is_given_up(hand):
    """The tier has one page a key, and staging is as full as before."""
    h, _ = reader_and_second_writer(hand)
    assert (8, 8) == (len(h.core.host), h.core.staging.used)


def overwriting_keep(core, keep):
    """Planted: a tier that brings its pages up to date in place."""

    def keep_newest(self, keys, pages, **more):
        for key, page in zip(keys, pages, strict=True):
            if key in self._pages:
                core().tensors.page(self._pages[key].page)[:] = core().tensors.page(page)
        keep(self, keys, pages, **more)

    return keep_newest


def test_a_tier_that_writes_over_its_pages_would_be_seen(monkeypatch):
    """Planted: the reader finds sevens."""
    made: list[Hand] = []
    monkeypatch.setattr(HostTier, "keep", overwriting_keep(lambda: made[0].core, HostTier.keep))

    def build(**options):
        made.append(Hand(**options))
        return made[0]

    h, pages = reader_and_second_writer(build)
    assert {7} == {value for page in pages for value in bytes(h.core.tensors.page(page))}
    h.engine.close()


def test_a_slot_that_the_tree_shows_is_given_to_nobody(hand):
    """Pages on the device are as unchangeable: forty requests compute, and none is given a published slot to fill."""
    h = hand()
    for number in range(40):
        handle = h.arrive(f"r{number}", h.prompt(3 + number % 5, number % 6 + 1, shared=number % 3))
        h.admit(handle)
        data = h.machine(handle).data
        new = h.engine.extend(handle, data.prompt_tokens - data.n_tokens).slots
        assert set(new).isdisjoint(h.core.tree.owned())
        h.engine.publish(handle, data.prompt_tokens)
        h.engine.finish(handle)
        h.tick()
