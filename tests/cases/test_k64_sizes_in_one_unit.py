"""K64: a map of slots had as many entries as tokens and was filled in whole blocks; the last block wrote past its end.

Here a page table has an entry for each page begun, whatever the length in tokens; there is no map of tokens, and a
length that is no whole page is rounded in one place.
"""

from __future__ import annotations

import pytest

from stagehold import EngineConfig, Misuse
from stagehold.testing.hand import small_config


@pytest.mark.parametrize("page_size", [1, 4, 16, 64])
def test_a_page_table_covers_every_token_and_no_page_more(hand, page_size):
    """All prompts of 1 to 40 tokens, computed in steps that fit no page."""
    h = hand(store=None, page_size=page_size, largest_request_tokens=50)
    for length in range(1, 41):
        a = h.arrive(f"r{length}", h.prompt(0, length, tail=length), new=3)
        done = h.admit(a).hit_tokens
        while done < length + 3:
            step = min(5, length + 3 - done)
            h.engine.extend(a, step, range(max(0, done + step - max(done, length))))
            done += step
            table = h.engine.page_slots(a)
            assert -(-done // page_size) == len(table) == len(set(table))
            h.engine.publish(a, min(done, length))
        assert 0 == h.machine(a).data.reserve
        h.engine.finish(a)
        h.tick()
    h.core.tree.evict(10**6)
    assert h.config.device_pages == h.core.room()


def test_the_bytes_of_the_last_page_are_whole(hand):
    """A prompt that ends in the middle of a page: its tensor row is as long as any, and the store gets whole pages."""
    h = hand(parts=3, page_part_bytes=7)
    a = h.arrive("a", h.prompt(2, tail=9))
    h.admit(a)
    slots = h.engine.extend(a, 41).slots
    assert (3, 3) == (len(slots), h.core.tensors.device.tensor.shape[0])
    h.core.tensors.device.tensor[:, slots[-1]] = 5
    assert {21} == {len(buffer) for buffer in h.core.buffers(h.core.stocks.spine, range(h.config.staging_pages))}
    h.engine.publish(a, 41)
    assert 2 == h.live(h.prompt(2, tail=9))


@pytest.mark.parametrize("length", [1, 15, 16, 17, 33])
def test_more_than_the_last_token_cannot_be_published(hand, length):
    """A length is checked in tokens, before any page is looked at."""
    h = hand()
    a = h.arrive("a", h.prompt(0, tail=length))
    h.admit(a)
    h.engine.extend(a, length)
    with pytest.raises(Misuse, match=rf"{length + 1} tokens, but slots were given for {length}"):
        h.engine.publish(a, length + 1)


@pytest.mark.parametrize(("tokens", "pages"), [(1, 1), (16, 1), (17, 2), (500, 32), (512, 32), (513, 33)])
def test_what_is_configured_in_tokens_is_rounded_up_once(tokens, pages):
    """The largest request and the threshold, by the same rule."""
    config: EngineConfig = small_config(largest_request_tokens=tokens, prefetch_threshold_tokens=tokens)
    assert (pages, pages) == (config.largest_request_pages, config.threshold_pages)
