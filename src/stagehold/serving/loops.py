"""Loop shapes beside the bundled scheduler's own: the prefill side of a disaggregated server.

Whatever its shape, a loop's first act in every pass is the tick, before any decision of its own, and with an empty
queue too. Normal, overlapped and pipelined loops are `Scheduler` with 0, 1 or more batches in flight. Owns queues
and order; it never looks at the tree, the pools or the store.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from stagehold import Admission, Engine, Handle, Namespace, NoRoom, Plan
from stagehold.serving.pattern import Tokens
from stagehold.serving.runner import Runner, Work
from stagehold.serving.scheduler import Admitted, Pass, page_table


@dataclass(slots=True, eq=False)
class Prompt:
    """One prompt to compute and hand over: it waits for the peer `bootstrap` passes, its KV travels `transfer`."""

    handle: Handle
    namespace: Namespace
    tokens: Tokens
    bootstrap: int
    transfer: int


class PrefillLoop:
    """Computes prompts and hands their KV to the decode side by copies that take passes.

    A pass that has nothing to do but to poll a copy does not advance retries. `defer` is asked once a pass, after
    the tick; where it says so, the pass admits nobody.
    """

    def __init__(
        self,
        engine: Engine,
        runner: Runner,
        *,
        bootstrap_passes: int = 1,
        transfer_passes: int = 2,
        defer: Callable[[], bool] = lambda: False,
    ) -> None:
        self._engine = engine
        self._runner = runner
        self._bootstrap_passes = bootstrap_passes
        self._transfer_passes = transfer_passes
        self._defer = defer
        self._bootstrapping: deque[Prompt] = deque()
        self._waiting: deque[Prompt] = deque()
        self._travelling: deque[Prompt] = deque()

    @property
    def idle(self) -> bool:
        """Whether no prompt waits or travels."""
        return not (self._bootstrapping or self._waiting or self._travelling)

    def submit(self, rid: str, tokens: Tokens, namespace: Namespace) -> None:
        """Queue a prompt; the store is asked for it while its peer is being found."""
        handle = self._engine.arrive(rid, tokens, namespace, 1)
        self._bootstrapping.append(Prompt(handle, namespace, tokens, self._bootstrap_passes, self._transfer_passes))

    def step(self) -> Pass:
        """One pass: tick, end the transfers that are over, admit and compute whoever has a peer and room."""
        polls_only = bool(self._travelling) and not (self._waiting or self._bootstrapping)
        self._engine.tick(advance_retries=not polls_only)
        done = Pass()
        self._poll_transfers(done)
        self._find_peers()
        if not self._defer():
            self._admit(done)
        return done

    def _poll_transfers(self, done: Pass) -> None:
        for prompt in list(self._travelling):
            prompt.transfer -= 1
            if prompt.transfer <= 0:
                self._travelling.remove(prompt)
                self._engine.finish(prompt.handle)
                done.finished.append(prompt.handle.rid)

    def _find_peers(self) -> None:
        for prompt in list(self._bootstrapping):
            prompt.bootstrap -= 1
            if prompt.bootstrap <= 0:
                self._bootstrapping.remove(prompt)
                self._waiting.append(prompt)

    def _admit(self, done: Pass) -> None:
        for prompt in list(self._waiting):
            plan = self._engine.select(prompt.handle, len(prompt.tokens))
            if not isinstance(plan, Plan):
                continue
            admission = self._engine.commit(plan)
            if admission.admitted:
                self._waiting.remove(prompt)
                self._compute(prompt, admission, done)

    def _compute(self, prompt: Prompt, admission: Admission, done: Pass) -> None:
        """The whole rest of the prompt at once; there is room for it, as admission has promised."""
        length, hit = len(prompt.tokens), admission.hit_tokens
        granted = self._engine.extend(prompt.handle, length - hit)
        assert not isinstance(granted, NoRoom), granted
        slots = np.asarray(self._engine.page_slots(prompt.handle), dtype=np.int64)
        others = {part.name: page_table(self._engine, prompt.handle, part) for part in self._engine.config.components}
        self._runner.forward(
            [Work(prompt.handle.rid, prompt.namespace, prompt.tokens, hit, length, 0, hit, slots, others)]
        )
        self._engine.publish(prompt.handle, length)
        self._travelling.append(prompt)
        done.admitted.append(Admitted(prompt.handle.rid, prompt.handle.attempt, length, admission))
        done.computed_tokens += length - hit
