"""The Azure LLM inference traces: CSV with arrival and lengths. They name no content, so that no request has blocks.

Columns: TIMESTAMP, ContextTokens, GeneratedTokens. Arrivals count from the first row.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from stagehold.lab.readers.fields import short
from stagehold.lab.readers.lines import Lines
from stagehold.lab.readers.record import PROMPT_TOKENS_MAX, TraceRequest

COLUMNS = ("timestamp", "contexttokens", "generatedtokens")
MARK = "\ufeff"


def is_header(raw: bytes) -> bool:
    """Whether a line names the columns of this format, in their order."""
    return _cells(raw.decode("utf-8", "replace").lower()) == COLUMNS


def read(lines: Lines) -> Iterator[TraceRequest]:
    """The requests in the order of the file."""
    start: datetime | None = None
    for raw in lines:
        if start is None and is_header(raw):
            continue
        cells = _cells(raw.decode("utf-8", "replace"))
        if len(cells) != len(COLUMNS):
            raise lines.error(f"{len(COLUMNS)} columns: {', '.join(COLUMNS)}", f"{len(cells)}: {short(cells)}")
        moment = _moment(lines, cells[0])
        start = start or moment
        arrival = (moment - start) // timedelta(milliseconds=1)
        if arrival < 0:
            raise lines.error(f"a timestamp that is not before the first one, {start}", cells[0])
        prompt, answer = _tokens(lines, cells[1], least=1), _tokens(lines, cells[2], least=0)
        yield TraceRequest(lines.line, arrival, prompt, answer, ())


def _cells(row: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in row.removeprefix(MARK).split(","))


def _moment(lines: Lines, cell: str) -> datetime:
    try:
        found = datetime.fromisoformat(cell)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError) as error:
        raise lines.error("a timestamp such as 2023-11-16 18:17:03.9799600", short(cell)) from error


def _tokens(lines: Lines, cell: str, *, least: int) -> int:
    digits = cell.isascii() and cell.isdigit() and len(cell) <= 12
    if not digits or not least <= int(cell) <= PROMPT_TOKENS_MAX:
        raise lines.error(f"tokens, a whole number from {least} to {PROMPT_TOKENS_MAX}", short(cell))
    return int(cell)
