"""The model for people, from its package: every weight, the words of its tokenizer, and what getting ready costs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from transformers.cache_utils import DynamicCache

from stagehold.cache.components.full import FULL
from stagehold.serving.model.gguf import GgufError, read_gguf
from stagehold.serving.model.layouts import layout_of
from stagehold.serving.model.llama_gguf import _library_name, llama_config, llama_weights, load_llama
from stagehold.serving.model.paged import TransformersModel
from stagehold.serving.model.smollm import Loaded, find_smollm, load_smollm
from stagehold.serving.model.tokenizer import build_tokenizer

READY = """
import json, pathlib, time
import torch
from transformers import LlamaForCausalLM
from tokenizers import Tokenizer
from stagehold.serving.model.layouts import layout_of
from stagehold.serving.model.paged import TransformersModel
from stagehold.serving.model.smollm import find_smollm, load_smollm
start = time.process_time()
loaded = load_smollm(find_smollm())
seconds = time.process_time() - start
# What getrusage calls the peak begins with what the parent had.
words = pathlib.Path("/proc/self/status").read_text().split()
print(json.dumps([seconds, int(words[words.index("VmHWM:") + 1]) * 1024]))
"""


@pytest.fixture(name="path", scope="module")
def _path() -> Path:
    path = find_smollm()
    assert path is not None, "the model's package is part of the set-up"
    return path


@pytest.fixture(name="loaded", scope="module")
def _loaded(path: Path) -> Loaded:
    return load_smollm(path)


def test_every_weight_is_that_of_the_format_s_own_package(path: Path, loaded: Loaded) -> None:
    """All 272 tensors bitwise; the rows of Q and K in the library's order of rotary halves."""
    weights = dict(loaded.model.named_parameters())
    names, file = set(), read_gguf(path)
    for theirs in gguf.GGUFReader(path).tensors:
        right = gguf.quants.dequantize(theirs.data, theirs.tensor_type)
        name = _library_name(file, theirs.name)
        if "attn_q" in theirs.name or "attn_k" in theirs.name:
            right = np.concatenate([head[[*range(0, 64, 2), *range(1, 64, 2)]] for head in right.reshape(-1, 64, 576)])
        assert np.array_equal(right.view(np.uint32), weights[name].numpy().view(np.uint32)), name
        names.add(name)

    assert 272 == len(names)
    assert names == set(weights)


def test_nothing_is_left_without_storage(loaded: Loaded) -> None:
    """Parameters and buffers are all on the host, the rotary frequencies too; the output is tied to the embedding."""
    model = loaded.model

    assert {"cpu"} == {t.device.type for t in (*model.parameters(), *model.buffers())}
    assert {torch.float32} == {t.dtype for t in model.parameters()}
    assert model.lm_head.weight is model.model.embed_tokens.weight
    assert torch.equal(model.model.rotary_emb.inv_freq, 1.0 / 100_000.0 ** (torch.arange(0, 64, 2) / 64))


def test_it_answers_as_a_trained_model_does(loaded: Loaded) -> None:
    """Weights, rotary order, tokenizer and turns fit together."""
    ids = torch.from_numpy(loaded.chat.prompt(["Name the capital of France."]).astype(np.int64))[None]
    with torch.inference_mode():
        answer = loaded.model.generate(ids, max_new_tokens=8, do_sample=False)[0, ids.shape[1] :]

    assert "The capital of France is Paris." == loaded.chat.text(answer.tolist()).splitlines()[0]


def test_digits_are_split_before_pairs_are_merged(path: Path) -> None:
    """The pre-tokenizer that the metadata names: each digit by itself, also behind white space."""
    tokenizer = build_tokenizer(read_gguf(path))

    assert ["1", "9", "8", "4"] == tokenizer.encode("1984").tokens
    assert ["x", "Ġ", "4", "2"] == tokenizer.encode("x 42").tokens
    assert "Ünïcödé  4 2\n" == tokenizer.decode(tokenizer.encode("Ünïcödé  4 2\n").ids)


def test_a_longer_chat_begins_with_the_shorter_one(loaded: Loaded) -> None:
    """All tokens but those that open the answer."""
    short, long = loaded.chat.prompt(["one"]), loaded.chat.prompt(["one", "two"])
    opening = len(short) - 3

    assert np.array_equal(short[:opening], long[:opening])


def test_a_turn_cannot_spell_control_words(loaded: Loaded) -> None:
    """A user's text that quotes them is text."""
    ids = loaded.chat.prompt(["<|im_end|>"])

    assert 2 == int((ids == 2).sum()), "the system's end and the user's"


def test_a_file_of_another_kind_is_refused(path: Path) -> None:
    """The architecture and the pre-tokenizer are looked at, and a tensor that a Llama has not."""
    file = read_gguf(path)
    tensor = file.tensors.pop("output_norm.weight")

    file.tensors["output_nrom.weight"] = tensor
    with pytest.raises(GgufError, match=r"expected a tensor of a Llama, found 'output_nrom.weight'"):
        llama_weights(file)
    file.metadata["general.architecture"] = "gpt2"
    with pytest.raises(GgufError, match=r"expected general.architecture 'llama', found 'gpt2'"):
        llama_config(file)
    file.metadata["tokenizer.ggml.pre"] = "default"
    with pytest.raises(GgufError, match=r"expected tokenizer.ggml.pre 'smollm', found 'default'"):
        build_tokenizer(file)


def test_it_is_ready_soon_and_small() -> None:
    """At most 12 seconds of computing behind the imports, at most 1.2 GB at the peak, in a process of its own."""
    done = subprocess.run([sys.executable, "-c", READY], check=True, capture_output=True, text=True, env=os.environ)
    seconds, peak_bytes = json.loads(done.stdout)

    assert seconds <= 12
    assert peak_bytes <= 1.2e9


@pytest.mark.parametrize("cut", [64, 192, 256, 304])
def test_a_cut_at_a_page_gives_the_bits_of_the_same_two_calls(cut: int, loaded: Loaded) -> None:
    """Real weights from paged pools, against the library's own cache; and one call for both is no further than 1e-4."""
    page = layout_of(loaded.model.config, 16, torch.float32).components[FULL]
    pools = {FULL: page.pool(24)}
    paged, slots = TransformersModel(loaded.model, 16, pools), {FULL: np.random.default_rng(0).permutation(24)}
    tokens = loaded.chat.prompt([Path(__file__).read_text()])[:320]
    cache = DynamicCache(config=loaded.model.config)
    for part in (tokens[:cut], tokens[cut:]):
        ids = torch.from_numpy(part.astype(np.int64))[None]
        with torch.inference_mode():
            expected = loaded.model(input_ids=ids, cache=cache, use_cache=True, logits_to_keep=1).logits[0, -1]

    paged.forward(tokens[:cut], 0, slots)

    assert torch.equal(expected, paged.forward(tokens[cut:], cut, slots))
    assert float((paged.forward(tokens, 0, slots) - expected).abs().max()) <= 1e-4


def test_a_file_that_lacks_a_tensor_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The name and the shape that were expected are said."""
    file = read_gguf(path)
    monkeypatch.setattr("stagehold.serving.model.llama_gguf.dequantise", lambda _, tensor: torch.empty(tensor.shape))
    del file.tensors["output_norm.weight"]

    with pytest.raises(GgufError, match=r"expected model.norm.weight of shape \(576,\), found none"):
        load_llama(file)
