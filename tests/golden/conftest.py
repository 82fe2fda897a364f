"""`pytest tests/golden --golden-update` writes the output of every conversation anew."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Known where these tests are named on the command line; a run of everything never rewrites."""
    parser.addoption("--golden-update", action="store_true", help="Write the golden conversations anew.")


@pytest.fixture
def update(pytestconfig: pytest.Config) -> bool:
    """Whether files are to be rewritten."""
    return bool(pytestconfig.getoption("--golden-update", default=False))
