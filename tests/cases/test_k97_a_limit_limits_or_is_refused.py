"""K97: a capacity was only a declaration: 14 TB used of "4".

Here a store that takes the option keeps it, counted in what the disk gives out; one that cannot keep it refuses the
option instead of ignoring it.
"""

from __future__ import annotations

import pytest

from stagehold.cache.stores.open import StoreUrlError, open_store
from stagehold.testing.conformance import Status, check_store

CAPACITY = 1 << 20


@pytest.mark.parametrize("form", ["pages", "packed"])
@pytest.mark.parametrize("handles", [1, 3])
def test_the_disk_never_holds_more_than_the_capacity(tmp_path, form, handles):
    """Four times as much is written, by one handle or by three: blocks on the disk are counted after every batch."""
    url = f"file://{tmp_path}/kv?floor=0&form={form}&capacity={CAPACITY}"
    stores = [open_store(url, 16 << 10) for _ in range(handles)]
    body = memoryview(bytes(16 << 10))
    for batch in range(64):
        store = stores[batch % handles]
        store.put(batch, [b"%032d" % (4 * batch + index) for index in range(4)], [body] * 4, 0)
        store.wait(20)
        (report,) = store.poll(0)
        assert report.good == 4
        folders = [tmp_path / "kv" / name for name in ("pages", "segments")]
        files = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
        assert sum(512 * path.stat().st_blocks for path in files) <= CAPACITY
    for store in stores:
        store.close()


@pytest.mark.parametrize(
    "url", ["file://{}?floor=0&capacity=1MiB", "file://{}?form=pages&floor=0&capacity=1MiB", "sim:?capacity=1MiB"]
)
def test_the_kit_checks_it_for_any_store(tmp_path, url):
    """A user's store that takes `capacity` is held to it by the same check."""
    assert "capacity limits" in check_store(url.format(tmp_path), page_bytes=8192).named(Status.PASSED)


@pytest.mark.parametrize("url", ["valkey://127.0.0.1:9/0", "s3://bucket", "mooncake://127.0.0.1:9"])
def test_a_store_that_cannot_limit_refuses_the_option(url):
    """The server's own configuration is where its limit is set, and nobody shall believe otherwise."""
    with pytest.raises(StoreUrlError, match="unknown option 'capacity'"):
        open_store(f"{url}?capacity=4TB", 4096)
