"""What is looked at when a server starts: what is not served is refused by name, with what to do instead."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from stagehold import Engine
from stagehold.adapters.vllm.blocks import LayerBlocks
from stagehold.adapters.vllm.identity import fingerprint
from stagehold.adapters.vllm.layout import Layer, engine_config, layout_of
from stagehold.adapters.vllm.memory import forget_names, make, mapped, move_to
from stagehold.adapters.vllm.options import ConnectorRefused, Options, read_options
from stagehold.adapters.vllm.refusals import refuse_unserved
from stagehold.adapters.vllm.tier import Tier
from stagehold.adapters.vllm.worker import WorkerSide

from .bench import SIZE, FullAttentionSpec, SlidingWindowSpec, bench, block_bytes, cache_config, layout


def vllm_config(**changes):
    """One that is served, but for what is changed: `part.name` becomes `part__name`."""
    config = SimpleNamespace(
        kv_transfer_config=SimpleNamespace(kv_load_failure_policy="recompute", kv_role="kv_both"),
        parallel_config=SimpleNamespace(world_size=1),
        scheduler_config=SimpleNamespace(async_scheduling=False),
        device_config=SimpleNamespace(device_type="cpu"),
        model_config=SimpleNamespace(
            is_encoder_decoder=False,
            model="m",
            revision=None,
            dtype=torch.float32,
            quantization=None,
            hf_config=SimpleNamespace(to_dict=lambda: {"layers": 2}),
        ),
        cache_config=SimpleNamespace(cache_dtype="auto"),
        speculative_config=None,
    )
    for path, value in changes.items():
        *parts, name = path.split("__")
        owner = config
        for part in parts:
            owner = getattr(owner, part)
        setattr(owner, name, value)
    return config


def test_what_is_served_is_not_refused():
    """A whole model on the CPU."""
    refuse_unserved(vllm_config())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"parallel_config__world_size": 4}, "split over 4 processes"),
        ({"device_config__device_type": "cuda"}, "device type 'cuda'"),
        ({"scheduler_config__async_scheduling": True}, "--no-async-scheduling"),
        ({"speculative_config": object()}, "speculative decoding"),
        ({"kv_transfer_config__kv_load_failure_policy": "fail"}, "set it to 'recompute'"),
        ({"kv_transfer_config__kv_role": "kv_producer"}, "kv_role='kv_producer'"),
        ({"model_config__is_encoder_decoder": True}, "encoder-decoder"),
    ],
)
def test_what_is_not_served_is_named(changes, said):
    """Each by itself."""
    with pytest.raises(ConnectorRefused, match=said):
        refuse_unserved(vllm_config(**changes))


def test_all_reasons_are_told_at_once():
    """Not one at each start."""
    with pytest.raises(ConnectorRefused, match=r"4 processes.*speculative"):
        refuse_unserved(vllm_config(parallel_config__world_size=4, speculative_config=object()))


@pytest.mark.parametrize(
    ("given", "said"),
    [({"stor": "x"}, "stor: .*Known are store"), ({"loads": "later"}, "loads: "), ({"pool_pages": 0}, "pool_pages: ")],
)
def test_a_wrong_option_is_named(given, said):
    """With what there is."""
    with pytest.raises(ConnectorRefused, match=said):
        read_options(given)


def config_of(*specs) -> SimpleNamespace:
    groups = [SimpleNamespace(layer_names=[f"l{at}"], kv_cache_spec=spec) for at, spec in enumerate(specs)]
    return SimpleNamespace(num_blocks=8, kv_cache_groups=groups)


class MambaSpec(SimpleNamespace):
    """A kind of layer that is not served."""


def test_a_kind_of_layer_that_is_not_served_is_named():
    """So are blocks of several sizes, and windows without a full layer."""
    full = FullAttentionSpec(block_size=4, unpadded_page_size_bytes=64)
    with pytest.raises(ConnectorRefused, match="layer l1: MambaSpec is not served; served are FullAttentionSpec"):
        layout_of(config_of(full, MambaSpec(block_size=4)), 4)
    with pytest.raises(ConnectorRefused, match="blocks of 8 tokens beside some of 4"):
        layout_of(config_of(full, FullAttentionSpec(block_size=8, unpadded_page_size_bytes=128)), 4)
    narrow = SlidingWindowSpec(block_size=4, unpadded_page_size_bytes=64, sliding_window=9)
    with pytest.raises(ConnectorRefused, match=r"sliding windows alone \(\[9\] tokens\).*--disable-hybrid"):
        layout_of(config_of(narrow), 4)


def test_groups_of_one_window_are_one_component():
    """Two groups of windows, one of full attention; a group may have a spec for each layer."""
    full, window = layout("gemma").kinds
    assert ("full", (2,), "window_10", (0, 1)) == (full.name, full.groups, window.name, window.groups)
    assert (2 * block_bytes(), 4 * block_bytes()) == (full.page_bytes, window.page_bytes)
    assert [0, 1, 2, 3] == [layer.offset // block_bytes() for layer in window.layers]
    wide = FullAttentionSpec(block_size=4, unpadded_page_size_bytes=96)
    both = SimpleNamespace(
        kv_cache_specs={"a": wide, "b": FullAttentionSpec(block_size=4, unpadded_page_size_bytes=64)}
    )
    one = SimpleNamespace(num_blocks=8, kv_cache_groups=[SimpleNamespace(layer_names=["a", "b"], kv_cache_spec=both)])
    assert 160 == layout_of(one, 4).kinds[0].page_bytes


def test_a_pool_too_small_for_a_request_is_refused_with_its_arithmetic():
    """Before anything is allocated."""
    with pytest.raises(ConnectorRefused, match=r"pools of 8 pages for requests of 160 tokens: .*device_pages=8"):
        engine_config(layout("llama"), Options(pool_pages=8), model_tokens=160, step_tokens=32)
    with pytest.raises(ConnectorRefused, match=r"window_10.*device_pages=5"):
        engine_config(layout("gemma"), Options(window_pages=5), model_tokens=160, step_tokens=32)


def test_a_store_that_cannot_be_opened_is_refused():
    """With the store's own sentence."""
    config = engine_config(layout("llama"), Options(), model_tokens=160, step_tokens=32)
    with pytest.raises(ConnectorRefused, match="unknown scheme 'nowhere'"):
        Tier(config, Options(store="nowhere://x"), "test")


def test_memory_that_is_not_there_is_refused(tmp_path):
    """A folder that does not exist, and one that is too small."""
    with pytest.raises(ConnectorRefused, match="No such file"):
        make(str(tmp_path / "gone"), "e", {"full": (1, 1)})
    with pytest.raises(ConnectorRefused, match=r"needs 1\d{18} bytes"):
        make(str(tmp_path), "e", {"full": (10**9, 10**9)})


def test_two_maps_of_a_pool_are_one_memory(tmp_path):
    """Also when the name is gone; and an engine's tensor can be moved there."""
    (pool,) = make(str(tmp_path), "e", {"full": (3, 8)})
    assert 0o600 == Path(pool.path).stat().st_mode & 0o777
    tensor = torch.zeros((1, 3, 8), dtype=torch.uint8)
    move_to(tensor, pool)
    other = mapped(pool)
    forget_names((pool,))
    assert [] == list(tmp_path.iterdir())
    tensor[0, 1] = 7
    assert [0, 56, 0] == other.sum(dim=(0, 2)).tolist()


def test_no_name_is_left_behind(tmp_path):
    """Gone after the first step, and where the server ends without one."""
    with bench("gemma", pool_folder=str(tmp_path)) as b:
        assert 2 == len(list(tmp_path.iterdir()))
        b.serve("one", [1, 2, 3])
        assert [] == list(tmp_path.iterdir())
    with bench("llama", pool_folder=str(tmp_path)):
        pass
    assert [] == list(tmp_path.iterdir())


def test_a_cache_of_another_shape_is_refused():
    """Missing, or of blocks that are not as large as they should be."""
    side = WorkerSide(layout("llama"))
    with pytest.raises(ConnectorRefused, match=r"layer layer.0: vLLM registered no cache; it has other"):
        side.register({"other": torch.zeros(1)})
    with pytest.raises(ConnectorRefused, match=r"expected a cache of .64 blocks"):
        side.register({"layer.0": torch.zeros((63, 2, 4, 4))})
    with pytest.raises(ConnectorRefused, match=f"has {2 * block_bytes()} bytes, expected {block_bytes()}"):
        side.register({"layer.0": torch.zeros((64, 2, 4, 8))})


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float8_e4m3fn])
@pytest.mark.parametrize("cut", [1, 2])
def test_a_block_has_the_same_bytes_in_every_layout(dtype, cut):
    """Heads first, tokens first, or cut in two for a kernel: what one saves another can load."""
    heads, tokens, content = 2, 4, 8
    values = torch.randint(0, 255, (5, heads, tokens, content * dtype.itemsize), dtype=torch.uint8).view(dtype)
    layer = Layer("l", 0, 16, heads * tokens * content * dtype.itemsize)
    plain = LayerBlocks(layer, values.clone(), 5)
    turned = torch.zeros((5, tokens, heads, content), dtype=torch.uint8).to(dtype).transpose(1, 2)
    pieces = torch.zeros((5 * cut, heads, tokens // cut, content), dtype=torch.uint8).to(dtype)
    pool = torch.zeros((1, 4, 16 + layer.size + 3), dtype=torch.uint8)
    plain.save([3, 1], pool, [0, 2])
    for cache in (turned, pieces):
        other = LayerBlocks(layer, cache, 5)
        again = torch.zeros_like(pool)
        other.load(pool, [0, 2], [4, 2])
        other.save([4, 2], again, [0, 2])
        assert torch.equal(pool, again)
    assert torch.equal(turned[4].contiguous().view(torch.uint8), values[3].view(torch.uint8))
    assert not pool[0, :, :16].any()
    assert not pool[0, [1, 3]].any()


def test_the_fingerprint_tells_models_and_layouts_apart():
    """Each of what changes the bytes of a page; and the same twice is the same."""
    one = layout("llama")
    found = {fingerprint(vllm_config(), one), fingerprint(vllm_config(), one)}
    assert 1 == len(found)
    for changes in (
        {"model_config__model": "n"},
        {"model_config__revision": "2"},
        {"model_config__dtype": torch.bfloat16},
        {"model_config__quantization": "awq"},
        {"cache_config__cache_dtype": "fp8"},
        {"model_config__hf_config": SimpleNamespace(to_dict=lambda: {"layers": 3})},
    ):
        found.add(fingerprint(vllm_config(**changes), one))
    found |= {fingerprint(vllm_config(), layout("gemma")), fingerprint(vllm_config(), layout("gemma", window=9))}
    assert 9 == len(found)


def test_the_engine_is_an_engine(tmp_path):
    """Its page size is vLLM's block, and its pool is where both sides see it."""
    with bench("gemma", pool_folder=str(tmp_path)) as b:
        assert isinstance(b.engine, Engine)
        assert SIZE == b.engine.config.page_size
        assert 10 - 1 == b.engine.config.components[0].window_tokens


def test_vllm_is_not_needed_to_import_the_package():
    """Only the connector itself asks for it."""
    assert cache_config("llama", 4)
    program = (
        "import sys, stagehold.adapters.vllm as v, stagehold.adapters.vllm.orders\n"
        "assert 'vllm' not in sys.modules\n"
        "try: v.StageholdConnector\n"
        "except ModuleNotFoundError as e: assert e.name == 'vllm', e\n"
        "try: v.Other\n"
        "except AttributeError as e: assert 'StageholdConnector' in str(e)\n"
        "else: raise SystemExit(1)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
