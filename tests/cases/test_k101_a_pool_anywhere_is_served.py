"""K101: a draft model's pool lay outside the memory that the store had registered, and the server crashed at its start.

Here no memory is registered with a store: a pool that comes beside the first one is served wherever it lies, and one
that a store cannot serve is refused by name before anything is written.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch

from stagehold.adapters.sglang.backend import Backend

_SPEC = importlib.util.spec_from_file_location(
    "sglang_double_k101", Path(__file__).resolve().parents[1] / "adapters" / "sglang" / "double.py"
)
double = sys.modules["sglang_double_k101"] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(double)


@pytest.mark.parametrize("width", [64, 256])
def test_a_draft_pool_beside_the_first_is_served(tmp_path, width: int) -> None:
    """Of the same page size or another, registered after the first pages were written."""
    backend = Backend(double.config(f"file://{tmp_path}"))
    kv, draft = double.Pool(), double.Pool(width=width)
    keys = double.keys_of(2)
    backend.register_mem_pool_host(kv)
    assert [True, True] == backend.batch_set_v1(keys, double.slots(0, 1))
    backend.register_mem_host_pool_v2(draft, "draft")
    draft.fill(1)
    assert {"draft": [True, True]} == backend.batch_set_v2([double.transfer("draft", keys, double.slots(0, 1))])
    assert {"draft": [True, True]} == backend.batch_get_v2([double.transfer("draft", keys, double.slots(5, 6))])
    assert torch.equal(draft.get_data_page(0), draft.get_data_page(20))
    backend.close()


def test_a_pool_that_the_store_cannot_serve_is_named(tmp_path) -> None:
    """The first one is served all the same."""
    backend = Backend(double.config(f"file://{tmp_path}?form=packed"))
    backend.register_mem_pool_host(double.Pool())
    with pytest.raises(ValueError, match=r"form=packed is for pages of one size.*with pool 'draft'"):
        backend.register_mem_host_pool_v2(double.Pool(width=256), "draft")
    keys = double.keys_of(1)
    assert [True] == backend.batch_set_v1(keys, double.slots(0))
    backend.close()
