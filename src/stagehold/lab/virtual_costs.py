"""What a pass costs in virtual time: arithmetic of a model's size on an accelerator's published figures, or measured.

It owns the presets. Prefill is bound by arithmetic, 2 operations a parameter and token, at `COMPUTE_SHARE` of the
peak; a decode step by memory, the weights and every running request's KV read once, at `MEMORY_SHARE` of the
bandwidth. Both shares are assumptions; a measured pace replaces all of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

COMPUTE_SHARE = 0.5
MEMORY_SHARE = 0.7
MEMORY_USED = 0.9
"""Part of the accelerator's memory that weights and KV may fill."""
PASS_MS = 10
NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class ModelShape:
    """What of a model decides its cost: parameters, layers, KV heads, size of a head, bytes of a number."""

    parameters: int
    layers: int
    kv_heads: int
    head_size: int
    number_bytes: int = 2

    @property
    def kv_token_bytes(self) -> int:
        """KV bytes of one token: K and V of every layer."""
        return 2 * self.layers * self.kv_heads * self.head_size * self.number_bytes

    @property
    def weight_bytes(self) -> int:
        """Bytes of the weights."""
        return self.parameters * self.number_bytes


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Published figures: dense 16-bit operations a second, memory bytes a second, memory bytes."""

    operations: float
    bandwidth: float
    memory: int


class ModelName(StrEnum):
    """Models by the sizes in their published configurations."""

    SMOLLM2_135M = "smollm2-135m"
    QWEN2_5_7B = "qwen2.5-7b"
    LLAMA_3_1_8B = "llama-3.1-8b"


class AcceleratorName(StrEnum):
    """Accelerators by their data sheets."""

    A100 = "a100"
    H100 = "h100"
    H200 = "h200"


MODELS = {
    ModelName.SMOLLM2_135M: ModelShape(134_515_008, layers=30, kv_heads=3, head_size=64),
    ModelName.QWEN2_5_7B: ModelShape(7_615_616_512, layers=28, kv_heads=4, head_size=128),
    ModelName.LLAMA_3_1_8B: ModelShape(8_030_261_248, layers=32, kv_heads=8, head_size=128),
}
ACCELERATORS = {
    AcceleratorName.A100: Accelerator(312e12, 2.039e12, 80 * 10**9),
    AcceleratorName.H100: Accelerator(989e12, 3.35e12, 80 * 10**9),
    AcceleratorName.H200: Accelerator(989e12, 4.8e12, 141 * 10**9),
}


@dataclass(frozen=True, slots=True)
class CostModel:
    """Time of a pass: a share for each prefilled token, one for each decode step, and for the KV that it reads."""

    name: str
    prefill_tokens_per_second: float
    step_ms: float
    kv_token_bytes: int
    kv_bytes_per_second: float
    """0: the step's time already holds what reading KV costs."""

    def __post_init__(self) -> None:
        if self.prefill_tokens_per_second <= 0 or self.step_ms <= 0 or self.kv_token_bytes < 1:
            raise ValueError(f"{self.name}: expected a pace and a step above zero, got {self}")

    def pass_ns(self, prefill_tokens: int, steps: int, context_tokens: int) -> int:
        """Time of a pass that prefills so many tokens and makes so many decode steps, over so much context in all.

        Prompt tokens are computed beside the first step, so that any work takes as long as reading the weights once.
        """
        step = self.step_ms / 1000
        first = max(prefill_tokens / self.prefill_tokens_per_second, step) if prefill_tokens or steps else 0.0
        spent = first + max(0, steps - 1) * step
        if self.kv_bytes_per_second:
            spent += context_tokens * self.kv_token_bytes / self.kv_bytes_per_second
        return round(spent * NS)

    @property
    def steps_per_pass(self) -> int:
        """Decode steps that make a pass of `PASS_MS`: the limits of an engine assume ticks of 5 to 20 ms."""
        return max(1, round(PASS_MS / self.step_ms))


def preset(model: ModelName, accelerator: AcceleratorName, count: int = 1) -> CostModel:
    """The cost model of a model on `count` accelerators that share every layer, exchange between them left out."""
    shape, machine = MODELS[model], ACCELERATORS[accelerator]
    bandwidth = machine.bandwidth * MEMORY_SHARE * count
    return CostModel(
        f"{model} on {count} x {accelerator}",
        machine.operations * COMPUTE_SHARE * count / (2 * shape.parameters),
        1000 * shape.weight_bytes / bandwidth,
        shape.kv_token_bytes,
        bandwidth,
    )


def measured(name: str, tokens_per_second: float, step_seconds: float, kv_token_bytes: int) -> CostModel:
    """The cost model of a pace that was measured, as `serving.model.ready.calibrate` does."""
    return CostModel(name, tokens_per_second, 1000 * step_seconds, kv_token_bytes, 0.0)


def device_tokens(model: ModelName, accelerator: AcceleratorName, count: int = 1) -> int:
    """Tokens of KV that fit beside the weights."""
    shape, memory = MODELS[model], ACCELERATORS[accelerator].memory * count
    return int(memory * MEMORY_USED - shape.weight_bytes) // shape.kv_token_bytes
