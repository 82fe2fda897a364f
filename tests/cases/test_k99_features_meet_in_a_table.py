"""K99: switching one feature on switched another off, and the start ran out of memory.

Here features change nothing about each other: every combination of them either serves requests, with every feature that
was asked for, or is refused at start with a sentence that names both.
"""

from __future__ import annotations

from itertools import product

import pytest

from stagehold import HostMode, PrefetchPolicy, WritePolicy
from stagehold.operate.settings import Configuration, ConfigurationError, load
from stagehold.testing.hand import Hand

WINDOW = {"name": "swa", "kind": "sliding_window", "device_pages": 80, "staging_pages": 12, "window_tokens": 32}
STATE = {"name": "ssm", "kind": "checkpoint", "device_pages": 20, "staging_pages": 12}
COMPONENTS = {"full": [], "window": [WINDOW], "checkpoint": [STATE], "both": [WINDOW, STATE]}
FEATURES = [*product(HostMode, WritePolicy, PrefetchPolicy, COMPONENTS, (True, False), (40, 0))]

REFUSED = {
    "write_back needs a tier": lambda mode, write, *_: (mode, write) == (HostMode.BUFFER_ONLY, WritePolicy.WRITE_BACK),
    "a buffer needs a store": lambda mode, _w, _p, _c, store, staging: (
        mode is HostMode.BUFFER_ONLY and staging and not store
    ),
    "a store needs staging": lambda _m, _w, _p, _c, store, staging: store and not staging,
    "a policy needs a store": lambda _m, _w, _p, _c, store, _s: not store,
}
"""Which combinations do not work, and why; `prefetch_policy` is always written down here."""


def configured(features) -> Configuration:
    mode, write, prefetch, components, store, staging = features
    return load(None, {
        "page_size": 16, "device_pages": 64, "largest_request_tokens": 256, "staging_pages": staging,
        "prefetch_threshold_tokens": 32, "host_memory_mode": mode, "write_policy": write, "prefetch_policy": prefetch,
        "components": COMPONENTS[components], **({"store": "sim:?exists=1&get=1&put=1"} if store else {}),
    })  # fmt: skip


def wrong(features) -> list[str]:
    return [why for why, rule in REFUSED.items() if rule(*features)]


@pytest.mark.parametrize("features", [one for one in FEATURES if wrong(one)], ids=str)
def test_what_does_not_go_together_is_refused(features):
    """At start, in a sentence that names an option."""
    with pytest.raises(ConfigurationError, match=r"needs? |need a host tier"):
        configured(features)


def serve(h: Hand, rid: str) -> None:
    """A prompt of six pages and a token, in two pieces, so that a checkpoint can stand between them."""
    a = h.arrive(rid, h.prompt(6))
    h.admit(a)
    for upto in (6 * 16, 6 * 16 + 1):
        if upto > h.machine(a).data.n_tokens:
            h.engine.extend(a, upto - h.machine(a).data.n_tokens)
            h.engine.publish(a, upto)
    h.engine.finish(a)
    h.tick(30)


@pytest.mark.parametrize("features", [one for one in FEATURES if not wrong(one)], ids=str)
def test_what_is_accepted_serves_with_all_that_was_asked_for(features):
    """A prompt is computed, written as the policy says, evicted, and comes back for every component."""
    found = configured(features)
    asked = (found.engine.host_memory_mode, found.engine.write_policy, found.engine.prefetch_policy)
    assert features[:3] == asked
    assert [one["name"] for one in COMPONENTS[features[3]]] == [one.name for one in found.engine.components]
    engine = found.open(strict=True)
    h = Hand.__new__(Hand)
    h.config, h.engine, h.core, h.store = found.engine, engine, engine._parts.core, engine._parts.core.store
    h.tick(30)
    for number in range(2):
        serve(h, f"r{number}")
    assert h.engine.stats().admitted.device > 0
    h.shrink(h.prompt(6), 0)
    a = h.arrive("again", h.prompt(6))
    for _ in range(60):
        h.tick()
        if getattr(h.visit(a), "admitted", False):
            break
    else:
        raise AssertionError("never admitted")
    engine.close()
    assert 0 == engine.stats().token_gap == engine.stats().violations
