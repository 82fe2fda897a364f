"""The class that vLLM loads: it hands each call to the side that it belongs to. The only module that imports vLLM."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
from vllm.config import VllmConfig
from vllm.distributed.kv_events import MEDIUM_CPU, AllBlocksCleared, BlockStored, KVCacheEvent
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
    KVConnectorWorkerMetadata,
    SupportsHMA,
)
from vllm.distributed.kv_transfer.kv_connector.v1.metrics import KVConnectorStats
from vllm.v1.core.kv_cache_utils import maybe_convert_block_hash
from vllm.v1.kv_cache_interface import KVCacheConfig
from vllm.v1.metrics.cache_hit_source import CacheHitSource

from stagehold.adapters.vllm.identity import fingerprint
from stagehold.adapters.vllm.layout import engine_config, layout_of
from stagehold.adapters.vllm.options import read_options
from stagehold.adapters.vllm.orders import Done, Orders
from stagehold.adapters.vllm.pages import Published
from stagehold.adapters.vllm.refusals import refuse_unserved
from stagehold.adapters.vllm.scheduler import SchedulerSide
from stagehold.adapters.vllm.tier import Tier
from stagehold.adapters.vllm.worker import WorkerSide


@dataclass
class StageholdMetadata(KVConnectorMetadata):  # type: ignore[misc]
    """One step's orders, on their way to the worker."""

    orders: Orders


@dataclass
class StageholdDone(KVConnectorWorkerMetadata):  # type: ignore[misc]
    """What was done, on its way back."""

    done: Done

    def aggregate(self, other: KVConnectorWorkerMetadata) -> KVConnectorWorkerMetadata:
        """What is true of both workers."""
        return StageholdDone(self.done.joined(other.done))


@dataclass
class StageholdStats(KVConnectorStats):  # type: ignore[misc]
    """Figures of an interval, by name: tokens, pages and requests."""

    data: dict[str, Any] = field(default_factory=dict)

    def reset(self) -> None:
        """Begin a new interval."""
        self.data = {}

    def aggregate(self, other: KVConnectorStats) -> KVConnectorStats:
        """The sums of both."""
        for name, count in other.data.items():
            self.data[name] = self.data.get(name, 0) + count
        return self

    def reduce(self) -> dict[str, int | float]:
        """What vLLM logs."""
        return dict(self.data)

    def is_empty(self) -> bool:
        """Whether nothing was counted."""
        return not self.data


class StageholdConnector(KVConnectorBase_V1, SupportsHMA):  # type: ignore[misc]
    """vLLM makes two: one in its scheduler, one in its worker. Raises ConnectorRefused for what is not served."""

    _cache_hit_source = CacheHitSource.HOST

    def __init__(self, vllm_config: VllmConfig, role: KVConnectorRole, kv_cache_config: KVCacheConfig) -> None:
        super().__init__(vllm_config=vllm_config, role=role, kv_cache_config=kv_cache_config)
        refuse_unserved(vllm_config)
        options = read_options(self._kv_transfer_config.kv_connector_extra_config)
        layout = layout_of(kv_cache_config, vllm_config.cache_config.block_size)
        self.worker: WorkerSide | None = None
        self.scheduler: SchedulerSide | None = None
        self._told: dict[str, int] = {}
        self._cleared = False
        if role is KVConnectorRole.WORKER:
            self.worker = WorkerSide(layout)
            return
        config = engine_config(
            layout,
            options,
            model_tokens=vllm_config.model_config.max_model_len,
            step_tokens=vllm_config.scheduler_config.max_num_batched_tokens,
        )
        tier = Tier(config, options, self._kv_transfer_config.engine_id)
        tier.ready()
        self.scheduler = SchedulerSide(tier, layout, options, fingerprint(vllm_config, layout))
        events = vllm_config.kv_events_config
        self._events = events is not None and events.enable_kv_cache_events

    # In the worker

    @property
    def _worker(self) -> WorkerSide:
        assert self.worker is not None, "this is the scheduler's connector"
        return self.worker

    def register_kv_caches(self, kv_caches: dict[str, torch.Tensor]) -> None:
        """The tensors of vLLM, by layer."""
        self._worker.register(kv_caches)

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        """The step's orders."""
        super().bind_connector_metadata(connector_metadata)
        assert isinstance(connector_metadata, StageholdMetadata)
        self._worker.bind(connector_metadata.orders)

    def clear_connector_metadata(self) -> None:
        """The step is over."""
        super().clear_connector_metadata()
        self._worker.clear()

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:  # noqa: ARG002
        """Loads; called with or without a forward pass to come."""
        self._worker.start_loads()

    def wait_for_layer_load(self, layer_name: str) -> None:
        """Nothing is left to wait for: what the forward pass reads has been copied before it."""

    def save_kv_layer(self, layer_name: str, kv_layer: torch.Tensor, attn_metadata: Any, **kwargs: Any) -> None:
        """Pages are saved whole, after the last layer."""

    def wait_for_save(self) -> None:
        """Saves."""
        self._worker.make_saves()

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:  # noqa: ARG002
        """Loads that have ended, and those of them that failed."""
        received, failed = self._worker.results()
        return KVConnectorTransferResults(finished_recving=received, failed_recving=failed)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """Blocks that a load before the forward pass did not fill."""
        return self._worker.invalid_blocks()

    def build_connector_worker_meta(self) -> KVConnectorWorkerMetadata:
        """What was saved."""
        return StageholdDone(self._worker.done())

    # In the scheduler

    @property
    def _scheduler(self) -> SchedulerSide:
        assert self.scheduler is not None, "this is the worker's connector"
        return self.scheduler

    def on_new_request(self, request: Any) -> None:
        """A request was added."""
        self._scheduler.arrived(request)

    def get_num_new_matched_tokens(self, request: Any, num_computed_tokens: int) -> tuple[int | None, bool]:
        """What can be loaded behind vLLM's own tokens."""
        return self._scheduler.matched(request, num_computed_tokens)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """The request has its blocks."""
        self._scheduler.allocated(request, blocks.get_block_ids(), num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """The step's orders."""
        return StageholdMetadata(self._scheduler.orders(scheduler_output))

    def update_connector_output(self, connector_output: Any) -> None:
        """What the worker did."""
        found = connector_output.kv_connector_worker_meta
        done = found.done if isinstance(found, StageholdDone) else None
        received = connector_output.finished_recving or ()
        self._scheduler.reported(done, received, connector_output.failed_recving or ())

    def request_finished_all_groups(
        self,
        request: Any,
        block_ids: tuple[list[int], ...],  # noqa: ARG002
    ) -> tuple[bool, dict[str, Any] | None]:
        """A request has ended. Its blocks can go: what was to be saved of them has been."""
        self._scheduler.finished(request)
        return False, None

    def has_pending_push_work(self) -> bool:
        """Whether pages are still to be stored: vLLM then goes on stepping, and the engine has its ticks."""
        return self.scheduler is not None and self.scheduler.writing

    def take_events(self) -> Iterable[KVCacheEvent]:
        """Pages that host memory has now. What leaves it is not told."""
        published, self._scheduler.published = self._scheduler.published, []
        cleared, self._cleared = self._cleared, False
        if not self._events:
            return []
        return [*([AllBlocksCleared()] if cleared else []), *map(self._stored, published)]

    def _stored(self, found: Published) -> KVCacheEvent:
        request, size = found.entry.request, self._vllm_config.cache_config.block_size
        hashes = [maybe_convert_block_hash(one) for one in request.block_hashes[: found.last]]
        lora = request.lora_request
        return BlockStored(
            block_hashes=hashes[found.first :],
            parent_block_hash=hashes[found.first - 1] if found.first else None,
            token_ids=list(request.all_token_ids[found.first * size : found.last * size]),
            block_size=size,
            lora_id=None if lora is None else lora.adapter_id,
            medium=MEDIUM_CPU,
            lora_name=None if lora is None else lora.name,
        )

    def reset_cache(self) -> bool:
        """Forget what host memory holds; False while requests use it."""
        self._cleared = self._scheduler.reset()
        return self._cleared

    def get_kv_connector_stats(self) -> KVConnectorStats | None:
        """Figures since the last call; the scheduler's side has them all."""
        if self.scheduler is None:
            return None
        now = dict(self.scheduler.counts)
        told = self._told
        since = {name: count - told.get(name, 0) for name, count in now.items() if count != told.get(name, 0)}
        self._told = now
        return StageholdStats(since) if since else None

    @classmethod
    def build_kv_connector_stats(cls, data: dict[str, Any] | None = None) -> KVConnectorStats:
        """The figures of another process."""
        return StageholdStats(data or {})

    def shutdown(self) -> None:
        """The end of either side."""
        if self.worker is not None:
            self.worker.close()
        if self.scheduler is not None:
            self.scheduler.close()
