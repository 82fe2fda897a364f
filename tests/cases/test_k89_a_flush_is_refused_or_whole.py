"""K89: a flush during a prefill crashed; and a flush before a restart lost the root of the chain in the store.

Without its first page nothing behind it was ever found again. Here a flush is refused while anything runs, loads or
copies; it empties memory and promises nothing of the store. What is to outlive the process is drained, which is
another word. And writes go out root first, so that whatever is stored at any moment can be found from its start.
"""

from __future__ import annotations

import pytest

from stagehold import Misuse
from stagehold.cache.stores.simulated import Delays, SimulatedStore
from stagehold.lifecycle.tick import Tick
from stagehold.specs.write import WriteState
from stagehold.testing.hand import AT_ONCE, Hand

PAGES = 24
SLOW_PUTS = Delays(exists=(1, 1), get=(1, 1), put=(3, 3))


def restarted(hand, h: Hand) -> int:
    """Tokens of the prompt that another process finds in what this one left."""
    h.engine.close()
    fresh = hand(store=SimulatedStore(delays=AT_ONCE, medium=h.store.medium))
    a = fresh.arrive("a", fresh.prompt(PAGES))
    fresh.tick(4)
    return fresh.admit(a).store_hit_tokens


def computed(hand) -> Hand:
    """A request of many pages has come and gone; its writes are queued in pieces, of which staging takes half."""
    h = hand(delays=SLOW_PUTS, staging_pages=12)
    h.run("a", h.prompt(PAGES))
    assert len(h.core.writes) > 3
    return h


@pytest.mark.parametrize("step", ["admitted", "between chunks", "planned"])
def test_a_flush_during_a_prefill_is_refused_by_name(hand, step):
    """And the prefill goes on as if nothing had been asked."""
    h = hand()
    tokens = h.prompt(8)
    if step == "planned":
        h.put(tokens)
    a = h.arrive("a", tokens)
    h.tick(3)
    plan = h.engine.select(a, 40)
    if step == "planned":
        with pytest.raises(Misuse, match="a visit is open"):
            h.engine.flush()
    admission = h.engine.commit(plan)
    if step == "between chunks":
        h.engine.extend(a, 40)
        h.engine.publish(a, 40)
    with pytest.raises(Misuse, match="1 requests are committed"):
        h.engine.flush()
    done = h.machine(a).data.n_tokens
    h.engine.extend(a, 129 - done)
    h.engine.publish(a, 129)
    h.engine.finish(a)
    assert admission.admitted
    assert 8 == h.live(tokens)


def test_a_drain_makes_it_durable(hand):
    """Nothing is left to write, then memory may go, then the process."""
    h = computed(hand)
    assert 0 == h.engine.drain(200).unwritten
    h.engine.flush()
    assert PAGES * 16 == restarted(hand, h)


def test_a_flush_promises_nothing_of_the_store(hand):
    """It drops what is queued, and says so in the counters: the restart finds less."""
    h = computed(hand)
    h.engine.flush()
    assert PAGES > h.engine.stats().stored_pages
    assert PAGES == h.engine.stats().dropped_pages
    h.tick(20)
    assert 0 == restarted(hand, h)


def stored_at_a_flush(h: Hand, after: int) -> list[bool]:
    """Flush so many ticks after the request, as soon as it is allowed; which pages are stored when all IO is over."""
    h.tick(after)
    h.until(lambda: all(w.state is not WriteState.COPYING for w in h.core.writes.values()), 10)
    h.engine.flush()
    h.tick(10)
    return [h.store.contains(name) for name in h.names(h.prompt(PAGES))]


@pytest.mark.parametrize("after", range(0, 30, 2))
def test_what_is_stored_at_a_flush_begins_at_the_root(hand, after):
    """At any moment of the writing: no page without all those before it, and the restart finds every one."""
    h = computed(hand)
    there = stored_at_a_flush(h, after)
    assert there == sorted(there, reverse=True)
    found = sum(there) if sum(there) >= h.config.threshold_pages else 0
    assert found * 16 == restarted(hand, h)


def newest_first(self):
    """Planted: writes begin with the one that was offered last."""
    for w in reversed(list(self.core.writes.values())):
        if w.state is WriteState.QUEUED:
            self.core.steps.write.start(w)
            self.core.settle()


def test_a_writer_that_begins_at_the_leaf_loses_the_root_at_a_flush(hand, monkeypatch):
    """Planted: half of the pages are stored, and a restart finds none of them."""
    monkeypatch.setattr(Tick, "_start_writes", newest_first)
    h = computed(hand)
    there = stored_at_a_flush(h, 2)
    assert any(there)
    assert not there[0]
    assert 0 == restarted(hand, h)
