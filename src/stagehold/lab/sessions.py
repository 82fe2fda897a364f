"""Sessions of a trace dealt out to users: so many are served at once, each going through one session after the other.

It owns the new arrival times. Within a session the order stays, and no pause is longer than a user is said to make.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from heapq import heapify, heapreplace

from stagehold.lab.readers.record import TraceRequest

BETWEEN_SESSIONS_MS = 1_000


def by_users(requests: Iterable[TraceRequest], users: int, longest_pause_ms: int) -> list[TraceRequest]:
    """The requests in order of their new arrivals; `users` sessions go on at a time.

    Sessions come in the order of their first requests. A user who has sent the last request of one begins the next
    one `BETWEEN_SESSIONS_MS` later. Pauses within a session are cut to `longest_pause_ms`. A request that names no
    session is a session of its own.
    """
    if users < 1 or longest_pause_ms < 0:
        raise ValueError(f"expected users >= 1 and a pause >= 0, got {users} and {longest_pause_ms}")
    sessions: dict[str, list[TraceRequest]] = {}
    for number, request in enumerate(requests):
        sessions.setdefault(request.session or f"\0{number}", []).append(request)
    free = [(0, user) for user in range(users)]
    heapify(free)
    moved: list[TraceRequest] = []
    for session in sessions.values():
        at, user = free[0]
        before = session[0].arrival_ms
        for request in session:
            at += min(request.arrival_ms - before, longest_pause_ms)
            before = request.arrival_ms
            moved.append(replace(request, arrival_ms=at))
        heapreplace(free, (at + BETWEEN_SESSIONS_MS, user))
    return sorted(moved, key=lambda request: request.arrival_ms)
