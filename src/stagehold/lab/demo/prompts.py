"""The demo's prompts: the first turns of real agent sessions, shipped with the package, as token ids.

Owns the file's format and the classes of prompts. A session's later prompt begins with its earlier one.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson

from stagehold.serving.model.smollm import Loaded

SHIPPED = "miniswe/sessions.jsonl.gz"
LONG_CHARACTERS = 9_000
BYTES_FOR_A_TOKEN = 3.5
"""Models that read bytes get a prompt's beginning only, of about as many tokens as the others make of the whole."""


class Kind(StrEnum):
    """What a prompt shows. Openings come one after the other, all second turns at once, then all third ones."""

    SHORT = "opening, 1,500"
    LONG = "opening, 4,000"
    SHARED = "opening, seen before"
    TURN = "later turns, all at once"


@dataclass(frozen=True, slots=True)
class Session:
    """One session: its turns, each as what it adds."""

    name: str
    turns: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """One request of the demo; `tokens` are uint32."""

    rid: str
    session: str
    turn: int
    kind: Kind
    tokens: npt.NDArray[np.uint32]


def shipped_sessions() -> list[Session]:
    """The sessions that come with the package, in file order."""
    raw = gzip.decompress((Path(str(files("stagehold.lab") / "data")) / SHIPPED).read_bytes())
    rows = [orjson.loads(line) for line in raw.splitlines()]
    return [Session(row["name"], tuple(row["turns"])) for row in rows]


def prompts_of(sessions: Sequence[Session], loaded: Loaded, *, share: float = 1.0) -> list[Prompt]:
    """Every prompt: openings in the order of their sessions, then second turns, then third ones.

    `share` is how much of each turn's text is used.
    """
    share = share if loaded.real else share / BYTES_FOR_A_TOKEN
    rows: list[list[Prompt]] = []
    seen: list[str] = []
    for session in sessions:
        turns = [turn[: max(1, int(len(turn) * share))] for turn in session.turns]
        chats = [loaded.chat.prompt(turns[: number + 1]) for number in range(len(turns))]
        opening = _opening(session.turns[0], again=turns[0] in seen)
        seen.append(turns[0])
        kinds = [opening] + [Kind.TURN] * (len(chats) - 1)
        rows.append(
            [
                Prompt(f"{session.name}, turn {number}", session.name, number, kind, tokens)
                for number, (kind, tokens) in enumerate(zip(kinds, chats, strict=True), start=1)
            ]
        )
    return [prompt for column in zip_longest(*rows) for prompt in column if prompt is not None]


def _opening(text: str, *, again: bool) -> Kind:
    if again:
        return Kind.SHARED
    return Kind.LONG if len(text) > LONG_CHARACTERS else Kind.SHORT


def distinct_pages(prompts: Sequence[Prompt], page_size: int) -> int:
    """How many different whole pages the prompts have, which is what a pool that forgets nothing would hold."""
    return len(
        {
            prompt.tokens[: (page + 1) * page_size].tobytes()
            for prompt in prompts
            for page in range(len(prompt.tokens) // page_size)
        }
    )
