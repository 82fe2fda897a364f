"""K109: removing a store node made the whole service unavailable.

Here an outage is misses: requests that had found pages compute them, new ones are not held back, and when the node
is there again it is used again, each request having been launched anew at most once for it.
"""

from __future__ import annotations

import pytest

from stagehold import RequestState
from stagehold.cache.stores.simulated import Delays, SimulatedStore
from stagehold.specs.store import StoreState
from stagehold.testing.service import PROMPT_PAGES, Service

AWAY = (StoreState.OPEN, StoreState.PROBING)


class Node(SimulatedStore):
    """A store node that can be removed: what is under way is never answered, what is new fails, or is silent."""

    silent = False

    def remove(self, *, silent: bool) -> None:
        """Take the node away."""
        self.silent = silent
        if silent:
            self.stall()
        else:
            self.fail_next(1 << 30)

    def put_back(self) -> None:
        """Give it back."""
        self.heal()


@pytest.mark.parametrize("silent", [False, True])
def test_requests_finish_while_the_node_is_away_and_it_is_used_afterwards(silent):
    """Removed in the middle of reads; nobody waits beyond the budget; hits come again by themselves."""
    node = Node(delays=Delays((1, 1), (4, 8), (1, 2)))
    with Service(node, page_bytes=1024, open_limit=16, open_limit_cap=16) as first:
        first.attach()
        first.serve(range(12))
        first.drain()
        assert first.breaches() == []
        medium = node.medium
    node = Node(delays=Delays((1, 1), (4, 8), (1, 2)), medium=medium)
    with Service(node, page_bytes=1024, open_limit=16, open_limit_cap=16) as service:
        service.attach()
        service.submit(range(6))
        service.until(lambda: service.engine.stats().owned.get("io", 0) > 0)
        node.remove(silent=silent)
        service.until(lambda: service.scheduler.idle)
        for wave in range(20):
            if service.breaker in AWAY:
                break
            service.serve(range(100 + 4 * wave, 104 + 4 * wave))
        assert service.breaker in AWAY
        limits = service.config.limits
        budget = limits.wait_base_ticks + limits.wait_per_page_ticks * PROMPT_PAGES
        assert max(service.served.waited.values()) <= budget + 1
        before = service.served.store_hit_tokens
        node.put_back()
        service.until(lambda: service.breaker is StoreState.HEALTHY)
        service.serve(range(6, 12))
        assert service.served.store_hit_tokens - before == 6 * 128
        assert service.breaches() == []


def test_an_outage_costs_a_waiting_request_one_more_launch(hand):
    """While the node is away no timer is armed: its recovery is what wakes those that wait, all at once."""
    h = hand(open_limit=40, open_limit_cap=40)
    h.outage()
    waiting = [h.arrive(f"w{number}", h.prompt(8, 50 + number)) for number in range(5)]
    h.tick(30)
    assert {RequestState.RETRY} == {h.engine.state_of(handle) for handle in waiting}
    assert {1} == {h.machine(handle).issues for handle in waiting}
    h.until(lambda: h.core.breaker.state is StoreState.HEALTHY)
    h.tick(2)
    assert {2} == {h.machine(handle).issues for handle in waiting}
