"""K16: the engine was deadlocked, and `/health` said 200, since its process was alive.

Here health is read from ticks: a server in another thread says 503 as soon as there is work and no tick ends, whether
the scheduler hangs inside a tick or never comes back to one; and 200 again once ticks go on.
"""

from __future__ import annotations

import threading
import time
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from stagehold.operate.endpoint import serve
from stagehold.operate.health import Policy, Vitals
from stagehold.operate.snapshot import Beat, Feed

STALE = Policy(stale_seconds=1.0)  # a busy machine takes a while for a request


def health(url: str) -> int:
    try:
        with urlopen(f"{url}/healthz", timeout=10) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


@pytest.fixture
def served(hand):
    h = hand()
    feed = Feed(h.engine, pace_seconds=0)
    web = serve(feed, policy=STALE)
    yield h, feed, web.url
    web.close()


def test_a_scheduler_that_hangs_inside_a_tick_is_not_healthy(served, monkeypatch):
    """Its store's poll never returns; the request for its health does."""
    h, feed, url = served
    go_on, seen, poll = threading.Event(), [], h.store.poll
    monkeypatch.setattr(h.store, "poll", lambda tick: (go_on.wait(20), poll(tick))[1])

    def ask() -> None:
        while 503 not in seen:
            seen.append(health(url))
        go_on.set()

    asking = threading.Thread(target=ask)
    asking.start()
    feed.tick()
    asking.join()
    assert 503 == seen[-1]
    assert 200 == health(url)


def test_a_scheduler_that_comes_back_to_no_tick_is_not_healthy(served):
    """It has a request, and its loop stands still; the process answers."""
    h, feed, url = served
    h.arrive("a", h.prompt(4))
    feed.tick()
    assert 200 == health(url)
    time.sleep(1.1)
    assert 503 == health(url)
    feed.tick()
    assert 200 == health(url)


def test_health_by_the_life_of_the_process_would_be_seen(hand):
    """Planted: a sign of life that the server gives itself."""
    h = hand()
    feed = Feed(h.engine, pace_seconds=0)
    h.arrive("a", h.prompt(4))
    feed.tick()
    judged = Vitals(feed, STALE, clock=lambda: feed.latest.at + 60)
    assert not judged.alive().ok
    feed.beat = Beat(feed.beat.tick, feed.latest.at + 60)
    assert judged.alive().ok
