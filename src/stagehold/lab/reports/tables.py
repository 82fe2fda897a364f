"""Tables that sort: every head is a button, numbers sort as numbers. It owns the HTML of a table and its cells."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape


@dataclass(frozen=True, slots=True)
class Cell:
    """What is shown (HTML), and what it sorts by; numbers stand on the right."""

    shown: str
    by: float | str


def number(value: float, digits: int = 0) -> Cell:
    """A number, with commas."""
    return Cell(f"{value:,.{digits}f}", value)


def words(text: str) -> Cell:
    """A text."""
    return Cell(escape(text), text)


def table(name: str, heads: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A sortable table in a box of its own that scrolls sideways, by keyboard, too."""
    rows = list(rows)
    right = [isinstance(cell.by, int | float) for cell in rows[0]] if rows else [False] * len(heads)
    head = "".join(
        f'<th scope="col" aria-sort="none"{_look(numbers)}><button type="button">{escape(text)}</button></th>'
        for text, numbers in zip(heads, right, strict=True)
    )
    body = "".join(f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows)
    return (
        f'<div class="scroll" role="region" tabindex="0" aria-label="{escape(name)}">'
        f'<table class="sorts"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _cell(cell: Cell) -> str:
    look = _look(isinstance(cell.by, int | float))
    return f'<td{look} data-by="{escape(str(cell.by))}">{cell.shown}</td>'


def _look(is_number: bool) -> str:
    return ' class="n"' if is_number else ""


def bars(rows: Sequence[tuple[str, float, str]]) -> str:
    """Values as bars, longest as it comes: name, value, what is written beside it."""
    most = max((value for _, value, _ in rows), default=0) or 1
    return "".join(
        f'<div class="bar"><span>{escape(name)}</span><b style="width:{100 * value / most:.1f}%"></b>'
        f"<span>{escape(told)}</span></div>"
        for name, value, told in rows
    )


def parted(parts: Sequence[str], rows: Sequence[tuple[str, Sequence[float]]]) -> str:
    """A bar for each row, divided into `parts`, all of one scale: name, values; what is beside it are shares."""
    most = max((sum(values) for _, values in rows), default=0) or 1
    legend = "".join(f'<span><i class="s{at}"></i>{escape(part)}</span>' for at, part in enumerate(parts))
    return "".join(_parted(parts, row, most) for row in rows) + f'<p class="legend">{legend}</p>'


def _parted(parts: Sequence[str], row: tuple[str, Sequence[float]], most: float) -> str:
    name, values = row
    whole = sum(values) or 1
    drawn = "".join(
        f'<b class="s{at}" style="width:{100 * value / most:.2f}%" title="{escape(part)}: {value:,.0f}"></b>'
        for at, (part, value) in enumerate(zip(parts, values, strict=True))
    )
    told = ", ".join(
        f"{escape(part)} {100 * value / whole:.1f} %" for part, value in zip(parts, values, strict=True) if value
    )
    return f'<div class="bar"><span>{escape(name)}</span><span class="parts">{drawn}</span><span>{told}</span></div>'
