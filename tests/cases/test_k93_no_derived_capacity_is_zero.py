"""K93: a formula clamped a capacity to 0 at ratio 1.0, and reads from the store were off without a word.

Here a capacity that derives to zero is refused at start with the arithmetic, unless it was set to zero on purpose; and
what would round to zero otherwise is at least one page, which a sweep over small configurations shows.
"""

from __future__ import annotations

from itertools import product

import pytest

from stagehold import ComponentConfig, EngineConfig
from stagehold.operate.derived import derived
from stagehold.operate.settings import Configuration, ConfigurationError, load
from stagehold.operate.staging import Staging

LEAST = {"device_pages": 64, "largest_request_tokens": 1024}
CAPACITIES = ("pin_cap", "load_limit_pages", "write_share_pages", "write_piece_pages", "write_limit_pages",
              "backlog_pages", "threshold_pages")  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "arithmetic"),
    [
        ({"device_pages": 16}, "min(0.5 x 16, 16 - 16) = 0 pages"),
        ({"pin_fraction": 0.01}, "min(0.01 x 64, 64 - 16) = 0 pages"),
        ({"staging_ratio": 0.01}, "floor(0.01 * 64) = 0 pages"),
        ({"staging_bytes": 9, "parts": 1, "page_part_bytes": 64}, "floor(9 / (64 * 64) * 64) = 0 pages"),
    ],
)
def test_zero_is_refused_with_its_arithmetic(arguments, arithmetic):
    """And with what to change."""
    with pytest.raises(ConfigurationError) as caught:
        load(None, {**LEAST, **arguments})
    assert arithmetic in str(caught.value)
    assert "enlarge" in str(caught.value)
    assert "on purpose" in str(caught.value)


@pytest.mark.parametrize("arguments", [{"pin_fraction": 0.0}, {"staging_pages": 0}])
def test_zero_on_purpose_is_taken(arguments):
    """It was written down."""
    assert load(None, {**LEAST, **arguments}).engine


def test_a_component_that_could_never_be_staged_is_refused():
    """Its staging is smaller than two windows."""
    with pytest.raises(ValueError, match=r"staging_pages=1, but two holds need 2 \(2 x 1\)"):
        EngineConfig(**LEAST, staging_pages=64, components=(
            ComponentConfig(name="swa", kind="sliding_window", device_pages=64, staging_pages=1, window_tokens=9),
        ))  # fmt: skip


def test_no_configuration_that_is_accepted_has_a_capacity_of_zero():
    """All small ones."""
    seen, refused = 0, set()
    for pages, staging, fraction in product(range(2, 20), range(1, 12), (0.01, 0.3, 1.0)):
        options = {"page_size": 4, "device_pages": pages, "staging_pages": staging, "pin_fraction": fraction}
        small = {"largest_request_tokens": 4, "load_limit_fraction": 0.01, "write_backlog_tokens": 1}
        try:
            config = EngineConfig(**options, **small)
        except ValueError as error:
            refused.add("derives to zero" in str(error))
            continue
        seen += 1
        values = {one.name: one.value for one in derived(Configuration(config, None, Staging(staging)))}
        assert [] == [name for name in CAPACITIES if values[name] < 1], options
    assert seen > 200
    assert {True} == refused


def test_a_clamp_that_says_nothing_would_be_seen():
    """Planted: a configuration that was not looked at; its cap is 0, and nothing could be pinned."""
    sizes = {"device_pages": 16, "largest_request_tokens": 1024, "staging_pages": 8}
    config = EngineConfig.model_construct(**sizes)
    assert 0 == config.pin_cap
    values = {one.name: one.value for one in derived(Configuration(config, None, Staging(8)))}
    assert [name for name in CAPACITIES if values[name] < 1] == ["pin_cap"]
