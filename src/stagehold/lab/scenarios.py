"""Three situations in which servers lose what the store has, each as a small run with a figure.

*Late write*: requests look before the pages they want have landed. *Gone*: an anchor is lost and the span has left
the store meanwhile. *Outage*: the store stops answering while requests wait. Each owns its engine and closes it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stagehold import Handle, RequestState, Skip
from stagehold.cache.stores.protocol import Buffer
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.testing.hand import AT_ONCE, Hand

PAGES = 24
"""Pages of each prompt of the late-write run: at 16 tokens, a prompt of a few hundred."""


@dataclass(frozen=True, slots=True)
class LateWrite:
    """Store-hit tokens of 64 queued requests: with retries, without, and had every write landed before."""

    with_retries: int
    without_retries: int
    landed_before: int

    @property
    def share(self) -> float:
        """With retries, over what could have been."""
        return self.with_retries / self.landed_before


def late_write(*, requests: int = 64, lands_at: int = 12, a_tick: int = 1) -> LateWrite:
    """Another server's writes land from tick 3, after the first lookups, to `lands_at`; `a_tick` are admitted a tick.

    Each prompt is one write: what a lookup finds is all of it or nothing. A prefix that lands page by page would be
    found in part, and a request with a claim on a part does not ask again.
    """
    return LateWrite(
        with_retries=_late_run(requests, lands_at, a_tick, reissues=8),
        without_retries=_late_run(requests, lands_at, a_tick, reissues=0),
        landed_before=_late_run(requests, 0, a_tick, reissues=8),
    )


def _late_run(requests: int, lands_at: int, a_tick: int, *, reissues: int) -> int:
    """One run; the queue is as long as the requests are many, and its head is busy until the writes have begun."""
    with Hand(
        device_pages=4 * PAGES, staging_pages=requests * PAGES, largest_request_tokens=2 * PAGES * 16,
        retry_max_reissues=reissues,
    ) as hand:  # fmt: skip
        prompts = [hand.prompt(PAGES, family) for family in range(1, requests + 1)]
        waiting = [hand.arrive(f"r{number}", prompt) for number, prompt in enumerate(prompts)]
        lands = [3 + number * (lands_at - 3) // requests if lands_at else 0 for number in range(requests)]
        _land(hand, prompts, lands, 0)
        hits, tick = 0, 0
        while waiting:
            tick += 1
            hand.tick()
            _land(hand, prompts, lands, tick)
            if tick > QUEUE_HEAD_TICKS:
                hits += _admit_some(hand, waiting, a_tick)
        return hits


QUEUE_HEAD_TICKS = 8
"""Ticks for which the running batch leaves no room: what makes these requests a queue."""


def _land(hand: Hand, prompts: Sequence[Any], lands: Sequence[int], tick: int) -> None:
    for prompt, when in zip(prompts, lands, strict=True):
        if when == tick:
            hand.put(prompt)


def _admit_some(hand: Hand, waiting: list[Handle], count: int) -> int:
    """Visit the queue in order and admit up to `count`; returns their store-hit tokens."""
    hits = 0
    for handle in list(waiting):
        if count == 0:
            break
        admission = hand.visit(handle)
        if isinstance(admission, Skip) or not admission.admitted:
            continue
        hits += admission.store_hit_tokens
        hand.compute(handle)
        hand.engine.finish(handle)
        waiting.remove(handle)
        count -= 1
    return hits


class CountedReads(SimulatedStore):
    """A simulated store that counts how often each page was read."""

    def __init__(self) -> None:
        super().__init__(delays=AT_ONCE)
        self.reads: Counter[bytes] = Counter()

    def get_into(self, ticket: int, keys: Sequence[bytes], buffers: Sequence[Buffer], tick: int) -> None:
        """See `Store.get_into`."""
        self.reads.update(keys)
        super().get_into(ticket, keys, buffers, tick)


@dataclass(frozen=True, slots=True)
class Gone:
    """How a request ended whose anchor was lost and whose span had left the store."""

    anchors_lost: int
    refetches: int
    store_hit_tokens: int
    reissues: int
    most_reads_of_a_page: int


def gone() -> Gone:
    """The anchor is evicted before IO commit; the refetch, whose end is known, finds every page gone from the store.

    The head was written by this server, so that the whole span is believed stored when the anchor is lost.
    """
    store = CountedReads()
    with Hand(store=store) as hand:
        prompt = hand.prompt(12)
        hand.run("head", prompt[: 4 * hand.config.page_size + 1])
        hand.put(prompt, 4)
        hand.until(lambda: not hand.core.writes)
        handle = hand.arrive("r", prompt)
        hand.tick()  # the store is asked from page 4 on
        hand.shrink(prompt, 0)
        hand.tick()  # it has the rest, but the anchor is gone: a hold of all pages is opened without a query
        for name in hand.names(prompt):
            store.drop(name)
        store.reads.clear()
        hand.until_state(handle, RequestState.CAPPED)
        issues = hand.machine(handle).issues
        admission = hand.serve(handle)
        hand.tick()
        return Gone(
            anchors_lost=hand.taken("hold.parked.io_commit.LOST"),
            refetches=hand.taken("request.retry.due.KNOWN"),
            store_hit_tokens=admission.store_hit_tokens,
            reissues=issues - 1,
            most_reads_of_a_page=max(store.reads.values(), default=0),
        )


@dataclass(frozen=True, slots=True)
class Outage:
    """What an outage cost the requests that waited through it."""

    requests: int
    most_reissues: int
    failed: int
    store_hit_tokens: int
    could_have_hit: int


def outage(*, requests: int = 16) -> Outage:
    """The breaker opens while requests wait in `retry`; it recovers, and everything they want is there."""
    with Hand(open_limit=32, device_pages=64, staging_pages=requests * 8) as hand:
        prompts = [hand.prompt(8, family) for family in range(1, requests + 1)]
        hand.outage()
        handles = [hand.arrive(f"r{number}", prompt) for number, prompt in enumerate(prompts)]
        for prompt in prompts:
            hand.put(prompt)
        before = {handle: hand.machine(handle).issues for handle in handles}
        hand.until(lambda: all(hand.engine.state_of(h) is RequestState.STAGED for h in handles))
        reissues = max(hand.machine(handle).issues - 1 - before[handle] for handle in handles)
        hand.tick(4)
        waiting = list(handles)
        hits = 0
        for _ in range(requests * 4):
            hand.tick()
            hits += _admit_some(hand, waiting, 1)
        return Outage(requests, reissues, len(waiting), hits, requests * 8 * 16)
