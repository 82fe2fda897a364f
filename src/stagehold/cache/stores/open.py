"""Opens a store by URL: `file:///dir?capacity=10GiB`, `sim:?seed=7`, or a scheme that another package brings.

A third party adds a scheme with an entry point in the group `stagehold.stores`: its name is the scheme, its
value a function from `StoreUrl` to a `Store`. This module parses and refuses; what the options mean is the
opener's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from stagehold.cache.stores.page import HEADER_BYTES, WHOLE, Layout
from stagehold.cache.stores.protocol import BlockingStore, Store

GROUP = "stagehold.stores"
_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_UNITS |= {"ki": 1 << 10, "mi": 1 << 20, "gi": 1 << 30, "ti": 1 << 40}


class StoreUrlError(ValueError):
    """A URL that names no store; the message says which part is wrong and what is allowed there."""


@dataclass(frozen=True, slots=True)
class StoreUrl:
    """A store URL in its parts, with what the engine adds: bytes of a page body, and the page layout."""

    text: str
    scheme: str
    host: str
    path: str
    page_bytes: int
    layout: Layout = WHOLE
    options: Mapping[str, str] = field(default_factory=dict)

    def read(self, **parsers: Callable[[str], Any]) -> dict[str, Any]:
        """Parse the options, each by its parser; those not given are left out.

        Raises StoreUrlError for an option without a parser, naming the ones there are, and for a value that
        its parser refuses with a ValueError.
        """
        unknown = sorted(set(self.options) - set(parsers))
        if unknown:
            allowed = ", ".join(sorted(parsers)) or "none"
            raise StoreUrlError(f"{self.text}: unknown option {unknown[0]!r}; {self.scheme} takes: {allowed}")
        return {name: self._parse(name, parsers[name]) for name in parsers if name in self.options}

    def _parse(self, name: str, parser: Callable[[str], Any]) -> Any:
        try:
            return parser(self.options[name])
        except ValueError as error:
            raise StoreUrlError(f"{self.text}: option {name}={self.options[name]!r}: {error}") from error


MOST_BYTES = 1 << 63
MOST_THREADS = 256
MOST_TENANTS = 256
MOST_SECONDS = 1_000_000


def size(text: str) -> int:
    """Parse a size in bytes; ValueError for anything else.

    >>> [size(text) for text in ("4096", "512KiB", "1.5GB")]
    [4096, 524288, 1500000000]
    """
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]i?|)b?", text.strip().lower())
    number = float(found[1]) * _UNITS[found[2]] if found is not None else MOST_BYTES
    if number >= MOST_BYTES:
        raise ValueError("expected a size such as 4096, 512KiB or 10GB")
    return int(number)


def whole(text: str) -> int:
    """Parse a number that is at least 0."""
    if not text.isdigit():
        raise ValueError("expected a whole number, 0 or more")
    return int(text)


def count(text: str) -> int:
    """Parse a number that is at least 1."""
    if not text.isdigit() or int(text) < 1:
        raise ValueError("expected a whole number, 1 or more")
    return int(text)


def threads(text: str) -> int:
    """Parse how many threads to start: at least one, and no more than any machine has use for."""
    if not text.isdigit() or not 1 <= int(text) <= MOST_THREADS:
        raise ValueError(f"expected a whole number from 1 to {MOST_THREADS}")
    return int(text)


def tenants(text: str) -> int:
    """Parse among how many tenants a capacity is divided."""
    if not text.isdigit() or not 1 <= int(text) <= MOST_TENANTS:
        raise ValueError(f"expected a whole number from 1 to {MOST_TENANTS}")
    return int(text)


def seconds(text: str) -> float:
    """Parse a positive time in seconds."""
    found = re.fullmatch(r"\d+(\.\d+)?", text)
    if found is None or not 0 < float(text) <= MOST_SECONDS:
        raise ValueError(f"expected seconds, more than 0 and at most {MOST_SECONDS:,}")
    return float(text)


def share(text: str) -> float:
    """Parse a probability."""
    found = re.fullmatch(r"\d+(\.\d+)?", text)
    if found is None or float(text) > 1:
        raise ValueError("expected a probability from 0 to 1")
    return float(text)


def ticks(text: str) -> tuple[int, int]:
    """Parse a range of ticks: `1-4`, or `3` for exactly three."""
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if found is None or int(found[2] or found[1]) < int(found[1]):
        raise ValueError("expected ticks such as 3 or 1-4, the smaller first")
    return int(found[1]), int(found[2] or found[1])


def text(value: str) -> str:
    """Take any text that is not empty."""
    if not value:
        raise ValueError("expected some text")
    return value


def yes_or_no(value: str) -> bool:
    """Parse `yes` or `no`."""
    if value not in ("yes", "no"):
        raise ValueError("expected yes or no")
    return value == "yes"


def need(module: str, url: StoreUrl, *, extra: str) -> Any:
    """Import a client package; where it is missing, StoreUrlError says what to install."""
    try:
        return import_module(module)
    except ImportError as error:
        remedy = f"pip install 'stagehold[{extra}]'"
        raise StoreUrlError(f"{url.text}: {url.scheme} needs the package {module!r} ({error}): {remedy}") from error


PACKED_BELOW_BYTES = 512 << 10
"""Page size below which creating a file costs more than packing the page into one that is there."""
RUNNING = {"workers": threads, "deadline": seconds}
"""Options of every store that runs on threads."""


def run_on_workers(blocking: BlockingStore, options: Mapping[str, Any]) -> Store:
    """Put an engine on threads as the options in `RUNNING` say."""
    from stagehold.cache.stores.workers import WorkerStore

    names = {"workers": "workers", "deadline": "deadline_seconds"}
    return WorkerStore(blocking, **{names[key]: options[key] for key in names if key in options})


def parse_url(text: str, page_bytes: int, *, layout: Layout = WHOLE) -> StoreUrl:
    """Split a URL. Raises StoreUrlError where it is none, has no scheme, or has an option twice."""
    try:
        parts = urlsplit(text)
    except ValueError as error:
        raise StoreUrlError(f"{text}: {error}") from error
    if not parts.scheme:
        raise StoreUrlError(f"{text!r}: expected a URL with a scheme, such as file:///var/cache/kv")
    pairs = parse_qsl(parts.query, keep_blank_values=True)
    options = dict(pairs)
    if len(options) < len(pairs):
        raise StoreUrlError(f"{text}: an option stands there twice")
    path = unquote(parts.path)
    if "\0" in path:
        raise StoreUrlError(f"{text}: expected a path without a zero byte")
    return StoreUrl(text, parts.scheme, parts.netloc, path, page_bytes, layout, options)


def open_store(url: str, page_bytes: int, *, layout: Layout = WHOLE) -> Store:
    """Open the store at `url` for pages of `page_bytes` bytes (0: an engine without bytes).

    Raises StoreUrlError for an unknown scheme or option, ValueError for a directory that is one of other
    pages, and whatever the store raises that cannot be reached.
    """
    parsed = parse_url(url, page_bytes, layout=layout)
    opener = _OPENERS.get(parsed.scheme)
    if isinstance(opener, str):
        module, _, function = opener.partition(":")
        opener = getattr(import_module(f"stagehold.cache.stores.{module}"), function)
    elif opener is None:
        found = _foreign().get(parsed.scheme)
        if found is None:
            raise StoreUrlError(f"{url}: unknown scheme {parsed.scheme!r}; known here: {', '.join(schemes())}")
        opener = found.load()
    store: Store = opener(parsed)
    return store


def schemes() -> list[str]:
    """Return all schemes that `open_store` knows here, sorted."""
    return sorted({*_OPENERS, *_foreign()})


def _foreign() -> dict[str, EntryPoint]:
    return {found.name: found for found in entry_points(group=GROUP)}


def _open_file(url: StoreUrl) -> Store:
    from stagehold.cache.stores.files import FileStore
    from stagehold.cache.stores.packed import SEGMENTS_IN_CAPACITY, PackedStore
    from stagehold.cache.stores.tenants import TenantFolders

    options = url.read(capacity=size, floor=size, form=form, tenants=tenants, **RUNNING)
    if url.host not in ("", "localhost") or not url.path.startswith("/"):
        raise StoreUrlError(f"{url.text}: expected an absolute directory, as in file:///var/cache/kv")
    small = 0 < url.page_bytes < PACKED_BELOW_BYTES
    chosen = options.get("form", "auto")
    floor = options.get("floor")

    def make(folder: str | Path, capacity_bytes: int | None, segments: int) -> FileStore | PackedStore:
        limits = {"capacity_bytes": capacity_bytes, "floor_bytes": floor}
        if chosen == "packed" or (chosen == "auto" and small):
            return PackedStore(folder, url.page_bytes, layout=url.layout, segments=segments, **limits)
        return FileStore(folder, layout=url.layout, **limits)

    divided = _divided(url, options)
    if divided is None:
        return run_on_workers(make(url.path, options.get("capacity"), SEGMENTS_IN_CAPACITY), options)
    capacity, places = divided
    whole = TenantFolders(
        url.path, make, capacity_bytes=capacity, tenants=places, page_bytes=url.page_bytes, floor_bytes=floor
    )
    return run_on_workers(whole, options)


def _divided(url: StoreUrl, options: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return the capacity in bytes, and among how many tenants it is divided; None where it is not."""
    capacity, places = options.get("capacity"), options.get("tenants")
    if places is None:
        return None
    if not capacity:
        raise StoreUrlError(f"{url.text}: option tenants={places} without a capacity: expected one to be divided")
    return capacity, places


def form(value: str) -> str:
    """Parse how pages lie in the directory: a file each, many to a file, or as their size suggests."""
    if value not in ("auto", "pages", "packed"):
        raise ValueError("expected auto (packed below 512 KiB), pages (a file for each) or packed")
    return value


def _open_simulated(url: StoreUrl) -> Store:
    from stagehold.cache.stores.simulated import Delays, Medium, Rates, SimulatedStore, TenantMedium

    rates = dict.fromkeys(("lose", "fail", "corrupt", "short", "stall"), share)
    delays = dict.fromkeys(("exists", "get", "put"), ticks)
    options = url.read(seed=whole, capacity=size, tenants=tenants, pages_per_tick=count, **rates, **delays)
    divided = _divided(url, options)
    page_takes = url.page_bytes + HEADER_BYTES
    medium = Medium(options.get("capacity")) if divided is None else TenantMedium(*divided, page_takes)
    return SimulatedStore(
        options.get("seed", 0),
        delays=Delays(**{name: options[name] for name in delays if name in options}),
        rates=Rates(**{name: options[name] for name in rates if name in options}),
        pages_per_tick=options.get("pages_per_tick"),
        medium=medium,
        layout=url.layout,
    )


_OPENERS: dict[str, Callable[[StoreUrl], Store] | str] = {
    "file": _open_file,
    "sim": _open_simulated,
    "s3": "s3:open_s3",
    "mooncake": "mooncake:open_mooncake",
    **dict.fromkeys(("valkey", "valkeys", "redis", "rediss", "unix"), "valkey:open_valkey"),
}
"""Openers by scheme; those given as `module:function` are imported when they are asked for."""
