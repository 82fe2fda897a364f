"""What an operator sets in `--hicache-storage-backend-extra-config`, and what this backend refuses to start with."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

LOADER = ("backend_name", "module_path", "class_name", "interface_v1")
"""What SGLang itself reads from the same mapping."""

CONTROLLER = (
    "prefetch_threshold", "prefetch_timeout_base", "prefetch_timeout_per_ki_token", "prefetch_timeout_per_page",
    "hicache_storage_pass_prefix_keys", "tp_lcm_size", "fault_tolerance",
)  # fmt: skip
"""What its cache controller reads from it."""

OPERATION_PAGES = 16
"""So many of SGLang's 128 pages a batch that a store of a few threads has work for all of them."""

OURS = ("store", "namespace", "operation_pages")


class UnsupportedError(ValueError):
    """Something that this backend does not do; it says so before the first page is stored."""


@dataclass(frozen=True, slots=True)
class Options:
    """`store`: URL as everywhere in stagehold. `namespace`: what else decides bytes, such as the model's revision.

    `operation_pages`: pages of one operation; a batch is cut into so many that run side by side. `direct`: pages go
    between the host pool and the store without a copy where the pool can name their addresses (`interface_v1`).
    """

    store: str
    namespace: str = ""
    operation_pages: int = OPERATION_PAGES
    direct: bool = False


def read(extra: Mapping[str, Any] | None) -> Options:
    """Check the mapping. Raises ValueError that names the key and what was expected."""
    given = dict(extra or {})
    unknown = sorted(set(given) - {*LOADER, *CONTROLLER, *OURS})
    if unknown:
        raise ValueError(f"extra config: unknown key {unknown[0]!r}; stagehold takes: {', '.join(OURS)}")
    store = given.get("store")
    if not isinstance(store, str) or not store:
        raise ValueError(f'extra config: "store" is {store!r}; expected a URL such as "file:///var/cache/kv"')
    if "tenants" in parse_qs(store.partition("?")[2]):
        raise UnsupportedError(
            f'extra config: "store" is {store!r}, and SGLang does not say whose a page is: '
            "leave tenants out, and give a server for each tenant a directory of its own"
        )
    namespace = given.get("namespace", "")
    if not isinstance(namespace, str):
        raise ValueError(  # noqa: TRY004 - all that is wrong here is a value of the mapping
            f'extra config: "namespace" is {namespace!r}; expected text'
        )
    pages = given.get("operation_pages", OPERATION_PAGES)
    if not isinstance(pages, int) or isinstance(pages, bool) or pages < 1:
        raise ValueError(f'extra config: "operation_pages" is {pages!r}; expected a whole number, 1 or more')
    return Options(with_form(store), namespace, pages, bool(given.get("interface_v1", False)))


def with_form(url: str) -> str:
    """A directory is shared by the pages of all pools, whatever their size, so a page is a file there by default."""
    if not url.startswith("file:") or "form=" in url.partition("?")[2]:
        return url
    return f"{url}{'&' if '?' in url else '?'}form=pages"


def refuse_sizes(url: str, sizes: Collection[int], pool: str) -> None:
    """Raise ValueError where pages of these sizes (bytes), the last ones of `pool`, do not go into one store."""
    if len(sizes) > 1 and url.startswith("file:") and "form=packed" in url.partition("?")[2]:
        raise ValueError(
            f'extra config: "store" is {url!r}, and form=packed is for pages of one size; '
            f"the pools have some of {' and '.join(map(str, sorted(sizes)))} bytes, with pool {pool!r}: leave form out"
        )


def refuse(config: Any) -> None:
    """Raise UnsupportedError for a server layout that this backend does not know how to name."""
    if getattr(config, "should_split_heads", False):
        raise UnsupportedError(
            f"tp_lcm_size={config.tp_lcm_size}: pages split by heads are not supported; leave it out, "
            "and servers of another tensor-parallel size keep pages of their own"
        )
    if getattr(config, "dcp_size", 1) > 1:
        raise UnsupportedError(f"dcp_size={config.dcp_size}: decode context parallelism is not supported")
