"""The tokenizer that a GGUF file describes, and the turns of a chat in its words.

It owns the pre-tokenizer named "smollm": digits one by one, then byte-level pairs. Texts go in, token ids come out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from stagehold.serving.model.gguf import Gguf, GgufError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PRE_TOKENIZER = "smollm"
CONTROL = 3  # the file's mark of a token that no text may spell
TURN = ("<|im_start|>", "<|im_end|>")
SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


def build_tokenizer(file: Gguf) -> Tokenizer:
    """Byte-level pairs as the file's metadata has them; GgufError where it names another kind."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    for key, wanted in (("tokenizer.ggml.model", "gpt2"), ("tokenizer.ggml.pre", PRE_TOKENIZER)):
        if file.get(key, str) != wanted:
            raise GgufError(file.path, 0, f"{key} {wanted!r}", repr(file.get(key, str)))
    words, marks = file.get("tokenizer.ggml.tokens", list), file.get("tokenizer.ggml.token_type", list)
    merges = [str(pair).partition(" ")[::2] for pair in file.get("tokenizer.ggml.merges", list)]
    known = {word for word in words if isinstance(word, str)}
    if len(marks) != len(words) or len(known) != len(words) or not all(head and tail for head, tail in merges):
        raise GgufError(file.path, 0, "a mark for every token, each once, and merges in pairs", "others")
    if not all({head, tail, head + tail} <= known for head, tail in merges):
        raise GgufError(file.path, 0, "merges of tokens to tokens", "one with something else")
    tokenizer = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    if not set(TURN) <= set(words):
        raise GgufError(file.path, 0, f"the tokens {' and '.join(TURN)}", "others")
    special = [word for word, mark in zip(words, marks, strict=True) if mark == CONTROL]
    tokenizer.add_special_tokens([AddedToken(word, special=True, normalized=False) for word in special])
    return tokenizer


class Chat:
    """Turns into token ids. Every turn is encoded by itself, so that a longer chat begins with the shorter one's ids.

    A turn's text is text, whatever control words it quotes.
    """

    def __init__(self, tokenizer: Tokenizer, system: str = SYSTEM) -> None:
        self._tokenizer = tokenizer
        self._tokenizer.encode_special_tokens = True  # as text, that is
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self._start, self._end = (vocabulary[word] for word in TURN)
        self._opening = self._turn("system", system)

    def prompt(self, turns: Sequence[str]) -> npt.NDArray[np.uint32]:
        """The system's words, the user's turns, and the place where the answer begins: uint32 [tokens]."""
        ids = list(self._opening)
        for turn in turns:
            ids += self._turn("user", turn)
        ids += [self._start, *self._encode("assistant\n")]
        return np.array(ids, dtype=np.uint32)

    def text(self, ids: Sequence[int]) -> str:
        """What token ids spell."""
        return str(self._tokenizer.decode([int(one) for one in ids], skip_special_tokens=True))

    def _turn(self, role: str, text: str) -> list[int]:
        return [self._start, *self._encode(f"{role}\n{text}"), self._end, *self._encode("\n")]

    def _encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids
