"""The bundled scheduler: waiting queue, token budget, chunked prefill, decode steps, retraction, batches in flight.

It embeds the engine through its public face, as a foreign scheduler would, and owns which request runs when.
It never looks at the tree, the pools or the store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import assert_never

import numpy as np

from stagehold import (
    Admission,
    AdmissionOutcome,
    ComponentConfig,
    Engine,
    Handle,
    Namespace,
    NoRoom,
    Skip,
)
from stagehold.serving.pattern import Slots, Tokens
from stagehold.serving.runner import Runner, Work


@dataclass(slots=True, eq=False)
class Request:
    """One submitted request. `tokens` has room for prompt and answer; `known` of them are known on the device.

    `computed` tokens have their KV, of which `reused` came from the cache and `read` were read by a forward;
    `prefill` of them (the prompt, and what a retracted attempt had answered) come before any is decoded. The host
    knows `landed` of the tokens, and has told the engine the ids of `told`.
    """

    handle: Handle
    namespace: Namespace
    tokens: Tokens
    known: int
    prefill: int
    landed: int
    told: int
    computed: int = 0
    reused: int = 0
    read: int = 0
    retractions: int = 0
    ended: bool = False

    @property
    def rid(self) -> str:
        """The caller's name of the request."""
        return self.handle.rid

    @property
    def answered(self) -> bool:
        """Whether its last token is known, so that nothing more is to be computed."""
        return self.known == len(self.tokens)


@dataclass(frozen=True, slots=True)
class Landing:
    """What one batch did for one request, to be noticed by the host when the batch has ended.

    `handle` is the attempt that was computed; `computed` and `known` are its request's figures behind this batch.
    """

    request: Request
    handle: Handle
    computed: int
    known: int


@dataclass(frozen=True, slots=True)
class Admitted:
    """One admission as the scheduler saw it: which attempt, tokens to have KV first, what the engine gave."""

    rid: str
    attempt: int
    prefill_tokens: int
    admission: Admission


@dataclass(slots=True)
class Pass:
    """What one scheduler pass did."""

    admitted: list[Admitted] = field(default_factory=list)
    finished: list[str] = field(default_factory=list)
    retracted: list[str] = field(default_factory=list)
    computed_tokens: int = 0


class _Visit(Enum):
    RUNS = auto()
    PASSED_OVER = auto()
    NO_MORE = auto()


class Scheduler:
    """Serves requests in arrival order, a pass at a time: running ones first, oldest first, then new ones.

    `in_flight` batches run while the next one is built: none in a normal loop, one in an overlapped loop, one less
    than there are stages in a pipeline. Their results are noticed that many passes later. `defer` is asked once a
    pass, after the tick: where it says so, the pass admits nobody (a rank's own decision, as for a prefill delayer).
    """

    def __init__(
        self,
        engine: Engine,
        runner: Runner,
        *,
        token_budget: int = 512,
        running_limit: int = 128,
        in_flight: int = 0,
        defer: Callable[[], bool] = lambda: False,
    ) -> None:
        self._engine = engine
        self._runner = runner
        self._token_budget = token_budget
        self._running_limit = running_limit
        self._defer = defer
        self._keeps_states = any(not part.windowed for part in engine.config.components)
        self._piece = engine.config.chunk_tokens or token_budget
        self._flights: deque[list[Landing]] = deque([] for _ in range(in_flight))
        self._waiting: deque[Request] = deque()
        self._running: list[Request] = []

    @property
    def idle(self) -> bool:
        """Whether no request waits or runs."""
        return not self._waiting and not self._running

    def submit(self, rid: str, tokens: Tokens, namespace: Namespace, max_new_tokens: int) -> None:
        """Queue a request; `tokens` is its prompt, and it will answer with exactly `max_new_tokens`."""
        room = np.zeros(len(tokens) + max_new_tokens, dtype=np.uint32)
        room[: len(tokens)] = tokens
        handle = self._engine.arrive(rid, tokens, namespace, max_new_tokens)
        length = len(tokens)
        self._waiting.append(Request(handle, namespace, room, length, length, landed=length, told=length))

    def step(self) -> Pass:
        """One pass: tick, gather a batch within the token budget, send it off, and notice the batch that has ended."""
        self._engine.tick()
        done = Pass()
        batch: list[tuple[Request, int]] = []
        budget = self._go_on(batch, self._token_budget, done)
        if not self._defer():
            self._admit(batch, budget, done)
        self._flights.append(self._run(batch, done))
        for landing in self._flights.popleft():
            self._land(landing, done)
        return done

    def abort(self, rid: str) -> bool:
        """Give up one request, waiting or running; false where none of that name is alive."""
        for queue in (self._waiting, self._running):
            for request in queue:
                if request.rid == rid:
                    queue.remove(request)
                    request.ended = True
                    self._engine.abort(request.handle)
                    return True
        return False

    def abort_all(self) -> None:
        """Give up everything that waits or runs."""
        for request in (*self._waiting, *self._running):
            self._engine.abort(request.handle)
        self._waiting.clear()
        self._running.clear()
        self._flights = deque([] for _ in self._flights)

    def _go_on(self, batch: list[tuple[Request, int]], budget: int, done: Pass) -> int:
        """Running requests, oldest first: one token to decode, or the next chunk of the prompt."""
        for request in list(self._running):
            count = 0 if request.answered else min(budget, self._piece, request.known - request.computed)
            if count and request in self._running and self._extend(request, count, done):
                batch.append((request, count))
                budget -= count
        return budget

    def _extend(self, request: Request, count: int, done: Pass) -> bool:
        """Slots for `count` more tokens; the youngest request makes room, at last this one itself.

        The ids go with them as far as the host knows them: behind a batch in flight they come one pass later.
        """
        upto = min(request.landed, request.computed + count, request.told + count)
        tokens = request.tokens[request.told : upto]
        while isinstance(self._engine.extend(request.handle, count, tokens), NoRoom):
            victim = self._running.pop()
            self._retract(victim, done)
            if victim is request:
                return False
        request.told += len(tokens)
        return True

    def _retract(self, victim: Request, done: Pass) -> None:
        victim.handle = self._engine.retract(victim.handle)
        victim.prefill = max(victim.prefill, victim.computed)
        victim.computed = victim.reused = victim.read = 0
        victim.retractions += 1
        self._waiting.appendleft(victim)
        done.retracted.append(victim.rid)

    def _admit(self, batch: list[tuple[Request, int]], budget: int, done: Pass) -> None:
        """Visit waiting requests in order; one that waits for its bytes is passed over and blocks nobody."""
        passed_over: list[Request] = []
        while self._waiting and budget > 0 and len(self._running) < self._running_limit:
            request = self._waiting.popleft()
            visit, count = self._visit(request, budget, done)
            match visit:
                case _Visit.RUNS:
                    batch.append((request, count))
                    budget -= count
                case _Visit.PASSED_OVER:
                    passed_over.append(request)
                case _Visit.NO_MORE:
                    passed_over.append(request)
                    break
                case _:
                    assert_never(visit)
        self._waiting.extendleft(reversed(passed_over))

    def _visit(self, request: Request, budget: int, done: Pass) -> tuple[_Visit, int]:
        plan = self._engine.select(request.handle, min(budget, self._piece))
        if isinstance(plan, Skip):
            return _Visit.PASSED_OVER, 0
        admission = self._engine.commit(plan)
        match admission.outcome:
            case AdmissionOutcome.ADMITTED:
                self._start(request, admission, done)
                granted = self._extend(request, admission.extend_tokens, done)
                return (_Visit.RUNS, admission.extend_tokens) if granted else (_Visit.NO_MORE, 0)
            case AdmissionOutcome.NO_ROOM | AdmissionOutcome.DEFERRED:
                return _Visit.NO_MORE, 0
            case AdmissionOutcome.DEFER_CAP | AdmissionOutcome.UNFIT | AdmissionOutcome.SHRUNK:
                return _Visit.PASSED_OVER, 0
            case _:
                assert_never(admission.outcome)

    def _start(self, request: Request, admission: Admission, done: Pass) -> None:
        request.computed = request.reused = admission.hit_tokens
        self._running.append(request)
        done.admitted.append(Admitted(request.rid, request.handle.attempt, request.prefill, admission))

    def _run(self, batch: list[tuple[Request, int]], done: Pass) -> list[Landing]:
        """The forward pass: KV and answers are on the device, in the order in which batches were sent off."""
        answers = self._runner.forward([self._work(request, count) for request, count in batch])
        for request, count in batch if self._keeps_states else ():
            # Before anything more is sent off: a checkpoint is a copy of the state as it stands.
            if request.computed + count <= request.prefill:
                self._engine.publish(request.handle, request.computed + count)
        landings = []
        for (request, count), token in zip(batch, answers, strict=True):
            request.read = request.computed
            request.computed += count
            done.computed_tokens += count
            if request.computed == request.known:
                request.tokens[request.known] = token
                request.known += 1
            landings.append(Landing(request, request.handle, request.computed, request.known))
        return landings

    def _land(self, landing: Landing, done: Pass) -> None:
        """The host notices what a batch did: prompt pages are published, and who has answered ends."""
        request = landing.request
        request.landed = max(request.landed, landing.known)
        if request.ended or landing.handle != request.handle:
            return  # aborted or retracted meanwhile
        if landing.computed <= request.prefill:
            self._engine.publish(request.handle, landing.computed)
        if landing.known == len(request.tokens):
            self._runner.read(self._work(request, 0))
            self._engine.finish(request.handle)
            self._running.remove(request)
            done.finished.append(request.rid)

    def _work(self, request: Request, count: int) -> Work:
        slots = np.asarray(self._engine.page_slots(request.handle), dtype=np.int64)
        return Work(
            request.rid,
            request.namespace,
            request.tokens,
            request.computed,
            request.computed + count,
            request.read,
            request.reused,
            slots,
            {part.name: page_table(self._engine, request.handle, part) for part in self._engine.config.components},
        )


def page_table(engine: Engine, handle: Handle, part: ComponentConfig) -> Slots:
    """A slot for each page of another component; one that computes in a single slot has it at every page."""
    slots = np.asarray(engine.page_slots(handle, part.name), dtype=np.int64)
    return slots if part.windowed else np.repeat(slots, len(engine.page_slots(handle)))
