"""Stores that break their side of the bargain: whatever they say, it costs time and no request, byte or unit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stagehold import AttachmentState, RequestState
from stagehold.cache.stores.protocol import Progress, Verdict
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.specs.hold import HoldState
from stagehold.testing.hand import AT_ONCE, SLOW_GETS, Hand

Build = Callable[..., Hand]
Twist = Callable[[Progress], Sequence[Any]]


class Twisted(SimulatedStore):
    """Its reports are `twist`ed on their way, once it is attached."""

    twist: Twist | None = None

    def poll(self, tick: int) -> list[Progress]:
        reports = super().poll(tick)
        if self.twist is None:
            return reports
        return [told for report in reports for told in self.twist(report)]


def served(h: Hand) -> None:
    """Two requests come for a prompt that the store has, and for one that it has not; both are served."""
    h.put(h.prompt(8))
    for family in (1, 2):
        handle = h.arrive(f"r{family}", h.prompt(8, family))
        h.until(lambda handle=handle: h.engine.state_of(handle) is not RequestState.LOOKUP)
        h.tick(4)
        h.serve(handle)
    h.tick(4)


def another(report: Progress, **changed: Any) -> Progress:
    return Progress(**{"ticket": report.ticket, "done": report.done, "good": report.good,
                       "verdicts": report.verdicts, **changed})  # fmt: skip


@pytest.mark.parametrize("good", [1_000, -5, 1 << 70])
def test_more_good_pages_than_were_asked_for_are_none_and_a_fault(hand: Build, good: int) -> None:
    """A number that cannot be is no answer, and the requests compute."""
    h = hand(store=Twisted(delays=AT_ONCE))
    h.store.twist = lambda report: [another(report, good=good)]
    served(h)
    assert (0, 0) == (h.engine.stats().queried, h.engine.stats().fetched)
    assert h.core.breaker.data.faults


TWISTS: dict[str, Twist] = {
    "the same end twice": lambda report: [report, report],
    "another end after the first": lambda report: [report, another(report, good=0, verdicts=())],
    "an end taken back": lambda report: [report, another(report, done=False, good=0)],
    "numbers that nobody gave out": lambda report: [
        Progress(number, done=True, good=8, verdicts=(Verdict.HIT,) * 8) for number in (-1, 0, 1 << 40)
    ] + [report],
}  # fmt: skip


@pytest.mark.parametrize("twist", TWISTS.values(), ids=TWISTS)
def test_what_is_said_once_more_changes_nothing(hand: Build, twist: Twist) -> None:
    """The first end of an operation is its end."""
    h = hand(store=Twisted(delays=AT_ONCE))
    h.store.twist = twist
    served(h)
    assert 8 * 16 == h.engine.stats().spliced
    assert not h.core.breaker.data.faults
    assert {} == h.books()


def test_no_store_can_end_a_copy(hand: Build) -> None:
    """A load whose copy is under way keeps its buffer, though a store says that everything has ended."""
    held: list[int] = []

    class Slow:
        def sent(self, number: int, tick: int) -> None:
            held.append(number)

        def poll(self, tick: int) -> list[int]:
            return []

    h = hand(store=Twisted(delays=AT_ONCE), engine_options={"copies": Slow()})
    h.put(h.prompt(8))
    handle = h.arrive("a", h.prompt(8))
    h.tick(5)
    h.admit(handle)
    (load,) = held
    h.store.exists(1_000_000, [bytes(48)], h.now)
    h.store.twist = lambda report: [report, Progress(load, done=True, good=8, verdicts=(Verdict.HIT,) * 8)]
    h.tick(3)
    (hold,) = h.core.holds.values()
    assert (HoldState.LOADING, 8) == (hold.state, h.books()["staging"])


@pytest.mark.parametrize("number", [-1, 0, 1, 1 << 40])
def test_a_copy_that_was_never_sent_cannot_end(hand: Build, number: int) -> None:
    """Nor one that has ended, nor what is no copy."""

    class Talkative:
        def sent(self, number: int, tick: int) -> None:
            self.last = number

        def poll(self, tick: int) -> list[int]:
            return [number, number]

    h = hand(delays=SLOW_GETS, engine_options={"copies": Talkative()})
    h.put(h.prompt(8))
    handle = h.arrive("a", h.prompt(8))
    h.tick(5)
    assert HoldState.FETCHING is h.hold_of(handle).state


class Raising(SimulatedStore):
    """A store whose `poll` or `close` raises while it is told to."""

    raising: str = ""

    def poll(self, tick: int) -> list[Progress]:
        if self.raising == "poll":
            raise OSError("no route to host")
        if self.raising == "junk":
            return [None, 3, "x"]  # type: ignore[list-item]
        return super().poll(tick)

    def close(self) -> None:
        super().close()
        if self.raising == "close":
            raise OSError("no route to host")


@pytest.mark.parametrize("raising", ["poll", "junk"])
def test_a_store_that_raises_when_asked_for_news_has_none(
    hand: Build, raising: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The outage is said once; what was asked meanwhile is there when it is over."""
    h = hand(store=Raising(delays=AT_ONCE))
    h.store.raising = raising
    h.put(h.prompt(8))
    handle = h.arrive("a", h.prompt(8))
    with caplog.at_level(logging.WARNING, "stagehold"):
        h.tick(5)
    assert ["sim"] == [record.args[0] for record in caplog.records]
    assert RequestState.LOOKUP is h.engine.state_of(handle)
    h.store.raising = ""
    h.tick(5)
    h.serve(handle)
    assert 8 * 16 == h.engine.stats().spliced


def test_a_store_that_raises_when_it_is_replaced_or_closed_is_let_go(
    hand: Build, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said, and everything else goes its way."""
    h = hand(store=Raising(delays=AT_ONCE))
    h.store.raising = "close"
    h.engine.detach()
    h.tick(2)
    second = Raising(delays=AT_ONCE, name="second")
    second.raising = "close"
    h.engine.attach(second)
    h.tick(5)
    assert AttachmentState.ATTACHED is h.engine.attachment
    h.engine.close()
    assert ["sim", "second"] == [record.args[0] for record in caplog.records]


def test_a_store_that_comes_back_before_it_was_let_go_is_not_closed(hand: Build) -> None:
    """First, second, first again, while a fetch of the first is still under way."""
    h = hand(delays=SLOW_GETS, detach_limit=5)
    h.put(h.prompt(8))
    h.arrive("a", h.prompt(8))
    h.tick(4)
    for store in (SimulatedStore(delays=AT_ONCE), h.store):
        h.engine.detach()
        h.until(lambda: h.engine.attachment is AttachmentState.DETACHED)
        h.engine.attach(store)
        h.tick(4)
    h.store._delays = AT_ONCE
    h.until(lambda: h.engine.attachment is AttachmentState.ATTACHED)
    h.until(lambda: not h.core.operations.live)
    h.tick(2)
    assert (False, []) == (h.store._closed, h.core.former)
