"""The prefixes that a trace has shown so far: how far a prompt was seen, since when, and what came in between.

It owns one entry per distinct prefix of whole blocks, known by a 64-bit fingerprint of its ids. Prefixes that were
seen are closed towards the front, so the first unseen one is found by halving, and those before it by the prompts that
brought them: what one prompt adds has consecutive places, and one place that it grew from.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stagehold.serving.words import Words, scramble

Ints = npt.NDArray[np.int64]
_STEP = np.uint64(0x9E3779B97F4A7C15)  # odd, so that no power of it vanishes


class _Powers:
    """Powers of the step, each the weight of one place; made when a longer prompt comes."""

    def __init__(self) -> None:
        self._known: Words = np.zeros(0, dtype=np.uint64)

    def upto(self, count: int) -> Words:
        if count > len(self._known):
            self._known = np.cumprod(np.full(2 * count, _STEP, dtype=np.uint64), dtype=np.uint64)
        return self._known[:count]


_POWERS = _Powers()


def prints(words: Words) -> Words:
    """The fingerprint of each prefix of `words`: a sum in which each place has a weight of its own."""
    return np.cumsum(scramble(words) * _POWERS.upto(len(words)), dtype=np.uint64)


def page_words(tokens: npt.NDArray[np.uint32], page_size: int) -> Words:
    """One word for the content of each whole page of `tokens`."""
    whole = len(tokens) // page_size
    places = np.arange(page_size, dtype=np.uint64) << np.uint64(32)
    words: Words = scramble(tokens[: whole * page_size].reshape(whole, page_size) + places).sum(axis=1, dtype=np.uint64)
    return words


@dataclass(frozen=True, slots=True)
class Use:
    """What a prompt met: `known` leading blocks seen before, the last of them first at `produced_ms`.

    `distances` are blocks of other prefixes that were used since those blocks were used last, `blocks` how many of
    the known ones have each distance.
    """

    known: int
    produced_ms: int
    distances: Ints
    blocks: Ints


NOTHING = np.zeros(0, dtype=np.int64)


class Prefixes:
    """Every distinct prefix with its first and its latest use."""

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._grown = [0]
        self._from = [-1]
        self._last = NOTHING
        self._born = NOTHING
        self._latest = Fenwick()

    def __len__(self) -> int:
        return len(self._places)

    def use(self, blocks: Sequence[int], arrival_ms: int) -> Use:
        """A prompt of these whole blocks arrives; arrivals do not go back."""
        marks = prints(np.fromiter(blocks, np.uint64, len(blocks)))
        known = bisect_left(marks, True, key=lambda one: int(one) not in self._places)
        number = self._latest.append()
        last = self._places[int(marks[known - 1])] if known else -1
        found = self._met(known, last, number)
        self._add(marks[known:].tolist(), last, arrival_ms, number)
        return found

    def _spans(self, place: int) -> Iterator[slice]:
        """Places of a prefix and of all that lead to it, from its end."""
        while place >= 0:
            run = bisect_right(self._grown, place) - 1
            yield slice(self._grown[run], place + 1)
            place = self._from[run]

    def _met(self, known: int, place: int, number: int) -> Use:
        """The `known` prefixes up to the one at `place` are used again."""
        if not known:
            return Use(0, 0, NOTHING, NOTHING)
        spans = list(self._spans(place))
        since, blocks = np.unique(np.concatenate([self._last[span] for span in spans]), return_counts=True)
        distances = np.array([len(self) - self._latest.upto(last) for last in since.tolist()], dtype=np.int64)
        for last, count in zip(since.tolist(), blocks.tolist(), strict=True):
            self._latest.add(last, -count)
        self._latest.add(number, known)
        for span in spans:
            self._last[span] = number
        return Use(known, int(self._born[place]), distances, blocks.astype(np.int64))

    def _add(self, marks: list[int], last: int, arrival_ms: int, number: int) -> None:
        first, count = len(self._places), len(marks)
        if count and first:
            self._grown.append(first)
            self._from.append(last)
        self._places.update(zip(marks, range(first, first + count), strict=True))
        if first + count > len(self._last):
            more = np.zeros(max(count, len(self._last)), dtype=np.int64)
            self._last, self._born = np.concatenate((self._last, more)), np.concatenate((self._born, more))
        self._last[first : first + count] = number
        self._born[first : first + count] = arrival_ms
        self._latest.add(number, count)


class Fenwick:
    """Counts by place with sums over the places before, places being added at the end."""

    def __init__(self) -> None:
        self._tree = [0]

    def append(self) -> int:
        """A new place with nothing at it; returns it, from 1."""
        place = len(self._tree)
        self._tree.append(self.upto(place - 1) - self.upto(place - (place & -place)))
        return place

    def add(self, place: int, count: int) -> None:
        """Add `count` at a place."""
        while place < len(self._tree):
            self._tree[place] += count
            place += place & -place

    def upto(self, place: int) -> int:
        """What the places from 1 to `place` have in all."""
        total = 0
        while place:
            total += self._tree[place]
            place &= place - 1
        return total
