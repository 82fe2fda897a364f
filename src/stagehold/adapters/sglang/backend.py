"""All that a HiCache storage backend does, by SGLang's interface: where pages are, and how they come and go.

SGLang's threads call it, several at a time; a call waits until the store has answered for every key. What the store
cannot give (missing, torn, damaged, another page) is a miss. Nothing is raised for a fault of the store: the answer
says what has happened, and SGLang computes the rest. The class that SGLang loads is in `plugin`.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from stagehold.adapters.sglang import options, prefixes
from stagehold.adapters.sglang.pages import Pages, Place, bytes_of, cut_by_heads
from stagehold.adapters.waiting import Waiting
from stagehold.cache.stores.open import open_store
from stagehold.cache.stores.protocol import Buffer, Verdict

Move = Callable[[Pages, Sequence[str], Any], list[bool]]

KV = "kv"
ALARMS = frozenset({Verdict.TORN, Verdict.CORRUPT, Verdict.FOREIGN, Verdict.FAILED, Verdict.TIMED_OUT})

CALLS_KEPT = 4096
"""SGLang asks what went through only where its metrics are on."""

log = logging.getLogger("stagehold.sglang")


@dataclass(slots=True)
class Traffic:
    """What went one way since it was last asked for, at most the latest calls: pages of each, and its GB a second."""

    calls: deque[tuple[int, float]] = field(default_factory=lambda: deque(maxlen=CALLS_KEPT))

    def note(self, pages: int, size: int, seconds: float) -> None:
        """Book one call."""
        self.calls.append((pages, size / max(seconds, 1e-9) / 1e9))

    def taken(self) -> tuple[list[int], list[float]]:
        """What was booked, which is forgotten."""
        taken = [self.calls.popleft() for _ in range(len(self.calls))]
        return [pages for pages, _ in taken], [rate for _, rate in taken]


class Backend:
    """`config` is SGLang's `HiCacheStorageConfig`; its `extra_config` is described in `options`.

    Raises ValueError for options that are wrong, `UnsupportedError` for what is not supported, and what the store
    raises that cannot be opened. `verdicts` counts what the store said of every page that was read or written.
    """

    def __init__(self, config: Any, _more: Any = None) -> None:
        options.refuse(config)
        self.options = options.read(config.extra_config)
        self.verdicts: Counter[Verdict] = Counter()
        self.reads, self.writes = Traffic(), Traffic()
        self._replicated: bool = config.is_mla_model
        rest = f"pp {config.pp_rank}/{config.pp_size} cp {config.attn_cp_rank}/{config.attn_cp_size}"
        tensor = f"tp {config.tp_rank}/{config.tp_size}"
        self._place = Place(config.model_name or "", self.options.namespace, tensor, rest)
        self._lock = threading.Lock()
        self._pools: dict[str, Pages] = {}
        self._stores: dict[int, Waiting] = {}

    # Pools

    def register_mem_pool_host(self, mem_pool_host: Any) -> None:
        """The pool of keys and values."""
        self.mem_pool_host = mem_pool_host
        self._register(KV, mem_pool_host)

    def register_mem_host_pool_v2(self, host_pool: Any, host_pool_name: Any) -> None:
        """One pool of a model with several; KV is among them."""
        name = str(getattr(host_pool_name, "value", host_pool_name))
        if name != KV or KV not in self._pools:
            self._register(name, host_pool)

    def on_host_pools_registered(self) -> None:
        """Nothing waits for the last pool."""

    def _register(self, name: str, pool: Any) -> None:
        before = self._place.of(name, replicated=self._replicated and not cut_by_heads(name, pool))
        pages = Pages(pool, before, direct=self.options.direct)
        with self._lock:
            options.refuse_sizes(self.options.store, {*self._stores, *pages.sizes}, name)
            self._pools[name] = pages
            for size in pages.sizes:
                if size not in self._stores:
                    store = open_store(self.options.store, size)
                    self._stores[size] = Waiting(store, self.options.operation_pages)
        how = "without a copy" if pages.direct else "by copy"
        log.info("pool %s: pages of %s bytes, moved %s", name, "+".join(map(str, pages.sizes)), how)

    def _pool(self, name: Any) -> Pages:
        text = str(getattr(name, "value", name))
        if text not in self._pools:
            raise ValueError(f"pool {text!r} was never registered; known: {', '.join(self._pools) or 'none'}")
        return self._pools[text]

    # Is it there?

    def exists(self, key: str) -> bool:
        """Whether the page of `key` is stored, with all its parts."""
        return self.batch_exists([key]) == 1

    def batch_exists(self, keys: Sequence[str], extra_info: Any = None) -> int:  # noqa: ARG002 - SGLang's interface
        """How many leading pages of KV are stored."""
        return prefixes.leading(self._present(self._pool(KV), keys))

    def restorable(self, keys: Sequence[str], transfers: Sequence[Any] | None) -> tuple[int, dict[Any, int], list[int]]:
        """Longest prefix that all pools can restore, that of each pool, and all lengths that all can restore."""
        pages = prefixes.leading(self._present(self._pool(KV), keys))
        found: dict[Any, int] = {KV: pages} if pages else {}
        lengths = list(range(1, pages + 1))
        for transfer in transfers or ():
            if not lengths:
                break
            policy = str(getattr(transfer.hit_policy, "value", transfer.hit_policy))
            present = self._present(self._pool(transfer.name), keys[:pages])
            own = prefixes.lengths(policy, present, len(transfer.keys or ()))
            if own:
                found[transfer.name] = own[-1]
            lengths = sorted(set(lengths).intersection(own))
        return (lengths[-1] if lengths else 0), found, lengths

    def _present(self, pages: Pages, keys: Sequence[str]) -> list[bool]:
        present = [True] * len(keys)
        for index, size in enumerate(pages.sizes):
            names = [pages.names(key)[index] for key in keys]
            said = self._asked("exists", size, names)
            present = [there and one is Verdict.HIT for there, one in zip(present, said, strict=True)]
        return present

    # Between the host pool and the store

    def batch_get_v1(self, keys: Sequence[str], host_indices: Any, extra_info: Any = None) -> list[bool]:  # noqa: ARG002
        """Read pages of KV into the pool's slots; whether each has come, whole and right."""
        return self._read(self._pool(KV), keys, host_indices)

    def batch_set_v1(self, keys: Sequence[str], host_indices: Any, extra_info: Any = None) -> list[bool]:  # noqa: ARG002
        """Write pages of KV from the pool's slots; whether each can be read now."""
        return self._write(self._pool(KV), keys, host_indices)

    def batch_get_v2(self, transfers: Sequence[Any], extra_info: Any = None) -> dict[Any, list[bool]]:  # noqa: ARG002
        """The same for several pools."""
        return self._by_pool(self._read, transfers)

    def batch_set_v2(self, transfers: Sequence[Any], extra_info: Any = None) -> dict[Any, list[bool]]:  # noqa: ARG002
        """The same for several pools."""
        return self._by_pool(self._write, transfers)

    def _by_pool(self, move: Move, transfers: Sequence[Any]) -> dict[Any, list[bool]]:
        """Nothing is moved for keys that do not pair up with slots; that is an answer, since an error ends a thread."""
        moved: dict[Any, list[bool]] = {}
        for one in transfers:
            pages, keys = self._pool(one.name), one.keys or ()
            if pages.paired(one.host_indices, len(keys)):
                moved[one.name] = move(pages, keys, one.host_indices)
                continue
            moved[one.name] = [False] * len(keys)
            found = 0 if one.host_indices is None else len(one.host_indices)
            log.error("pool %s: %d keys with %d host indices, nothing is moved", one.name, len(keys), found)
        return moved

    def _read(self, pages: Pages, keys: Sequence[str], indices: Any) -> list[bool]:
        slots = pages.slots(indices, len(keys))
        if pages.direct:
            return self._moved("get_into", pages, keys, pages.addressed(indices))
        blanks, buffers = pages.blank(len(keys))
        came = self._moved("get_into", pages, keys, buffers)
        for slot, blank, there in zip(slots, blanks, came, strict=True):
            if there:
                pages.place(slot, blank)
        return came

    def _write(self, pages: Pages, keys: Sequence[str], indices: Any) -> list[bool]:
        slots = pages.slots(indices, len(keys))
        if pages.direct:
            return self._moved("put", pages, keys, pages.addressed(indices))
        return self._moved("put", pages, keys, pages.copied(slots))

    def _moved(self, call: str, pages: Pages, keys: Sequence[str], buffers: Sequence[Buffer]) -> list[bool]:
        """Move the stretches of every page, those of one size together; a page has moved when all of it has."""
        if [len(buffer) for buffer in buffers] != list(pages.sizes) * len(keys):
            each = "+".join(map(str, pages.sizes))
            raise ValueError(f"{call}: {len(keys)} keys with {len(buffers)} buffers: expected {each} bytes a key")
        begin = time.perf_counter()
        good = Verdict.HIT if call == "get_into" else Verdict.STORED
        moved, width = [True] * len(keys), len(pages.sizes)
        names = [pages.names(key) for key in keys]
        for size in dict.fromkeys(pages.sizes):
            at = [index for index, one in enumerate(pages.sizes) if one == size]
            order = [(page, index) for page in range(len(keys)) for index in at]
            said = self._asked(
                call,
                size,
                [names[page][index] for page, index in order],
                [buffers[page * width + index] for page, index in order],
            )
            for (page, _), verdict in zip(order, said, strict=True):
                moved[page] = moved[page] and verdict is good
        traffic = self.reads if call == "get_into" else self.writes
        traffic.note(sum(moved), sum(moved) * sum(pages.sizes), time.perf_counter() - begin)
        return moved

    def _asked(self, call: str, size: int, names: list[bytes], *buffers: list[Buffer]) -> list[Verdict]:
        said: list[Verdict] = getattr(self._stores[size], call)(names, *buffers)
        if call != "exists":
            with self._lock:
                self.verdicts.update(said)
        worst = [one for one in said if one in ALARMS]
        if worst:
            log.warning("%s of %d objects: %d %s", call, len(said), len(worst), worst[0].name.lower())
        return said

    # Pages as tensors

    def get(self, key: str, target_location: Any = None, target_sizes: Any = None) -> Any:
        """Read a page of KV into the contiguous tensor `target_location`; None where it is missing or wrong."""
        found: list[Any] = self.batch_get([key], [target_location], target_sizes)
        return found[0]

    def batch_get(
        self,
        keys: Sequence[str],
        target_locations: Sequence[Any] | None = None,
        target_sizes: Any = None,  # noqa: ARG002 - SGLang's interface; sizes are the tensors'
    ) -> list[Any]:
        """Read pages of KV into tensors; those that came, None for the others."""
        pages = self._flat(KV)
        targets = [None] * len(keys) if target_locations is None else list(target_locations)
        targets = [pages.pool.get_dummy_flat_data_page() if target is None else target for target in targets]
        came = self._moved("get_into", pages, keys, [bytes_of(target) for target in targets])
        return [target if there else None for target, there in zip(targets, came, strict=True)]

    def set(self, key: str, value: Any = None, target_location: Any = None, target_sizes: Any = None) -> bool:
        """Write a page of KV from a tensor."""
        return self.batch_set([key], [target_location if value is None else value], target_sizes)

    def batch_set(
        self,
        keys: Sequence[str],
        values: Sequence[Any] | None = None,
        target_locations: Sequence[Any] | None = None,
        target_sizes: Any = None,  # noqa: ARG002
    ) -> bool:
        """Write pages of KV from tensors; whether all of them can be read now."""
        given = target_locations if values is None else values
        buffers = [bytes_of(page.contiguous()) for page in given or ()]
        return all(self._moved("put", self._flat(KV), keys, buffers))

    def _flat(self, name: str) -> Pages:
        pages = self._pool(name)
        if pages.direct:
            raise options.UnsupportedError("with interface_v1 pages go by host index; whole tensors are for without it")
        return pages

    # The end

    def clear(self) -> bool:
        """Not done: other servers may use the store. Remove its pages there, or change `namespace`."""
        log.warning("clear: the store is left as it is; remove its pages there, or start with another namespace")
        return False

    def close(self) -> None:
        """Close the stores. Idempotent."""
        with self._lock:
            for store in self._stores.values():
                store.close()
