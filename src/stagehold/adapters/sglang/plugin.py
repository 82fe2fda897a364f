"""The class that SGLang loads: `--hicache-storage-backend dynamic` with this module and `StageholdStorage`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sglang.srt.mem_cache.hicache_storage import HiCacheStorage, PoolTransferResult
from sglang.srt.observability.metrics_collector import StorageMetrics

from stagehold.adapters.sglang.backend import Backend


class StageholdStorage(Backend, HiCacheStorage):  # type: ignore[misc]  # SGLang is not there when types are checked
    """`Backend` in SGLang's own types."""

    def batch_exists_v2(
        self,
        keys: Sequence[str],
        pool_transfers: Sequence[Any] | None = None,
        extra_info: Any = None,  # noqa: ARG002
    ) -> Any:
        """The longest prefix that all pools can restore, and all lengths that they can."""
        return PoolTransferResult(*self.restorable(keys, pool_transfers))

    def get_stats(self) -> Any:
        """Pages and GB a second of each read and write since the last time."""
        read_pages, read_rates = self.reads.taken()
        written_pages, write_rates = self.writes.taken()
        return StorageMetrics(read_pages, written_pages, read_rates, write_rates)
