"""Small charts as SVG text: lines, stacked areas, distributions. They scale with the page and need no script.

It owns coordinates, ticks and how numbers are written on an axis. Colours are the style sheet's, by class.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise

WIDTH, HEIGHT = 380, 220
LEFT, RIGHT, TOP, BOTTOM = 48, 10, 10, 30
TICKS = 4
COLOURS = 6
"""So many are in the style sheet; further curves begin again."""


@dataclass(frozen=True, slots=True)
class Line:
    """One curve: what it is called in the legend, and its values."""

    name: str
    xs: Sequence[float]
    ys: Sequence[float]


@dataclass(frozen=True, slots=True)
class Axes:
    """What stands on the axes; `log` is for the x axis, which then begins at the least value above zero."""

    x: str
    y: str
    log: bool = False
    most: float | None = None


def lines(title: str, axes: Axes, drawn: Sequence[Line], *, stacked: bool = False, dots: bool = False) -> str:
    """A chart with its legend, as a figure. `stacked` curves have equal xs, and each fills what it adds.

    With `dots` every value is marked where it is, for curves of few values.
    """
    piled = _piled(drawn) if stacked else list(drawn)
    xs = [x for line in piled for x in line.xs if not axes.log or x > 0]
    low, high = (min(xs), max(xs)) if xs else (0.0, 1.0)
    most = axes.most or max((y for line in piled for y in line.ys), default=0) or 1
    at_x, at_y = _scale_x(low, high, log=axes.log), _scale_y(most)
    shapes = []
    below: Sequence[float] = [0.0] * len(piled[0].xs) if piled else []
    for number, line in enumerate(piled):
        points = [(at_x(x), at_y(y)) for x, y in zip(line.xs, line.ys, strict=True) if not axes.log or x > 0]
        if stacked:
            floor = [(at_x(x), at_y(y)) for x, y in zip(line.xs, below, strict=True)]
            shapes.append(f'<path class="area s{number % COLOURS}" d="{_path([*points, *reversed(floor)])}Z"/>')
            below = line.ys
        else:
            shapes.append(f'<path class="line s{number % COLOURS}" d="{_path(points)}"/>')
            shapes += [_dot(number, point) for point in points if dots]
    body = _grid(at_x, at_y, (low, high, most), axes) + "".join(shapes)
    return _figure(title, axes, body, [line.name for line in drawn])


def rates(seconds: Sequence[float], sums: Sequence[float], bins: int = 90) -> tuple[list[float], list[float]]:
    """Growth of a running sum by second, over at most `bins` stretches of time: ends of the stretches, and rates."""
    if len(seconds) < 2:
        return [], []
    step = max(1, math.ceil((len(seconds) - 1) / bins))
    places = [*range(0, len(seconds) - 1, step), len(seconds) - 1]
    xs, ys = [], []
    for before, after in pairwise(places):
        span = seconds[after] - seconds[before]
        if span > 0:
            xs.append(seconds[after])
            ys.append((sums[after] - sums[before]) / span)
    return xs, ys


def short(value: float) -> str:
    """A number as an axis has room for: 1,200 is 1.2k."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.3g}"


def nice(most: float, count: int = TICKS) -> list[float]:
    """Round values from 0 up to `most`, about `count` of them."""
    raw = most / count
    size = 10 ** math.floor(math.log10(raw))
    step = next(factor * size for factor in (1, 2, 2.5, 5, 10) if factor * size >= raw * 0.999)
    return [step * number for number in range(int(most / step + 1e-9) + 1)]


def _piled(drawn: Sequence[Line]) -> list[Line]:
    sums = [0.0] * (len(drawn[0].xs) if drawn else 0)
    piled = []
    for line in drawn:
        sums = [total + y for total, y in zip(sums, line.ys, strict=True)]
        piled.append(Line(line.name, line.xs, sums))
    return piled


def _scale_x(low: float, high: float, *, log: bool) -> Callable[[float], float]:
    place = math.log10 if log else float
    start, span = place(low), (place(high) - place(low)) or 1.0
    return lambda x: LEFT + (WIDTH - LEFT - RIGHT) * (place(x) - start) / span


def _scale_y(most: float) -> Callable[[float], float]:
    return lambda y: HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * y / most


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "".join(f"{'L' if at else 'M'}{x:.1f} {y:.1f}" for at, (x, y) in enumerate(points))


def _dot(number: int, point: tuple[float, float]) -> str:
    return f'<circle class="dot s{number % COLOURS}" cx="{point[0]:.1f}" cy="{point[1]:.1f}" r="3"/>'


def _grid(
    at_x: Callable[[float], float], at_y: Callable[[float], float], ends: tuple[float, float, float], axes: Axes
) -> str:
    low, high, most = ends
    parts = []
    for y in nice(most):
        parts.append(f'<path class="grid" d="M{LEFT} {at_y(y):.1f}H{WIDTH - RIGHT}"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{at_y(y) + 3.5:.1f}" text-anchor="end">{short(y)}</text>')
    for x in _decades(low, high) if axes.log else [x for x in nice(high) if low <= x]:
        parts.append(f'<path class="grid" d="M{at_x(x):.1f} {TOP}V{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{at_x(x):.1f}" y="{HEIGHT - BOTTOM + 13}" text-anchor="middle">{short(x)}</text>')
    parts.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - 3}" text-anchor="end">{escape(axes.x)}</text>')
    return "".join(parts)


def _decades(low: float, high: float) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return [10.0**power for power in range(first, last + 1)] or [low, high]


def _figure(title: str, axes: Axes, body: str, names: Sequence[str]) -> str:
    legend = "".join(
        f'<span><i class="s{number % COLOURS}"></i>{escape(name)}</span>' for number, name in enumerate(names)
    )
    told = escape(f"{title}: {axes.y} by {axes.x}; {', '.join(names)}")
    return (
        f'<figure class="chart"><figcaption>{escape(title)} <small>{escape(axes.y)}</small></figcaption>'
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{told}">{body}</svg>'
        f'<p class="legend">{legend}</p></figure>'
    )
