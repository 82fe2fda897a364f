"""Models with states: every page end is a checkpoint to go on from, from the device, the store, and after a restart."""

from __future__ import annotations

from typing import Any

import pytest

from stagehold.cache.components.full import FULL
from stagehold.cache.components.state import STATE
from stagehold.cache.components.swa import SWA
from stagehold.specs.outcomes import HostMode

PAGE, PAGES, WINDOW_PAGES = 4, 12, 4
MODELS = ("states", "sliding states")
MODES = [
    pytest.param({"host_memory_mode": HostMode.CACHE}, id="cache"),
    pytest.param({"host_memory_mode": HostMode.BUFFER_ONLY, "page_cache_fraction": 0.0}, id="buffer-bare"),
    pytest.param({"host_memory_mode": HostMode.BUFFER_ONLY, "page_cache_fraction": 0.5}, id="buffer-caching"),
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_a_hit_may_end_at_any_page(name: str, mode: Any, bits: Any) -> None:
    """The store has the first pages and their checkpoints. The request begins with the state at the end of its hit."""
    donor = bits.donor(name)
    for pages in range(PAGES + 1):
        tier = bits.tier(donor, chunk=16, **mode)
        tier.give(donor, pages)

        calls = tier.serve("a", donor.tokens)

        windowed = SWA in donor.built.pages
        least = WINDOW_PAGES if windowed and mode["host_memory_mode"] is HostMode.BUFFER_ONLY else 1
        found = pages if pages >= least else 0
        assert (0, found) == tier.hit("a")
        assert not found or donor.page(STATE, found - 1) == tier.opened["a"]
        assert bits.same(donor, calls), f"{pages} pages"
        seen = tier.witness.counts
        assert (0, 0, found + (min(found, WINDOW_PAGES) if windowed else 0)) == (
            seen.wrong, seen.unknown, seen.compared
        )  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_hit_ends_at_the_one_checkpoint_that_is_stored(name: str, bits: Any) -> None:
    """All other pages are there; only this end can be gone on from."""
    donor = bits.donor(name)
    for end in (4, 7, 12):
        tier = bits.tier(donor, chunk=16)
        tier.give(donor, PAGES, components=[one for one in donor.built.pages if one != STATE])
        tier.give(donor, end, end - 1, components=[STATE])

        calls = tier.serve("a", donor.tokens)

        assert (0, end) == tier.hit("a")
        assert donor.page(STATE, end - 1) == tier.opened["a"]
        assert bits.same(donor, calls)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", MODELS)
def test_checkpoints_of_chunks_carry_on_before_and_after_a_restart(name: str, mode: Any, bits: Any) -> None:
    """Chunks of four pages leave checkpoints at 4, 8 and 12; prompts that leave the first one later begin there."""
    donor = bits.donor(name, 16)
    first = bits.tier(donor, chunk=16, **mode)
    first.serve("cold", donor.tokens)
    warm = {rid: first.serve(rid, donor.tokens[:length]) for rid, length in (("8", 43), ("12", 51))}
    first.engine.drain(2_000)
    second = bits.tier(donor, chunk=16, medium=first.medium, **mode)
    restarted = {rid: second.serve(rid, donor.tokens[:length]) for rid, length in (("8", 43), ("12", 51))}

    assert {"8": (8, 0), "12": (12, 0)} == {rid: first.hit(rid) for rid in warm}
    assert {"8": (0, 8), "12": (8, 4)} == {rid: second.hit(rid) for rid in restarted}
    for tier in (first, second):
        assert {rid: donor.page(STATE, int(rid) - 1) for rid in warm} == {rid: tier.opened[rid] for rid in warm}
        assert 0 == tier.witness.counts.wrong == tier.witness.counts.unknown
    assert all(donor.resumed(calls) for calls in (*warm.values(), *restarted.values()))


@pytest.mark.parametrize("name", MODELS)
def test_a_checkpoint_that_was_lost_alone_is_brought_back_alone(name: str, bits: Any) -> None:
    """All pages are on the device, and no checkpoint: the hold has that of the end, and no page of FULL."""
    donor = bits.donor(name)
    tier = bits.tier(donor)
    tier.give(donor, PAGES)
    tier.sibling(donor, PAGES, **({"swa": PAGES} if SWA in donor.built.pages else {}))

    hold = tier.ready("a", donor.tokens)
    assert (PAGES, [], 1) == (hold.base, hold.staging, len(hold.parts[STATE].staging))
    calls = tier.go_on("a")

    assert (0, PAGES) == tier.hit("a")
    assert donor.page(STATE, PAGES - 1) == tier.opened["a"]
    assert tier.holds(donor, STATE, PAGES - 1)
    assert bits.same(donor, calls)


@pytest.mark.parametrize("name", MODELS)
def test_evicted_states_come_back(name: str, bits: Any) -> None:
    """The device forgets everything between two turns of one prompt, whose pages and checkpoints were written."""
    donor = bits.donor(name)
    tier = bits.tier(donor, host_memory_mode=HostMode.BUFFER_ONLY, page_cache_fraction=0.0)
    for rid in ("a", "b", "c"):
        calls = tier.serve(rid, donor.tokens)
        assert bits.same(donor, calls), rid
        tier.forget()

    assert [(0, 0), (0, PAGES), (0, PAGES)] == [tier.hit(rid) for rid in ("a", "b", "c")]
    assert 0 == tier.witness.counts.wrong == tier.witness.counts.unknown


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("fault", ["not loaded", "not copied"])
def test_a_checkpoint_without_its_bytes_is_seen(name: str, fault: str, bits: Any) -> None:
    """Planted: it is not read from staging, or the request's own slot does not get it."""
    donor = bits.donor(name)
    tier = bits.tier(donor, chunk=16)
    tier.give(donor, 7)
    if fault == "not loaded":
        tier.plant(STATE, lambda _: [])
    else:
        tier.hand.core.bytes[STATE].move = lambda _: None

    calls = tier.serve("a", donor.tokens)

    assert (0, 7) == tier.hit("a")
    assert donor.page(STATE, 6) != tier.opened["a"]
    assert not bits.same(donor, calls)
    assert 0 == tier.witness.counts.wrong, f"pages of {FULL} are right: only the state is not"
