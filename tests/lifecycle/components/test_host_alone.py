"""Several kinds of KV in `cache` mode without a store: what host memory gives back can be gone on from."""

from __future__ import annotations

import pytest

from stagehold import HostMode
from stagehold.cache.components.full import FULL
from stagehold.specs.hold import HoldState
from stagehold.specs.request import RequestState

ALONE = {"store": None, "host_memory_mode": HostMode.CACHE, "staging_pages": 80}


@pytest.mark.parametrize("kinds", ["w", "s", "ws"])
def test_all_that_a_hit_needs_comes_back_from_host_memory(mixed, kinds):
    """The bytes of pages, of the last window and of the checkpoint, after the device has lost all of them."""
    h = mixed(kinds, **ALONE)
    tokens = h.prompt(8)
    names = [FULL, *(one.name for one in h.config.components)]
    a = h.arrive("a", tokens)
    h.admit(a)
    for _ in range(2):
        h.engine.extend(a, 64)
        for name in names:
            fill(h, a, name)
        h.engine.publish(a, h.machine(a).data.n_tokens)
        h.tick(6)
    h.engine.abort(a)
    h.shrink(tokens, 0)
    for name in names:
        h.core.bytes[name].device.tensor.zero_()
    b = h.arrive("b", tokens)
    h.tick()
    assert h.engine.state_of(b) is RequestState.STAGED
    h.until(lambda: h.hold_of(b).state is HoldState.READY)
    assert 8 * 16 == h.admit(b).store_hit_tokens
    assert [page + 1 for page in range(8)] == h.shown(tokens, 0, 8)
    if "w" in kinds:
        assert [106, 107, 108] == h.shown(tokens, 5, 8, "swa")
    if "s" in kinds:
        assert [208] == h.shown(tokens, 7, 8, "state")


def fill(h, handle, component: str) -> None:
    """The model computes what the request has room for: page i holds i + 1, i + 101 in windows; a state 200 + pages."""
    tensor = h.core.bytes[component].device.tensor
    slots = h.engine.page_slots(handle, None if component == FULL else component)
    if component == "state":
        tensor[:, slots[0]] = 200 + h.machine(handle).data.n_tokens // h.config.page_size
        return
    for page, slot in enumerate(slots):
        if slot >= 0:
            tensor[:, slot] = page + (1 if component == FULL else 101)


def test_a_window_that_host_memory_gave_up_is_copied_again(mixed):
    """Each component is looked for in its own tier: pages that are there bring back no window."""
    h = mixed("w", **ALONE, chunk=12)
    h.run("a", h.prompt(8))
    h.tick(12)
    swa = h.core.stocks.by_name["swa"]
    assert len(swa.host) > 0
    swa.host.flush()
    h.run("again", h.prompt(8))
    h.tick(12)
    assert swa.hosts(h.chain(h.prompt(8)), 5, 8)
