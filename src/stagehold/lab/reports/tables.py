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
