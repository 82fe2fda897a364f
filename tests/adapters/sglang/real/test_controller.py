"""SGLang's own controller, threads and host pools put, find and get pages through the plug-in, on a CPU."""

from __future__ import annotations

import threading
import time
from queue import Empty
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist
from sglang.srt.mem_cache.allocator.paged import PagedTokenToKVPoolAllocator
from sglang.srt.mem_cache.hicache_storage import PoolHitPolicy, PoolName, PoolTransfer
from sglang.srt.mem_cache.hybrid_cache.hybrid_cache_controller import HybridCacheController
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool
from sglang.srt.mem_cache.pool_host import HostPoolGroup, PoolEntry
from sglang.srt.mem_cache.pool_host.mha import MHATokenToKVPoolHost
from sglang.srt.mem_cache.utils import get_storage_hash_str
from sglang.srt.runtime_context import get_parallel

PAGE, TOKENS, WINDOW_PAGES = 16, 256, 2
DEADLINE = 30.0


@pytest.fixture(scope="module", autouse=True)
def one_rank():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    ranks = {"tp_rank": 0, "tp_size": 1, "pp_rank": 0, "pp_size": 1, "attn_dcp_size": 1, "attn_dcp_rank": 0}
    with get_parallel().override(**ranks):
        yield
    dist.destroy_process_group()


class Server:
    """A controller with a KV and a window pool in host memory, over the plug-in."""

    def __init__(self, folder, *, dtype=torch.bfloat16, layout="page_first", direct=True, model="model", **extra):
        device = MHATokenToKVPool(TOKENS, PAGE, dtype, 2, 8, 3, "cpu", enable_memory_saver=False)
        allocator = PagedTokenToKVPoolAllocator(TOKENS, PAGE, dtype, "cpu", device, need_sort=False)
        self.kv, self.window = (self.host(device, layout) for _ in range(2))
        entries = [
            PoolEntry(PoolName.KV, self.kv, device, lambda layer: layer, is_primary_index_anchor=True),
            PoolEntry(PoolName.SWA, self.window, device, lambda layer: layer),
        ]
        self.controller = HybridCacheController(
            allocator, HostPoolGroup(entries), PAGE, dist.group.WORLD, threading.Event(),
            write_policy="write_through", io_backend="direct",
        )  # fmt: skip
        options = {
            "backend_name": "stagehold",
            "module_path": "stagehold.adapters.sglang.plugin",
            "class_name": "StageholdStorage",
            "interface_v1": int(direct),
            "store": f"file://{folder}",
            **extra,
        }
        self.controller.attach_storage_backend(
            "dynamic", model_name=model, storage_backend_extra_config=options, host_pools=entries
        )

    def host(self, device, layout):
        return MHATokenToKVPoolHost(
            device.get_device_pool_infos()[0].buffer_info, 2.0, 0, PAGE, layout, pin_memory=False, device="cpu",
            device_capacity_tokens=TOKENS, start_layer=0, end_layer=3,
        )  # fmt: skip

    def write(self, tokens, seed):
        """Fill pages with noise and write them as SGLang does; what lies in both pools."""
        pages = len(tokens) // PAGE
        keys = get_storage_hash_str(tokens, None, page_size=PAGE)
        slots = self.kv.alloc(pages * PAGE)
        window_slots = self.window.alloc(WINDOW_PAGES * PAGE)
        self.kv.kv_buffer.copy_(noise(self.kv.kv_buffer, seed))
        self.window.kv_buffer.copy_(noise(self.window.kv_buffer, seed + 1))
        window = PoolTransfer(PoolName.SWA, window_slots, keys=keys[-WINDOW_PAGES:])
        self.controller.write_storage(slots, list(tokens), hash_value=keys, extra_pools=[window])
        self.taken(self.controller.ack_backup_queue)
        return pages_of(self.kv, slots), pages_of(self.window, window_slots)

    def fetch(self, tokens):
        """What a lookup finds, in tokens, and what lies in both pools once it has been fetched."""
        pages = len(tokens) // PAGE
        keys = get_storage_hash_str(tokens, None, page_size=PAGE)
        wanted = PoolTransfer(
            PoolName.SWA, keys=keys[-WINDOW_PAGES:], hit_policy=PoolHitPolicy.TRAILING_PAGES,
            host_indices=self.window.alloc(WINDOW_PAGES * PAGE),
        )  # fmt: skip
        operation = self.controller.prefetch(SimpleNamespace(rid="request"), list(tokens), extra_pools=[wanted])
        assert operation is self.taken(self.controller.prefetch_hit_queue)
        if operation.storage_hit_count == 0:
            return 0, None, None
        operation.host_indices = self.kv.alloc(pages * PAGE)
        self.controller.prefetch_buffer.put(operation)
        while not self.taken(self.controller.ack_prefetch_queue).completed_req:
            pass
        found = pages_of(self.kv, operation.host_indices), pages_of(self.window, wanted.host_indices)
        return operation.storage_hit_count, *found

    def taken(self, queue):
        begin = time.monotonic()
        while time.monotonic() < begin + DEADLINE:
            try:
                return queue.get(timeout=1)
            except Empty:
                continue
        raise AssertionError("SGLang's threads gave no answer")

    def stop(self):
        self.controller.detach_storage_backend()


def noise(like, seed):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(like.shape, generator=generator).to(like.dtype)


def pages_of(pool, slots):
    return torch.stack([pool.get_data_page(int(slot)).clone() for slot in slots[::PAGE]])


@pytest.fixture
def server():
    made = []

    def start(*args, **kwargs):
        made.append(Server(*args, **kwargs))
        return made[-1]

    yield start
    for one in made:
        one.stop()


@pytest.mark.parametrize("layout", ["page_first", "page_first_direct", "layer_first"])
@pytest.mark.parametrize("direct", [True, False])
def test_a_second_server_finds_and_gets_both_pools(server, tmp_path, layout, direct) -> None:
    """Bytes of KV and of the window are what was put, through SGLang's own threads."""
    tokens = list(range(8 * PAGE))
    first = server(tmp_path, layout=layout, direct=direct)
    kv, window = first.write(tokens, seed=1)
    second = server(tmp_path, layout=layout, direct=direct)
    hit, got_kv, got_window = second.fetch(tokens)
    assert len(tokens) == hit
    assert torch.equal(kv, got_kv)
    assert torch.equal(window, got_window)
    stats = second.controller.storage_backend.get_stats()
    assert 8 in stats.prefetch_pgs


def test_a_foreign_dtype_layout_model_or_namespace_is_a_miss(server, tmp_path) -> None:
    """Each of them is in the name of the page."""
    tokens = list(range(8 * PAGE))
    server(tmp_path).write(tokens, seed=2)
    others = (
        {"dtype": torch.float16},
        {"layout": "page_first_direct"},
        {"model": "other"},
        {"namespace": "revision-2"},
    )
    for other in others:
        assert 0 == server(tmp_path, **other).fetch(tokens)[0], other
    assert len(tokens) == server(tmp_path).fetch(tokens)[0]


def test_a_damaged_page_is_a_shorter_prefix(server, tmp_path) -> None:
    """The lookup finds it, the fetch does not take it."""
    tokens = list(range(8 * PAGE))
    server(tmp_path).write(tokens, seed=3)
    for path in sorted(tmp_path.rglob("*")):
        if path.is_file() and path.stat().st_size > PAGE * 2 * 8:
            data = bytearray(path.read_bytes())
            data[-1] ^= 1
            path.write_bytes(bytes(data))
    hit, _, _ = server(tmp_path).fetch(tokens)
    assert len(tokens) == hit, "damage is not seen by a lookup"
    storage = server(tmp_path).controller.storage_backend
    keys = get_storage_hash_str(tokens, None, page_size=PAGE)
    assert [False] * 8 == storage.batch_get_v1(keys, torch.arange(len(tokens)))
    told = {verdict.name for verdict in storage.verdicts}
    assert "HIT" not in told, told  # what was found damaged has been removed, so that it can be written again


def test_a_store_that_is_gone_is_a_miss_and_the_server_goes_on(server, tmp_path) -> None:
    """Files vanish between lookup and fetch: nothing is published, no thread of SGLang ends."""
    tokens = list(range(8 * PAGE))
    server(tmp_path).write(tokens, seed=4)
    other = server(tmp_path)
    for path in (tmp_path / "pages").rglob("*"):
        if path.is_file():
            path.unlink()
    assert 0 == other.fetch(tokens)[0]
    other.write(tokens, seed=5)
    assert len(tokens) == other.fetch(tokens)[0]
