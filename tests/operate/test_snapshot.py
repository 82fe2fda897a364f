"""What a feed publishes: one moment, from the engine's thread, with what ticks took and how fast bytes moved."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from stagehold import AttachmentState, Engine, EngineConfig, WrongThread
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.operate.health import Vitals
from stagehold.operate.snapshot import BOUNDS, Feed, Rates, Times
from stagehold.testing.hand import Hand


def fed(h: Hand, clock, pace: float = 0.0) -> Feed:
    return Feed(h.engine, pace_seconds=pace, clock=clock, wall=lambda: 1e9)


def test_a_tick_publishes_what_it_did(clock):
    """And the one before stays as it was."""
    with Hand() as h:
        feed = fed(h, clock)
        first = feed.latest
        feed.tick()
        assert first.tick + 1 == feed.latest.tick == h.now
        assert ("attached", "healthy") == (feed.latest.attachment.name.lower(), feed.latest.breaker)
        assert 0 == first.stats.live_machines


def test_snapshots_keep_their_distance_and_beats_do_not(clock):
    """One in ten seconds, and the last sign of life of every tick."""
    with Hand() as h:
        feed, first = fed(h, clock, pace=10), h.now
        for _ in range(12):
            clock.now += 1
            feed.tick()
        assert (first + 10, first + 12) == (feed.latest.tick, feed.beat.tick)
        assert 112.0 == feed.beat.at


def test_where_the_store_stands_is_published_at_once(clock):
    """A scheduler that gets no load before it is ready may rest from that tick on."""
    config = EngineConfig(page_size=16, device_pages=64, staging_pages=64, largest_request_tokens=512)
    with closing(Engine(config, store=SimulatedStore())) as engine:
        feed = Feed(engine, pace_seconds=10, clock=clock, wall=lambda: 1e9)
        assert feed.latest.attachment is AttachmentState.ATTACHING
        while engine.attachment is AttachmentState.ATTACHING:
            feed.tick()
        assert feed.latest.attachment is AttachmentState.ATTACHED
        assert Vitals(feed).ready().ok


def test_what_was_done_before_a_rest_is_published_by_hand(clock):
    """Else a rule on what is alive would call for somebody."""
    with Hand() as h:
        feed = fed(h, clock, pace=10)
        request = h.arrive("a", [1, 2, 3])
        feed.publish()
        h.engine.abort(request)
        feed.tick()
        assert 1 == feed.latest.stats.live_machines
        assert 0 == feed.publish().stats.live_machines


def test_ticks_and_what_lies_between_them_are_timed(clock):
    """Three ticks, two gaps."""
    with Hand() as h:
        feed = fed(h, clock)
        for _ in range(3):
            with feed.timing():
                clock.now += 0.002
                h.engine.tick()
            clock.now += 0.5
        durations, lags = feed.latest.durations, feed.latest.lags
        assert (3, pytest.approx(0.006), pytest.approx(0.002)) == (durations.count, durations.sum, durations.last)
        assert (2, pytest.approx(1.0)) == (lags.count, lags.sum)


def test_what_a_tick_raises_is_published_and_goes_on(clock):
    """The beat says what it was, and counts no tick."""
    with Hand() as h:
        feed = fed(h, clock, pace=1000)
        before = feed.beat.tick
        with pytest.raises(RuntimeError), feed.timing():
            raise RuntimeError("the group is gone")
        assert ("RuntimeError: the group is gone", before) == (feed.beat.fault, feed.beat.tick)
        assert feed.latest.fault
        feed.tick()
        assert "" == feed.beat.fault


def test_bandwidth_is_bytes_by_time_of_the_last_seconds(clock):
    """512 bytes came in within two seconds; after a long silence nothing does."""
    with Hand(parts=2, page_part_bytes=32) as h:
        feed = fed(h, clock)
        h.put(h.prompt(8))
        a = h.arrive("a", h.prompt(8))
        h.tick(3)
        h.serve(a)
        clock.now += 2
        assert Rates(store_read=256.0, to_device=256.0) == feed.publish().rates
        for _ in range(3):
            clock.now += 15
            rates = feed.publish().rates
        assert Rates() == rates


def test_another_thread_takes_no_snapshot():
    """It would look at an engine in the middle of a step; what was published is there for it."""
    with Hand() as h:
        feed, found = Feed(h.engine), []

        def take() -> None:
            try:
                feed.publish()
            except WrongThread as error:
                found.append(str(error))

        taker = threading.Thread(target=take, name="scraper")
        taker.start()
        taker.join()
        assert ["publish() was called from thread 'scraper'; only the engine's takes snapshots: read `latest`"] == found


def test_times_fall_into_their_buckets():
    """Bounds belong to the bucket that they end; what is longer than all goes into the last."""
    times = Times().plus(BOUNDS[0]).plus(BOUNDS[0] * 1.01).plus(BOUNDS[-1] * 2)
    assert (1, 1, 1) == (times.counts[0], times.counts[1], times.counts[-1])
    assert 3 == times.count


def test_another_thread_reads_while_the_engine_works():
    """Each snapshot that it sees is whole: tokens add up, and time does not run backwards."""
    with Hand() as h:
        feed = Feed(h.engine, pace_seconds=0)
        seen, done = [], threading.Event()

        def look() -> None:
            while not done.is_set():
                if not seen or seen[-1] is not feed.latest:
                    seen.append(feed.latest)

        reader = threading.Thread(target=look)
        reader.start()
        for number in range(30):
            h.put(h.prompt(8, number))
            a = h.arrive(f"r{number}", h.prompt(8, number))
            for _ in range(3):
                feed.tick()
            h.serve(a)
            time.sleep(0.001)  # the reader's turn
        done.set()
        reader.join()
        assert len(seen) > 3
        assert {0} == {one.stats.token_gap for one in seen}
        assert sorted(one.tick for one in seen) == [one.tick for one in seen]
