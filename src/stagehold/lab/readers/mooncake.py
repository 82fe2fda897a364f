"""The Mooncake format: a request a line, with the ids of its prompt's blocks of 512 tokens, the last one partial.

Fields: `timestamp` (milliseconds), `input_length`, `output_length` (tokens), `hash_ids`.
"""

from __future__ import annotations

from collections.abc import Iterator

from stagehold.lab.readers import fields
from stagehold.lab.readers.lines import Lines
from stagehold.lab.readers.record import ARRIVAL_MS_MAX, BLOCK_TOKENS, TraceRequest


def read(lines: Lines) -> Iterator[TraceRequest]:
    """The requests in the order of the file."""
    for raw in lines:
        record = fields.parsed(lines, raw)
        prompt = fields.count(lines, record, "input_length", least=1)
        blocks = fields.ids(lines, record, "hash_ids")
        due = -(-prompt // BLOCK_TOKENS)
        if len(blocks) != due:
            expected = f"{due} `hash_ids` for {prompt} tokens in blocks of {BLOCK_TOKENS}"
            raise lines.error(expected, str(len(blocks)))
        arrival = fields.count(lines, record, "timestamp", least=0, most=ARRIVAL_MS_MAX)
        answer = fields.count(lines, record, "output_length", least=0)
        yield TraceRequest(lines.line, arrival, prompt, answer, tuple(blocks))
