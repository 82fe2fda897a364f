"""What the scheduler's side knows of each of vLLM's requests beside what the engine knows."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from stagehold import Handle, Namespace, Plan


class Stage(Enum):
    """Where a request stands with vLLM."""

    WAITING = auto()  # it is asked for
    LOADING = auto()  # vLLM holds blocks for it that are being filled
    RUNNING = auto()  # vLLM computes it
    LEAVING = auto()  # it has ended or was sent back, and copies of it are still to be reported


class End(Enum):
    """How a request leaves the engine."""

    FINISH = auto()
    ABORT = auto()
    RETRACT = auto()


@dataclass(slots=True, eq=False)
class Entry:
    """One attempt of one request. Lengths are pages unless the name says tokens.

    `request` is vLLM's. The engine has room for `pages` of it, knows the ids of `told` tokens, and promised
    `reserved_tokens` behind the `arrived_tokens` of this attempt.
    """

    request: Any
    namespace: Namespace
    handle: Handle
    arrived_tokens: int
    reserved_tokens: int
    told: int
    since: int  # the pass from which on it can be asked for
    stage: Stage = Stage.WAITING
    plan: Plan | None = None  # the open visit
    local_tokens: int = 0  # what vLLM had itself when it last asked
    barred: bool = False  # a load of it has failed: nothing is promised to it any more
    open_ended: bool = True  # its pages are saved as they are filled
    pages: int = 0
    published: int = 0
    saving: int = 0  # serial of the latest orders that save pages of it
    leaves: End = End.FINISH

    @property
    def rid(self) -> str:
        """What vLLM calls it, which is the engine's, too."""
        return self.handle.rid
