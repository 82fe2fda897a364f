"""The scheduler's side: vLLM's questions and reports become calls of the engine, and the engine's answers orders.

One of vLLM's steps is one pass of the engine. It begins with the first question after the orders of the step before,
and ends with its own orders: no visit stays open, and nothing is owned by a request that vLLM has not given blocks.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable
from typing import Any

from stagehold import Misuse, PartialDelivery, Plan, Skip, SkipReason
from stagehold.adapters.vllm.identity import namespace_of
from stagehold.adapters.vllm.layout import Layout
from stagehold.adapters.vllm.options import Loads, Options
from stagehold.adapters.vllm.orders import Done, Orders
from stagehold.adapters.vllm.pages import Pages, Published, computed_before
from stagehold.adapters.vllm.requests import End, Entry, Stage
from stagehold.adapters.vllm.tier import Tier

LOG = logging.getLogger("stagehold")

NOTHING = (0, False)
ASK_AGAIN = (None, False)


class SchedulerSide:
    """One scheduler. `counts` are figures since the start, by name; `published` collects pages for KV events."""

    def __init__(self, tier: Tier, layout: Layout, options: Options, model: str) -> None:
        self.counts: Counter[str] = Counter()
        self.published: list[Published] = []
        self._tier = tier
        self._engine = tier.engine
        self._options = options
        self._model = model
        self._pages = Pages(tier.engine, layout)
        self._groups = layout.n_groups
        self._entries: dict[str, Entry] = {}
        self._pass = 1
        self._ticked = False
        self._orders = Orders(self._pass, tier.pools)
        self._done = 0

    # A request comes

    def arrived(self, request: Any) -> None:
        """A new request. One whose tokens do not say what is computed is not served."""
        namespace = namespace_of(request, self._model)
        if namespace is None:
            self.counts["unserved_requests"] += 1
            return
        self._entries[request.request_id] = self._arrive(request, namespace)

    def _arrive(self, request: Any, namespace: Any, *, barred: bool = False) -> Entry:
        tokens = list(request.all_token_ids)
        left = max(1, request.num_prompt_tokens + request.max_tokens - len(tokens))
        reserved = min(left, self._options.reserve_tokens)
        reserved = max(1, min(reserved, self._tier.config.largest_request_tokens - len(tokens)))
        handle = self._engine.arrive(request.request_id, tokens, namespace, reserved)
        return Entry(request, namespace, handle, len(tokens), reserved, len(tokens), self._launched, barred=barred)

    @property
    def _launched(self) -> int:
        """The pass after whose tick one that arrives now is looked up: it can be asked for then, and not before."""
        return self._pass + self._ticked

    # A request is asked for

    def matched(self, request: Any, local_tokens: int) -> tuple[int | None, bool]:
        """How many tokens behind vLLM's own can be loaded, and whether beside other steps; None: ask again.

        May be asked any number of times. Nothing is taken: the visit that it opens is over with the step.
        """
        self._begin_pass()
        entry = self._entries.get(request.request_id)
        if entry is None:
            return NOTHING
        if entry.stage is Stage.RUNNING:
            self._leave(entry, End.RETRACT)  # it was sent back, and is asked for before that is told
            entry = self._entries[request.request_id]
        if entry.stage is Stage.LEAVING or entry.since > self._pass:
            return ASK_AGAIN
        entry.local_tokens = local_tokens
        plan = entry.plan or self._engine.select(entry.handle, self._tier.config.largest_request_tokens)
        if isinstance(plan, Skip):
            return NOTHING if plan.reason is SkipReason.NO_ROOM else ASK_AGAIN
        entry.plan = plan
        return self._offer(entry, plan)

    def _offer(self, entry: Entry, plan: Plan) -> tuple[int, bool]:
        """What is promised is what the commit will deliver: it is tried in thought, since vLLM cannot be told no."""
        more = plan.promised_pages * self._pages.size - entry.local_tokens
        if entry.barred or more <= 0 or not self._engine.would_deliver(plan):
            return NOTHING
        return more, self._options.loads is Loads.ASYNC

    def allocated(self, request: Any, block_ids: tuple[list[int], ...], external_tokens: int) -> None:
        """The request has blocks: the visit is committed, and what was promised is ordered."""
        entry = self._entries.get(request.request_id)
        if entry is None or entry.stage is not Stage.WAITING:
            assert not external_tokens, f"{request.request_id}: {external_tokens} tokens were never promised"
            return
        admitted = self._commit(entry)
        if external_tokens:
            self._order_load(entry, block_ids, external_tokens, admitted=admitted)
        elif admitted:
            entry.stage = Stage.RUNNING
        if not admitted and entry.stage is Stage.WAITING:
            self._shed(entry)

    def _commit(self, entry: Entry) -> bool:
        plan, entry.plan = entry.plan, None
        if plan is None:
            return False
        try:
            admission = self._engine.commit(plan)
        except PartialDelivery:
            return False
        if admission.admitted:
            entry.pages = entry.published = admission.hit_tokens // self._pages.size
            self.counts["store_hit_tokens"] += admission.store_hit_tokens
        return admission.admitted

    def _order_load(self, entry: Entry, block_ids: tuple[list[int], ...], tokens: int, *, admitted: bool) -> None:
        first = entry.local_tokens // self._pages.size
        last = (entry.local_tokens + tokens) // self._pages.size
        beside = self._options.loads is Loads.ASYNC
        orders = self._orders
        if admitted and last <= entry.pages:
            job = self._pages.load(entry, block_ids, first, last)
            (orders.beside if beside else orders.before).append(job)
            self.counts["loaded_tokens"] += tokens
            self.counts["loaded_requests"] += 1
            entry.stage = Stage.LOADING if beside else Stage.RUNNING
            return
        assert beside or self._groups == 1, (
            f"{entry.rid}: {tokens} tokens were promised, and a hybrid cannot be told no"
        )
        job = self._pages.unloadable(entry, block_ids, first, last)
        (orders.broken_beside if beside else orders.broken_before).append(job)
        if beside or admitted:
            entry.stage = Stage.LOADING if beside else Stage.RUNNING

    def _shed(self, entry: Entry) -> None:
        """It runs, and we have no room for it: it goes without us."""
        self.counts["shed_requests"] += 1
        self._engine.abort(entry.handle)
        del self._entries[entry.rid]

    # A step

    def _begin_pass(self) -> None:
        if not self._ticked:
            self._ticked = True
            self._tier.tick()

    def orders(self, output: Any) -> Orders:
        """The step is planned: what its worker has to do. `output` is vLLM's SchedulerOutput."""
        self._begin_pass()
        for rid in sorted(output.preempted_req_ids or ()):
            entry = self._entries.get(rid)
            if entry is not None and entry.stage is Stage.RUNNING:
                self._leave(entry, End.RETRACT)
        for entry in self._entries.values():
            if entry.plan is not None:
                plan, entry.plan = entry.plan, None
                self._engine.release(plan)
        orders, self._orders = self._orders, Orders(self._pass + 1, self._tier.pools)
        for rid, computed in computed_before(output):
            self._order_saves(orders, rid, computed, output)
        if not (output.total_num_scheduled_tokens or orders.before or orders.beside):
            self._rest()
        self._pass += 1
        self._ticked = False
        return orders

    def _rest(self) -> None:
        if self._tier.writing or any(entry.stage is Stage.WAITING for entry in self._entries.values()):
            self._tier.rest()

    def _order_saves(self, orders: Orders, rid: str, computed: int, output: Any) -> None:
        """Whole pages that this step fills, and those that vLLM had itself and we have not."""
        entry = self._entries.get(rid)
        if entry is None or entry.stage is not Stage.RUNNING or not entry.open_ended:
            return
        end = computed + output.num_scheduled_tokens[rid]
        table = output.kv_connector_block_state.get_block_ids(rid)
        job = self._pages.save(entry, table, computed, end)
        if job is not None:
            entry.saving = orders.serial
            orders.saves.append(job)
            self.counts["saved_pages"] += len(job.copies[0].blocks)

    def reported(self, done: Done | None, received: Iterable[str], failed: Iterable[str]) -> None:
        """What the worker did: saved pages are published, loads have ended, and who was to leave can."""
        if done is not None:
            self._tier.mapped()
            self._done = done.serial
            for entry in list(self._entries.values()):
                self._saved(entry, spoiled=entry.rid in done.spoiled)
        failures = set(failed)
        for rid in sorted(received):
            self._loaded(rid, failed=rid in failures)

    def _saved(self, entry: Entry, *, spoiled: bool) -> None:
        if entry.saving > self._done:
            return
        if spoiled:
            entry.open_ended = False  # what lies behind the published pages is not given to anybody
            self.counts["spoiled_requests"] += 1
        elif entry.open_ended and entry.pages > entry.published:
            self.published += self._pages.publish(entry)
        if entry.stage is Stage.LEAVING:
            self._left(entry)

    def _loaded(self, rid: str, *, failed: bool) -> None:
        entry = self._entries.get(rid)
        if entry is None:
            return
        if failed:
            self.counts["failed_loads"] += 1
        if entry.stage is Stage.LEAVING:
            entry.saving = 0
            self._left(entry)
        elif failed:
            # Asked again it gets nothing: a tier that promises and fails would hold it up for ever.
            self._engine.abort(entry.handle)
            self._entries[rid] = self._arrive(entry.request, entry.namespace, barred=True)
        else:
            entry.stage = Stage.RUNNING

    # A request goes

    def finished(self, request: Any) -> None:
        """The request has ended, whatever it was doing."""
        entry = self._entries.get(request.request_id)
        if entry is not None:
            ended_well = request.status.name in ("FINISHED_STOPPED", "FINISHED_LENGTH_CAPPED")
            self._leave(entry, End.FINISH if ended_well else End.ABORT)

    def _leave(self, entry: Entry, end: End) -> None:
        """Its slots are given up once no copy reads or writes them any more."""
        if entry.stage is Stage.LEAVING:
            entry.leaves = end if entry.leaves is End.RETRACT else entry.leaves
            return
        entry.leaves = End.ABORT if entry.stage is Stage.WAITING and end is End.FINISH else end
        loading = entry.stage is Stage.LOADING
        if loading:
            entry.saving = self._pass + (1 << 62)  # until the worker reports the load
        entry.stage = Stage.LEAVING
        if entry.saving <= self._done:
            self._left(entry)

    def _left(self, entry: Entry) -> None:
        engine, rid = self._engine, entry.rid
        del self._entries[rid]
        match entry.leaves:
            case End.FINISH if entry.open_ended:
                engine.finish(entry.handle)
            case End.RETRACT:
                self._entries[rid] = self._again(entry)
            case _:
                engine.abort(entry.handle)

    def _again(self, entry: Entry) -> Entry:
        """The next attempt, whose prompt is every token that vLLM knows."""
        request = entry.request
        if self._pages.tell(entry):
            handle = self._engine.retract(entry.handle)
            known = len(request.all_token_ids)
            left = entry.reserved_tokens - (known - entry.arrived_tokens)
            return Entry(request, entry.namespace, handle, known, left, known, self._launched, barred=entry.barred)
        self._engine.abort(entry.handle)
        return self._arrive(request, entry.namespace, barred=entry.barred)

    # The end

    @property
    def writing(self) -> bool:
        """Whether vLLM should go on stepping though it has no request."""
        return self._tier.writing

    def reset(self) -> bool:
        """Forget what host memory holds; refused while requests use it. The store keeps its pages."""
        try:
            self._engine.flush()
        except Misuse as refused:
            LOG.warning("the cache is not reset: %s", refused)
            return False
        return True

    def close(self) -> None:
        """End everything; what is still to be stored is stored first."""
        for entry in list(self._entries.values()):
            self._engine.abort(entry.handle)
        self._entries.clear()
        self._tier.close()
