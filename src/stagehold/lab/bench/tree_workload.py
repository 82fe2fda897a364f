"""The workload of the tree bench: chats that grow turn by turn over shared system prompts, and lone long chains.

Owns the tokens and nothing else: the same seed gives every engine the same ones. Needs numpy alone, and no other module
of this package, since an interpreter of another environment loads this file by its path.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

SEED = 7_301
VOCABULARY = 128_000
PROMPTS = 32
LIVE_CHATS = 64
ZIPF = 1.1
TURN_TOKENS = 128
PROBES = 4
LENGTHS = (1_024, 8_192, 32_768, 131_072)
STRIDE = {1_024: 256, 8_192: 512, 32_768: 1_024, 131_072: 2_048}
"""Tokens of one turn of a probe, so that probes are 4, 16, 32 and 64 turns deep."""

Tokens = Any
"""numpy array of int64, one dimension; `Any`, since the other environment may have another numpy."""


class Job(NamedTuple):
    """Repetitions of one operation at one length; another `salt` brings other tokens."""

    length: int
    reps: int
    salt: int


def fresh(random: np.random.Generator, n: int) -> Tokens:
    """Tokens that nothing else begins with."""
    return random.integers(0, VOCABULARY, n)


def chats(turns: int) -> Iterator[Tokens]:
    """The whole chat so far, after each of `turns` turns, in the order in which they arrive."""
    random = np.random.default_rng(SEED)
    prompts = [fresh(random, int(random.integers(256, 1_025))) for _ in range(PROMPTS)]
    shares = np.arange(1, PROMPTS + 1) ** -ZIPF
    shares /= shares.sum()

    def begin() -> tuple[Tokens, int]:
        return prompts[int(random.choice(PROMPTS, p=shares))], int(random.integers(1, 9))

    live = [begin() for _ in range(LIVE_CHATS)]
    for _ in range(turns):
        place = int(random.integers(LIVE_CHATS))
        text, left = live[place]
        user, reply = int(random.integers(8, 65)), int(random.integers(16, 113))
        text = np.concatenate([text, fresh(random, user + reply)])
        yield text
        live[place] = (text, left - 1) if left > 1 else begin()


def probes(length: int) -> list[Tokens]:
    """Chains of a length that share nothing with the chats nor with each other."""
    random = np.random.default_rng([SEED, length])
    return [fresh(random, length) for _ in range(PROBES)]


def continuations(job: Job, kind: int) -> list[Tokens]:
    """One new turn for each repetition; operations of another `kind` get others."""
    random = np.random.default_rng([SEED, job.length, kind, job.salt])
    return [fresh(random, TURN_TOKENS) for _ in range(job.reps)]


def strangers(job: Job) -> list[Tokens]:
    """Prompts that were never seen."""
    random = np.random.default_rng([SEED, job.length, 0, job.salt])
    return [fresh(random, job.length) for _ in range(job.reps)]


def half_known(job: Job) -> list[Tokens]:
    """Texts whose first half is a probe's."""
    half, known = job.length // 2, probes(job.length)
    rests = strangers(Job(half, job.reps, job.salt))
    return [np.concatenate([known[i % PROBES][:half], rest]) for i, rest in enumerate(rests)]


def room(page: int, turns: int, lengths: list[int], reps: int) -> int:
    """Pages that hold the chats, the probes and all that a run inserts beside them."""
    tokens = turns * (110 + page) + PROMPTS * 1_100
    for length in lengths:
        tokens += PROBES * length + 8 * reps * (TURN_TOKENS + page)
    return tokens // page + 1_024
