from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from stagehold.testing.hand import Hand


@pytest.fixture
def hand() -> Iterator[Callable[..., Hand]]:
    """Builds engines driven by hand; each is closed at the end, and then nobody may own anything."""
    made: list[Hand] = []

    def build(**options: object) -> Hand:
        made.append(Hand(**options))
        return made[-1]

    yield build
    for one in made:
        one.engine.close()
        assert {} == one.engine.stats().owned
        assert 0 == one.engine.stats().live_machines
