"""A model behind engine and scheduler: the tier changes no bit of what the same calls give, restarted or not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stagehold.serving.model.random_models import FAMILIES, random_model

PAGE = 16


def tokens(length: int, seed: int = 0) -> np.ndarray[Any, np.dtype[np.uint32]]:
    return np.random.default_rng(seed).integers(0, 256, length).astype(np.uint32)


def conversation() -> dict[str, Any]:
    """Three turns of one chat, a branch of it, and a stranger."""
    chat = tokens(260)
    return {
        "turn 1": chat[:150],
        "turn 2": chat[:200],
        "turn 3": chat,
        "branch": np.concatenate([chat[:100], tokens(60, seed=1)]),
        "stranger": tokens(130, seed=2),
    }


@pytest.mark.parametrize("family", FAMILIES)
def test_the_tier_changes_no_bit(family: str, tmp_path: Path, served: Any, reference: Any) -> None:
    """Cold, warm, and restarted on an empty pool: each call's logits are those of the same call on plain tensors."""
    model = random_model(family)
    again, digests = reference(model), {}
    off, first = served(model, None), served(model, tmp_path, digests=digests)
    off.serve(conversation())
    first.serve(conversation())
    first.serve({f"{rid} again": ids for rid, ids in conversation().items()})
    first.close()
    second = served(model, tmp_path, digests=digests)
    second.serve(conversation())
    second.close()

    assert 0.0 == reference(model).differs(off.calls)
    assert 0.0 == again.differs(first.calls)
    assert 0.0 == again.differs(second.calls)
    assert all(device and not store for rid, (device, store) in first.hits.items() if rid.endswith("again"))
    assert {"turn 1": 144, "turn 2": 192, "turn 3": 256, "branch": 144, "stranger": 128} == {
        rid: sum(hits) for rid, hits in second.hits.items()
    }
    assert 0 < sum(store for _, store in second.hits.values())
    assert (0, 0) == (second.witness.counts.wrong, second.witness.counts.unknown)
    assert second.witness.counts.compared >= 9 + 12 + 16 + 6 + 8
    off.close()


def test_answers_are_the_same_with_and_without_the_tier(tmp_path: Path, served: Any) -> None:
    """Greedy tokens of all requests agree, whatever was reused."""
    model = random_model("llama")
    found = []
    for folder in (None, tmp_path, tmp_path):
        one = served(model, folder)
        one.serve(conversation())
        one.close()
        last = {call.work.rid: call.work for call in one.calls}
        found.append({rid: work.tokens.tolist() for rid, work in last.items()})

    assert found[0] == found[1] == found[2]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_pool_that_cannot_hold_all_still_gives_every_bit(
    family: str, tmp_path: Path, served: Any, reference: Any
) -> None:
    """Evicted prefixes come back from the store in the middle of other requests' work, twice over."""
    model = random_model(family)
    one = served(model, tmp_path, device_pages=24, largest_request_tokens=320)
    one.serve(conversation(), answer=2)
    one.serve({f"{rid} again": ids for rid, ids in conversation().items()}, answer=2)
    one.close()

    assert 0.0 == reference(model).differs(one.calls)
    assert 0 < sum(store for _, store in one.hits.values())
    assert 0 == one.witness.counts.wrong == one.witness.counts.unknown
