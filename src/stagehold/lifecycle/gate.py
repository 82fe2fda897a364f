"""Fetch or compute: does the store bring pages faster than they are computed, as far as this engine has seen?

Owns one sum in tokens, what waiting for the store has cost so far. A pass costs the tokens that it could have computed
and did not, while a request was held back for the store and nothing else; pages that came and were spliced pay their
tokens back. Waiting beside others that are computed costs nothing, and what many wait for at once is paid once.
Everything is counted in ticks and tokens that all ranks share, so that all ranks decide alike.

The sum never falls below nothing: a good hour buys no bad minute. When it exceeds what is still being waited for and a
little patience, computing all of that would have been faster, and the store is not asked for a while. Then it is tried,
by one request after the other that alone is held back, until several in a row have paid. Host memory has no gate: its
pages are there, and nobody is held back for them.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from enum import Enum

from stagehold.lifecycle.data import Handle
from stagehold.specs.config import EngineConfig
from stagehold.specs.outcomes import FetchGate

LOG = logging.getLogger("stagehold")

MEMORY_TOKENS = 1 << 20
"""Prompt tokens over which the measured pace is averaged: some hundred full passes, after which a new one counts."""


class GateState(Enum):
    """Whether the store is asked."""

    OPEN = "open"
    RESTING = "resting"
    TRYING = "trying"


@dataclass(slots=True)
class Pace:
    """Prompt tokens that a pass computes, averaged over tokens, so that the last piece of a prompt weighs little."""

    declared: int
    tokens: int = 0
    squares: int = 0

    def add(self, tokens: int) -> None:
        """A pass has computed so many."""
        self.tokens += tokens
        self.squares += tokens * tokens
        if self.tokens > MEMORY_TOKENS:
            self.tokens //= 2
            self.squares //= 2

    @property
    def tokens_per_tick(self) -> int:
        """What is declared, else what was measured; 0 as long as nothing was."""
        return self.declared or (self.squares // self.tokens if self.tokens else 0)


@dataclass(slots=True)
class _Pass:
    """One pass: prompt tokens computed, whether anybody was held back, and tokens that are waited for, by hold."""

    computed: int = 0
    held_back: bool = False
    awaited: dict[int, int] = field(default_factory=dict)


class Gate:
    """See the module. Off, it is always open and costs nothing."""

    def __init__(self, config: EngineConfig) -> None:
        limits = config.limits
        self.is_on = config.fetch_gate is FetchGate.AUTO
        self.pace = Pace(config.prefill_tokens_per_tick or 0)
        self.state = GateState.OPEN
        self.lost = 0  # tokens that waiting for the store has cost beyond what it brought
        self.closings = 0  # how often the store was found not to be worth its wait
        self._patience = limits.wait_base_ticks
        self._rests = (limits.open_limit, limits.open_limit_cap)
        self._trials = limits.probe_trips
        self._trials_left = 0
        self._trial: Handle | None = None
        self.trial = 0  # number of the request on trial; 0: none is
        self._rest = 0
        self._until = 0  # tick in which the rest is over, and then that of the last change
        self._pass = _Pass()

    # What decisions ask

    def bars(self, handle: Handle) -> bool:
        """Whether the request may not ask the store, nor be held back for it."""
        if self.state is GateState.OPEN:
            return False
        return self.state is GateState.RESTING or self._trial not in (None, handle)

    # What happens in a pass

    def asks(self, handle: Handle, number: int) -> None:
        """A request asks the store, or for what is known to be there: the first one that does is on trial."""
        if self.state is GateState.TRYING and self._trial is None:
            self._trial, self.trial = handle, number

    def holds_back(self, hold: int, tokens: int) -> None:
        """A request is held back: for a lookup (hold 0), or for `tokens` that a hold is to bring."""
        self._pass.held_back = True
        self._pass.awaited[hold] = tokens

    def computes(self, tokens: int) -> None:
        """So many prompt tokens are computed in this pass."""
        if self.is_on:
            self._pass.computed += tokens

    def brings(self, handle: Handle, tokens: int) -> None:
        """So many tokens that came from the store are spliced for a request."""
        if not (self.is_on and tokens):
            return
        paid = tokens >= self.lost
        self.lost = max(0, self.lost - tokens)
        if self.state is GateState.TRYING and handle == self._trial:
            self._trial, self.trial = None, 0
            self._trials_left = self._trials_left - 1 if paid else self._trials

    # Between passes

    def turn(self, tick: int, *, trial_waits: bool) -> None:
        """The pass is over: count it, and decide for the next; `trial_waits`: who is on trial is still held back."""
        if not self.is_on:
            return
        done, self._pass = self._pass, _Pass()
        if done.computed:
            self.pace.add(done.computed)
        pace = self.pace.tokens_per_tick
        if done.held_back:
            self.lost += max(0, pace - done.computed)
        if not trial_waits:
            self._trial, self.trial = None, 0  # it left without an answer
        if self.state is GateState.RESTING:
            if tick >= self._until:
                self.state, self.lost, self._trials_left = GateState.TRYING, 0, self._trials
        elif self.lost > self._patience * pace + sum(done.awaited.values()):
            self._close(tick)
        elif self.state is GateState.TRYING and not self._trials_left:
            self.state, self._until = GateState.OPEN, tick
            LOG.warning("store on again: pages came faster than they are computed, %d times in a row", self._trials)

    def _close(self, tick: int) -> None:
        """Rest; longer, where a trial failed, or where the store was found good for less than the last rest."""
        least, most = self._rests
        relapse = self._rest and (self.state is GateState.TRYING or tick - self._until < self._rest)
        self._rest = min(2 * self._rest, most) if relapse else least
        if self.state is GateState.OPEN:
            self.closings += 1
            LOG.warning(
                "store off: waiting for it kept %d tokens from being computed, beyond all that it brought; "
                "it is tried again in %d ticks",
                self.lost,
                self._rest,
            )
        self.state, self._until = GateState.RESTING, tick + self._rest
        self.lost, self._trial, self.trial = 0, None, 0
