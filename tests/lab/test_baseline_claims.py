"""What SGLang's buffer mode did before its pull requests 36834 and 39283 happens to *blind*, and not to *live*.

Every case is one situation that two engines are put into, by the same hand; they differ by their policy alone. What
is counted is what the store was asked for and what a request was given, not what the engine says of itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stagehold import Admission, AdmissionOutcome, RequestState
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.lab.policies.policy import Policy
from stagehold.lab.policies.shipped import BLIND, LIVE, PACED
from stagehold.specs.hold import HoldState
from stagehold.testing.hand import AT_ONCE, Hand

PAGE = 16
BY = {policy.name: policy for policy in (BLIND, PACED, LIVE)}


class Counted(SimulatedStore):
    """Counts the pages that it was told to read, and the lookups."""

    pages, lookups = 0, 0

    def get_into(self, ticket: int, keys: Any, buffers: Any, tick: int) -> None:
        self.pages += len(keys)
        super().get_into(ticket, keys, buffers, tick)

    def exists(self, ticket: int, keys: Any, tick: int) -> None:
        self.lookups += 1
        super().exists(ticket, keys, tick)


Built = Callable[..., Hand]


@pytest.fixture
def under(hand: Callable[..., Hand]) -> Built:
    """An engine of a policy, over a store that counts, with a byte for each page."""

    def build(policy: Policy, **settings: Any) -> Hand:
        store = Counted(delays=AT_ONCE)
        options = {"machines": policy.machines}
        h = hand(store=store, engine_options=options, parts=1, page_part_bytes=8, **{**settings, **policy.settings})
        store.pages = store.lookups = 0
        return h

    return build


def phantom_pages(h: Hand, admission: Admission) -> int:
    """Pages that were counted as hits and do not hold what others have stored or computed there."""
    assert len(admission.slots) * PAGE == admission.hit_tokens
    held = h.core.bytes["full"].device.tensor
    device = admission.device_hit_tokens // PAGE
    return sum(int(held[0, slot, 0]) != page + 1 for page, slot in enumerate(admission.slots) if page >= device)


def shrunk(h: Hand) -> Admission:
    """The store has pages 4 to 8, the device has 4, and then only 2 when the bytes have come."""
    tokens = h.prompt(8)
    h.put(tokens)
    h.grow(tokens, 4)
    a = h.arrive("a", tokens)
    h.tick(3)
    h.shrink(tokens, 2)
    for _ in range(100):
        found = h.visit(a)
        if isinstance(found, Admission) and found.admitted:
            return found
        h.tick()
    raise AssertionError("it was not admitted in 100 passes")


def test_hits_are_charged_that_nobody_delivered(under: Built) -> None:
    """*blind* charges the six pages that the plan promised, and has loaded none; *live* loads what it charges."""
    blind, live = under(BLIND), under(LIVE, pin_fraction=0.0)
    ahead, right = shrunk(blind), shrunk(live)
    assert (6 * PAGE, 6) == (ahead.store_hit_tokens, phantom_pages(blind, ahead))
    assert (6 * PAGE, 0) == (right.store_hit_tokens, phantom_pages(live, right))


def test_a_prefix_that_has_grown_spoils_the_whole_hold(under: Built) -> None:
    """One page more on the device: *blind* drops the three that are still missing, *live* joins them."""

    def grown(h: Hand) -> Admission:
        tokens = h.prompt(8)
        h.put(tokens)
        h.grow(tokens, 4)
        a = h.arrive("a", tokens)
        h.tick(3)
        h.grow(tokens, 5)
        return h.admit(a)

    blind, live = under(BLIND), under(LIVE)
    spoilt, joined = grown(blind), grown(live)
    assert (4, 4) == (blind.store.pages, live.store.pages)
    assert (3, 0) == (phantom_pages(blind, spoilt), phantom_pages(live, joined))
    assert (8 * PAGE, 5 * PAGE) == (joined.hit_tokens, joined.device_hit_tokens)


@pytest.mark.parametrize(("name", "dropped"), [("blind", 400), ("paced", 0), ("live", 0)])
def test_spans_are_read_and_dropped_by_the_hundred(under: Built, name: str, dropped: int) -> None:
    """A hundred prefixes are evicted between question and fetch, as far as nobody keeps them.

    *blind* reads four pages for each of them all the same, and can join none. *live* reads nothing for a prefix that
    has gone, and *paced* has pinned it.
    """
    h = under(BY[name])
    used = 0
    for number in range(100):
        tokens = h.prompt(8, number + 1)
        h.put(tokens, 4, 8)
        h.grow(tokens, 4)
        a = h.arrive(f"r{number}", tokens)
        h.tick()
        h.shrink(tokens, 0)
        h.tick(3)
        found = h.visit(a)
        if isinstance(found, Admission) and found.admitted:
            used += found.store_hit_tokens // PAGE - phantom_pages(h, found)
        h.engine.abort(a)
        h.tick()
    assert dropped == h.store.pages - used
    assert (400 if name == "paced" else 0) == used


def test_retries_have_no_bound(under: Built) -> None:
    """Six hundred passes, nothing stored: *blind* has asked sixty times and goes on, *live* never more than nine."""

    def asked(policy: Policy, ticks: int) -> int:
        h = under(policy)
        h.arrive("a", h.prompt(8))
        h.tick(ticks)
        return int(h.store.lookups)

    assert [9, 9] == [asked(LIVE, 700), asked(LIVE, 1400)]
    assert [9, 9] == [asked(PACED, 300), asked(PACED, 600)]
    blind = [asked(BLIND, 300), asked(BLIND, 600)]
    assert 30 <= blind[0] <= blind[1] - 30


def visited_in_order(h: Hand, waiting: list[Any]) -> list[Any]:
    """One pass of a scheduler that stops at the first request for which the device has no room; who was admitted."""
    admitted = []
    for handle in waiting:
        found = h.visit(handle)
        if isinstance(found, Admission):
            if found.admitted:
                admitted.append(handle)
            elif found.outcome in (AdmissionOutcome.NO_ROOM, AdmissionOutcome.DEFERRED):
                break
    return admitted


@pytest.mark.parametrize(("name", "passes"), [("blind", None), ("live", 1)])
def test_a_hold_that_cannot_be_used_wedges_admission(under: Built, name: str, passes: int | None) -> None:
    """A large request's prefix went while its bytes came, and without them there is no room for it.

    Under *blind* it keeps its hold and is looked at first in every pass, so that nobody behind it is admitted for as
    long as the others run. Under *live* it gives the hold back and is passed over, and the small one behind it runs.
    """
    h = under(BY[name], device_pages=40, staging_pages=40, pin_fraction=0.0)
    tokens = h.prompt(20)
    h.put(tokens)
    h.grow(tokens, 8)
    large = h.arrive("large", tokens, new=16)
    h.tick(3)
    h.shrink(tokens, 0)
    h.tick()
    runs = h.arrive("runs", h.prompt(26, 500))
    h.admit(runs)
    small = h.arrive("small", h.prompt(4, 400))
    found = None
    for number in range(1, 101):
        if small in visited_in_order(h, [large, small]):
            found = number
            break
        h.tick()
    assert passes == found
    if passes is None:
        assert RequestState.STAGED is h.engine.state_of(large)
        assert h.books()["staging"] >= 12
        h.engine.finish(runs)
        assert large in visited_in_order(h, [large, small]), "it was room that it waited for"


def test_a_finished_hold_waits_for_ever(under: Built) -> None:
    """Five requests that nobody visits fill staging; a sixth wants some.

    Under *blind* nothing of it is ever free, and the sixth does not begin. Under *live* what was
    not used in time is given back, and the sixth has its bytes.
    """

    def served(policy: Policy) -> tuple[int, bool]:
        h = under(
            policy, staging_pages=40, load_limit_fraction=1.0, retry_max_reissues=0, ready_limit=200, park_limit=600
        )
        for number in range(5):
            h.put(h.prompt(8, number))
            h.arrive(f"r{number}", h.prompt(8, number))
        h.tick(100)
        h.put(h.prompt(8, 9))
        last = h.arrive("last", h.prompt(8, 9))
        seen = set()
        for _ in range(400):
            h.tick()
            hold = h.machine(last).data.hold
            seen.add(h.core.holds[hold].state if hold else None)
        return h.store.pages, HoldState.READY in seen

    assert ((40, False), (48, True)) == (served(BLIND), served(LIVE))


def test_paced_pins_while_the_question_is_on_its_way(under: Built) -> None:
    """The prefix cannot be evicted from the launch on, and can be again once the answer was no."""
    kept_pages = {}
    for name in ("paced", "live"):
        h = under(BY[name])
        tokens = h.prompt(8)
        h.grow(tokens, 4)
        h.store.stall()
        a = h.arrive("a", tokens)
        h.tick()
        assert RequestState.LOOKUP is h.engine.state_of(a)
        h.shrink(tokens, 0)
        kept_pages[name] = h.live(tokens)
        h.store.release()
        h.until_state(a, RequestState.RETRY)
        h.shrink(tokens, 0)
        assert 0 == h.live(tokens)
    assert {"paced": 4, "live": 0} == kept_pages
