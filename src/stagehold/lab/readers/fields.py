"""Fields of a trace line, taken out of JSON and held to what they must be; each fault names field and line.

It owns the checks. A length is believed only up to its bound, and a list of ids is spelt out only once its length
is known to be right, so that no line makes the reader take memory that it has not got in bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from stagehold.lab.readers.lines import Lines
from stagehold.lab.readers.record import ARRIVAL_MS_MAX, BLOCK_IDS, PROMPT_TOKENS_MAX

Fields = Mapping[str, Any]


def parsed(lines: Lines, raw: bytes) -> dict[str, Any]:
    """The JSON object that a line holds."""
    try:
        record = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise lines.error("a JSON object", f"bad JSON ({error})") from error
    if not isinstance(record, dict):
        raise lines.error("a JSON object", short(record))
    return record


def count(lines: Lines, record: Fields, name: str, *, least: int, most: int = PROMPT_TOKENS_MAX) -> int:
    """A whole number from `least` to `most`."""
    value = record.get(name)
    if type(value) is not int or value < least:  # a bool is an int to isinstance
        raise lines.error(f"`{name}`, a whole number of at least {least}", short(value))
    if value > most:
        raise lines.error(f"`{name}`, at most {most}", short(value))
    return value


def seconds_as_ms(lines: Lines, record: Fields, name: str) -> int:
    """Seconds from a start, as whole milliseconds."""
    value: Any = record.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 <= value <= ARRIVAL_MS_MAX / 1000:  # NaN is in no range
        raise lines.error(f"`{name}`, seconds of at least 0", short(value))
    return round(float(value) * 1000)


def text(lines: Lines, record: Fields, name: str) -> str:
    """A text or a whole number, as text; empty where the line has none."""
    value = record.get(name, "")
    if type(value) not in (str, int):
        raise lines.error(f"`{name}`, a text or a number", short(value))
    return str(value)


def ids(lines: Lines, record: Fields, name: str) -> list[int]:
    """Block ids, spelt out."""
    found = record.get(name)
    if not isinstance(found, list) or not all(type(b) is int and 0 <= b < BLOCK_IDS for b in found):
        raise lines.error(f"`{name}`, a list of whole numbers from 0 to {BLOCK_IDS - 1}", short(found))
    return found


def ranges(lines: Lines, record: Fields, name: str, *, least: int, most: int) -> list[range]:
    """Block ids as [[start, length], ...], between `least` and `most` ids in all."""
    found = record.get(name)
    if not isinstance(found, list) or not all(_is_range(pair) for pair in found):
        raise lines.error(f"`{name}`, a list of [start, length] below {BLOCK_IDS}", short(found))
    total = sum(length for _, length in found)
    if not least <= total <= most:
        span = str(least) if least == most else f"{least} to {most}"
        raise lines.error(f"{span} ids in `{name}`, as its prompt has blocks", str(total))
    return [range(start, start + length) for start, length in found]


def _is_range(pair: object) -> bool:
    if not isinstance(pair, list) or len(pair) != 2 or not all(type(number) is int for number in pair):
        return False
    start, length = map(int, pair)
    return start >= 0 and length >= 1 and start + length <= BLOCK_IDS


def short(value: object) -> str:
    """A value as a message shows it: its beginning, and for an object its names."""
    if value is None:
        return "nothing"
    seen = list(value)[:20] if isinstance(value, dict) else value[:80] if isinstance(value, list | str) else value
    shown = repr(seen)
    return shown if len(shown) <= 60 else f"{shown[:57]}..."
