"""The model that is there, and the choice of a thread count by measurement."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from stagehold.serving.model.ready import CHUNK, TRIES, calibrate, load_model


@pytest.fixture(name="threads", autouse=True)
def _threads() -> Iterator[int]:
    """torch's thread count is the process's: put it back."""
    before = torch.get_num_threads()
    yield before
    torch.set_num_threads(before)


class Clock:
    """Runs twice as fast while torch has one thread."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 0.5 if torch.get_num_threads() == 1 else 1.0
        return self.now


def test_the_faster_thread_count_is_kept() -> None:
    """A machine on which two threads are slower than one gets one."""
    pace = calibrate(load_model(random=True), (1, 2), Clock())

    assert (1, CHUNK / 0.5) == (pace.threads, pace.prompt_tokens_per_second)
    assert 1 == torch.get_num_threads()


def test_a_single_hiccup_does_not_decide() -> None:
    """The pace is the median of the tries."""
    times = iter([step for _ in range(TRIES - 1) for step in (0.0, 1.0, 2.0)] + [0.0, 50.0, 99.0])

    assert (
        pytest.approx(CHUNK) == calibrate(load_model(random=True), (1,), lambda: next(times)).prompt_tokens_per_second
    )


def test_random_weights_say_so() -> None:
    """They are the same in every process, and no real model."""
    first, second = load_model(random=True), load_model(random=True)

    assert not first.real
    assert "a small gemma3 hybrid, no real model" == first.name
    pairs = zip(first.model.parameters(), second.model.parameters(), strict=True)
    assert all(torch.equal(ours, theirs) for ours, theirs in pairs)


def test_the_package_may_be_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then random weights run."""
    monkeypatch.setattr("stagehold.serving.model.ready.find_smollm", lambda: None)

    assert not load_model().real
