"""Combinations that cannot work are refused at start, with the arithmetic that says why."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from stagehold import ComponentConfig, EngineConfig, HostMode, Limits, Misuse
from stagehold.cache.tenants import Quota
from stagehold.testing.hand import small_config

WINDOW = ComponentConfig(name="swa", kind="sliding_window", device_pages=80, staging_pages=6, window_tokens=48)


@pytest.mark.parametrize(
    ("device", "largest", "fraction", "cap"),
    [(100, 30, 0.5, 50), (100, 80, 0.5, 20), (100, 30, 0.0, 0), (100, 10, 1.0, 90), (101, 1, 0.5, 50)],
)
def test_the_pin_cap_leaves_room_for_the_largest_request(device, largest, fraction, cap):
    """max(0, min(floor(fraction x pool), pool - largest))."""
    config = small_config(device_pages=device, largest_request_tokens=largest * 16, pin_fraction=fraction)
    assert cap == config.pin_cap


def test_the_largest_request_is_counted_in_whole_pages():
    """A token more is a page more."""
    assert (30, 31) == tuple(small_config(largest_request_tokens=tokens).largest_request_pages for tokens in (480, 481))


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"device_pages": 32, "largest_request_tokens": 512}, r"pin cap derives to zero.*0.5 x 32.*32 - 32.*= 0"),
        ({"device_pages": 1, "largest_request_tokens": 16}, r"pin_fraction=0 to switch pins off"),
        ({"device_pages": 31}, r"fills 32 pages of 16, but device_pages=31"),
        ({"parts": 2}, r"parts=2 and page_part_bytes=0"),
        ({"page_part_bytes": 64}, r"parts=0 and page_part_bytes=64"),
        ({"open_limit": 300, "open_limit_cap": 200}, r"open_limit=300 exceeds open_limit_cap=200"),
        ({"wait_base_ticks": 600}, r"wait_base_ticks=600 exceeds wait_cap_ticks=512"),
        ({"no_such_key": 1}, r"no_such_key"),
        ({"page_size": 0}, r"page_size"),
        ({"retry_max_reissues": -1}, r"retry_max_reissues"),
        ({"tenant_share": 1.5}, r"tenant_share"),
        (
            {"tenant_share": 0.5, "staging_pages": 0},
            r"staging_pages=0 would do nothing.*set staging_pages, or leave the share out",
        ),
        ({"tenant_share": 0.03}, r"0.03 of 32 pages of the pin cap is less than one.*the least share is 1/32"),
        ({"tenant_share": 0.2, "query_limit": 4}, r"0.2 of 4 lookups \(query_limit\).*the least share is 1/4"),
        ({"tenant_share": 0.1, "write_backlog_tokens": 96}, r"0.1 of 6 pages of the write backlog"),
        ({"tenant_share": 0.04}, r"0.04 of staging_pages=40 is 1 pages, but the smallest fetch .* needs 2.*2/40"),
        (
            {"tenant_share": 1.0, "staging_pages": 1},
            r"\(prefetch_threshold_tokens\) needs 2: no share .*enlarge staging",
        ),
        ({"tenant_share": 0.3, "components": (WINDOW,)}, r"component 'swa'=6 is 1 pages, but one hold needs 3"),
    ],
)
def test_what_cannot_work_is_refused_with_its_numbers(settings, sentence):
    """One sentence that says what to change."""
    with pytest.raises(ValidationError, match=sentence):
        small_config(**settings)


def test_the_largest_request_has_no_default():
    """A start without it is refused: the pin cap depends on it."""
    with pytest.raises(ValidationError, match="largest_request_tokens"):
        EngineConfig(device_pages=64, staging_pages=64)


def test_the_design_s_defaults():
    """What a plain configuration means."""
    config = EngineConfig(device_pages=1024, staging_pages=2048, largest_request_tokens=4096)
    assert (64, HostMode.CACHE, 0.5, 4, 2048) == (
        config.page_size, config.host_memory_mode, config.pin_fraction, config.threshold_pages, config.backlog_pages
    )  # fmt: skip
    assert (8, 8, 32) == (
        config.limits.retry_interval_ticks, config.limits.retry_max_reissues, config.limits.max_staged_admission_defers
    )  # fmt: skip
    assert (1024, 1843) == (
        config.load_limit_pages,
        EngineConfig(**{**config.model_dump(exclude={"limits"}), "host_memory_mode": "buffer_only"}).load_limit_pages,
    )


@pytest.mark.parametrize("settings", [{"tenant_share": 0.05}, {"tenant_share": 0.05, "pin_fraction": 0.0}])
def test_a_share_that_has_room_for_the_smallest_fetch_is_taken(settings):
    """Two of 40 pages; where pins are switched off on purpose, nobody is guaranteed any."""
    assert small_config(**settings).tenant_share == 0.05


@pytest.mark.parametrize(("tokens", "pages"), [(1, 1), (16, 1), (17, 2), (256, 16)])
def test_the_threshold_is_at_least_one_whole_page(tokens, pages):
    """Rounded up."""
    assert pages == small_config(prefetch_threshold_tokens=tokens).threshold_pages


def test_limits_are_frozen():
    """Nobody turns them while an engine runs."""
    with pytest.raises(ValidationError):
        Limits().tries = 9


def test_a_decode_that_outgrows_the_promise_is_answered_and_changes_nothing(hand):
    """NoRoom names what was wanted and what there is."""
    from stagehold import NoRoom

    h = hand(store=None, device_pages=33)
    h.admit(h.arrive("other", h.prompt(20, 2)))
    a = h.arrive("a", h.prompt(2))
    h.admit(a)
    h.compute(a)
    answer = h.engine.extend(a, 16 * 25)
    assert isinstance(answer, NoRoom)
    assert (25, 9) == (answer.wanted_pages, answer.room_pages)
    with pytest.raises(Misuse, match="slots were given for"):
        h.engine.publish(a, 16 * 25)


@pytest.mark.parametrize("size", [49, 98, 103, 107])
def test_the_least_share_is_one_that_is_taken(size: int) -> None:
    """In floating point, a 49th of 49 is a little less than one."""
    config = EngineConfig(
        device_pages=4 * size, staging_pages=size, largest_request_tokens=64, page_size=16, query_limit=size,
        prefetch_threshold_tokens=16, tenant_share=1 / size,
    )  # fmt: skip
    tenants = {b"a": 0}
    quota = Quota(size, config.tenant_share, tenants)
    quota.settle(b"a")
    assert quota.guaranteed == 1
