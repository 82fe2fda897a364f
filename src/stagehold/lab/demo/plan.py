"""Which sessions fit into the time that the demo may take, from a short measurement of the machine. Arithmetic only."""

from __future__ import annotations

from collections.abc import Sequence

from stagehold.lab.demo.prompts import Kind, Prompt
from stagehold.serving.model.ready import Pace

START_SECONDS = 8.0  # imports and weights of one process
PROCESSES = 2
PASSES = 3  # cold, warm, restarted; the last one, with the page cache dropped, is openings alone
TAIL_TOKENS = 64.0
PROMPT_SLOWER_AT = 4_000.0
"""Attention makes each token of a prompt of this length about twice as dear as one of a short one (seen: 1.6)."""
STEP_SLOWER_AT = 8_000.0
"""The same for a decoded token, which reads all weights in any case (seen: 1.4 at 4,000)."""
DROP_ORDER = (Kind.LONG, Kind.SHARED, Kind.SHORT)


def estimate_seconds(prompts: Sequence[Prompt], pace: Pace, answer_tokens: int) -> float:
    """The whole demo: every distinct token computed once, tails and answers in every pass, two starts."""
    before: dict[str, int] = {}
    seconds = PROCESSES * START_SECONDS
    for prompt in prompts:
        length = len(prompt.tokens)
        dearer = 1 + length / PROMPT_SLOWER_AT
        new = max(0, length - before.get(prompt.session, 0))
        before[prompt.session] = length
        times = PASSES + (prompt.kind is not Kind.TURN)
        computed = (0 if prompt.kind is Kind.SHARED else new) + (times - 1) * TAIL_TOKENS
        seconds += computed * dearer / pace.prompt_tokens_per_second
        seconds += times * answer_tokens * (1 + length / STEP_SLOWER_AT) * pace.step_seconds
    return seconds


def fitting(prompts: Sequence[Prompt], pace: Pace, answer_tokens: int, seconds: float) -> list[Prompt]:
    """The prompts that are left when whole sessions are dropped until the rest fits; at least one session stays."""
    left = list(prompts)
    while estimate_seconds(left, pace, answer_tokens) > seconds:
        openings = [prompt for prompt in left if prompt.kind is not Kind.TURN]
        if len(openings) == 1:
            break
        victim = min(reversed(openings), key=lambda prompt: DROP_ORDER.index(prompt.kind)).session
        left = [prompt for prompt in left if prompt.session != victim]
    return left
