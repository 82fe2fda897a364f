"""One thread, one call at a time: a breach raises at once, names both sides, and changes nothing."""

from __future__ import annotations

import threading

import pytest

from stagehold import Misuse, Namespace, Reentered, WrongThread
from stagehold.testing.hand import NAMESPACE

MUTATING = {
    "tick": lambda h, plan: h.engine.tick(),
    "poll": lambda h, plan: h.engine.poll(),
    "arrive": lambda h, plan: h.engine.arrive("z", [1, 2, 3], NAMESPACE, 1),
    "select": lambda h, plan: h.engine.select(plan.handle, 10),
    "commit": lambda h, plan: h.engine.commit(plan),
    "release": lambda h, plan: h.engine.release(plan),
    "extend": lambda h, plan: h.engine.extend(plan.handle, 1),
    "publish": lambda h, plan: h.engine.publish(plan.handle, 1),
    "finish": lambda h, plan: h.engine.finish(plan.handle),
    "retract": lambda h, plan: h.engine.retract(plan.handle),
    "abort": lambda h, plan: h.engine.abort(plan.handle),
    "attach": lambda h, plan: h.engine.attach(h.store),
    "detach": lambda h, plan: h.engine.detach(),
    "flush": lambda h, plan: h.engine.flush(),
    "drain": lambda h, plan: h.engine.drain(1),
    "close": lambda h, plan: h.engine.close(),
    "snapshot": lambda h, plan: h.engine.snapshot(),
}


def told(call):
    """What a call raises."""
    try:
        call()
    except Misuse as error:
        return error
    return None


@pytest.mark.parametrize("name", MUTATING)
def test_a_call_from_another_thread_names_both_threads(hand, name):
    """And the engine is as it was."""
    h = hand()
    plan = h.engine.select(h.arrive("a", h.prompt(4)), 100)
    digest, books = h.engine.digest(), h.books()
    errors = []
    other = threading.Thread(target=lambda: errors.append(told(lambda: MUTATING[name](h, plan))), name="intruder")
    other.start()
    other.join()
    assert isinstance(errors[0], WrongThread)
    for word in (name, "intruder", threading.current_thread().name):
        assert word in str(errors[0])
    assert (digest, books) == (h.engine.digest(), h.books())
    h.engine.release(plan)


@pytest.mark.parametrize("name", MUTATING)
def test_a_call_from_inside_a_tick_names_both_calls(hand, name):
    """A sink may look, and not touch."""
    errors = []
    state = {}

    def sink(_block):
        if "h" in state:
            errors.append(told(lambda: MUTATING[name](state["h"], state["plan"])))

    h = hand(engine_options={"sink": sink})
    plan = h.engine.select(h.arrive("a", h.prompt(4)), 100)
    h.engine.release(plan)
    state.update(h=h, plan=plan)
    h.tick()
    state.clear()
    assert isinstance(errors[0], Reentered)
    assert f"{name}()" in str(errors[0])
    assert "inside tick()" in str(errors[0])


def test_a_store_that_calls_back_is_refused(hand):
    """The engine is inside its own poll then."""
    h = hand()
    seen = []
    inner = h.store.poll
    h.store.poll = lambda tick: (seen.append(told(h.engine.tick)), inner(tick))[1]
    h.tick()
    h.store.poll = inner
    assert isinstance(seen[0], Reentered)


def test_an_engine_may_be_used_again_after_a_breach(hand):
    """The guard is released by an error, too."""
    h = hand()
    with pytest.raises(Misuse):
        h.engine.select(h.arrive("a", h.prompt(4)).__class__("ghost", 0), 10)
    h.tick()


def test_reading_is_allowed_from_anywhere(hand):
    """Metrics may be read by another thread."""
    h = hand()
    seen = []
    other = threading.Thread(target=lambda: seen.append((h.engine.stats().ticks, h.engine.digest())))
    other.start()
    other.join()
    assert [(h.now, h.engine.digest())] == seen


def test_the_engine_belongs_to_the_thread_that_made_it(hand):
    """Not to the first one that calls it."""
    made = []
    other = threading.Thread(target=lambda: made.append(hand(store=None)), name="maker")
    other.start()
    other.join()
    with pytest.raises(WrongThread, match="maker"):
        made[0].engine.tick()
    made[0].engine._thread = threading.current_thread()


def test_unknown_ids_are_refused_before_anything_is_touched(hand):
    """A handle of another engine, or of an old attempt."""
    h = hand()
    a = h.arrive("a", h.prompt(4))
    h.engine.abort(a)
    again = h.engine.arrive("a", [1, 2], Namespace("m"), 1)
    with pytest.raises(Misuse, match="lives as"):
        h.engine.abort(a)
    assert again.attempt == a.attempt + 1
