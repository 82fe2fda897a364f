"""What the demo found, from what its processes left: times by class of prompt, hits by tier, equality, the bars.

Owns the names of the figures, and says what must not be. Arithmetic only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt

from stagehold.lab.demo.prompts import Kind

COLD, WARM, RESTART, DROPPED = "cold", "warm", "restart", "dropped"
PASSES = (COLD, WARM, RESTART)
ROUNDING = 1e-4
"""Logits may differ by so much where other chunks computed the same tokens (seen: 3e-5); a wrong page moves 0.1."""
TAIL_TOKENS = 64

Logits = Mapping[str, npt.NDArray[np.float32]]
"""By `pass|request`: float32 [answer tokens, vocabulary]."""


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure and what it must reach: at least or at most; `found` is absent where nothing was measured."""

    name: str
    limit: float
    found: float | None
    at_most: bool = False

    @property
    def met(self) -> bool:
        """Whether it holds; what was not measured is not missed."""
        return self.found is None or (self.found <= self.limit if self.at_most else self.found >= self.limit)


@dataclass(frozen=True, slots=True)
class DemoReport:
    """All figures of one demo. Records are those of `Record.as_json`, by pass and in order of submission."""

    model: str
    real: bool
    passes: dict[str, dict[str, Any]]
    engines: list[dict[str, Any]]
    outputs_equal: bool
    max_logit_difference: float

    def records(self, name: str, kind: Kind | None = None) -> list[dict[str, Any]]:
        """The records of one pass, of all kinds or of one."""
        found = self.passes.get(name, {"records": []})["records"]
        return [one for one in found if kind is None or one["kind"] == kind]

    def first_token_ms(self, name: str, kind: Kind) -> tuple[float, float, float] | None:
        """(median, least, most) milliseconds to the first token of one pass and kind."""
        found = [1e3 * one["first_token_seconds"] for one in self.records(name, kind)]
        return (median(found), min(found), max(found)) if found else None

    def cold_over(self, name: str, kind: Kind) -> float | None:
        """How many times as long the cold pass took to the first token, in medians; long rests are left out."""
        cold = [one["first_token_seconds"] for one in self.records(COLD, kind)]
        again = [r["first_token_seconds"] for r in self.records(name, kind) if r["computed_tokens"] <= TAIL_TOKENS]
        return median(cold) / median(again) if cold and again else None

    @property
    def store_path_over_cold(self) -> float | None:
        """Everything but the forward, of openings that came from the store, over the cold time of the same openings."""
        cold = {one["rid"]: one["first_token_seconds"] for one in self.records(COLD)}
        shares = [
            (one["first_token_seconds"] - one["forward_seconds"]) / cold[one["rid"]]
            for kind in (Kind.SHORT, Kind.LONG)
            for one in self.records(RESTART, kind)
        ]
        return median(shares) if shares else None

    def tokens(self, name: str) -> dict[str, int]:
        """Prompt tokens of one pass by where they came from; host memory's are counted apart from the store's."""
        found = self.records(name)
        store = sum(one["store_hit_tokens"] for one in found)
        host = min(store, self.passes[name]["host_hit_tokens"])
        return {
            "prompt": sum(one["prompt_tokens"] for one in found),
            "computed": sum(one["computed_tokens"] for one in found),
            "device": sum(one["device_hit_tokens"] for one in found),
            "host": host,
            "store": store - host,
        }

    def bars(self) -> list[Bar]:
        """What a run is held to, as ratios within the run; nothing where the weights are no model's."""
        if not self.real:
            return []
        return [
            Bar("first token, cold / restarted, 1,500 tokens", 8, self.cold_over(RESTART, Kind.SHORT)),
            Bar("first token, cold / restarted, 4,000 tokens", 15, self.cold_over(RESTART, Kind.LONG)),
            Bar("the same with the page cache dropped, 1,500 tokens", 5, self.cold_over(DROPPED, Kind.SHORT)),
            Bar("the same with the page cache dropped, 4,000 tokens", 10, self.cold_over(DROPPED, Kind.LONG)),
            Bar("store path without the forward / cold", 0.05, self.store_path_over_cold, at_most=True),
        ]

    def faults(self) -> Iterator[str]:
        """What must not be in any run, each in words."""
        if not self.outputs_equal:
            yield "the answers differ between the passes"
        if self.max_logit_difference > ROUNDING:
            yield f"logits differ by {self.max_logit_difference:.2g}, more than {ROUNDING:g}"
        for name in ("wrong", "unknown", "violations"):
            count = sum(engine[name] for engine in self.engines)
            if count:
                yield {"wrong": f"{count} pages hold other bytes than were computed for them",
                       "unknown": f"{count} pages were taken over that nobody was seen to compute",
                       "violations": f"{count} invariants violated"}[name]  # fmt: skip
        if not any(engine["compared"] for engine in self.engines):
            yield "no page was taken over"

    def as_json(self) -> dict[str, Any]:
        """The figures for programs."""
        passes = {}
        for name in PASSES:
            tokens, found = self.tokens(name), self.first_token_ms(name, Kind.SHORT)
            passes[name] = {
                "ttft_ms_median": found and found[0],
                "computed_tokens": tokens["computed"],
                "device_hit_tokens": tokens["device"],
                "store_hit_tokens": tokens["host"] + tokens["store"],
            }
        return {
            "model": self.model,
            "passes": passes,
            "outputs_equal": self.outputs_equal,
            "max_logit_difference": self.max_logit_difference,
            "ttft_cold_over_restart_1500": self.cold_over(RESTART, Kind.SHORT),
            "ttft_cold_over_restart_4000": self.cold_over(RESTART, Kind.LONG),
            "store_path_over_cold": self.store_path_over_cold,
        }


def compared(passes: Mapping[str, dict[str, Any]], logits: Logits) -> tuple[bool, float]:
    """Whether all passes answer as the cold one, and the largest difference of logits behind equal tokens."""
    cold = {one["rid"]: one["answer"] for one in passes[COLD]["records"]}
    equal, largest = True, 0.0
    for name in (name for name in passes if name != COLD):
        for one in passes[name]["records"]:
            right = cold[one["rid"]]
            equal &= right == one["answer"]
            same = next((at for at, pair in enumerate(zip(right, one["answer"], strict=True)) if pair[0] != pair[1]),
                        len(right) - 1)  # fmt: skip
            ours, theirs = (logits[f"{which}|{one['rid']}"][: same + 1] for which in (COLD, name))
            largest = max(largest, float(np.abs(ours - theirs).max()))
    return equal, largest
