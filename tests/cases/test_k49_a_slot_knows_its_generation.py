"""K49: answers contained tokens of other prompts.

A table of pages had outlived its request, and its slots had a new owner. Here slots have generations, attempts have
handles, and both are asked for before anything is read.
"""

from __future__ import annotations

import pytest

from stagehold import Namespace, UnknownHandle
from stagehold.cache.errors import SlotRefused
from stagehold.serving.pattern import Layout
from stagehold.serving.runner import PatternRunner
from stagehold.serving.scheduler import Scheduler

LAYOUT = Layout(layers=1, token_part_bytes=16, page_size=16)


def test_a_page_table_of_an_ended_request_resolves_to_nothing(hand):
    """Its slots are out again, under the next generation; by number alone they would be somebody else's tokens."""
    h = hand()
    a = h.arrive("a", h.prompt(8))
    h.admit(a)
    h.engine.extend(a, 129)
    table = [h.core.device.handle(slot) for slot in h.engine.page_slots(a)]
    h.engine.abort(a)
    b = h.arrive("b", h.prompt(8, 2))
    h.admit(b)
    h.engine.extend(b, 129)
    assert {handle.slot for handle in table} == set(h.engine.page_slots(b))
    for handle in table:
        with pytest.raises(SlotRefused, match="stale"):
            h.core.device.resolve(handle)


def test_a_table_that_lives_resolves_to_its_slots(hand):
    """Publishing does not change a generation: the slots are the tree's then, and the same."""
    h = hand()
    a = h.arrive("a", h.prompt(8))
    h.admit(a)
    h.engine.extend(a, 129)
    table = [h.core.device.handle(slot) for slot in h.engine.page_slots(a)]
    h.engine.publish(a, 129)
    assert list(h.engine.page_slots(a)) == [h.core.device.resolve(handle) for handle in table]


def test_the_handle_of_an_old_attempt_reads_nothing(hand):
    """The request id is the same, the attempt is not."""
    h = hand()
    a = h.arrive("a", h.prompt(8))
    h.admit(a)
    again = h.engine.retract(a)
    h.admit(again)
    with pytest.raises(UnknownHandle, match="lives as"):
        h.engine.page_slots(a)
    assert () == h.engine.page_slots(again)


def test_two_tenants_in_a_pool_too_small_for_them_read_their_own_tokens(hand):
    """The same prompts in two namespaces, retracted again and again; every byte that is read is its own."""
    h = hand(device_pages=40, largest_request_tokens=320, parts=LAYOUT.parts, page_part_bytes=LAYOUT.page_part_bytes)
    runner = PatternRunner(LAYOUT, h.engine.device_bytes.tensor)
    loop = Scheduler(h.engine, runner, token_budget=64)
    for number in range(16):
        space = Namespace("tenants", f"tenant {number % 2}")
        loop.submit(f"r{number}", h.prompt(6, number // 4 + 1), space, 40)
    passes = 0
    while not loop.idle:
        loop.step()
        passes += 1
        assert passes < 3000
    assert runner.compared_bytes
    assert (0, 0) == (runner.wrong_bytes, runner.phantom_tokens)
