"""Agent traces with blocks of 16 tokens: a request a line; an id stands for the whole prefix up to its block.

Fields: `session`, `timestamp` (seconds from the first request), `input_length`, `output_length` (tokens),
`block_ids` as [[start, length], ...], full blocks only. Sessions were recorded one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from stagehold.lab.readers import fields
from stagehold.lab.readers.lines import Lines
from stagehold.lab.readers.record import TraceRequest

BLOCK = 16


def read(lines: Lines) -> Iterator[TraceRequest]:
    """The requests in the order of the file."""
    for raw in lines:
        record = fields.parsed(lines, raw)
        prompt = fields.count(lines, record, "input_length", least=0)
        answer = fields.count(lines, record, "output_length", least=0)
        arrival = fields.seconds_as_ms(lines, record, "timestamp")
        session = fields.text(lines, record, "session")
        whole = prompt // BLOCK
        blocks = tuple(chain.from_iterable(fields.ranges(lines, record, "block_ids", least=whole, most=whole)))
        yield TraceRequest(lines.line, arrival, prompt, answer, blocks, BLOCK, session)
