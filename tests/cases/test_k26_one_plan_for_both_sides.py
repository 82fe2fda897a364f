"""K26: a hit in the cache changed into how many chunks a prompt was cut; the other side counted on another number.

A slot of its ring was never given back. Here one figure is committed, what an admission says of hit and extend, and
all that was promised comes back whatever the number of chunks turns out to be.
"""

from __future__ import annotations

import pytest

from stagehold import Namespace
from stagehold.serving.pattern import Layout
from stagehold.serving.runner import PatternRunner
from stagehold.serving.scheduler import Scheduler
from stagehold.testing.hand import Hand
from stagehold.testing.ranks import in_stages, values

LAYOUT = Layout(layers=1, token_part_bytes=16, page_size=16)


@pytest.mark.parametrize("live", [0, 1, 5, 8])
@pytest.mark.parametrize("budget", [5, 16, 33, 1000])
def test_whatever_the_chunks_everything_promised_comes_back(hand, live, budget):
    """A hit of so many pages, a budget of so many tokens a pass; at the end no page is promised or kept."""
    h = hand()
    tokens = h.prompt(8, tail=7)
    h.grow(tokens, live)
    a = h.arrive("a", tokens, new=20)
    plan = h.engine.select(a, budget)
    admission = h.engine.commit(plan)
    assert admission.extend_tokens == min(budget, len(tokens) - 16 * live) == plan.extend_tokens
    done, chunks = admission.hit_tokens, 0
    while done < len(tokens):
        count = min(budget, len(tokens) - done)
        h.engine.extend(a, count)
        done += count
        chunks += 1
        h.engine.publish(a, done)
        h.tick()
    assert -(-(len(tokens) - 16 * live) // budget) == chunks
    h.engine.finish(a)
    h.tick(20)
    assert (0, {}, h.config.device_pages) == (h.core.reserved, h.books(), h.core.room())


@pytest.mark.parametrize("grown", [3, 5, 8])
def test_a_hit_that_grows_between_plan_and_commit_changes_both_figures_together(hand, grown):
    """Hit and extend of an admission are one prompt, and the plan's figures are not used any more."""
    h = hand()
    tokens = h.prompt(8)
    h.grow(tokens, 2)
    a = h.arrive("a", tokens)
    plan = h.engine.select(a, 1000)
    h.grow(tokens, grown)
    admission = h.engine.commit(plan)
    assert (grown * 16, 129) == (admission.hit_tokens, admission.hit_tokens + admission.extend_tokens)
    assert plan.extend_tokens - admission.extend_tokens == (grown - 2) * 16
    assert h.core.reserved == h.config.page_size * 9 // 16 - grown


@pytest.mark.parametrize("budget", [16, 40, 512])
def test_a_server_that_cuts_prompts_into_chunks_is_whole_again_afterwards(hand, budget):
    """Forty requests with hits of all lengths, through the bundled scheduler, at several chunk sizes."""
    h = hand(parts=LAYOUT.parts, page_part_bytes=LAYOUT.page_part_bytes)
    runner = PatternRunner(LAYOUT, h.engine.device_bytes.tensor)
    loop = Scheduler(h.engine, runner, token_budget=budget)
    for number in range(40):
        tokens = h.prompt(3 + number % 6, number % 4 + 1, shared=number % 3)
        loop.submit(f"r{number}", tokens, Namespace("chunks"), 1 + number % 5)
    passes = 0
    while not loop.idle:
        loop.step()
        passes += 1
        assert passes < 3000
    h.tick(40)
    assert (0, {}, h.config.device_pages) == (h.core.reserved, h.books(), h.core.room())
    assert (0, 0) == (runner.wrong_bytes, runner.phantom_tokens)


@pytest.mark.parametrize("budget", [16, 40])
def test_a_plan_that_changes_on_one_stage_is_a_message_to_the_other(budget):
    """Stage 1 loses pages while stage 0 plans with them: hit and number of chunks are the same on both all the same."""

    def program(group, stage):
        hand = Hand(engine_options={"group": group})
        chunks = []
        for number in range(8):
            tokens = hand.prompt(8, number + 1, tail=7)
            hand.put(tokens)
            if stage == 1 and number % 2:
                hand.store.drop(hand.names(tokens)[number % 8])
            a = hand.arrive(f"r{number}", tokens)
            hand.tick(16)
            admission = hand.engine.commit(hand.engine.select(a, budget))
            done, count = admission.hit_tokens, 0
            while done < len(tokens):
                step = min(budget, len(tokens) - done)
                hand.engine.extend(a, step)
                done += step
                count += 1
                hand.engine.publish(a, done)
                hand.tick()
            hand.engine.finish(a)
            chunks.append((admission.hit_tokens, count))
        hand.tick(30)
        assert (0, {}) == (hand.core.reserved, hand.books())
        hand.engine.close()
        return chunks

    _, outcomes = in_stages(2, 1, 3, program, lag=2)
    first, second = values(outcomes)
    assert first == second
    assert 1 < len({hit for hit, _ in first})
