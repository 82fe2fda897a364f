"""Alive while ticks go on, ready when requests may come; told by a server in a thread of its own."""

from __future__ import annotations

import threading
from http import HTTPStatus
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import orjson
import pytest

from stagehold.operate.endpoint import serve
from stagehold.operate.health import Policy, Vitals
from stagehold.operate.snapshot import Feed
from stagehold.operate.web import Place
from stagehold.testing.hand import Hand


@pytest.fixture
def h():
    with Hand() as h:
        yield h


def vitals(h: Hand, clock, **policy) -> tuple[Feed, Vitals]:
    feed = Feed(h.engine, pace_seconds=0, clock=clock)
    return feed, Vitals(feed, Policy(**policy), clock=clock)


# Alive


def test_an_engine_with_work_is_alive_as_long_as_it_ticks(h, clock):
    """And stuck when it does not."""
    feed, judged = vitals(h, clock)
    h.arrive("a", h.prompt(4))
    for _ in range(5):
        clock.now += 29
        assert judged.alive().ok
        feed.tick()
    clock.now += 31
    health = judged.alive()
    assert not health.ok
    assert (
        f"tick {feed.beat.tick} ended 31.0 s ago, and the scheduler is between ticks, with work waiting",
    ) == health.reasons


def test_an_engine_without_work_may_rest(h, clock):
    """However long; what arrives after its last tick is work."""
    feed, judged = vitals(h, clock)
    feed.tick()
    clock.now += 3600
    assert judged.alive().ok
    h.arrive("late", h.prompt(4))
    assert not judged.alive().ok


def test_what_a_tick_raised_is_told_until_the_next(h, clock):
    """By its name."""
    feed, judged = vitals(h, clock)
    with pytest.raises(RuntimeError), feed.timing():
        raise RuntimeError("rank 1 is gone")
    assert ("the last tick raised RuntimeError: rank 1 is gone",) == judged.alive().reasons
    feed.tick()
    assert judged.alive().ok


# Ready


def test_ready_after_the_self_test(clock):
    """While it runs, requests would be computed that could be fetched."""
    with Hand(attach=False) as h:
        feed, judged = vitals(h, clock)
        assert ("the store's self-test has not ended",) == judged.ready().reasons
        for _ in range(6):
            feed.tick()
        assert judged.ready().ok


def test_an_outage_is_a_note_unless_the_store_is_needed(h, clock):
    """Requests are computed meanwhile."""
    feed, judged = vitals(h, clock)
    strict = Vitals(feed, Policy(needs_store=True), clock=clock)
    assert strict.ready().ok
    h.outage()
    feed.publish()
    told = "the store is open: it fails, and is not asked"
    assert (True, (told,)) == (judged.ready().ok, judged.ready().notes)
    assert (False, (told,)) == (strict.ready().ok, strict.ready().reasons)
    h.engine.detach()
    feed.publish()
    assert strict.ready().reasons[0].startswith("no store: ")


def test_without_memory_nobody_is_ready(h, clock, tmp_path):
    """As the kernel, or a cgroup, says."""
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "meminfo").write_text("MemAvailable: 1024 kB\n")
    feed, _ = vitals(h, clock)
    health = Vitals(feed, clock=clock, root=tmp_path).ready()
    assert ("1 MiB of memory are left by the kernel (MemAvailable)",) == health.reasons


# Served


def asked(url: str, **headers: str) -> tuple[int, bytes, str]:
    try:
        with urlopen(Request(url, headers=headers), timeout=10) as answer:
            return answer.status, answer.read(), answer.headers["Content-Type"]
    except HTTPError as error:
        return error.code, error.read(), error.headers["Content-Type"]


@pytest.fixture
def served(h):
    feed = Feed(h.engine, pace_seconds=0)
    web = serve(feed, policy=Policy(stale_seconds=0.2), labels={"rank": "2"})
    yield feed, web.url
    web.close()


def test_a_scheduler_that_hangs_in_a_tick_is_told_while_it_hangs(served, h, monkeypatch):
    """The server has a thread of its own, and the engine's is never waited for."""
    feed, url = served
    begun, go_on = threading.Event(), threading.Event()
    poll = h.store.poll

    def hang(tick: int):
        begun.set()
        go_on.wait(20)
        return poll(tick)

    feed.tick()
    assert HTTPStatus.OK == asked(f"{url}/healthz")[0]
    monkeypatch.setattr(h.store, "poll", hang)
    engine_thread = h.engine._thread
    asker = threading.Thread(target=lambda: (begun.wait(20), told.append(until_stuck(url)), go_on.set()))
    told: list[dict] = []
    asker.start()
    assert engine_thread is threading.current_thread()
    feed.tick()
    asker.join()
    assert "the scheduler is inside a tick" in told[0]["reasons"][0]
    assert HTTPStatus.OK == asked(f"{url}/healthz")[0]


def until_stuck(url: str) -> dict:
    while True:
        status, body, _ = asked(f"{url}/healthz")
        if status == HTTPStatus.SERVICE_UNAVAILABLE:
            return orjson.loads(body)


def test_readiness_and_metrics_are_served(served):
    """With their types, and the labels that were given."""
    feed, url = served
    feed.tick()
    status, body, kind = asked(f"{url}/readyz")
    assert (HTTPStatus.OK, True, "application/json") == (status, orjson.loads(body)["ok"], kind)
    status, body, kind = asked(f"{url}/metrics")
    assert HTTPStatus.OK == status
    assert b'stagehold_ticks_total{rank="2"}' in body
    assert kind.startswith("text/plain; version=0.0.4")


def test_nothing_else_is_served_and_nobody_else_is_served(served):
    """An unknown path; a name that is not this machine's; a place that other machines reach, without a token."""
    _, url = served
    assert HTTPStatus.NOT_FOUND == asked(f"{url}/")[0]
    assert HTTPStatus.FORBIDDEN == asked(f"{url}/metrics", Host="elsewhere.example")[0]
    with pytest.raises(ValueError, match="expected a token"):
        Place("0.0.0.0", 0)
