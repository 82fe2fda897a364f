"""The demo on the real weights: small in the ordinary run, whole and held to its bars in the long one."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagehold.lab.demo.parent import DemoOptions, run_demo
from stagehold.lab.demo.prompts import Kind


def test_the_real_model_comes_back_from_the_store(tmp_path: Path) -> None:
    """The beginning of each prompt: right bytes, equal answers, and less to compute after the restart."""
    options = DemoOptions(folder=tmp_path, expect_real=True, share=0.12, answer_tokens=3)

    report = run_demo(options, lambda _: None)

    assert [] == list(report.faults())
    assert report.real
    cold, again = report.tokens("cold"), report.tokens("restart")
    assert again["computed"] < cold["computed"]
    assert again["store"] > 0
    assert all(one["store_hit_tokens"] for one in report.records("dropped", Kind.SHORT))


@pytest.mark.soak
def test_the_whole_demo_reaches_its_bars(tmp_path: Path) -> None:
    """Ratios within one run: 1/8 and 1/15 of the cold time to first token, the store's path 5 per cent of it."""
    report = run_demo(DemoOptions(folder=tmp_path, expect_real=True, seconds=600), lambda _: None)

    assert [] == list(report.faults())
    assert [] == [(bar.name, bar.found) for bar in report.bars() if bar.found is None or not bar.met]
