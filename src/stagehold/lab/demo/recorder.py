"""A runner that notes, for each request, when its first token came, what it cost, and the logits of its answer.

It owns the records. It stands between the scheduler and a model, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from stagehold import Admission
from stagehold.lab.demo.prompts import Kind, Prompt
from stagehold.lab.expand import Unbounded
from stagehold.serving.model.paged import PagedModel
from stagehold.serving.model.runner import Logits, ModelRunner
from stagehold.serving.runner import Work


@dataclass(slots=True, eq=False)
class Record:
    """One request of one pass. Seconds from its submission; `forward_seconds` are its own forwards among them.

    `ideal_hit_tokens` of its prompt had been submitted before, in whole pages.
    """

    rid: str
    kind: Kind
    prompt_tokens: int
    submitted: float
    ideal_hit_tokens: int = 0
    admitted: bool = False
    first_token_seconds: float = 0.0
    forward_seconds: float = 0.0
    computed_tokens: int = 0
    device_hit_tokens: int = 0
    store_hit_tokens: int = 0
    answer: list[int] = field(default_factory=list)
    logits: list[npt.NDArray[np.float32]] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """All but the logits."""
        names = [name for name in self.__slots__ if name not in ("logits", "submitted", "admitted")]
        return {name: getattr(self, name) for name in names}


class Recorder:
    """A `Runner`; works come one at a time, as `WitnessedRunner` gives them."""

    def __init__(self, model: PagedModel, clock: Callable[[], float], known: Unbounded) -> None:
        self.records: dict[str, Record] = {}
        self._known = known
        self._inner = ModelRunner(model, self._logits)
        self._clock = clock

    def submitted(self, prompt: Prompt, rid: str) -> None:
        """A request goes to the scheduler now."""
        ideal = self._known.hit(prompt.tokens)
        self.records[rid] = Record(prompt.rid, prompt.kind, len(prompt.tokens), self._clock(), ideal)

    def admitted(self, rid: str, admission: Admission) -> None:
        """Its admission; of one that was retracted, the first counts."""
        record = self.records[rid]
        if not record.admitted:
            record.admitted = True
            record.device_hit_tokens = admission.device_hit_tokens
            record.store_hit_tokens = admission.store_hit_tokens

    def forward(self, batch: Sequence[Work]) -> list[int]:
        """See `Runner.forward`."""
        (work,) = batch
        record = self.records[work.rid]
        start = self._clock()
        answers = self._inner.forward(batch)
        now = self._clock()
        record.computed_tokens += max(0, min(work.last, record.prompt_tokens) - work.first)
        if work.first < record.prompt_tokens:
            record.forward_seconds += now - start
        if work.last == record.prompt_tokens:
            record.first_token_seconds = now - record.submitted
        if work.last >= record.prompt_tokens:
            position = work.last - record.prompt_tokens
            record.answer[position:] = answers
        return answers

    def read(self, work: Work) -> None:
        """See `Runner.read`."""
        self._inner.read(work)

    def _logits(self, work: Work, logits: Logits) -> None:
        record = self.records[work.rid]
        if work.last >= record.prompt_tokens:
            record.logits[work.last - record.prompt_tokens :] = [logits.numpy()]
