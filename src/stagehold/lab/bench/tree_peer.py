"""SGLang's prefix caches behind the verbs of the tree bench; run by an interpreter of their own environment.

Owns the calls of one foreign cache and their timing. Started by path with the name of a cache and the path of the
workload; reads one JSON object a line and answers each with one. Imports nothing of this package, and is imported
by nothing of it but for its names.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from array import array
from collections.abc import Callable, Iterable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from time import perf_counter_ns
from types import SimpleNamespace
from typing import Any

CACHES = {
    "sglang_python": ("python", False),
    "sglang_rust": ("rust", False),
    "sglang_rust_swa": ("rust", True),
}
"""Backend of the tree core, and whether a sliding window stands beside the full attention."""

WINDOW_TOKENS = 1_024


def load(path: str) -> Any:
    """Import a file by its path."""
    spec = spec_from_file_location("workload", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"cannot load {path}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def key_of(tokens: Any) -> Any:
    """Tokens as the array of 64-bit integers that a foreign key wraps."""
    key = array("q")
    key.frombytes(tokens.astype("int64").tobytes())
    return key


def timed(call: Callable[[Any], object], items: Iterable[Any]) -> list[int]:
    """Nanoseconds of each call, collector off; the first one is a warm-up and left out."""
    times = []
    gc.disable()
    try:
        for item in items:
            start = perf_counter_ns()
            call(item)
            times.append(perf_counter_ns() - start)
    finally:
        gc.enable()
    return times[1:]


class Foreign:
    """One foreign cache with its pools, of slot numbers alone: no KV bytes stand behind them."""

    def __init__(self, cache: str, work: Any, build: dict[str, Any]) -> None:
        self.backend, self.windowed = CACHES[cache]
        self.work, self.page = work, build["page"]
        self.torch = import_module("torch")
        self.torch.set_num_threads(1)
        self.base = import_module("sglang.srt.mem_cache.base_prefix_cache")
        self.key = import_module("sglang.srt.mem_cache.radix_cache").RadixKey
        slots = work.room(self.page, build["turns"], build["lengths"], build["reps"]) * self.page
        self.pool = self._windowed_pool(slots) if self.windowed else self._pool(slots)
        self.tree = self._tree()
        for text in work.chats(build["turns"]):
            self.publish(text)
        self.probes = {length: work.probes(length) for length in build["lengths"]}
        for length, texts in self.probes.items():
            stride = work.STRIDE[length]
            for text in texts:
                for end in range(stride, length + 1, stride):
                    self.publish(text[:end])

    # -- construction --------------------------------------------------------------------------------------

    def _pool(self, slots: int) -> Any:
        half = self.torch.bfloat16
        if self.page == 1:
            token = import_module("sglang.srt.mem_cache.allocator.token")
            return token.TokenToKVPoolAllocator(slots, half, "cpu", None, False)
        paged = import_module("sglang.srt.mem_cache.allocator.paged")
        return paged.PagedTokenToKVPoolAllocator(slots, self.page, half, "cpu", None, False)

    def _windowed_pool(self, slots: int) -> Any:
        base = import_module("sglang.srt.mem_cache.base_swa_memory_pool").BaseSWAKVPool
        swa = import_module("sglang.srt.mem_cache.allocator.swa").SWATokenToKVPoolAllocator
        names = {
            "__init__": lambda _self: None,
            "register_mapping": lambda own, mapping: setattr(own, "full_to_swa_index_mapping", mapping),
            "translate_loc_from_full_to_swa": lambda own, where: own.full_to_swa_index_mapping[where],
            "swa_req_ring_size": None,
            "full_kv_pool": None,
            "swa_kv_pool": None,
        }
        stand_in = type("SlotsOnly", (base,), names)
        vars(stand_in)  # the abstract rest is never called: there are no bytes to move
        stand_in.__abstractmethods__ = frozenset()  # type: ignore[attr-defined]
        return swa(slots, slots, self.page, self.torch.bfloat16, "cpu", stand_in(), False)

    def _tree(self) -> Any:
        params = import_module("sglang.srt.mem_cache.cache_init_params").CacheInitParams
        requests = import_module("sglang.srt.mem_cache.memory_pool").ReqToTokenPool
        kinds = import_module("sglang.srt.mem_cache.unified_cache.component_type").ComponentType
        cache = import_module("sglang.srt.mem_cache.unified_radix_cache").UnifiedRadixCache
        tree = cache(
            params(
                disable=False,
                req_to_token_pool=requests(size=4, max_context_len=8, device="cpu", enable_memory_saver=False),
                token_to_kv_pool_allocator=self.pool,
                page_size=self.page,
                tree_components=(kinds.FULL, kinds.SWA) if self.windowed else (kinds.FULL,),
                tree_core_backend=self.backend,
                sliding_window_size=WINDOW_TOKENS if self.windowed else None,
            )
        )
        core = type(tree.tree_core).__name__
        if ("Rust" in core) != (self.backend == "rust"):
            raise RuntimeError(f"asked for the {self.backend} core, got {core}")
        return tree

    # -- calls ---------------------------------------------------------------------------------------------

    def match(self, key: Any) -> Any:
        """Match a key as a use."""
        return self.tree.match_prefix(self.base.MatchPrefixParams(key=self.key(key)))

    def slots(self, n: int) -> Any:
        """Slots for `n` new tokens, with those of the window where there is one."""
        if not self.windowed:
            return self.pool.alloc(n)
        full = self.pool.full_attn_allocator.alloc(n)
        self.pool.set_full_to_swa_mapping(full, self.pool.swa_attn_allocator.alloc(n))
        return full

    def value(self, found: Any, n: int) -> Any:
        """All slots of a text: those of the match and `n` new ones."""
        return self.torch.cat([self.tree.path_device_indices(found.last_device_node), self.slots(n)])

    def insert(self, job: tuple[Any, Any, int]) -> None:
        """Insert a text whose first tokens were matched."""
        key, value, live = job
        self.tree.insert(self.base.InsertParams(key=self.key(key), value=value, prev_prefix_len=live))

    def publish(self, text: Any) -> None:
        """Insert what of a text is not live."""
        key = key_of(text[: len(text) // self.page * self.page])
        found = self.match(key)
        live = found.device_prefix_len
        if live < len(key):
            self.insert((key, self.value(found, len(key) - live), live))

    def unlock(self, node: Any, receipt: Any) -> None:
        """Give a lock back."""
        self.tree.dec_lock_ref(node, receipt.to_dec_params())

    def keys(self, length: int) -> list[Any]:
        """One key for each probe."""
        return [key_of(text) for text in self.probes[length]]

    def turns(self, job: Any, kind: int) -> list[tuple[Any, Any, int]]:
        """Jobs that insert a new turn behind a probe, with keys and slots ready."""
        jobs = []
        found = [self.match(key) for key in self.keys(job.length)]
        for i, turn in enumerate(self.work.continuations(job, kind)):
            text = self.work.np.concatenate([self.probes[job.length][i % len(found)], turn])
            end = len(text) // self.page * self.page
            live = job.length // self.page * self.page
            jobs.append((key_of(text[:end]), self.value(found[i % len(found)], end - live), live))
        return jobs

    def run(self, op: str, job: Any) -> list[int]:
        """Times of one operation, in nanoseconds."""
        times: list[int] = getattr(self, f"time_{op}")(job)
        return times

    def time_match_hit(self, job: Any) -> list[int]:
        """All of a chain is live."""
        keys = self.keys(job.length)
        return timed(self.match, [keys[i % len(keys)] for i in range(job.reps)])

    def time_match_half(self, job: Any) -> list[int]:
        """The first half is live, the rest was never seen."""
        return timed(self.match, [key_of(text) for text in self.work.half_known(job)])

    def time_insert_turn(self, job: Any) -> list[int]:
        """A new turn behind a live chain; keys and slots are there."""
        return timed(self.insert, self.turns(job, 1))

    def time_lock(self, job: Any) -> list[int]:
        """A lock over a path that nobody holds, given back before the next."""
        nodes = [self.match(key).last_device_node for key in self.keys(job.length)]
        lock = self.tree.inc_lock_ref
        return timed(lambda node: self.unlock(node, lock(node)), [nodes[i % len(nodes)] for i in range(job.reps)])

    def time_cycle(self, job: Any) -> list[int]:
        """What a request costs: match, lock, insert a turn, match, lock, and both unlocks."""
        lock = self.tree.inc_lock_ref

        def cycle(job: tuple[Any, Any, int]) -> None:
            first = self.match(job[0]).last_device_node
            held = lock(first)
            self.insert(job)
            leaf = self.match(job[0]).last_device_node
            leaf_held = lock(leaf)
            self.unlock(first, held)
            self.unlock(leaf, leaf_held)

        return timed(cycle, self.turns(job, 2))

    def time_evict_page(self, job: Any) -> list[int]:
        """One page, from pools with no free slot, as in a server that evicts."""
        return self._evict(self.page, job.reps)

    def time_evict_4096(self, job: Any) -> list[int]:
        """4,096 tokens, from pools with no free slot."""
        return self._evict(4_096, job.reps)

    def _evict(self, tokens: int, reps: int) -> list[int]:
        self.slots(self.pool.available_size() // self.page * self.page)
        evict, params = self.tree.evict, self.base.EvictParams
        return timed(lambda n: evict(params(num_tokens=n)), [tokens] * reps)


def serve(cache: str, workload: str) -> None:
    """Answer requests until the input ends. What the foreign packages print goes to the error stream."""
    answers = SimpleNamespace(file=os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)
    work, foreign = load(workload), None
    for line in sys.stdin:
        request = json.loads(line)
        if "page" in request:
            foreign = Foreign(cache, work, request)
            gc.collect()
            gc.freeze()
            answer: Any = {"built": cache}
        else:
            assert foreign is not None, "the first request builds"
            answer = foreign.run(request["op"], work.Job(*request["job"]))
        answers.file.write(json.dumps(answer) + "\n")
        answers.file.flush()


if __name__ == "__main__":
    serve(sys.argv[1], sys.argv[2])
