"""A window that gates no match is left out of a hold where staging has no place for it, and at no later moment."""

from __future__ import annotations

import pytest

from stagehold import AdmissionOutcome, Namespace, RequestState
from stagehold.cache.components.full import FULL
from stagehold.specs.hold import HoldState


def windowless(mixed, **parts):
    """An engine whose windows gate no match; staging holds two of them."""
    return mixed("w", parts={"gates": False, "staging": 6, **parts})


def fetched(h, family: int, *, believed: bool = True):
    """A request whose hold of pages [0, 8) has been fetched."""
    tokens = h.prompt(10, family)
    h.put_all(tokens, 0, 8)
    if believed:
        h.believe(tokens, 5, 8, "swa")
    handle = h.arrive(f"r{family}", tokens)
    h.until_state(handle, RequestState.STAGED)
    h.until(lambda: h.hold_of(handle).state is HoldState.READY)
    return handle, tokens


def test_a_window_that_is_believed_stored_is_fetched(mixed):
    """It is brought whole, and the splice publishes it."""
    h = windowless(mixed)
    a, tokens = fetched(h, 1)
    assert {"swa": 5} == {name: one.first for name, one in h.hold_of(a).data.parts.items()}
    assert 8 * 16 == h.admit(a).hit_tokens
    assert [h.stored_byte("swa", page) for page in range(5, 8)] == h.shown(tokens, 5, 8, "swa")


def test_one_that_nobody_has_heard_of_is_not(mixed):
    """A lookup asks for what gates a match, and no more."""
    h = windowless(mixed)
    a, tokens = fetched(h, 1, believed=False)
    assert {} == h.hold_of(a).data.parts
    assert 8 * 16 == h.admit(a).hit_tokens
    assert [] == h.core.tree.resident(h.chain(tokens), 0, 8, "swa")


def test_at_io_commit_the_hold_is_declared_without_what_has_no_staging(mixed):
    """Two windows fill staging; the third hold is of FULL alone, and waits for nobody."""
    h = windowless(mixed)
    holders = [fetched(h, family)[0] for family in (1, 2)]
    a, tokens = fetched(h, 3)
    assert ({}, 8) == (h.hold_of(a).data.parts, len(h.hold_of(a).data.staging))
    assert [3, 3] == [len(h.hold_of(handle).data.parts["swa"].staging) for handle in holders]
    admission = h.admit(a)
    assert 8 * 16 == admission.store_hit_tokens
    assert [h.stored_byte(FULL, page) for page in range(8)] == h.shown(tokens, 0, 8)
    assert [] == h.core.tree.resident(h.chain(tokens), 0, 8, "swa")
    assert (-1,) * 8 == h.engine.page_slots(a, "swa")
    h.tick()
    assert (8 * 16, {}) == (h.engine.stats().spliced, h.engine.stats().losses)


def test_a_window_that_gates_waits_for_staging(mixed):
    """Without it the hold could not be joined."""
    h = windowless(mixed, gates=True)
    for family in (1, 2):
        fetched(h, family)
    tokens = h.prompt(10, 3)
    h.put_all(tokens, 0, 8)
    a = h.arrive("a", tokens)
    h.tick(4)
    assert (HoldState.PARKED, {"swa": 5}) == (
        h.hold_of(a).state, {name: one.first for name, one in h.hold_of(a).data.parts.items()}
    )  # fmt: skip


@pytest.mark.parametrize("gates", [True, False])
def test_at_commit_a_hold_delivers_all_that_it_declared(mixed, gates):
    """With no slots for its window the commit is put off: nothing is left out any more."""
    h = windowless(mixed, gates=gates)
    a, tokens = fetched(h, 1)
    stock = h.core.stocks.by_name["swa"]
    taken = h.core.allocate(stock, h.core.room_of(stock) - 9)
    assert AdmissionOutcome.DEFERRED is h.visit(a).outcome
    assert {"swa": 3} == {name: len(one.staging) for name, one in h.hold_of(a).data.parts.items()}
    stock.device.free(taken)
    assert 8 * 16 == h.admit(a).hit_tokens
    assert [h.stored_byte("swa", page) for page in range(5, 8)] == h.shown(tokens, 5, 8, "swa")


def test_a_fetch_that_brings_no_whole_window_brings_nothing(mixed):
    """What was believed is forgotten, and the next hold is of FULL alone."""
    h = windowless(mixed)
    tokens = h.prompt(10)
    h.put(tokens, 0, 8)
    h.believe(tokens, 5, 8, "swa")
    a = h.arrive("a", tokens)
    h.until(lambda: h.taken("hold.fetching.fetched.NOTHING") == 1)
    assert {"failed": 8 * 16} == h.engine.stats().losses
    h.until_state(a, RequestState.STAGED)
    assert {} == h.hold_of(a).data.parts
    h.until(lambda: h.hold_of(a).state is HoldState.READY)
    assert 8 * 16 == h.admit(a).store_hit_tokens


def test_a_window_that_another_tenant_is_guaranteed_is_left_out(mixed):
    """Staging has room for two windows, and one of them is another tenant's."""
    h = mixed("w", parts={"gates": False, "staging": 6}, tenant_share=0.5)
    h.arrive("guest", h.prompt(1, 99), namespace=Namespace("another tenant"))
    first, second = (fetched(h, family)[0] for family in (1, 2))
    assert (["swa"], []) == (list(h.hold_of(first).data.parts), list(h.hold_of(second).data.parts))


@pytest.mark.parametrize(("share", "last"), [(0.0, 28), (0.5, 20)])
def test_a_span_that_all_components_restore_ends_where_its_tenant_can_have_it(mixed, share, last):
    """28 pages are stored, with all windows; half of what staging has room for is another tenant's."""
    h = mixed("w", tenant_share=share, load_limit_fraction=1.0)
    h.arrive("guest", h.prompt(1, 99), namespace=Namespace("another tenant"))
    h.put_all(h.prompt(28))
    handle = h.arrive("r", h.prompt(28))
    h.until_state(handle, RequestState.STAGED)
    assert h.hold_of(handle).data.last == last
    h.until(lambda: h.hold_of(handle).state is HoldState.READY)
    assert h.admit(handle).hit_tokens == last * 16
