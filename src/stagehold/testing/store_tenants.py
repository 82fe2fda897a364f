"""What a store has to do that keeps tenants apart, beside what every store has to (`store_checks`)."""

from __future__ import annotations

import secrets

from stagehold.cache.stores.open import parse_url, size
from stagehold.cache.stores.page import HEADER_BYTES
from stagehold.cache.stores.protocol import Verdict
from stagehold.testing.store_checks import Check, Driver, Skipped, require, told

PLACES_LEAST = 3
"""Two tenants here, and one whom an engine serves in another check."""
PAGES_MOST = 16


def a_greedy_tenant_evicts_only_its_own_pages(driver: Driver) -> None:
    """A few pages of one tenant are all there after another one has put twice the whole capacity."""
    fits, places = _room(driver)
    with driver.store() as store:
        driver.namespace = secrets.token_bytes(32)
        names = driver.fill(store, max(1, min(PAGES_MOST, fits // (4 * places))))
        modest, driver.namespace = driver.namespace, secrets.token_bytes(32)
        more = driver.names(2 * fits + 1)
        for start in range(0, len(more), PAGES_MOST):
            part = more[start : start + PAGES_MOST]
            driver.run(store, "put", part, driver.pages(part))
        held = driver.run(store, "exists", more).verdicts.count(Verdict.HIT)
        driver.namespace, out = modest, driver.blanks(len(names))
        got = driver.run(store, "get_into", names, out)
        require(got.good == len(names), f"of {len(names)} pages of the other tenant: {told(got)}")
        require(out == driver.pages(names), "bytes differ")
        require(0 < held <= fits // places + 1, f"{held} pages of a tenant are there, with a part for {fits // places}")


def _room(driver: Driver) -> tuple[int, int]:
    """How many pages the URL has room for, and among how many tenants."""
    options = parse_url(driver.url, driver.page_bytes).options
    if "tenants" not in options:
        raise Skipped("the URL does not keep tenants apart")
    fits, places = size(options.get("capacity", "0")) // (driver.page_bytes + HEADER_BYTES), int(options["tenants"])
    if not places < fits <= 10_000 or places < PLACES_LEAST:
        raise Skipped(f"a capacity of {fits} pages for {places} tenants is not one that a check can fill")
    return fits, places


TENANT_CHECKS: tuple[Check, ...] = (a_greedy_tenant_evicts_only_its_own_pages,)
