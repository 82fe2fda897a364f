"""The page arithmetic between vLLM's block tables and the engine's page tables.

vLLM keeps a table for each group, with block 0 where it keeps nothing; the engine one for each component, with -1. It
owns no state: what a request has so far stands in its entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from stagehold import Engine, NoRoom
from stagehold.adapters.vllm.layout import FULL, Kind, Layout
from stagehold.adapters.vllm.orders import Copies, Job
from stagehold.adapters.vllm.requests import Entry

NULL_BLOCK = 0
Tables = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True)
class Published:
    """Pages [first, last) of a request that others can use now, for KV events."""

    entry: Entry
    first: int
    last: int


class Pages:
    """Orders copies, and has the engine's page tables follow vLLM's."""

    def __init__(self, engine: Engine, layout: Layout) -> None:
        self.size = layout.page_size
        self._engine = engine
        self._kinds = layout.kinds
        chunk = engine.config.chunk_tokens
        assert chunk is not None
        self._piece = chunk // self.size * self.size

    # Loads

    def load(self, entry: Entry, tables: Tables, first: int, last: int) -> Job:
        """Copies of pages [first, last) into the blocks that vLLM has for them; it has none behind a window."""
        return Job(entry.rid, tuple(self._copies(entry, tables, first, last)))

    def unloadable(self, entry: Entry, tables: Tables, first: int, last: int) -> Job:
        """The same blocks, for a load that cannot be made."""
        groups = [(group, tables[group][first:last]) for kind in self._kinds for group in kind.groups]
        return Job(entry.rid, tuple(Copies(group, tuple(filter(None, found)), ()) for group, found in groups))

    def _copies(self, entry: Entry, tables: Tables, first: int, last: int) -> list[Copies]:
        found = []
        for kind in self._kinds:
            slots = self._slots(entry, kind)
            for group in kind.groups:
                pages = [page for page in range(first, last) if tables[group][page] != NULL_BLOCK]
                missing = [page for page in pages if slots[page] < 0]
                assert not missing, f"{entry.rid}: {kind.name} has no page {missing[0]}, and vLLM has a block for it"
                found.append(_copies(group, tables, slots, pages))
        return found

    def _slots(self, entry: Entry, kind: Kind) -> tuple[int, ...]:
        return self._engine.page_slots(entry.handle, None if kind.name == FULL else kind.name)

    # Saves

    def save(self, entry: Entry, tables: Tables, computed: int, end: int) -> Job | None:
        """Copies of the whole pages up to token `end` that the request has not, `computed` of whose tokens were there.

        None where there are none, or no room. Pages that vLLM holds no block of any more are passed over: there the
        window has moved on, on both sides.
        """
        first, last = entry.pages, end // self.size
        if last <= first:
            return None
        before = min(max(first, computed // self.size), last)
        if not (self._grow(entry, before) and self._grow(entry, last)) or self._torn(entry, tables, first, last):
            entry.open_ended = False
            return None
        found = []
        for kind in self._kinds:
            slots = self._slots(entry, kind)
            pages = [page for page in range(first, last) if slots[page] >= 0]
            found += [_copies(group, tables, slots, pages) for group in kind.groups]
        return Job(entry.rid, tuple(found))

    def _grow(self, entry: Entry, upto: int) -> bool:
        """Room for `upto` pages; the ids go with it as far as vLLM knows them. What has no room is not saved."""
        while entry.pages < upto:
            tokens = min(self._piece, (upto - entry.pages) * self.size)
            reach = min(entry.pages * self.size + tokens, entry.told + tokens)
            ids = list(entry.request.all_token_ids[entry.told : reach])
            if isinstance(self._engine.extend(entry.handle, tokens, ids), NoRoom):
                return False
            entry.told += len(ids)
            entry.pages += tokens // self.size
        return True

    def _torn(self, entry: Entry, tables: Tables, first: int, last: int) -> bool:
        """Whether vLLM has let go of a block whose page we would keep: then nothing more is saved of the request."""
        for kind in self._kinds:
            slots = self._slots(entry, kind)
            for group in kind.groups:
                if any(slots[page] >= 0 and tables[group][page] == NULL_BLOCK for page in range(first, last)):
                    return True
        return False

    def publish(self, entry: Entry) -> list[Published]:
        """Others may use what was saved."""
        first, entry.published = entry.published, entry.pages
        self._engine.publish(entry.handle, entry.pages * self.size)
        return [Published(entry, first, entry.pages)]

    # Preemption

    def tell(self, entry: Entry) -> bool:
        """Let the engine know every token that vLLM knows; False where it cannot go on as the same request."""
        known = len(entry.request.all_token_ids)
        if not entry.open_ended or known - entry.arrived_tokens >= entry.reserved_tokens:
            return False
        room, ids = entry.pages * self.size, list(entry.request.all_token_ids[entry.told : known])
        if known <= room or not ids:
            return not ids
        if isinstance(self._engine.extend(entry.handle, known - room, ids), NoRoom):
            return False
        entry.told = known
        return True


def _copies(group: int, tables: Tables, slots: Sequence[int], pages: Sequence[int]) -> Copies:
    return Copies(group, tuple(tables[group][page] for page in pages), tuple(slots[page] for page in pages))


def computed_before(output: Any) -> list[tuple[str, int]]:
    """Each request of the step and how many of its tokens had been computed before it."""
    cached = output.scheduled_cached_reqs
    found = [(one.req_id, one.num_computed_tokens) for one in output.scheduled_new_reqs]
    return found + list(zip(cached.req_ids, cached.num_computed_tokens, strict=True))
