"""A store is opened by URL, and a URL that is wrong says what would be right."""

from importlib.metadata import EntryPoint

import pytest

from stagehold.cache.stores import open as opening
from stagehold.cache.stores.open import StoreUrlError, open_store, parse_url, size, ticks
from stagehold.cache.stores.protocol import Store
from stagehold.cache.stores.simulated import SimulatedStore


def test_a_directory_is_opened_with_its_options(tmp_path):
    """Capacity, floor, workers and deadline reach the file store."""
    store = open_store(f"file://{tmp_path}/kv?capacity=1MiB&floor=0&workers=1&deadline=2.5", page_bytes=1 << 19)
    try:
        assert isinstance(store, Store)
        assert store.blocking._capacity_bytes == 1 << 20
        assert store._deadline_seconds == 2.5
        assert len(store._threads) == 1
        assert (tmp_path / "kv" / "pages").is_dir()
    finally:
        store.close()


@pytest.mark.parametrize(
    ("page_bytes", "options", "form"),
    [
        (64 << 10, "", "packed"),
        ((512 << 10) - 1, "", "packed"),
        (512 << 10, "", "file"),
        (0, "", "file"),
        (64 << 10, "?form=pages", "file"),
        (1 << 20, "?form=packed", "packed"),
        (1 << 20, "?form=auto", "file"),
    ],
)
def test_small_pages_are_packed_unless_told_otherwise(tmp_path, page_bytes, options, form):
    """Below 512 KiB many pages share a file, at and above each has its own."""
    store = open_store(f"file://{tmp_path}{options}", page_bytes)
    store.close()
    assert store.name == form


@pytest.mark.parametrize(
    ("first", "then", "message"),
    [
        ((64 << 10, ""), (128 << 10, ""), "slots of 65536 bytes; pages of 131072 bytes take slots of 131072"),
        ((64 << 10, ""), (1 << 20, ""), r"holds packed pages \(form=packed\)"),
        ((1 << 20, ""), (64 << 10, ""), r"holds a file for each page \(form=pages\)"),
    ],
)
def test_a_directory_of_other_pages_is_refused(tmp_path, first, then, message):
    """A directory is for one size of page, since a capacity is kept for one; nothing of it is touched."""
    page = memoryview(bytes(first[0]))
    store = open_store(f"file://{tmp_path}?floor=0{first[1]}", first[0])
    store.put(1, [b"n" * 32], [page], 0)
    store.wait(20)
    store.close()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(ValueError, match=message):
        open_store(f"file://{tmp_path}?floor=0{then[1]}", then[0])
    assert sorted(tmp_path.rglob("*")) == before
    open_store(f"file://{tmp_path}?floor=0{first[1]}", first[0]).close()


def test_a_simulated_store_is_opened_with_its_options():
    """Seed, delays, rates and capacity reach the simulated store."""
    store = open_store("sim:?seed=7&get=3-5&corrupt=0.25&capacity=4KiB&pages_per_tick=2", page_bytes=0)
    assert isinstance(store, SimulatedStore)
    assert store._delays.get == (3, 5)
    assert store._rates.corrupt == 0.25
    assert store.medium.capacity_bytes == 4096
    assert store.link.pages_per_tick == 2


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("/var/cache/kv", "expected a URL with a scheme"),
        ("ftp://somewhere", "unknown scheme 'ftp'; known here: .*file.*sim"),
        (
            "file:///srv/kv?capcity=3",
            "unknown option 'capcity'; file takes: capacity, deadline, floor, form, tenants, workers",
        ),
        ("file:///srv/kv?capacity=lots", "capacity='lots': expected a size such as"),
        ("file:///srv/kv?workers=0", "expected a whole number"),
        ("file:///srv/kv?deadline=0", "expected seconds, more than 0"),
        ("file:///data/kv?form=loose", "expected auto .* or packed"),
        ("file://host/kv", "expected an absolute directory"),
        ("file:kv", "expected an absolute directory"),
        ("sim:?seed=1&seed=2", "stands there twice"),
        ("sim:?lose=2", "expected a probability"),
        ("sim:?get=4-1", "expected ticks such as"),
        ("sim:?seed=-1", "expected a whole number"),
    ],
)
def test_a_wrong_url_says_what_was_expected(url, message):
    """Each mistake is refused with the place and the remedy."""
    with pytest.raises(StoreUrlError, match=message):
        open_store(url, page_bytes=64)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("4096", 4096), ("512KiB", 512 << 10), ("10GB", 10**10), ("1.5k", 1500), ("2 MiB", 2 << 20), ("7b", 7)],
)
def test_sizes_have_units(text, expected):
    """Decimal and binary units, with or without the B."""
    assert size(text) == expected


def test_a_single_number_of_ticks_is_exact():
    """`3` means three, always."""
    assert ticks("3") == (3, 3)


def test_another_package_may_bring_a_scheme(monkeypatch):
    """An entry point in the group is found by its name and gets the parsed URL."""
    point = EntryPoint("shelf", f"{__name__}:{remember.__name__}", opening.GROUP)
    monkeypatch.setattr(EntryPoint, "load", lambda _self: remember)
    monkeypatch.setattr(opening, "entry_points", lambda group: [point] if group == opening.GROUP else [])
    url = open_store("shelf://host/a%20b?x=1", page_bytes=9)
    assert (url.host, url.path, url.page_bytes, url.options) == ("host", "/a b", 9, {"x": "1"})
    assert "shelf" in opening.schemes()


def remember(url):
    """An opener that gives the URL back."""
    return url


def test_a_url_is_taken_apart():
    """Host, path and options stand where an opener looks for them."""
    url = parse_url("x://h:1/p?a=b", 5)
    assert (url.scheme, url.host, url.path, dict(url.options)) == ("x", "h:1", "/p", {"a": "b"})
