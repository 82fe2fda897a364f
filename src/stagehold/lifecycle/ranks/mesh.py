"""How ranks are numbered in a server that splits its model several ways, and which of them share scheduling.

Owns the arithmetic. Ranks are numbered with the tensor rank fastest, then context, pipeline and data.
"""

from __future__ import annotations

from dataclasses import dataclass

from stagehold.cache.keys import RankCoordinates
from stagehold.lifecycle.errors import Misuse


@dataclass(frozen=True, slots=True)
class Mesh:
    """Sizes of the four ways in which ranks are split, each at least 1.

    Data-parallel replicas schedule requests of their own, each replica is a group of its own. Whoever works on the same
    requests shares scheduling: all tensor and context ranks of a stage, and all stages behind it. `Misuse` for a size
    below 1 and for a rank that there is not.

    >>> mesh = Mesh(tensor=2, pipeline=2)
    >>> mesh.exchanging(3), mesh.sharing(3)
    ((2, 3), (0, 1, 2, 3))
    """

    tensor: int = 1
    context: int = 1
    pipeline: int = 1
    data: int = 1

    def __post_init__(self) -> None:
        if min(self.tensor, self.context, self.pipeline, self.data) < 1:
            raise Misuse(f"{self}: expected at least one rank each way")

    @property
    def size(self) -> int:
        """Ranks in all."""
        return self.width * self.pipeline * self.data

    @property
    def width(self) -> int:
        """Ranks of one stage: those that make an exchange together."""
        return self.tensor * self.context

    def replica(self, rank: int) -> int:
        """Which replica serves this rank's requests."""
        return self._checked(rank) // (self.width * self.pipeline)

    def stage(self, rank: int) -> int:
        """Which stage of its pipeline the rank is in."""
        return self._checked(rank) // self.width % self.pipeline

    def exchanging(self, rank: int) -> tuple[int, ...]:
        """The ranks that this one exchanges facts with, itself among them: its stage's, whatever is split there."""
        first = self._checked(rank) // self.width * self.width
        return tuple(range(first, first + self.width))

    def sharing(self, rank: int) -> tuple[int, ...]:
        """All ranks that share scheduling with this one: the stages of its replica."""
        each = self.width * self.pipeline
        first = self.replica(rank) * each
        return tuple(range(first, first + each))

    def coordinates(self, rank: int, *, same_bytes: bool = False) -> RankCoordinates:
        """Where the rank stands as far as it changes the bytes of a page.

        A context rank's share of the tokens is a share like any other. With `same_bytes` all ranks of a stage hold the
        same (a latent KV that is not split by heads), and one object serves them all.
        """
        place = 0 if same_bytes else self._checked(rank) % self.width
        return RankCoordinates(place, 1 if same_bytes else self.width, self.stage(rank), self.pipeline)

    def _checked(self, rank: int) -> int:
        if not 0 <= rank < self.size:
            raise Misuse(f"rank {rank}: expected 0 to {self.size - 1}")
        return rank
