"""Weights from strangers: the reader answers or refuses, in memory that the file's size explains."""

from __future__ import annotations

import struct
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stagehold.serving.model.gguf import Gguf, GgufError, read_gguf
from stagehold.serving.model.llama_gguf import llama_config
from stagehold.serving.model.tokenizer import PRE_TOKENIZER, TURN, Chat, build_tokenizer
from stagehold.testing.hostile import NUMBERS, attempt, corpus, damaged

HOSTILE = settings.get_profile("hostile")
CORPUS = corpus(Path(__file__).parent / "corpus" / "gguf")
NUMBER_KINDS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


def text(word: str) -> bytes:
    raw = word.encode()
    return struct.pack("<Q", len(raw)) + raw


def entry(key: str, kind: int, raw: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + raw


def tensor(name: str, sides: tuple[int, ...], kind: int, offset: int) -> bytes:
    return text(name) + struct.pack(f"<I{len(sides)}QIQ", len(sides), *sides, kind, offset)


LLAMA = {
    "vocab_size": 8, "embedding_length": 4, "feed_forward_length": 8, "block_count": 1, "attention.head_count": 2,
    "attention.head_count_kv": 1, "context_length": 16,
}  # fmt: skip


def model(**changed: Any) -> bytes:
    """A file with all that a Llama's configuration needs and two tensors; keys may be changed."""
    numbers = {**LLAMA, **changed}
    entries = [
        entry("general.architecture", 8, text("llama")),
        *(entry(f"llama.{key}", 11, struct.pack("<q", value)) for key, value in numbers.items()),
        entry("llama.attention.layer_norm_rms_epsilon", 6, struct.pack("<f", 1e-5)),
        entry("llama.rope.freq_base", 6, struct.pack("<f", 1e4)),
        entry("tokenizer.ggml.bos_token_id", 4, struct.pack("<I", 1)),
        entry("tokenizer.ggml.eos_token_id", 4, struct.pack("<I", 2)),
        entry("tokenizer.ggml.tokens", 9, struct.pack("<IQ", 8, 2) + text("a") + text("b")),
        entry("tokenizer.ggml.scores", 9, struct.pack("<IQ", 6, 2) + struct.pack("<2f", 0, 1)),
    ]
    tensors = [tensor("token_embd.weight", (4, 8), 0, 0), tensor("blk.0.attn_q.weight", (4, 4), 0, 128)]
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join([*entries, *tensors])
    return head + bytes(-len(head) % 32) + bytes(192)


SOUND = [model()]
WORDS = [
    text("llama"),
    text("general.alignment"),
    struct.pack("<I", 9),
    struct.pack("<IQ", 9, 1 << 20),
    text("x" * 300),
]


def read_tensors(path: Path) -> None:
    """The head, and the bytes of each tensor."""
    file = read_gguf(path)
    for one in file.tensors.values():
        assert one.start + one.n_bytes <= path.stat().st_size
        file.bytes_of(one)


def read(path: Path, raw: bytes) -> None:
    attempt(path, raw, read_tensors, refusals=GgufError, most=(1 << 20) + 40 * len(raw))


@settings(HOSTILE)
@given(raw=damaged(SOUND, WORDS) | st.binary(max_size=200).map(lambda tail: b"GGUF" + tail))
def test_any_file_is_read_or_refused(tmp_path: Path, raw: bytes) -> None:
    """Damage anywhere, and files that only begin as weights do."""
    read(tmp_path / "weights", raw)


VALUES = st.sampled_from([*NUMBER_KINDS]).flatmap(
    lambda kind: st.sampled_from(NUMBERS).map(
        lambda n: (kind, n.to_bytes(8, "little")[: struct.calcsize("<" + NUMBER_KINDS[kind])])
    )
)
ARRAYS = st.builds(
    lambda inner, count, body: (9, struct.pack("<IQ", inner, count) + body),
    st.integers(0, 13),
    st.sampled_from(NUMBERS) | st.integers(0, 40),
    st.binary(max_size=80),
)
TENSORS = st.builds(
    tensor,
    st.text(max_size=4),
    st.lists(st.sampled_from(NUMBERS), min_size=0, max_size=5).map(tuple),
    st.integers(0, 9),
    st.sampled_from(NUMBERS),
)


@settings(HOSTILE)
@given(
    entries=st.lists(st.tuples(st.text(max_size=3), VALUES | ARRAYS), max_size=4),
    tensors=st.lists(TENSORS, max_size=3),
    counts=st.none() | st.tuples(st.sampled_from(NUMBERS), st.sampled_from(NUMBERS)),
)
def test_any_head_is_read_or_refused(
    tmp_path: Path, entries: list[tuple[str, tuple[int, bytes]]], tensors: list[bytes], counts: tuple[int, int] | None
) -> None:
    """Well-formed pieces with numbers that no file should have."""
    told = counts or (len(tensors), len(entries))
    head = b"GGUF" + struct.pack("<IQQ", 3, *told)
    read(tmp_path / "weights", head + b"".join([*(entry(key, *value) for key, value in entries), *tensors]))


@pytest.fixture(name="library", scope="module")
def _library(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The library behind the configuration, loaded before anything is measured; the sound file is taken."""
    path = tmp_path_factory.mktemp("sound") / "weights"
    path.write_bytes(model())
    assert 1 == llama_config(read_gguf(path)).num_hidden_layers


SIZES = st.sampled_from([*(n for n in NUMBERS if n < 1 << 63), -1, -(1 << 62), 3, 7])


@settings(HOSTILE)
@given(changed=st.dictionaries(st.sampled_from(sorted(LLAMA)), SIZES, min_size=1, max_size=3))
@example(changed={"block_count": 1 << 40})
@example(changed={"attention.head_count": 0})
@example(changed={"vocab_size": (1 << 63) - 1})
@example(changed={"embedding_length": -1})
@pytest.mark.usefixtures("library")
def test_no_size_of_a_model_is_believed(tmp_path: Path, changed: dict[str, int]) -> None:
    """The configuration is refused before a model is made of it, whatever sizes the file tells."""

    def configured(path: Path) -> None:
        config = llama_config(read_gguf(path))
        assert config.num_hidden_layers <= 2
        assert config.hidden_size % config.num_attention_heads == 0

    attempt(tmp_path / "weights", model(**changed), configured, refusals=GgufError, most=64 << 20)


WORD = st.sampled_from(["a", "b", "ab", "abc", "é", "", " ", TURN[0], 5, None]) | st.text(max_size=2)
MERGE = st.sampled_from(["a b", "a  b", "ab c", "x y", " ", "", "b a ", 7]) | st.text(max_size=4)


@settings(HOSTILE)
@given(
    words=st.lists(WORD, max_size=6, unique_by=repr),
    marks=st.lists(st.sampled_from([1, 3, "x", None, 2.5]), min_size=8, max_size=8),
    merges=st.lists(MERGE, max_size=3),
    turns=st.booleans(),
)
@example(words=["cc"], marks=[1] * 8, merges=["b a "], turns=True)
@example(words=["a", 5], marks=[1] * 8, merges=[], turns=True)
def test_any_vocabulary_is_taken_or_refused(words: list[Any], marks: list[Any], merges: list[Any], turns: bool) -> None:
    """Tokens that are no text, merges of what is no token, control marks of any kind."""
    words = [*(TURN if turns else ()), *(word for word in words if not (turns and word in TURN))]
    metadata = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": PRE_TOKENIZER,
        "tokenizer.ggml.tokens": words,
        "tokenizer.ggml.token_type": marks[: len(words)],
        "tokenizer.ggml.merges": merges,
    }
    with suppress(GgufError):
        Chat(build_tokenizer(Gguf(Path("weights"), metadata, {}))).prompt(["abc <|im_start|> é"])


def test_arrays_take_no_more_than_all_may_have(tmp_path: Path) -> None:
    """Many long arrays are refused once there are more entries than any vocabulary has."""
    many = 300
    array = struct.pack("<IQ", 0, 1 << 16) + bytes(1 << 16)  # an entry takes a byte here, and eight in a list
    entries = [entry(f"k{index}", 9, array) for index in range(many)]
    raw = b"GGUF" + struct.pack("<IQQ", 3, 0, many) + b"".join(entries)

    with pytest.raises(GgufError, match="entries of all arrays"):
        attempt(tmp_path / "weights", raw, read_gguf, refusals=(), most=64 << 20)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_what_once_went_wrong_is_refused(tmp_path: Path, path: Path) -> None:
    """The inputs that were found: sound files of models that cannot be."""
    read(tmp_path / "weights", path.read_bytes())
    with pytest.raises(GgufError):
        llama_config(read_gguf(path))
