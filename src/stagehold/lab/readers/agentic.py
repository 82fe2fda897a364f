"""Coding-agent sessions: a session a line, with its requests and those of its subagents, in seconds from its start.

Fields: `id`, `block_size`, `hash_id_scope`, `requests`; of a request `t`, `in`, `out`, `hash_ids` as
[[start, length], ...], full blocks only; a request of type `subagent` holds requests whose `t` counts from its own.
Sessions have no common clock: they are started `SESSION_EVERY_MS` apart, in the order of the file. Local ids are
moved apart, so that two sessions share none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain
from typing import Any

from stagehold.lab.readers import fields
from stagehold.lab.readers.lines import Lines
from stagehold.lab.readers.record import ARRIVAL_MS_MAX, BLOCK_IDS, BLOCK_TOKENS_MAX, TraceRequest

SESSION_EVERY_MS = 60_000


@dataclass(frozen=True, slots=True)
class _Coming:
    """A request that is not due yet, its ids still as ranges."""

    line: int
    prompt: int
    answer: int
    blocks: tuple[range, ...]
    block_tokens: int
    session: str

    def at(self, arrival_ms: int) -> TraceRequest:
        blocks = tuple(chain.from_iterable(self.blocks))
        return TraceRequest(self.line, arrival_ms, self.prompt, self.answer, blocks, self.block_tokens, self.session)


def read(lines: Lines) -> Iterator[TraceRequest]:
    """The requests of all sessions in order of arrival; sessions overlap where they last longer than they lie apart."""
    waiting: list[tuple[int, int, _Coming]] = []
    order, first_id = 0, 0
    for number, raw in enumerate(lines):
        start = number * SESSION_EVERY_MS
        while waiting and waiting[0][0] <= start:
            yield waiting[0][2].at(heappop(waiting)[0])
        found, first_id = _session(lines, fields.parsed(lines, raw), first_id)
        for arrival, request in found:
            heappush(waiting, (start + arrival, order, request))
            order += 1
    while waiting:
        yield waiting[0][2].at(heappop(waiting)[0])


def _session(lines: Lines, record: fields.Fields, first_id: int) -> tuple[list[tuple[int, _Coming]], int]:
    """Requests of one session with their milliseconds from its start, and the first id that the next one may use."""
    name = fields.text(lines, record, "id")
    block = fields.count(lines, record, "block_size", least=1, most=BLOCK_TOKENS_MAX)
    scope = record.get("hash_id_scope", "local")
    if scope not in ("local", "global"):
        raise lines.error("`hash_id_scope`, local or global", fields.short(scope))
    moved = first_id if scope == "local" else 0
    requests: list[tuple[int, _Coming]] = []
    for arrival, one in _requests(lines, record):
        prompt = fields.count(lines, one, "in", least=1)
        answer = fields.count(lines, one, "out", least=0)
        whole = prompt // block
        spans = fields.ranges(lines, one, "hash_ids", least=whole, most=whole)
        blocks = tuple(range(span.start + moved, span.stop + moved) for span in spans)
        first_id = max([first_id, *(span.stop for span in blocks)])
        requests.append((arrival, _Coming(lines.line, prompt, answer, blocks, block, name)))
    if first_id > BLOCK_IDS:
        raise lines.error(f"ids of all sessions below {BLOCK_IDS}", f"one of {first_id - 1}")
    return requests, first_id


def _requests(lines: Lines, session: fields.Fields) -> Iterator[tuple[int, dict[str, Any]]]:
    """Each request with its milliseconds from the session's start, subagents' requests in the subagent's place."""
    open_lists = [(0, iter(_listed(lines, session)))]
    while open_lists:
        start, here = open_lists[-1]
        one = next(here, None)
        if one is None:
            open_lists.pop()
            continue
        arrival = start + fields.seconds_as_ms(lines, one, "t")
        if arrival > ARRIVAL_MS_MAX:
            raise lines.error(f"`t` of at most {ARRIVAL_MS_MAX // 1000} seconds", f"{arrival // 1000}")
        if one.get("type") == "subagent":
            open_lists.append((arrival, iter(_listed(lines, one))))
        else:
            yield arrival, one


def _listed(lines: Lines, record: fields.Fields) -> list[dict[str, Any]]:
    found = record.get("requests")
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise lines.error("`requests`, a list of objects", fields.short(found))
    return found
