"""What is not served, by name: looked for at the start, where the sentence can still be read."""

from __future__ import annotations

from typing import Any

from stagehold.adapters.vllm.options import ConnectorRefused


def refuse_unserved(vllm_config: Any) -> None:
    """Raise ConnectorRefused with every reason at once."""
    found = [reason for applies, reason in _reasons(vllm_config) if applies]
    if found:
        raise ConnectorRefused("stagehold cannot serve this vLLM: " + "; ".join(found))


def _reasons(config: Any) -> list[tuple[bool, str]]:
    transfer, ranks = config.kv_transfer_config, config.parallel_config.world_size
    device, policy = config.device_config.device_type, transfer.kv_load_failure_policy
    return [
        (ranks > 1, f"a model split over {ranks} processes (tensor or pipeline parallel); serve it whole"),
        (device != "cpu", f"device type {device!r}; the release that was tried is the CPU one"),
        (bool(config.scheduler_config.async_scheduling), "async scheduling; give --no-async-scheduling"),
        (config.speculative_config is not None, "speculative decoding (speculative_config)"),
        (policy != "recompute", f"kv_load_failure_policy={policy!r}; set it to 'recompute'"),
        (transfer.kv_role != "kv_both", f"kv_role={transfer.kv_role!r}; set it to 'kv_both'"),
        (config.model_config.is_encoder_decoder, "an encoder-decoder model"),
    ]
