"""Windows with holes, repaired by what the store has; and heads that a sibling published while a hold was ready."""

from __future__ import annotations

from typing import Any

import pytest

from stagehold.cache.components.full import FULL
from stagehold.cache.components.swa import SWA
from stagehold.serving.model.random_models import FAMILIES
from stagehold.specs.outcomes import HostMode

PAGE, PAGES, WINDOW_PAGES = 4, 12, 4
SLIDING = ("gemma3", "gpt_oss")
MODES = [
    pytest.param({"host_memory_mode": HostMode.CACHE}, id="cache"),
    pytest.param({"host_memory_mode": HostMode.BUFFER_ONLY}, id="buffer"),
]


def holed(donor: Any, bits: Any, start: int, end: int, **mode: Any) -> Any:
    """Everything is on the device and in the store; then the window loses pages [start, end) on the device."""
    tier = bits.tier(donor, **mode)
    tier.sibling(donor, PAGES, swa=PAGES)
    tier.give(donor, PAGES)
    tier.tombstone(donor.tokens, start, end)
    assert [(start, end)] == tier.missing(donor.tokens, 0, PAGES)
    return tier


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", SLIDING)
def test_holes_in_the_window_are_repaired_and_those_before_it_stay(family: str, mode: Any, bits: Any) -> None:
    """Pages 5 to 10 are lost; the hit at 12 looks back to page 8. The hold brings the window, and no page of FULL."""
    donor = bits.donor(family)
    tier = holed(donor, bits, 5, 11, **mode)
    mine = tier.slots(donor.tokens, 11, 12, SWA)

    hold = tier.ready("a", donor.tokens)
    assert (PAGES, [], {SWA: 4}) == (hold.base, hold.staging, {n: len(one.staging) for n, one in hold.parts.items()})
    calls = tier.go_on("a")

    assert (5, 7) == tier.hit("a")
    assert [(5, 8)] == tier.missing(donor.tokens, 0, PAGES)
    assert mine == tier.slots(donor.tokens, 11, 12, SWA)
    assert all(tier.holds(donor, SWA, page) for page in range(8, 12))
    assert bits.same(donor, calls)
    assert (0, 0, 16) == (tier.witness.counts.wrong, tier.witness.counts.unknown, tier.witness.counts.compared)


@pytest.mark.parametrize("family", SLIDING)
def test_holes_before_the_window_are_nobody_s_business_until_a_shorter_hit_needs_them(family: str, bits: Any) -> None:
    """The long prompt is on the device as it is; one that leaves it after page 6 has pages 2 to 4 repaired."""
    donor = bits.donor(family)
    tier = holed(donor, bits, 2, 5)

    long = tier.serve("long", donor.tokens)
    assert (PAGES, 0) == tier.hit("long")
    assert [(2, 5)] == tier.missing(donor.tokens, 0, PAGES)
    hold = tier.ready("short", donor.tokens[: 6 * PAGE + 3])
    assert (6, [], {SWA: 4}) == (hold.base, hold.staging, {n: len(one.staging) for n, one in hold.parts.items()})
    short = tier.go_on("short")

    assert (2, 4) == tier.hit("short")
    assert [] == tier.missing(donor.tokens, 0, PAGES)
    assert bits.same(donor, long)
    assert bits.same(donor, short)
    assert 0 == tier.witness.counts.wrong == tier.witness.counts.unknown


@pytest.mark.parametrize("family", SLIDING)
def test_a_hold_that_brings_pages_and_a_window_leaves_the_holes_before_it(family: str, bits: Any) -> None:
    """FULL is live to page 7 and its window has holes at 4 and 5 and before 3; the rest comes from the store."""
    donor = bits.donor(family)
    tier = bits.tier(donor)
    tier.sibling(donor, 7, swa=7)
    tier.give(donor, 10)
    tier.tombstone(donor.tokens, 4, 6)

    hold = tier.ready("a", donor.tokens)
    assert (7, 3, 4) == (hold.base, len(hold.staging), len(hold.parts[SWA].staging))
    calls = tier.go_on("a")

    assert (4, 6) == tier.hit("a")
    assert [(4, 6)] == tier.missing(donor.tokens, 0, 10)
    assert bits.same(donor, calls)
    assert (0, 0, 14) == (tier.witness.counts.wrong, tier.witness.counts.unknown, tier.witness.counts.compared)


@pytest.mark.parametrize("family", SLIDING)
def test_a_repair_that_is_left_out_is_seen(family: str, bits: Any) -> None:
    """Planted: the window's pages get their slots, and no bytes."""
    donor = bits.donor(family)
    tier = holed(donor, bits, 5, 11)
    tier.plant(SWA, lambda _: [])

    calls = tier.serve("a", donor.tokens)

    assert (5, 7) == tier.hit("a")
    assert not bits.same(donor, calls)
    assert 3 == tier.witness.counts.wrong


def published_meanwhile(
    donor: Any, bits: Any, live: int, *, windows: bool, trims: bool = True, **mode: Any
) -> tuple[Any, list[Any]]:
    """The hold of all pages is ready when a sibling publishes the first `live`; returns tier and calls."""
    tier = bits.tier(donor, **mode)
    tier.give(donor, PAGES)
    hold = tier.ready("a", donor.tokens)
    assert (0, PAGES) == (hold.base, len(hold.staging))
    tier.sibling(donor, live, **({"swa": min(live, WINDOW_PAGES)} if windows else {}))
    mine = tier.slots(donor.tokens, 0, live, FULL)
    if not trims:
        staged = list(hold.staging)
        tier.plant(FULL, lambda pages: staged[: len(pages)])
    calls = tier.go_on("a")
    assert mine == tier.slots(donor.tokens, 0, live, FULL), "the sibling's pages are used, not loaded again"
    return tier, calls


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_that_a_sibling_published_is_left_out(family: str, mode: Any, bits: Any) -> None:
    """Wherever the sibling has got to when the hold is joined: behind its pages, the hold's."""
    donor = bits.donor(family)
    for live in range(1, PAGES):
        tier, calls = published_meanwhile(donor, bits, live, windows=family in SLIDING, **mode)

        assert (live, PAGES - live) == tier.hit("a")
        stats = tier.engine.stats()
        assert ({"covered": live * PAGE}, (PAGES - live) * PAGE) == (stats.losses, stats.spliced)
        assert bits.same(donor, calls), f"live to page {live}"
        assert 0 == tier.witness.counts.wrong == tier.witness.counts.unknown


@pytest.mark.parametrize("family", SLIDING)
def test_a_head_without_its_window_is_left_out_and_the_window_brought(family: str, bits: Any) -> None:
    """The sibling published FULL alone, so that nothing was to be gone on from before the splice."""
    donor = bits.donor(family)
    for live in (3, 8, 10, 12):
        tier, calls = published_meanwhile(donor, bits, live, windows=False)

        assert (0, PAGES) == tier.hit("a")
        assert [] == tier.missing(donor.tokens, PAGES - WINDOW_PAGES, PAGES)
        assert bits.same(donor, calls), f"live to page {live}"
        assert 0 == tier.witness.counts.wrong == tier.witness.counts.unknown


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_published_before_the_fetch_is_not_fetched(family: str, bits: Any) -> None:
    """A sibling is at page 5 when the store's answer has come: the span begins behind its pages."""
    donor = bits.donor(family)
    tier = bits.tier(donor)
    tier.give(donor, PAGES)
    tier.submit("a", donor.tokens)
    tier.step()
    tier.sibling(donor, 5, **({"swa": 4} if family in SLIDING else {}))

    hold = tier.readied("a")
    assert (5, 5, PAGES - 5) == (hold.start, hold.base, len(hold.staging))
    calls = tier.go_on("a")

    assert (5, 7) == tier.hit("a")
    assert {} == tier.engine.stats().losses, "it was never asked for"
    assert bits.same(donor, calls)
    assert 0 == tier.witness.counts.wrong == tier.witness.counts.unknown


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_that_another_hold_brings_is_trimmed(family: str, bits: Any) -> None:
    """The long hold waits for the short one over the same head; once that is on the device, the rest is fetched."""
    donor = bits.donor(family)
    tier = bits.tier(donor)
    tier.give(donor, PAGES)
    tier.ready("short", donor.tokens[: 6 * PAGE + 3])
    tier.submit("long", donor.tokens)
    while not tier.hold_of("long"):
        tier.step()
    assert (0, PAGES, []) == (tier.hold_of("long").start, tier.hold_of("long").last, tier.hold_of("long").staging)
    short = tier.go_on("short")
    long = [call for call in tier.calls if call.work.rid == "long"]

    assert [(0, 6), (6, 6)] == [tier.hit(rid) for rid in ("short", "long")]
    assert {"trimmed": 6 * PAGE} == tier.engine.stats().losses
    assert bits.same(donor, short)
    assert bits.same(donor, long)
    assert 0 == tier.witness.counts.wrong == tier.witness.counts.unknown


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_that_is_not_left_out_is_seen(family: str, bits: Any) -> None:
    """Planted: what is loaded behind the sibling's pages is the beginning of the hold."""
    donor = bits.donor(family)
    tier, calls = published_meanwhile(donor, bits, 5, windows=family in SLIDING, trims=False)

    assert not bits.same(donor, calls)
    assert PAGES - 5 == tier.witness.counts.wrong
