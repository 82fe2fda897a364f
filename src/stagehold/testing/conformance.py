"""The conformance kit: runs the checks of `store_checks` against a store that is named by its URL.

It opens the store itself and leaves it as any user would. A check passes, fails with a reason, or is
skipped with a reason; the result is a value that prints as a table or as JSON.
"""

from __future__ import annotations

import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from stagehold.cache.stores.open import open_store
from stagehold.testing.store_checks import CHECKS, Check, Driver, Skipped
from stagehold.testing.store_tenants import TENANT_CHECKS


class Status(StrEnum):
    """How a check ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True)
class Result:
    """One check: its name as a sentence, how it ended, and why unless it passed."""

    name: str
    status: Status
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Conformance:
    """All results for one URL, in the order of the checks."""

    url: str
    results: tuple[Result, ...]

    def named(self, status: Status) -> list[str]:
        """Return the names of the checks that ended so."""
        return [result.name for result in self.results if result.status is status]

    @property
    def ok(self) -> bool:
        """Whether no check failed."""
        return not self.named(Status.FAILED)

    def as_dict(self) -> dict[str, Any]:
        """Return `url, passed, failed, skipped`: names where passed, name to reason for the others."""
        reasons = {
            status.value: {r.name: r.reason for r in self.results if r.status is status}
            for status in (Status.FAILED, Status.SKIPPED)
        }
        return {"url": self.url, "passed": self.named(Status.PASSED), **reasons}


def check_store(
    url: str, *, page_bytes: int = 65536, checks: Sequence[Check] = (*CHECKS, *TENANT_CHECKS)
) -> Conformance:
    """Run the checks against the store at `url`. Raises what `open_store` raises for a URL that is wrong."""
    if page_bytes < 2:
        raise ValueError(f"page_bytes is {page_bytes}: expected at least 2")
    open_store(url, page_bytes).close()
    return Conformance(url, tuple(_run(check, Driver(url, page_bytes)) for check in checks))


def _run(check: Check, driver: Driver) -> Result:
    name = check.__name__.replace("_", " ")
    try:
        check(driver)
    except Skipped as reason:
        return Result(name, Status.SKIPPED, str(reason))
    except AssertionError as reason:
        return Result(name, Status.FAILED, str(reason) or traceback.format_exc(limit=-1).strip())
    except Exception as error:  # noqa: BLE001 - whatever a store raises fails the check
        return Result(name, Status.FAILED, f"{type(error).__name__}: {error}")
    return Result(name, Status.PASSED)
