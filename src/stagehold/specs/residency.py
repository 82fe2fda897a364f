"""The *residency* machine: one per (page, component). Tree and host tiers have the bytes; it says how they may move.

A tree node is a run of pages, and what holds for a node and a component holds for each page of it. `store` is not a
place here: what the store holds is a belief per page key. In `buffer_only` only unborn, device, tombstone and gone are
reachable. Checked mode asserts every move of every page against these rows; nothing steps them.
"""

from __future__ import annotations

from enum import IntEnum

from stagehold.specs.declare import ANY, Decision, Kind, Life, MachineSpec, row, state
from stagehold.specs.outcomes import Birth, Evict


class ResidencyState(IntEnum):
    """States of *residency*."""

    UNBORN = 0
    DEVICE = 1
    BOTH = 2
    STAGING = 3
    TOMBSTONE = 4
    GONE = 5


S = ResidencyState

RESIDENCY = MachineSpec(
    name="residency",
    one_per="(page, component)",
    doc="Where the bytes of one page and component live.",
    life=Life.STANDING,
    initial=S.UNBORN,
    states=(
        state(S.UNBORN, Kind.PASSING, "the page is new"),
        state(S.DEVICE, Kind.RESTING, "in the device pool", "slots"),
        state(S.BOTH, Kind.RESTING, "in both (cache mode)", "slots, staging"),
        state(S.STAGING, Kind.RESTING, "in the host tier only (cache mode)", "staging"),
        state(S.TOMBSTONE, Kind.RESTING, "this component is gone, FULL lives on"),
        state(S.GONE, Kind.TERMINAL, "nowhere any more"),
    ),
    decisions=(
        Decision(state=S.UNBORN, event="birth", name="birth", outcomes=Birth),
        Decision(state=S.DEVICE, event="evict", name="evict", outcomes=Evict),
        Decision(state=S.STAGING, event="evict_host", name="evict_host", outcomes=Evict),
    ),
    rows=(
        row(S.UNBORN, "birth", Birth.COMPUTED, S.DEVICE, "computed, or spliced from the store", takes="slots"),
        row(S.UNBORN, "birth", Birth.FETCHED, S.STAGING, "host memory keeps what is not on the device (cache mode)",
            takes="staging"),
        row(S.UNBORN, "birth", Birth.BARE, S.TOMBSTONE, "the component brought nothing here"),
        row(S.DEVICE, "backed_up", None, S.BOTH, "host memory keeps a copy (cache mode)", takes="staging"),
        row(S.DEVICE, "evict", Evict.TOMBSTONE, S.TOMBSTONE, "component other than FULL", releases="slots"),
        row(S.DEVICE, "evict", Evict.DELETE, S.GONE, "FULL without a copy: the page goes", releases="slots"),
        row(S.BOTH, "evict", None, S.STAGING, "demoted", releases="slots"),
        row(S.BOTH, "evict_host", None, S.DEVICE, "host space reclaimed", releases="staging"),
        row(S.STAGING, "load", None, S.BOTH, "spliced from the host tier", takes="slots"),
        row(S.STAGING, "recomputed", None, S.BOTH, "computed again by a request that did not load it",
            takes="slots"),
        row(S.STAGING, "evict_host", Evict.TOMBSTONE, S.TOMBSTONE, "component other than FULL, which lives on",
            releases="staging"),
        row(S.STAGING, "evict_host", Evict.DELETE, S.GONE, "FULL, or what it has left behind: the last copy goes", releases="staging"),
        row(S.TOMBSTONE, "attach", None, S.DEVICE, "window repaired or recomputed", takes="slots"),
        row(S.TOMBSTONE, "stage", None, S.STAGING, "host memory keeps a window that the device lacks (cache mode)", takes="staging"),
        row(ANY, "delete", None, S.GONE, "flush, or FULL goes from beside it", releases=ANY),
    ),
)  # fmt: skip
