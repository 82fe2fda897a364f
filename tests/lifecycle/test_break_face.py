"""The face under callers who give the wrong thing, in the wrong order, or stop in the middle of it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from stagehold import (
    AttachmentState,
    Engine,
    Handle,
    Misuse,
    Plan,
    RequestState,
    Skip,
    SkipReason,
)
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.machines import Block
from stagehold.testing.hand import NAMESPACE, Hand, small_config

Build = Callable[..., Hand]
Call = Callable[[Hand, Handle, Plan], Any]


def arriving(*, rid: Any = "z", tokens: Any = (1, 2, 3), namespace: Any = NAMESPACE, new: Any = 1) -> Call:
    return lambda h, _runs, _plan: h.engine.arrive(rid, tokens, namespace, new)


WRONG: dict[str, tuple[Call, str]] = {
    "no id": (arriving(rid=None), "text"),
    "a number for an id": (arriving(rid=5), "text"),
    "a list for an id": (arriving(rid=["z"]), "text"),
    "an id that UTF-8 cannot write": (arriving(rid="\ud800"), "text"),
    "no tokens": (arriving(tokens=None), "arrive 'z': tokens"),
    "tokens in two rows": (arriving(tokens=[[1, 2]]), "arrive 'z': tokens"),
    "tokens in ragged rows": (arriving(tokens=[[1, 2], [3]]), "arrive 'z'"),
    "tokens that are halves": (arriving(tokens=[0.5]), "arrive 'z': tokens"),
    "a token below 0": (arriving(tokens=[-1]), "arrive 'z': tokens"),
    "a token of 33 bits": (arriving(tokens=[1 << 32]), "arrive 'z': tokens"),
    "a name for a namespace": (arriving(namespace="m"), "Namespace"),
    "half an answer": (arriving(new=1.5), "max_new_tokens"),
    "no number of an answer": (arriving(new=math.nan), "max_new_tokens"),
    "an answer of text": (arriving(new="3"), "max_new_tokens"),
    "an answer that is too long for its own type": (arriving(tokens=range(400), new=np.uint8(200)), "largest"),
    "a name for a handle": (lambda h, _runs, _plan: h.engine.select("a", 1), "Handle"),
    "half a budget": (lambda h, _runs, plan: h.engine.select(plan.handle, 1.5), "budget"),
    "no budget": (lambda h, _runs, plan: h.engine.select(plan.handle, None), "budget"),
    "no plan": (lambda h, _runs, _plan: h.engine.commit(None), "Plan"),
    "a skip for a plan": (
        lambda h, _runs, plan: h.engine.release(Skip(plan.handle, SkipReason.NO_BUDGET)), "Plan"),
    "a plan that was changed": (lambda h, _runs, plan: h.engine.commit(replace(plan, promised_pages=1)), "not open"),
    "room for half a token": (lambda h, runs, _plan: h.engine.extend(runs, 1.5), "n_tokens"),
    "one id without a row": (lambda h, runs, _plan: h.engine.extend(runs, 1, 7), "row"),
    "ids in two rows": (lambda h, runs, _plan: h.engine.extend(runs, 1, [[7]]), "row"),
    "an id below 0": (lambda h, runs, _plan: h.engine.extend(runs, 1, [-7]), "extend.*tokens"),
    "an id that is text": (lambda h, runs, _plan: h.engine.extend(runs, 1, ["x"]), "extend.*tokens"),
    "ids in ragged rows": (lambda h, runs, _plan: h.engine.extend(runs, 1, [[7], [7, 8]]), "extend.*row"),
    "a list for a component": (lambda h, runs, _plan: h.engine.page_slots(runs, ["swa"]), "no component"),
    "a number for a pause": (
        lambda h, _runs, plan: (h.engine.release(plan), h.engine.drain(1, pause=3)), "drain: expected pause"),
    "half a published token": (lambda h, runs, _plan: h.engine.publish(runs, 0.5), "upto"),
    "half a tick of draining": (lambda h, _runs, plan: (h.engine.release(plan), h.engine.drain(0.5)), "ticks"),
    "nothing for a store": (lambda h, _runs, _plan: h.engine.attach(None), "expected a store"),
    "nothing for a snapshot": (lambda h, _runs, _plan: h.engine.restore(None), "snapshot of this engine"),
    "facts without a poll": (
        lambda h, _runs, plan: (h.engine.release(plan), h.engine.proceed(np.zeros(9, np.int64))), "poll"),
    "facts in a visit": (lambda h, _runs, _plan: h.engine.proceed(np.zeros(9, np.int64)), "visit"),
}  # fmt: skip


@pytest.mark.parametrize(("call", "says"), WRONG.values(), ids=WRONG)
def test_a_wrong_argument_is_named_and_nothing_is_done(hand: Build, call: Call, says: str) -> None:
    """While one request runs and another is visited; both go on afterwards."""
    h = hand()
    runs = h.arrive("runs", h.prompt(2, 1), new=20)
    h.admit(runs)
    h.compute(runs)
    waits = h.arrive("waits", h.prompt(2, 2))
    plan = h.engine.select(waits, 100)
    assert isinstance(plan, Plan)
    before, alive, digest = h.books(), h.engine.stats().live_machines, h.core.tree.digest()
    with pytest.raises(Misuse, match=says):
        call(h, runs, plan)
    assert (before, alive, digest) == (h.books(), h.engine.stats().live_machines, h.core.tree.digest())
    if h.core.visits:
        h.engine.release(plan)
    h.tick(2)
    h.engine.extend(runs, 1, [7])
    h.engine.finish(runs)
    h.serve(waits)


WRONG_PARTS: dict[str, tuple[dict[str, Any], str]] = {
    "a dict for a configuration": ({"config": {"page_size": 16}}, "config.*EngineConfig"),
    "a number for coordinates": ({"at": 3}, "at.*RankCoordinates"),
    "a name for a group": ({"group": "tensor"}, "group with size and exchange"),
    "a name for copies": ({"copies": "cuda"}, "copies with sent and poll"),
    "a path for a sink": ({"sink": "audit.jsonl"}, "sink to be a function"),
    "a page for a delivery": ({"deliver": 4}, "deliver to be a function"),
    "a log for a listener": ({"on_violation": "log"}, "on_violation to be a function"),
}


@pytest.mark.parametrize(("wrong", "says"), WRONG_PARTS.values(), ids=WRONG_PARTS)
def test_an_engine_is_not_built_from_the_wrong_things(wrong: dict[str, Any], says: str) -> None:
    """It says so at once, not in the middle of its first ticks."""
    with pytest.raises(Misuse, match=f"Engine: expected {says}"):
        Engine(**{"config": small_config(), **wrong})


@pytest.mark.parametrize("moves", ["yes", np.bool_(True), 1, []])
def test_whether_retries_are_paced_is_asked_in_any_words(hand: Build, moves: Any) -> None:
    """As Python does; no tick breaks over it."""
    h = hand()
    h.engine.tick(advance_retries=moves)
    h.engine.proceed(h.engine.poll(), advance_retries=moves)
    h.tick()


def test_ids_are_given_with_room_for_them(hand: Build) -> None:
    """An id further on than there are slots would be the key of bytes that are nowhere."""
    h = hand()
    a = h.arrive("a", h.prompt(2), new=4)
    h.admit(a)
    with pytest.raises(Misuse, match="there is room up to token 4"):
        h.engine.extend(a, 4, [7])
    h.compute(a)
    h.engine.extend(a, 1, [7])


def test_a_second_detach_is_told_that_nothing_is_in_use(hand: Build) -> None:
    """While the first runs out, and when it has."""
    h = hand()
    h.engine.detach()
    for _ in range(2):
        with pytest.raises(Misuse, match="no store is in use"):
            h.engine.detach()
        h.tick(2)


CALLS: dict[str, Call] = {
    "tick": lambda h, _runs, _plan: h.engine.tick(),
    "poll": lambda h, _runs, _plan: h.engine.poll(),
    "proceed": lambda h, _runs, _plan: h.engine.proceed(np.zeros(9, np.int64)),
    "arrive": lambda h, _runs, _plan: h.engine.arrive("z", [1], NAMESPACE, 1),
    "select": lambda h, _runs, plan: h.engine.select(plan.handle, 1),
    "commit": lambda h, _runs, plan: h.engine.commit(plan),
    "would_deliver": lambda h, _runs, plan: h.engine.would_deliver(plan),
    "release": lambda h, _runs, plan: h.engine.release(plan),
    "extend": lambda h, runs, _plan: h.engine.extend(runs, 1),
    "publish": lambda h, runs, _plan: h.engine.publish(runs, 1),
    "finish": lambda h, runs, _plan: h.engine.finish(runs),
    "retract": lambda h, runs, _plan: h.engine.retract(runs),
    "abort": lambda h, runs, _plan: h.engine.abort(runs),
    "attach": lambda h, _runs, _plan: h.engine.attach(SimulatedStore()),
    "detach": lambda h, _runs, _plan: h.engine.detach(),
    "flush": lambda h, _runs, _plan: h.engine.flush(),
    "drain": lambda h, _runs, _plan: h.engine.drain(1),
    "snapshot": lambda h, _runs, _plan: h.engine.snapshot(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_nothing_can_be_done_with_a_closed_engine(hand: Build, call: Call) -> None:
    """But looking at it, and closing it again."""
    h = hand()
    runs = h.arrive("runs", h.prompt(2, 1))
    h.admit(runs)
    plan = h.engine.select(h.arrive("waits", h.prompt(2, 2)), 100)
    saved = h.engine.snapshot()
    h.engine.close()
    with pytest.raises(Misuse):
        call(h, runs, plan)
    with pytest.raises(Misuse, match="closed"):
        h.engine.restore(saved)
    assert AttachmentState.CLOSED is h.engine.attachment


def test_a_closed_engine_without_a_tier_does_not_tick_either(hand: Build) -> None:
    """Though its ticks do nothing."""
    h = hand(store=None, staging_pages=0)
    h.tick()
    h.engine.close()
    with pytest.raises(Misuse, match="closed"):
        h.tick()


def test_a_snapshot_is_good_for_its_own_engine_alone(hand: Build) -> None:
    """Another one, of the same configuration, is left as it was."""
    one, two = hand(), hand()
    one.arrive("a", one.prompt(4))
    saved = one.engine.snapshot()
    with pytest.raises(Misuse, match="of this engine"):
        two.engine.restore(saved)
    two.tick()
    one.engine.restore(saved)


WRONG_FACTS: dict[str, Callable[[Any], Any]] = {
    "none": lambda facts: None,
    "too few": lambda facts: facts[:-1],
    "two rows": lambda facts: facts.reshape(1, -1),
    "halves": lambda facts: facts.astype(float),
}


@pytest.mark.parametrize("wrong", WRONG_FACTS.values(), ids=WRONG_FACTS)
def test_facts_that_no_group_can_have_agreed_on_are_refused(hand: Build, wrong: Callable[[Any], Any]) -> None:
    """And the pass goes on with the right ones."""
    h = hand()
    facts = h.engine.poll()
    with pytest.raises(Misuse, match="expected the agreed facts"):
        h.engine.proceed(wrong(facts))
    with pytest.raises(Misuse, match="has not ended"):
        h.tick()
    h.engine.proceed(facts.copy())
    h.tick()


def test_a_sink_that_raises_is_heard_and_the_engine_goes_on(hand: Build) -> None:
    """The block that it was given is the last one, the chain goes on from there, and the pass is over."""
    blocks: list[Block] = []
    full = [False]

    def sink(block: Block) -> None:
        if full[0]:
            raise OSError(28, "No space left on device")
        blocks.append(block)

    h = hand(engine_options={"sink": sink})
    handle = h.arrive("a", h.prompt(4))
    full[0] = True
    with pytest.raises(OSError, match="No space"):
        h.tick()
    full[0] = False
    last = h.engine.last_block()
    assert last is not None
    blocks.append(last)
    h.tick(3)
    h.serve(handle)
    h.engine.close()
    assert [block.digest for block in blocks[:-1]] == [block.previous for block in blocks[1:]]


def test_a_sink_that_raises_at_the_end_keeps_nothing_open(hand: Build) -> None:
    """The store is closed, and nobody owns anything."""

    def sink(_block: Block) -> None:
        raise OSError(28, "No space left on device")

    h = hand()
    h.arrive("a", h.prompt(4))
    h.core.journal.sink = sink
    with pytest.raises(OSError, match="No space"):
        h.engine.close()
    assert h.store._closed
    h.engine.close()


def test_a_delivery_that_raises_leaves_the_visit_open(hand: Build) -> None:
    """It can be committed again, or given up."""
    answers: list[Any] = [OSError("not now"), None]

    def deliver(hold: Any, _live: int, _promised: int) -> Any:
        answer = answers.pop() if answers else hold.last
        if isinstance(answer, OSError):
            raise answer
        return answer

    h = hand(engine_options={"deliver": deliver})
    h.put(h.prompt(4))
    a = h.arrive("a", h.prompt(4))
    h.until_state(a, RequestState.STAGED)
    h.tick(3)
    plan = h.engine.select(a, 1_000)
    with pytest.raises(Misuse, match="the page reached"):
        h.engine.commit(plan)
    with pytest.raises(OSError, match="not now"):
        h.engine.commit(plan)
    assert 4 * 16 == h.engine.commit(plan).store_hit_tokens


# A pass that is cut short


class Interrupted(SimulatedStore):
    """The person at the keyboard gives up while the engine asks this store for news."""

    now = False

    def poll(self, tick: int) -> Any:
        if self.now:
            self.now = False
            raise KeyboardInterrupt
        return super().poll(tick)


class Broken:
    """Copies of which nobody will ever hear."""

    def sent(self, number: int, tick: int) -> None:
        raise OSError("the stream is gone")

    def poll(self, tick: int) -> list[int]:
        return []


class Alone:
    """A group whose other ranks do not answer."""

    size = 2
    silent = False

    def exchange(self, facts: Any) -> Any:
        if self.silent:
            raise TimeoutError("rank 1 is silent")
        return facts.copy()


def interrupted(hand: Build) -> tuple[Hand, type[BaseException]]:
    h = hand(store=Interrupted())
    h.store.now = True
    return h, KeyboardInterrupt


def without_a_stream(hand: Build) -> tuple[Hand, type[BaseException]]:
    h = hand(engine_options={"copies": Broken()})
    h.run("before", h.prompt(4, 9))
    return h, OSError


def without_a_group(hand: Build) -> tuple[Hand, type[BaseException]]:
    group = Alone()
    h = hand(engine_options={"group": group})
    group.silent = True
    return h, TimeoutError


CUT = {"an interrupt": interrupted, "a stream that is gone": without_a_stream, "a silent rank": without_a_group}


@pytest.mark.parametrize("cut", CUT.values(), ids=CUT)
def test_a_pass_that_was_cut_short_leaves_an_engine_to_be_closed(
    hand: Build, cut: Callable[[Build], tuple[Hand, type[BaseException]]]
) -> None:
    """Each further tick says so; closing gives back the store, whatever was half done."""
    h, error = cut(hand)
    h.arrive("a", h.prompt(4))
    with pytest.raises(error):
        h.tick(3)
    for _ in range(2):
        with pytest.raises(Misuse, match="close this engine"):
            h.tick()
    h.engine.close()
    assert h.store._closed
    h.core.ledger.entries.clear()  # nobody can say any more whose they were: that is what `cut short` means
    h.core.ledger.totals.clear()
    for machines in (h.core.requests, h.core.holds, h.core.writes):
        machines.clear()


def test_a_snapshot_brings_back_what_was_interrupted(hand: Build) -> None:
    """The engine goes on from there as if nothing had been."""
    h = hand(store=Interrupted())
    a = h.arrive("a", h.prompt(4))
    saved = h.engine.snapshot()
    h.store.now = True
    with pytest.raises(KeyboardInterrupt):
        h.tick()
    with pytest.raises(Misuse, match="tick was cut short"):
        h.arrive("b", h.prompt(4))
    h.engine.restore(saved)
    h.tick(8)
    h.serve(a)


def test_figures_can_be_read_in_the_middle_of_a_step(hand: Build) -> None:
    """As by another thread: half a record stands there, and a request goes while the others are looked at."""
    h = hand()
    h.arrive("a", h.prompt(4))
    before = h.engine.stats().counters

    class Leaving:
        @property
        def issues(self) -> int:
            h.core.requests.pop(-1, None)
            return 0

    h.core.journal.records.append(bytes(4))
    h.core.requests |= {-1: Leaving(), -2: Leaving()}  # type: ignore[dict-item]
    assert before == h.engine.stats().counters
    del h.core.requests[-2]
    assert bytes(4) == h.core.journal.records.pop()
