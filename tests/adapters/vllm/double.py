"""A scheduler and a worker that call the connector's two sides in the order in which vLLM 0.32 calls them.

Written from what vLLM does, not from its code: block pool with a prefix cache and a null block, groups of layers that
share one space of block ids, sliding windows whose blocks go while a request runs, loads before and beside a step,
preemption, and the order of calls at each end. Its "model" writes a number that follows from every token up to a
position, and reads what each layer can see before it writes: a page of other tokens is seen at once.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from hashlib import sha256
from types import SimpleNamespace
from typing import Any

import torch

from stagehold.adapters.vllm.layout import Layout
from stagehold.adapters.vllm.scheduler import SchedulerSide
from stagehold.adapters.vllm.worker import WorkerSide

HEADS, CONTENT = 2, 4


class Status(Enum):
    WAITING = auto()
    LOADING = auto()
    RUNNING = auto()
    PREEMPTED = auto()
    FINISHED_LENGTH_CAPPED = auto()
    FINISHED_ABORTED = auto()


def marks_of(tokens: Sequence[int], salt: str = "") -> list[int]:
    """A number for each position, from the salt and every token up to there."""
    found, state = [], sha256(salt.encode()).digest()
    for token in tokens:
        state = sha256(state + int(token).to_bytes(4, "little")).digest()
        found.append(int.from_bytes(state[:3], "little") % (1 << 20))
    return found


def answer(tokens: Sequence[int], count: int, salt: str = "") -> list[int]:
    """What the model answers, told without any cache."""
    known = list(tokens)
    for _ in range(count):
        known.append(marks_of(known, salt)[-1] % 50_000)
    return known[len(tokens) :]


@dataclass(eq=False)
class Request:
    """As vLLM's, as far as a connector looks at it."""

    request_id: str
    prompt_token_ids: list[int]
    max_tokens: int
    cache_salt: str | None = None
    lora_request: Any = None
    mm_features: list[Any] = field(default_factory=list)
    prompt_embeds: Any = None
    resumable: bool = False
    status: Status = Status.WAITING
    num_computed_tokens: int = 0
    tables: list[list[int]] = field(default_factory=list)
    external: int = 0  # tokens that were promised from outside, at the last time that any were
    preemptions: int = 0

    def __post_init__(self) -> None:
        self.all_token_ids = list(self.prompt_token_ids)
        self.num_prompt_tokens = len(self.prompt_token_ids)

    @property
    def num_tokens(self) -> int:
        return len(self.all_token_ids)

    @property
    def answered(self) -> list[int]:
        return self.all_token_ids[self.num_prompt_tokens :]


class BlockPool:
    """Block ids with counts of their users, the free ones in the order in which they are taken again."""

    def __init__(self, n_blocks: int) -> None:
        self.free: OrderedDict[int, None] = OrderedDict.fromkeys(range(1, n_blocks))
        self.users: Counter[int] = Counter()
        self.cached: dict[tuple[int, bytes], int] = {}
        self.key_of: dict[int, tuple[int, bytes]] = {}

    def take(self) -> int:
        block, _ = self.free.popitem(last=False)
        self.forget(block)
        self.users[block] = 1
        return block

    def use(self, block: int) -> int:
        self.free.pop(block, None)
        self.users[block] += 1
        return block

    def give(self, block: int) -> None:
        self.users[block] -= 1
        assert self.users[block] >= 0, f"block {block} was given back twice"
        if not self.users[block]:
            self.free[block] = None

    def remember(self, block: int, key: tuple[int, bytes]) -> None:
        if block not in self.key_of and key not in self.cached:
            self.cached[key], self.key_of[block] = block, key

    def forget(self, block: int) -> None:
        key = self.key_of.pop(block, None)
        if key is not None:
            del self.cached[key]


class Vllm:
    """One engine: `submit`, `step` or `run`, `abort`; `wrong` counts positions that were read with other numbers."""

    def __init__(
        self,
        layout: Layout,
        scheduler: SchedulerSide | None,
        worker: WorkerSide | None,
        *,
        budget: int = 32,
        layers_first: bool = True,
    ) -> None:
        self.layout, self.size = layout, layout.page_size
        self.scheduler, self.worker = scheduler, worker
        self.budget = budget
        self.pool = BlockPool(layout.n_blocks)
        self.windows = {group: kind.window for kind in layout.kinds for group in kind.groups}
        self.caches = caches(layout, layers_first=layers_first)
        self.layers = [(layer, kind.window) for kind in layout.kinds for layer in kind.layers]
        if worker is not None:
            worker.register(self.caches)
        self.requests: dict[str, Request] = {}
        self.waiting: list[Request] = []
        self.running: list[Request] = []
        self.received: set[str] = set()
        self.failed: set[str] = set()
        self.finished_ids: set[str] = set()
        self.wrong = self.read = self.steps = 0
        self.log: list[str] = []
        self.before_forward: Callable[[], None] = lambda: None

    # What a server does

    def submit(self, request: Request) -> Request:
        self.requests[request.request_id] = request
        self.waiting.append(request)
        if self.scheduler is not None:
            self.scheduler.arrived(request)
        return request

    def run(self, limit: int = 3000, seconds: float = 30.0) -> None:
        """Until everything has ended; while nobody runs, threads that load are given time, `seconds` in all."""
        end = time.monotonic() + seconds
        while self.steps < limit or time.monotonic() < end:
            if not (self.waiting or self.running or self.requests or self.finished_ids):
                return
            self.step()
            time.sleep(0 if self.running else 0.001)
        raise AssertionError(f"wedged: {[r.request_id for r in self.waiting]} wait, {len(self.running)} run")

    def abort(self, request: Request) -> None:
        waits = request.status is Status.LOADING and request.request_id not in self.received
        self.failed.discard(request.request_id)
        for queue in (self.waiting, self.running):
            if request in queue:
                queue.remove(request)
        self.received.discard(request.request_id)
        request.status = Status.FINISHED_ABORTED
        self._finish(request, keep_blocks=waits)

    def reset_prefix_cache(self) -> bool:
        """As vLLM's: refused while any block is used."""
        if any(self.pool.users.values()):
            return False
        for block in list(self.pool.key_of):
            self.pool.forget(block)
        return True

    # Schedule

    def step(self) -> None:
        self.steps += 1
        scheduled: dict[Request, int] = {}
        preempted: set[str] = set()
        budget = self._schedule_running(scheduled, preempted)
        new, sync = [], False
        if not preempted:
            new, sync = self._schedule_waiting(scheduled, budget)
        orders = self._orders(scheduled, new, preempted)
        outcome = self._execute(scheduled, orders, sync=sync)
        self._update(scheduled, outcome)

    def _schedule_running(self, scheduled: dict[Request, int], preempted: set[str]) -> int:
        budget = self.budget
        for request in list(self.running):
            count = min(budget, request.num_tokens - request.num_computed_tokens)
            while request in self.running and not self._grow(request, count):
                victim = self.running.pop()
                budget += scheduled.pop(victim, 0)
                preempted.add(victim.request_id)
                self._preempt(victim)
            if request in self.running and count:
                scheduled[request] = count
                budget -= count
        return budget

    def _preempt(self, victim: Request) -> None:
        self._give_back(victim)
        victim.status, victim.num_computed_tokens = Status.PREEMPTED, 0
        victim.preemptions += 1
        self.waiting.insert(0, victim)

    def _schedule_waiting(self, scheduled: dict[Request, int], budget: int) -> tuple[list[Request], bool]:
        new: list[Request] = []
        sync = False
        # Who was passed over before comes first: blocks that a load has filled are not kept from those who can run.
        for request in sorted(self.waiting, key=lambda one: not one.tables):
            if budget <= 0:
                break
            if request.status is Status.LOADING and not self._received(request):
                continue
            found = self._ask(request)
            if found is None:
                continue
            local, external, beside = found
            computed = request.num_computed_tokens or len(local[0]) * self.size + external
            count = 0 if beside else min(budget, request.num_tokens - computed)
            assert beside or count > 0, f"{request.request_id}: a hit of all tokens before a step leaves nothing to run"
            if not self._admit(request, local, external, computed + count, delay=beside):
                break
            self._call(f"alloc {request.request_id} {external}")
            request.external = external or request.external
            if self.scheduler is not None:
                self.scheduler.allocated(request, tuple(map(list, request.tables)), external)
            request.num_computed_tokens = computed
            if beside:
                request.status = Status.LOADING
                continue
            sync |= external > 0
            self.waiting.remove(request)
            self.running.append(request)
            request.status = Status.RUNNING
            scheduled[request] = count
            new.append(request)
            budget -= count
        return new, sync

    def _received(self, request: Request) -> bool:
        """A load has ended: the blocks count, or the request begins anew."""
        if request.request_id not in self.received:
            return False
        self.received.discard(request.request_id)
        request.status = Status.WAITING
        if request.request_id in self.failed:
            self.failed.discard(request.request_id)
            self._give_back(request)
            request.num_computed_tokens = 0
        else:
            self._remember(request, request.num_computed_tokens)
            if request.num_computed_tokens == request.num_tokens:
                request.num_computed_tokens -= 1
        return True

    def _ask(self, request: Request) -> tuple[list[list[int]], int, bool] | None:
        """The local hit, by group, then what the connector has; nothing is asked after a load."""
        groups = self.layout.n_groups
        if request.num_computed_tokens:
            return [[] for _ in range(groups)], 0, False
        local = self._local_hit(request)
        self._call(f"match {request.request_id} {len(local[0]) * self.size}")
        if self.scheduler is None:
            return local, 0, False
        external, beside = self.scheduler.matched(request, len(local[0]) * self.size)
        if external is None:
            return None
        assert external % self.size == 0
        assert external or not beside
        return local, external, beside

    # Blocks

    def _keys(self, request: Request, upto: int) -> list[bytes]:
        keys, state = [], (request.cache_salt or "").encode()
        for at in range(0, upto // self.size * self.size, self.size):
            state = sha256(state + repr(request.all_token_ids[at : at + self.size]).encode()).digest()
            keys.append(state)
        return keys

    def _reach(self, group: int, tokens: int) -> int:
        """The first block that group still reads when so many tokens are computed."""
        window = self.windows[group]
        return 0 if window is None else max(0, tokens - window + 1) // self.size

    def _local_hit(self, request: Request) -> list[list[int]]:
        keys = self._keys(request, request.num_tokens - 1)
        for pages in range(len(keys), -1, -1):
            firsts = [self._reach(group, pages * self.size) for group in range(self.layout.n_groups)]
            if all((g, keys[p]) in self.pool.cached for g, first in enumerate(firsts) for p in range(first, pages)):
                break
        return [
            [0] * first + [self.pool.cached[(group, keys[page])] for page in range(first, pages)]
            for group, first in enumerate(firsts)
        ]

    def _admit(self, request: Request, local: list[list[int]], external: int, upto: int, *, delay: bool) -> bool:
        if request.tables:
            return self._grow(request, upto - request.num_computed_tokens)
        computed, pages = len(local[0]) * self.size + external, -(-upto // self.size)
        reused = {block for table in local for block in table if block and not self.pool.users[block]}
        firsts = [max(self._reach(group, computed), len(local[group])) for group in range(len(local))]
        # A load holds its blocks without going on: there must be what it will need, and what those loaded before will.
        loaded = [one for one in self.waiting if one.tables] if delay else []
        kept = sum(-(-one.num_tokens // self.size) - len(table) for one in loaded for table in one.tables)
        kept += (-(-request.num_tokens // self.size) - pages) * len(local) if delay else 0
        if sum(pages - first for first in firsts) + len(reused) + kept > len(self.pool.free):
            return False
        for group, table in enumerate(local):
            request.tables.append([self.pool.use(block) if block and at >= self._reach(group, computed) else 0
                                   for at, block in enumerate(table)])  # fmt: skip
        for group, table in enumerate(request.tables):
            table.extend([0] * (firsts[group] - len(table)))
            table.extend(self.pool.take() for _ in range(pages - len(table)))
        if not delay:
            self._remember(request, upto)
        return True

    def _grow(self, request: Request, count: int) -> bool:
        """Blocks for `count` more tokens; those behind a window go first."""
        computed = request.num_computed_tokens
        for group, table in enumerate(request.tables):
            for at in range(min(self._reach(group, computed), len(table))):
                if table[at]:
                    self.pool.give(table[at])
                    table[at] = 0
        pages = -(-(computed + count) // self.size)
        if sum(pages - len(table) for table in request.tables) > len(self.pool.free):
            return False
        for table in request.tables:
            table.extend(self.pool.take() for _ in range(pages - len(table)))
        self._remember(request, computed + count)
        return True

    def _remember(self, request: Request, upto: int) -> None:
        """Whole blocks are known by their tokens as soon as they are planned."""
        for page, key in enumerate(self._keys(request, min(upto, request.num_tokens))):
            for group, table in enumerate(request.tables):
                if table[page]:
                    self.pool.remember(table[page], (group, key))

    def _give_back(self, request: Request) -> None:
        for table in request.tables:
            for block in reversed(table):
                if block:
                    self.pool.give(block)
        request.tables = []

    # Execute

    def _orders(self, scheduled: dict[Request, int], new: list[Request], preempted: set[str]) -> Any:
        if self.scheduler is None:
            return None
        old = [request for request in scheduled if request not in new]
        output = SimpleNamespace(
            scheduled_new_reqs=[
                SimpleNamespace(req_id=one.request_id, num_computed_tokens=one.num_computed_tokens) for one in new
            ],
            scheduled_cached_reqs=SimpleNamespace(
                req_ids=[one.request_id for one in old], num_computed_tokens=[one.num_computed_tokens for one in old]
            ),
            num_scheduled_tokens={one.request_id: count for one, count in scheduled.items()},
            total_num_scheduled_tokens=sum(scheduled.values()),
            preempted_req_ids=preempted,
            finished_req_ids=self.finished_ids,
            kv_connector_block_state=SimpleNamespace(get_block_ids=lambda rid: tuple(self.requests[rid].tables)),
        )
        self.finished_ids = set()
        # Between two processes the orders are pickled.
        return pickle.loads(pickle.dumps(self.scheduler.orders(output)))

    def _execute(self, scheduled: dict[Request, int], orders: Any, *, sync: bool) -> tuple[Any, ...]:
        self.before_forward()
        worker = self.worker
        if worker is None:
            return self._forward(scheduled), None, set(), set(), set()
        worker.bind(orders)
        if sync:
            worker.start_loads()
        wrong = self._forward(scheduled)
        if not sync:
            worker.start_loads()
        worker.make_saves()
        received, failed = worker.results()
        outcome = wrong, worker.done(), received, failed, worker.invalid_blocks()
        worker.clear()
        return outcome

    def _forward(self, scheduled: dict[Request, int]) -> Counter[Request]:
        wrong: Counter[Request] = Counter()
        for request, count in scheduled.items():
            first, last = request.num_computed_tokens, request.num_computed_tokens + count
            marks = marks_of(request.all_token_ids[:last], request.cache_salt or "")
            for number, (layer, window) in enumerate(self.layers):
                cache, table = self.caches[layer.name], request.tables[layer.group]
                for at in range(0 if window is None else max(0, first - window + 1), last):
                    cell = cache[table[at // self.size], :, at % self.size]
                    if at >= first:
                        assert table[at // self.size], f"{request.request_id}: token {at} has no block"
                        cell[:] = marks[at] + number
                    else:
                        self.read += 1
                        wrong[request] += not bool((cell == marks[at] + number).all())
        return wrong

    # Update

    def _update(
        self,
        scheduled: dict[Request, int],
        outcome: tuple[Counter[Request], Any, set[str], set[str], set[int]],
    ) -> None:
        wrong, done, received, failed, bad = outcome
        for rid in failed & {r.request_id for r in self.waiting if r.status is Status.LOADING}:
            self.failed.add(rid)
        affected = self._cut_off(bad) if bad else set()
        self.wrong += sum(count for request, count in wrong.items() if request not in affected)
        for request, count in scheduled.items():
            if request in affected:
                continue
            request.num_computed_tokens += count
            if request.num_computed_tokens == request.num_tokens:
                marks = marks_of(request.all_token_ids, request.cache_salt or "")
                request.all_token_ids.append(marks[-1] % 50_000)
                if len(request.answered) == request.max_tokens:
                    request.status = Status.FINISHED_LENGTH_CAPPED
                    self.running.remove(request)
                    self._finish(request)
        if self.scheduler is not None:
            self._call(f"reported {sorted(received)} {sorted(failed)}")
            self.scheduler.reported(done, received, failed)
        for rid in received:
            request = self.requests[rid]  # it must still be known
            if request.status is Status.LOADING:
                self.received.add(rid)
            else:
                self._give_back(request)
                del self.requests[rid]

    def _cut_off(self, bad: set[int]) -> set[Request]:
        """Blocks were not filled: who reads them goes back to where they begin. Not known for several groups."""
        assert self.layout.n_groups == 1, "invalid block ids stop an engine with several groups"
        affected = set()
        for request in self.running:
            hit = [page for page, block in enumerate(request.tables[0]) if block in bad]
            if hit:
                affected.add(request)
                request.num_computed_tokens = min(request.num_computed_tokens, hit[0] * self.size)
        for block in bad:
            self.pool.forget(block)
        return affected

    def _finish(self, request: Request, *, keep_blocks: bool = False) -> None:
        self._call(f"finished {request.request_id} {request.status.name}")
        if self.scheduler is not None:
            self.scheduler.finished(request)
        self.finished_ids.add(request.request_id)
        if not keep_blocks:
            self._give_back(request)
            del self.requests[request.request_id]

    def _call(self, text: str) -> None:
        self.log.append(f"{self.steps}: {text}")


def caches(layout: Layout, *, layers_first: bool) -> dict[str, torch.Tensor]:
    """Tensors [blocks, heads, tokens, content]; layers of different groups lie on the same bytes, as vLLM has it."""
    depth = max(Counter(layer.group for kind in layout.kinds for layer in kind.layers).values())
    cells = (HEADS, layout.page_size, CONTENT)
    if layers_first:
        whole = torch.zeros((depth, layout.n_blocks, *cells))
    else:
        whole = torch.zeros((layout.n_blocks, cells[1], depth, cells[0], cells[2])).permute(2, 0, 3, 1, 4)
    seen: Counter[int] = Counter()
    found = {}
    for kind in layout.kinds:
        for layer in kind.layers:
            found[layer.name] = whole[seen[layer.group]]
            seen[layer.group] += 1
    return found
