"""Which handle owns which segment, as they said last: what a handle without room looks at to find its part.

A small file beside the segments, read and written under the ledger's lock. It is a hint: ownership itself is a
lock on the segment. What it says of segments that are gone is dropped at the next writing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

MOST_BYTES = 1 << 24
"""Far more than a directory of segments can need."""


class Owners:
    """The file, and how one handle (`me`) finds a segment to seize."""

    def __init__(self, path: Path, me: str) -> None:
        self._path = path
        self._me = me

    def tell(self, mine: Iterable[str], all_paths: Iterable[str]) -> None:
        """Say that `mine` are owned here, of all the segments there are."""
        mine, owners = set(mine), self._read()
        told = {path: self._me if path in mine else owners.get(path, "") for path in all_paths}
        fresh = self._path.with_suffix(f".{self._me}")
        try:
            fresh.write_text(json.dumps(told), encoding="utf-8")
            fresh.replace(self._path)
        except OSError:  # a full disk; a hint can be done without
            fresh.unlink(missing_ok=True)

    def seizable(self, mine: int, others: Iterable[str]) -> list[str]:
        """Return the segments of the handle that owns most, if that is at least two more than `mine`."""
        owners, paths = self._read(), sorted(others)
        counts = Counter(owners.get(path, "") for path in paths)
        if not counts or max(counts.values()) < mine + 2:
            return []
        richest = max(sorted(counts), key=lambda owner: counts[owner])
        return [path for path in paths if owners.get(path, "") == richest]

    def _read(self) -> dict[str, str]:
        """What the file says, as far as it says anything: others can write to it, too."""
        try:
            with self._path.open("rb") as file:
                found = json.loads(file.read(MOST_BYTES))
        except (OSError, ValueError, RecursionError):
            return {}
        return {path: owner for path, owner in found.items() if isinstance(owner, str)} if type(found) is dict else {}
