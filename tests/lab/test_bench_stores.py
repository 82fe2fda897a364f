"""The store bench measures any store and gives shares of what the machine can do."""

import pytest

from stagehold.cache.stores.inspect import verify_pages
from stagehold.cache.stores.protocol import Verdict
from stagehold.lab.bench.stores import StoreFailed, bench_store, ratios
from stagehold.testing.store_checks import Driver


@pytest.mark.parametrize("url", ["file://{}?floor=0", "file://{}?floor=0&form=packed", "sim:"])
def test_every_size_and_batch_has_its_row(tmp_path, url):
    """Positive rates, a share for each limit, and a line for people."""
    figures = bench_store(url.format(tmp_path), sizes=(4096, 8192), batches=(1, 4), bytes_per_row=1 << 16)
    assert [(row["bytes"], row["batch"]) for row in figures["rows"]] == [(4096, 1), (4096, 4), (8192, 1), (8192, 4)]
    assert all(min(row["put"], row["get"], row["exists_k"]) > 0 for row in figures["rows"])
    assert all(
        min(row["put_of_files"], row["get_of_memory"], row["memory"], row["files"]) > 0 for row in figures["rows"]
    )
    assert len(list(ratios(figures))) == 4


def test_a_tenant_is_measured_where_tenants_are_kept_apart(tmp_path):
    """The same one each time: a bench takes one place, and none of the small part of no tenant."""
    for _ in range(2):
        bench_store(f"file://{tmp_path}?floor=0&capacity=8MiB&tenants=1", sizes=(4096,), batches=(64,), bytes_per_row=1)
    assert verify_pages(tmp_path / "4096" / "tenants" / "nobody") == {}
    assert verify_pages(tmp_path / "4096")[Verdict.HIT] == 2 * 5 * 64


@pytest.mark.soak
def test_the_file_store_reaches_its_bars(tmp_path):
    """Against a memory copy and plain new files in the same run, page cache warm, pages verified."""
    url, sizes = f"file://{tmp_path}?floor=0", (64 << 10, 1 << 20)
    small, large = bench_store(url, sizes=sizes, batches=(16,), rounds=12)["rows"]
    assert small["put_of_files"] >= 2.0
    assert large["put_of_files"] >= 0.7
    assert large["get_of_memory"] >= 0.5


def test_a_store_that_loses_pages_is_not_measured():
    """A rate of pages that did not come back would be no rate."""
    with pytest.raises(StoreFailed, match="get_into: MISS for page 0"):
        bench_store("sim:?lose=1", sizes=(4096,), batches=(1,), bytes_per_row=1 << 14)


def test_the_kit_and_the_bench_use_names_of_their_own():
    """Two drivers on one store never meet."""
    assert not set(Driver("sim:", 8).names(4)) & set(Driver("sim:", 8).names(4))
