"""An oracle for hits: what could have been hit at each admission, by someone who knows when every page was there.

It owns its own arithmetic and reads events only (`observe.py`); it shares no code with the engine but the names of
pages, so that an error in the engine's bookkeeping cannot hide in it. A page counts as there from the tick in which
its bytes left the device for the store, since until they are acknowledged they are still on the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Judgement:
    """Tokens of first admissions: what was hit, what could have been, and where the two differ most."""

    hit_tokens: int
    oracle_tokens: int
    requests: int
    worst: tuple[tuple[str, int, int], ...]  # (request, hit, could have been), largest difference first

    @property
    def ratio(self) -> float:
        """Hit over possible; 1.0 when nothing was possible."""
        return self.hit_tokens / self.oracle_tokens if self.oracle_tokens else 1.0


def judge(events: Iterable[Mapping[str, Any]], pages_of: Mapping[str, Sequence[str]], page_size: int) -> Judgement:
    """Compare every admission with the longest prefix whose pages were all there in that tick.

    `pages_of` names the pages that each request may hit, in order: its whole pages that leave a token to compute.
    """
    there: dict[str, int] = {}
    rows: list[tuple[str, int, int]] = []
    for event in events:
        if "page" in event:
            there.setdefault(event["page"], event.get("sent", event.get("acked")))
        else:
            possible = _reach(pages_of[event["admitted"]], there, event["tick"]) * page_size
            rows.append((event["admitted"], event["hit_tokens"], possible))
    worst = sorted(rows, key=lambda row: row[1] - row[2])[:10]
    return Judgement(sum(row[1] for row in rows), sum(row[2] for row in rows), len(rows), tuple(worst))


def _reach(pages: Sequence[str], there: Mapping[str, int], tick: int) -> int:
    """Leading pages that were there in `tick`."""
    for count, page in enumerate(pages):
        since = there.get(page)
        if since is None or since > tick:
            return count
    return len(pages)
