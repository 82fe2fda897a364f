"""The arithmetic that is shown gives the value that the engine uses."""

from __future__ import annotations

import math

import pytest

from stagehold import ComponentConfig, EngineConfig, Limits
from stagehold.operate.derived import derived
from stagehold.operate.settings import Configuration
from stagehold.operate.staging import Staging

WINDOW = ComponentConfig(name="swa", kind="sliding_window", device_pages=80, staging_pages=30, window_tokens=130)
STATE = ComponentConfig(name="ssm", kind="checkpoint", device_pages=9, staging_pages=4)
BYTES = {"parts": 3, "page_part_bytes": 7}
LARGE = [one.model_copy(update=BYTES) for one in (WINDOW, STATE)]

CONFIGURATIONS = {
    "cache": {},
    "buffer_only": {"host_memory_mode": "buffer_only", "components": (WINDOW, STATE)},
    "set": {"load_limit_fraction": 0.31, "write_backlog_tokens": 1000, "chunk_tokens": 100, "pin_fraction": 0.13},
    "bytes": {"components": tuple(LARGE), **BYTES, "prefetch_policy": "wait_complete"},
    "best effort": {"prefetch_policy": "best_effort", "staging_pages": 3, "limits": Limits(tries=9)},
    "tenants": {"tenant_share": 0.29},
    "ring": {"components": (WINDOW.model_copy(update={"ring": True}),)},
}


def configuration(options):
    config = EngineConfig(**{"device_pages": 64, "staging_pages": 101, "largest_request_tokens": 1000, **options})
    return Configuration(config, None, Staging(config.staging_pages))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_the_arithmetic_gives_the_value(name):
    """Every line, computed as it stands there."""
    rows = derived(configuration(CONFIGURATIONS[name]))
    assert len(rows) > 12
    words = {"max": max, "min": min, "floor": math.floor, "ceil": math.ceil}
    wrong = [one.line() for one in rows if one.value != eval(one.arithmetic, {"__builtins__": {}}, words)]
    assert [] == wrong


def test_values_are_those_that_the_engine_goes_by():
    """Not recomputed: taken from its configuration."""
    found = configuration(CONFIGURATIONS["set"])
    values = {one.name: one.value for one in derived(found)}
    for name in ("pin_cap", "chunk_pages", "threshold_pages", "load_limit_pages", "backlog_pages"):
        assert getattr(found.engine, name) == values[name], name
    assert found.engine.limits.issue_limit == values["issue_limit"]


def test_what_writes_may_have_is_what_their_stock_says(hand):
    """Share and piece, of an engine that runs."""
    h = hand(staging_pages=40)
    stock = h.core.stocks.spine
    values = {one.name: one.value for one in derived(Configuration(h.config, None, Staging(40)))}
    assert (stock.write_share, stock.piece) == (values["write_share_pages"], values["write_piece_pages"])
    assert h.engine._parts.phases.writes._allowance(stock) == values["write_limit_pages"]


def test_a_line_shows_value_arithmetic_and_formula():
    """In this order."""
    (line,) = (one.line() for one in derived(configuration({})) if one.name == "pin_cap")
    formula = "max(0, min(floor(pin_fraction * device_pages), device_pages - largest_request_pages))"
    assert f"pin_cap = max(0, min(floor(0.5 * 64), 64 - 16)) = 32 pages ({formula})" == line
