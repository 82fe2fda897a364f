"""Where the boxes and arrows of a machine go: a small layered layout, top to bottom.

Owns coordinates only (pixels). States are read in their declared order, which tells the story, so an arrow to
a state declared earlier is a way back and pushes nothing down. Every arrow's caption is laid out as a box of
its own, half way, so that nothing is drawn over anything. Nothing here depends on hashing or chance.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

GAP_X, GAP_Y, SWEEPS = 18.0, 26.0, 12
PULL = 0.95
"""Below one, so that parts of a machine that no arrow ties together stay near the axis (x = 0)."""

Size = tuple[float, float]
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Link:
    """An arrow to be laid out, from box to box, with the size of its caption."""

    source: int
    target: int
    caption: Size


@dataclass(frozen=True, slots=True)
class Laid:
    """Centres of the boxes, points of each arrow from its source on, centres of captions, full size."""

    boxes: tuple[Point, ...]
    wires: tuple[tuple[Point, ...], ...]
    captions: tuple[Point, ...]
    width: float
    height: float


@dataclass(slots=True)
class _Spot:
    """Something that takes room in a rank: a box, a caption, or the bend of an arrow that passes by."""

    rank: int
    width: float
    height: float
    x: float = 0.0
    above: list[int] = field(default_factory=list)
    below: list[int] = field(default_factory=list)


def lay_out(boxes: Sequence[Size], links: Sequence[Link]) -> Laid:
    """Place `boxes` (in reading order) and `links`. No link may lead from a box to itself."""
    assert all(link.source != link.target for link in links), "a loop is written into its box, not drawn"
    ranks = _ranks(len(boxes), links)
    spots = [_Spot(2 * rank, width, height) for rank, (width, height) in zip(ranks, boxes, strict=True)]
    chains = [_chain(spots, link) for link in links]
    rows = _rows(spots)
    _untangle(spots, rows)
    _spread(spots, rows)
    return _measured(spots, rows, len(boxes), chains)


def _ranks(count: int, links: Sequence[Link]) -> list[int]:
    """The longest way down to each box along the arrows that lead forward."""
    ranks = [0] * count
    for link in sorted(links, key=lambda link: link.source):
        if link.source < link.target:
            ranks[link.target] = max(ranks[link.target], ranks[link.source] + 1)
    return ranks


def _chain(spots: list[_Spot], link: Link) -> tuple[list[int], int]:
    """Add the spots that an arrow passes; returns all of them from source to target, and the caption's."""
    top, end = sorted((link.source, link.target), key=lambda index: (spots[index].rank, index))
    between = range(spots[top].rank + 1, spots[end].rank) or range(spots[top].rank + 1, spots[top].rank + 2)
    middle = between[len(between) // 2]
    chain, caption = [top], -1
    for rank in between:
        width, height = link.caption if rank == middle else (2.0, 0.0)
        caption = len(spots) if rank == middle else caption
        _join(spots, chain[-1], len(spots), _Spot(rank, width, height))
        chain.append(len(spots) - 1)
    _tie(spots, chain[-1], end)
    chain.append(end)
    return (chain if top == link.source else chain[::-1]), caption


def _join(spots: list[_Spot], upper: int, lower: int, spot: _Spot) -> None:
    spots.append(spot)
    _tie(spots, upper, lower)


def _tie(spots: list[_Spot], upper: int, lower: int) -> None:
    if spots[upper].rank < spots[lower].rank:
        spots[upper].below.append(lower)
        spots[lower].above.append(upper)
    else:
        spots[upper].above.append(lower)
        spots[lower].below.append(upper)


def _rows(spots: Sequence[_Spot]) -> list[list[int]]:
    rows: list[list[int]] = [[] for _ in range(max(spot.rank for spot in spots) + 1)]
    for index, spot in enumerate(spots):
        rows[spot.rank].append(index)
    return rows


def _untangle(spots: Sequence[_Spot], rows: list[list[int]]) -> None:
    """Order each rank by the mean place of its ties, down and up again; keep the best order seen."""
    best, fewest = [list(row) for row in rows], _crossings(spots, rows)
    for sweep in range(SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            place = {index: at for other in rows for at, index in enumerate(other)}
            row.sort(key=lambda index: (_mean(_ties(spots[index], down=down), place, place[index]), place[index]))
        crossings = _crossings(spots, rows)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    for row, order in zip(rows, best, strict=True):
        row[:] = order


def _ties(spot: _Spot, *, down: bool) -> list[int]:
    return spot.above if down else spot.below


def _mean(ties: Sequence[int], place: Mapping[int, float], own: float) -> float:
    return sum(place[tie] for tie in ties) / len(ties) if ties else own


def _crossings(spots: Sequence[_Spot], rows: Iterable[Sequence[int]]) -> int:
    rows = list(rows)
    place = {index: at for row in rows for at, index in enumerate(row)}
    total = 0
    for row in rows:
        ties = [(place[index], place[tie]) for index in row for tie in spots[index].below]
        total += sum((a[0] - b[0]) * (a[1] - b[1]) < 0 for i, a in enumerate(ties) for b in ties[:i])
    return total


def _spread(spots: Sequence[_Spot], rows: Sequence[Sequence[int]]) -> None:
    """Give each spot an x near the mean of its ties, in its rank's order and without touching a neighbour."""
    for row in rows:
        _settle(spots, row, [0.0] * len(row))
    for sweep in range(2 * SWEEPS):
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            x = {tie: spots[tie].x for index in row for tie in _ties(spots[index], down=down)}
            _settle(spots, row, [PULL * _mean(_ties(spots[i], down=down), x, spots[i].x) for i in row])


def _settle(spots: Sequence[_Spot], row: Sequence[int], wanted: Sequence[float]) -> None:
    """Take the places closest to `wanted` (least squares) that keep order and distance, by pooling."""
    offsets, at = [], 0.0
    for left, right in zip([None, *row], row, strict=False):
        at += 0.0 if left is None else (spots[left].width + spots[right].width) / 2 + GAP_X
        offsets.append(at)
    pools: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        mean, size = want - offset, 1
        while pools and pools[-1][0] > mean:
            other, count = pools.pop()
            mean, size = (mean * size + other * count) / (size + count), size + count
        pools.append((mean, size))
    means = [mean for mean, size in pools for _ in range(size)]
    for index, mean, offset in zip(row, means, offsets, strict=True):
        spots[index].x = mean + offset


def _measured(
    spots: Sequence[_Spot], rows: Sequence[Sequence[int]], boxes: int, chains: Sequence[tuple[list[int], int]]
) -> Laid:
    left = min(spot.x - spot.width / 2 for spot in spots) - GAP_X
    width = max(spot.x + spot.width / 2 for spot in spots) - left + GAP_X
    heights, y, centres = [max((spots[i].height for i in row), default=0.0) for row in rows], GAP_X, []
    for height in heights:
        centres.append(y + height / 2)
        y += height + GAP_Y
    points = [(round(spot.x - left, 1), round(centres[spot.rank], 1)) for spot in spots]
    return Laid(
        boxes=tuple(points[:boxes]),
        wires=tuple(tuple(points[index] for index in chain) for chain, _ in chains),
        captions=tuple(points[caption] for _, caption in chains),
        width=round(width, 1),
        height=round(y - GAP_Y + GAP_X, 1),
    )
