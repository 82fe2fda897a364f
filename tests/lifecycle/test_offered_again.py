"""Pages whose write was refused or dropped are offered again by what follows."""

from __future__ import annotations

from collections.abc import Callable

from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.testing.hand import AT_ONCE, Hand


def stored(one: Hand, tokens: object) -> int:
    """Pages of the prompt that the store holds, from the first on."""
    names = one.names(tokens)
    return next((n for n, name in enumerate(names) if not one.store.contains(name)), len(names))


def test_what_was_computed_before_the_store_was_attached_is_written_by_the_next_hit(hand: Callable[..., Hand]) -> None:
    """An embedder that takes requests during the self-test does not lose their pages for good."""
    one = hand(attach=False)
    prompt = one.prompt(6)
    one.run("early", prompt)
    assert one.taken("write.offered.offer.OFF") > 0
    one.until(lambda: one.engine.attachment.name == "ATTACHED")
    assert stored(one, prompt) == 0

    one.run("later", prompt)
    one.tick(20)
    assert stored(one, prompt) == 6


def test_a_longer_prompt_writes_the_head_that_was_refused(hand: Callable[..., Hand]) -> None:
    """The child of an unwritten parent is not refused for ever: the parent is offered with it."""
    one = hand(attach=False)
    short, long = one.prompt(3), one.prompt(8)
    one.run("early", short)
    one.until(lambda: one.engine.attachment.name == "ATTACHED")
    one.run("later", long)
    one.tick(20)
    assert stored(one, long) == 8


def test_the_selective_policy_writes_at_the_second_match_only(hand: Callable[..., Hand]) -> None:
    """Nothing after the first request, everything matched after the second."""
    one = hand(write_policy="write_through_selective")
    prompt = one.prompt(6)
    one.run("first", prompt)
    one.tick(20)
    assert stored(one, prompt) == 0
    one.run("second", prompt)
    one.tick(20)
    assert stored(one, prompt) == 6


def test_a_damaged_test_page_does_not_keep_a_good_store_out(hand: Callable[..., Hand]) -> None:
    """The self-test makes a second round trip: reading the damaged page has made way for a new one."""

    class Healing(SimulatedStore):
        """Its first read of a page finds it damaged and drops it, as the file store does."""

        reads = 0

        def get_into(self, ticket, keys, buffers, tick):
            self.reads += 1
            if self.reads == 1:
                self.drop(keys[0])
            super().get_into(ticket, keys, buffers, tick)

    store = Healing(delays=AT_ONCE)
    one = hand(store=store)
    assert store.reads == 2
    assert one.engine.attachment.name == "ATTACHED"
