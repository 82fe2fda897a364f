"""The demo's prompts, its plan and its arithmetic, without a model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from stagehold.lab.demo.plan import estimate_seconds, fitting
from stagehold.lab.demo.prompts import Kind, Prompt, distinct_pages, prompts_of, shipped_sessions
from stagehold.lab.demo.report import DemoReport, compared
from stagehold.lab.demo.spec import PAGE, config_of
from stagehold.serving.model.layouts import layout_of
from stagehold.serving.model.random_models import ByteChat, random_model
from stagehold.serving.model.ready import Pace
from stagehold.serving.model.smollm import Loaded

BYTES = Loaded("bytes", None, ByteChat(), real=False)
LAYOUT = layout_of(random_model("gemma3").config, PAGE, torch.float32)
FAST = Pace(threads=2, prompt_tokens_per_second=480.0, step_seconds=0.065)


@pytest.fixture(name="prompts", scope="module")
def _prompts() -> list[Prompt]:
    return prompts_of(shipped_sessions(), BYTES)


def test_the_shipped_sessions_grow(prompts: list[Prompt]) -> None:
    """Five sessions of three turns; each prompt begins with the one before it, but for what opens the answer."""
    by_session: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        by_session.setdefault(prompt.session, []).append(prompt)

    assert [3] * 5 == [len(turns) for turns in by_session.values()]
    for first, second, third in by_session.values():
        assert np.array_equal(first.tokens[:-1], second.tokens[: len(first.tokens) - 1])
        assert np.array_equal(second.tokens[:-1], third.tokens[: len(second.tokens) - 1])
    assert [1] * 5 + [2] * 5 + [3] * 5 == [prompt.turn for prompt in prompts]


def test_every_class_of_prompt_is_there(prompts: list[Prompt]) -> None:
    """Three short openings, a long one, one that another session has shown before, and turns."""
    kinds = [prompt.kind for prompt in prompts]

    assert {Kind.SHORT: 3, Kind.LONG: 1, Kind.SHARED: 1, Kind.TURN: 10} == {kind: kinds.count(kind) for kind in Kind}
    shared = next(prompt for prompt in prompts if prompt.kind is Kind.SHARED)
    assert any(np.array_equal(shared.tokens, prompt.tokens) for prompt in prompts if prompt.kind is Kind.SHORT)


def test_all_sessions_fit_an_idle_machine(prompts: list[Prompt]) -> None:
    """Measured speeds of two idle cores stay under the default of 150 seconds, with every session."""
    assert estimate_seconds(prompts, FAST, 8) < 150
    assert prompts == fitting(prompts, FAST, 8, 150)


def test_a_slow_machine_drops_whole_sessions_in_order(prompts: list[Prompt]) -> None:
    """The long one first, then the one that repeats another, then short ones; one session always stays."""
    left = [list(dict.fromkeys(p.session for p in fitting(prompts, FAST, 8, seconds))) for seconds in (85, 60, 45, 1)]

    assert ["logging", "warnings", "warnings again", "autodoc"] == left[0]
    assert ["logging", "warnings", "autodoc"] == left[1]
    assert ["logging", "warnings"] == left[2]
    assert ["logging"] == left[3]


def test_the_pool_cannot_hold_all_and_always_holds_the_largest(prompts: list[Prompt]) -> None:
    """Fewer slots than distinct pages, unless a single request needs them."""
    config = config_of(prompts, 8, LAYOUT)
    alone = [prompt for prompt in prompts if prompt.session == "tables"]

    assert config.device_pages < distinct_pages(prompts, PAGE)
    assert config.largest_request_pages < config.device_pages
    assert config_of(alone, 8, LAYOUT).device_pages > -(-(len(alone[-1].tokens) + 8) // PAGE)


def record(rid: str, kind: Kind, seconds: float, **more: Any) -> dict[str, Any]:
    return {
        "rid": rid,
        "kind": kind,
        "prompt_tokens": 1500,
        "first_token_seconds": seconds,
        "forward_seconds": seconds * 0.9,
        "computed_tokens": 20,
        "device_hit_tokens": 0,
        "store_hit_tokens": 1480,
        "answer": [1, 2, 3],
        **more,
    }


def passes(restarted: float = 0.5, **more: Any) -> dict[str, Any]:
    cold = [record("a", Kind.SHORT, 5.0, computed_tokens=1500, store_hit_tokens=0),
            record("b", Kind.LONG, 20.0, computed_tokens=1500, store_hit_tokens=0)]  # fmt: skip
    again = [record("a", Kind.SHORT, restarted, **more), record("b", Kind.LONG, 1.0)]
    names = {"cold": cold, "warm": again, "restart": again, "dropped": again}
    return {name: {"records": found, "host_hit_tokens": 0, "retractions": 0} for name, found in names.items()}


ENGINE = {"compared": 5, "wrong": 0, "unknown": 0, "bytes": 1, "violations": 0, "wrong_pages": []}


def report(found: dict[str, Any] | None = None, **changes: Any) -> DemoReport:
    asked = {"model": "m", "real": True, "passes": found or passes(), "engines": [ENGINE], "outputs_equal": True}
    return DemoReport(**{**asked, "max_logit_difference": 0.0, **changes})


def test_ratios_are_of_medians_by_class() -> None:
    """Cold over restarted for 1,500 and 4,000 tokens, and the share of the store's path."""
    one = report()

    assert 10.0 == one.cold_over("restart", Kind.SHORT)
    assert 20.0 == one.cold_over("restart", Kind.LONG)
    assert one.store_path_over_cold == pytest.approx((0.05 / 5 + 0.1 / 20) / 2)
    assert all(bar.met for bar in one.bars())
    assert not list(one.faults())


def test_a_missed_bar_is_seen() -> None:
    """A restart that takes a seventh of the cold pass; one with a long rest is not counted at all."""
    assert ["first token, cold / restarted, 1,500 tokens"] == [
        bar.name for bar in report(passes(5 / 7)).bars() if not bar.met
    ]
    assert report(passes(5 / 7, computed_tokens=65)).cold_over("restart", Kind.SHORT) is None
    assert [] == report(real=False).bars()


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"outputs_equal": False}, "answers differ"),
        ({"max_logit_difference": 2e-4}, "logits differ by 0.0002"),
        ({"engines": [{**ENGINE, "wrong": 1}]}, "1 pages hold other bytes"),
        ({"engines": [{**ENGINE, "unknown": 2}]}, "2 pages were taken over that nobody"),
        ({"engines": [{**ENGINE, "violations": 3}]}, "3 invariants"),
        ({"engines": [{**ENGINE, "compared": 0}]}, "no page was taken over"),
    ],
)
def test_each_fault_is_told(changes: dict[str, Any], word: str) -> None:
    """What must not be has a sentence of its own."""
    (fault,) = report(**changes).faults()

    assert word in fault


def test_logits_are_compared_as_far_as_the_tokens_agree() -> None:
    """Behind a token that differs, another text is being computed."""
    found = passes(answer=[1, 9, 3])
    logits = {f"{name}|{rid}": np.zeros((3, 4), np.float32) for name in found for rid in "ab"}
    logits["warm|a"] = np.array([[0] * 4, [0.5] * 4, [7] * 4], np.float32)

    assert (False, 0.5) == compared(found, logits)
    assert (True, 7.0) == compared(passes(), logits)


def test_the_json_has_the_agreed_fields() -> None:
    """No more and no less."""
    found = report().as_json()

    assert ["model", "passes", "outputs_equal", "max_logit_difference", "ttft_cold_over_restart_1500",
            "ttft_cold_over_restart_4000", "store_path_over_cold"] == list(found)  # fmt: skip
    assert ["cold", "warm", "restart"] == list(found["passes"])
    assert {"ttft_ms_median": 500.0, "computed_tokens": 40, "device_hit_tokens": 0, "store_hit_tokens": 2960} == (
        found["passes"]["restart"]
    )
