"""Requests that run: room for their tokens, and the publication of what they computed."""

from __future__ import annotations

from numpy.typing import ArrayLike

from stagehold.cache.errors import CacheRefused
from stagehold.lifecycle import inputs
from stagehold.lifecycle.admission import AdmissionRules
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import Extension, NoRoom, RequestData
from stagehold.lifecycle.errors import Misuse
from stagehold.lifecycle.writes import WriteRules
from stagehold.machines import Machine
from stagehold.specs.outcomes import WritePolicy


class Running:
    """What a scheduler does with a committed request. No machine row: the request stays committed."""

    def __init__(self, core: Core, admission: AdmissionRules, writes: WriteRules) -> None:
        self.core = core
        self.admission = admission
        self.writes = writes

    def extend(self, m: Machine, n_tokens: int, tokens: ArrayLike | None) -> Extension | NoRoom:
        """Slots for `n_tokens` more tokens, from the request's promise first; refused, nothing has changed."""
        core = self.core
        data: RequestData = m.data
        ids = inputs.ids(f"extend({data.handle})", tokens)
        if n_tokens < 1 or len(ids) > n_tokens:
            raise Misuse(f"extend({data.handle}): expected n_tokens >= 1 and at most as many ids, "
                         f"got {n_tokens} and {len(ids)} ids")  # fmt: skip
        if len(ids) and data.chain.n_tokens + len(ids) > data.n_tokens + n_tokens:
            raise Misuse(f"extend({data.handle}): ids of tokens {data.chain.n_tokens} and on, "
                         f"but there is room up to token {data.n_tokens + n_tokens}")  # fmt: skip
        if data.n_tokens + n_tokens > core.config.largest_request_tokens:
            raise Misuse(f"extend({data.handle}): {data.n_tokens} + {n_tokens} tokens are more than "
                         f"largest_request_tokens={core.config.largest_request_tokens}")  # fmt: skip
        need = max(0, -(-(data.n_tokens + n_tokens) // core.config.page_size) - len(data.slots))
        promised = min(need, data.reserve)
        if need - promised > core.room():
            return NoRoom(need, core.room() + data.reserve)
        if len(ids):
            try:
                data.chain.extend(ids)
            except CacheRefused as error:
                raise Misuse(f"extend({data.handle}): {error}") from error
        slots = core.allocate_device(need)
        data.slots.extend(slots)
        core.reserved -= promised
        data.reserve -= promised
        data.n_tokens += n_tokens
        self._recount(m)
        return Extension(tuple(slots))

    def _recount(self, m: Machine) -> None:
        data: RequestData = m.data
        self.core.ledger.change("slots", m.number, data.reserve + len(data.slots) - data.published)

    def publish(self, m: Machine, upto: int) -> None:
        """Whole pages below token `upto`, whose ids are known, enter the tree under the request's lock."""
        core = self.core
        data: RequestData = m.data
        if not 0 <= upto <= data.n_tokens:
            raise Misuse(f"publish({data.handle}): {upto} tokens, but slots were given for {data.n_tokens}")
        first, last = data.published, min(upto, data.chain.n_tokens) // core.config.page_size
        if last <= first:
            return
        data.slots[first:last] = core.insert(data.chain, first, data.slots[first:last])
        data.published = last
        self.admission.move_lock(data, last)
        self._recount(m)
        if core.config.write_policy is WritePolicy.WRITE_THROUGH:
            self._offer(data, self._uncovered_from(data, first), last)

    def matched(self, m: Machine) -> None:
        """The request was admitted with a hit: the second use of its pages, and a new chance for those not written."""
        data: RequestData = m.data
        first = self._uncovered_from(data, data.published)
        if self.core.attached and first < data.published:
            self._offer(data, first, data.published)

    def _uncovered_from(self, data: RequestData, first: int) -> int:
        """The first of the pages before `first` that no write brings to the store: refused once, offered again."""
        while self.core.attached and first and not self.writes.is_on_its_way(data.chain.page_key(first - 1)):
            first -= 1
        return first

    def _offer(self, data: RequestData, first: int, last: int) -> None:
        if not self.core.config.tier:
            return
        self.writes.offer_span(data.chain, data.namespace, first, last)
        self.core.settle()
