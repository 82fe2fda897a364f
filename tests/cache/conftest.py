"""Runs what is said of the live tree in every order of eviction."""

from __future__ import annotations

import pytest

from stagehold.cache.orders import eviction_order
from stagehold.specs.outcomes import Eviction

POOL = 200


def pytest_generate_tests(metafunc):
    """In every order, unless the test names some of them."""
    if "eviction" in metafunc.fixturenames:
        metafunc.parametrize("eviction", getattr(metafunc.function, "orders", tuple(Eviction)), indirect=True)


@pytest.fixture
def eviction(request, monkeypatch):
    """The order of trees that are told none."""
    monkeypatch.setattr("stagehold.cache.spine.LeafLRU", lambda: eviction_order(request.param, POOL))
