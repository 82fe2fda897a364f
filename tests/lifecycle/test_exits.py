"""Every state of a request, and every way out of it: abort, flush, detach, close, retract."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from stagehold import AttachmentState, Handle, Misuse, RequestState, UnknownHandle
from stagehold.specs.hold import HoldState
from stagehold.testing.hand import AT_ONCE, NAMESPACE, SLOW_GETS, Hand

S = RequestState


def queued(h: Hand) -> Handle:
    return h.arrive("r", h.prompt(8))


def lookup(h: Hand) -> Handle:
    h.store.stall()
    handle = queued(h)
    h.tick()
    return handle


def parked(h: Hand) -> Handle:
    """The cap is taken by another hold's pin, so this one's parks."""
    for name, family in (("other", 2), ("r", 1)):
        tokens = h.prompt(8, family)
        h.put(tokens)
        h.grow(tokens, 3)
        handle = h.arrive(name, tokens)
        h.tick(2)
    assert HoldState.PARKED is h.hold_of(handle).state
    return handle


def fetching(h: Hand) -> Handle:
    h.put(h.prompt(8))
    h.grow(h.prompt(8), 2)
    handle = queued(h)
    h.tick(2)
    assert HoldState.FETCHING is h.hold_of(handle).state
    return handle


def ready(h: Hand) -> Handle:
    h.store._delays = AT_ONCE
    handle = fetching(h)
    h.tick()
    assert HoldState.READY is h.hold_of(handle).state
    return handle


def anchor_locked(h: Hand) -> Handle:
    handle = ready(h)
    h.engine.select(handle, 1000)
    return handle


def covered(h: Hand) -> Handle:
    h.grow(h.prompt(8), 8)
    handle = queued(h)
    h.tick()
    return handle


def retry(h: Hand) -> Handle:
    handle = queued(h)
    h.tick(2)
    return handle


def capped(h: Hand) -> Handle:
    handle = ready(h)
    h.engine.flush()
    return handle


def committed(h: Hand) -> Handle:
    handle = ready(h)
    h.admit(handle)
    return handle


def computed(h: Hand) -> Handle:
    handle = committed(h)
    h.compute(handle)
    return handle


WAYS: dict[str, tuple[Callable[[Hand], Handle], RequestState]] = {
    "queued": (queued, S.QUEUED),
    "lookup": (lookup, S.LOOKUP),
    "parked": (parked, S.STAGED),
    "fetching": (fetching, S.STAGED),
    "ready": (ready, S.STAGED),
    "anchor_locked": (anchor_locked, S.ANCHOR_LOCKED),
    "covered": (covered, S.COVERED),
    "retry": (retry, S.RETRY),
    "capped": (capped, S.CAPPED),
    "committed": (committed, S.COMMITTED),
    "computed": (computed, S.COMMITTED),
}
BUSY = ("anchor_locked", "committed", "computed")


def brought_to(hand, way: str) -> tuple[Hand, Handle]:
    """An engine with a request in that state; everybody else that was needed is aborted again."""
    h = hand(pin_fraction=0.08, delays=SLOW_GETS)
    arrange, state = WAYS[way]
    handle = arrange(h)
    assert state is h.engine.state_of(handle)
    return h, handle


def settled(h: Hand) -> dict[str, int]:
    """What is owned once all IO has ended."""
    h.store._delays = AT_ONCE
    h.store.release()
    for other in list(h.engine._roster.alive.values()):
        h.engine.abort(other.data.handle)
    h.until(lambda: not h.core.operations.live and not h.core.writes)
    h.tick()
    return h.books()


@pytest.mark.parametrize("way", WAYS)
def test_abort_is_legal_everywhere_and_leaves_nothing_owned(hand, way):
    """The request is over at once; IO in flight keeps its buffer, and gives it back when it ends."""
    h, handle = brought_to(hand, way)
    number = h.machine(handle).number
    h.engine.abort(handle)
    assert frozenset() == h.core.ledger.owned(number)
    with pytest.raises(UnknownHandle):
        h.engine.state_of(handle)
    assert {} == settled(h)
    assert 0 == h.engine.stats().live_machines
    assert h.core.room() == h.config.device_pages


@pytest.mark.parametrize("way", WAYS)
def test_an_aborted_request_can_arrive_again(hand, way):
    """Under the next attempt, with a fresh life."""
    h, handle = brought_to(hand, way)
    h.engine.abort(handle)
    again = h.arrive("r", h.prompt(8))
    assert (handle.attempt + 1, S.QUEUED) == (again.attempt, h.engine.state_of(again))
    h.until(lambda: getattr(h.visit(again), "admitted", False), 60)


@pytest.mark.parametrize("way", WAYS)
def test_a_second_abort_names_the_handle(hand, way):
    """Giving back twice is refused where it starts."""
    h, handle = brought_to(hand, way)
    h.engine.abort(handle)
    with pytest.raises(UnknownHandle, match="'r'"):
        h.engine.abort(handle)
    h.tick()


@pytest.mark.parametrize("way", WAYS)
def test_close_ends_a_request_in_any_state(hand, way):
    """Nothing is owned afterwards; the fixture looks again."""
    h, _ = brought_to(hand, way)
    h.engine.close()
    assert {} == h.engine.stats().owned
    assert 0 == h.engine.stats().live_machines
    assert AttachmentState.CLOSED is h.engine.attachment
    assert h.core.device.free_count + h.core.tree.total == h.config.device_pages


@pytest.mark.parametrize("way", WAYS)
def test_flush_is_refused_while_something_runs_and_drops_the_rest(hand, way):
    """Holds are dropped and the tree is empty; requests that wait stay, and are admitted without the store."""
    h, handle = brought_to(hand, way)
    if way in BUSY:
        with pytest.raises(Misuse, match=r"visit is open|committed"):
            h.engine.flush()
        assert WAYS[way][1] is h.engine.state_of(handle)
        return
    h.engine.flush()
    staged = way in ("parked", "fetching", "ready")
    assert (S.CAPPED if staged else WAYS[way][1]) is h.engine.state_of(handle)
    assert (0, 0) == (h.core.tree.total, h.core.tree.pinned)
    if staged:
        assert h.engine.stats().losses["dropped"] > 0
    h.tick()


@pytest.mark.parametrize("way", WAYS)
def test_detach_is_refused_in_a_visit_and_ends_all_use_of_the_store(hand, way):
    """Holds are dropped at once, their IO runs out, and every request is admitted with what the device holds."""
    h, handle = brought_to(hand, way)
    if way == "anchor_locked":
        with pytest.raises(Misuse, match="visit is open"):
            h.engine.detach()
        return
    h.engine.detach()
    assert AttachmentState.DRAINING is h.engine.attachment
    h.tick()
    h.store.release()
    h.until(lambda: h.engine.attachment is AttachmentState.DETACHED, 200)
    if WAYS[way][1] is not S.COMMITTED:
        assert h.admit(handle).store_hit_tokens == 0
    h.engine.abort(handle)
    for other in list(h.engine._roster.alive.values()):
        h.engine.abort(other.data.handle)
    h.tick()
    assert {} == h.engine.stats().owned


@pytest.mark.parametrize("way", [way for way in WAYS if WAYS[way][1] is not S.COMMITTED])
@pytest.mark.parametrize("call", ["finish", "retract"])
def test_only_a_committed_request_finishes_or_is_retracted(hand, way, call):
    """Any other is named with its state, and nothing changes."""
    h, handle = brought_to(hand, way)
    with pytest.raises(Misuse, match=WAYS[way][1].name.lower()):
        getattr(h.engine, call)(handle)
    assert WAYS[way][1] is h.engine.state_of(handle)


@pytest.mark.parametrize("way", ["committed", "computed"])
def test_a_retraction_gives_back_slots_and_keeps_what_was_published(hand, way):
    """The next attempt finds it in the tree."""
    h, handle = brought_to(hand, way)
    published = h.machine(handle).data.published
    again = h.engine.retract(handle)
    assert (handle.attempt + 1, S.QUEUED) == (again.attempt, h.engine.state_of(again))
    assert published == h.live(h.prompt(8)) == 8
    h.until(lambda: h.core.room() == h.config.device_pages, 5)
    assert 128 == h.admit(again).hit_tokens


def test_a_finish_publishes_every_whole_page_of_known_tokens(hand):
    """Decoded tokens whose ids were given, too."""
    h = hand(store=None)
    tokens = h.prompt(3, tail=8)
    a = h.arrive("a", tokens, new=16)
    h.admit(a)
    h.engine.extend(a, len(tokens))
    for step in range(15):
        h.engine.extend(a, 1, [7_000 + step])
    h.engine.finish(a)
    assert 4 == h.core.tree.total
    assert h.core.room() == h.config.device_pages


def test_a_flush_is_refused_while_a_load_is_in_flight(hand):
    """Its pages are under IO at both ends."""
    h = hand()
    h.put(h.prompt(8))
    a = h.arrive("a", h.prompt(8))
    h.tick(3)
    h.admit(a)
    h.engine.abort(a)
    with pytest.raises(Misuse, match="1 holds load"):
        h.engine.flush()
    h.tick()
    h.engine.flush()
    assert 0 == h.core.tree.total


def test_a_flush_is_refused_while_a_write_copies(hand):
    """The device pages are its source."""
    h = hand()
    h.run("a", h.prompt(8))
    h.tick()
    with pytest.raises(Misuse, match="writes copy"):
        h.engine.flush()
    h.tick()
    h.engine.flush()


def test_everything_but_close_is_refused_after_close(hand):
    """And a second close does nothing."""
    h = hand()
    h.engine.close()
    for call in (h.engine.tick, h.engine.flush, h.engine.detach, lambda: h.arrive("a", h.prompt(2))):
        with pytest.raises(Misuse, match="closed"):
            call()
    h.engine.close()


def test_a_request_id_that_is_alive_cannot_arrive_again(hand):
    """One live handle for each id, so that no timer can be orphaned."""
    h = hand()
    h.arrive("a", h.prompt(2))
    with pytest.raises(Misuse, match="'a' is alive"):
        h.arrive("a", h.prompt(2))


def test_a_request_larger_than_the_largest_is_refused_with_the_arithmetic(hand):
    """No such request could be promised its pages."""
    h = hand(largest_request_tokens=100)
    with pytest.raises(Misuse, match=r"97 \+ 4 tokens are 101.*100"):
        h.arrive("a", h.prompt(6), new=4)


@pytest.mark.parametrize(("tokens", "new"), [([], 1), ([1, 2], 0)])
def test_an_empty_request_is_refused(hand, tokens, new):
    """At least one token to compute, and one to answer."""
    h = hand()
    with pytest.raises(Misuse, match="at least one prompt token"):
        h.engine.arrive("a", tokens, NAMESPACE, new)
