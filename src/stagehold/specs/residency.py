"""The *residency* machine: one per (tree node, component), kept as compact fields in the tree.

`store` is not a place here: what the store holds is a belief per page key, not a fact about a node. In
`buffer_only` only unborn, device, tombstone and gone are reachable. Checked mode asserts every move against
these rows; nothing steps them.
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
    one_per="(tree node, component)",
    doc="Where the bytes of one node and component live.",
    life=Life.STANDING,
    initial=S.UNBORN,
    states=(
        state(S.UNBORN, Kind.PASSING, "the node is being made"),
        state(S.DEVICE, Kind.RESTING, "in the device pool", "slots"),
        state(S.BOTH, Kind.RESTING, "in both (cache mode)", "slots, staging"),
        state(S.STAGING, Kind.RESTING, "in the host tier only (cache mode)", "staging"),
        state(S.TOMBSTONE, Kind.RESTING, "this component is gone, FULL lives on"),
        state(S.GONE, Kind.TERMINAL, "node deleted"),
    ),
    decisions=(
        Decision(state=S.UNBORN, event="birth", name="birth", outcomes=Birth),
        Decision(state=S.DEVICE, event="evict", name="evict", outcomes=Evict),
        Decision(state=S.STAGING, event="evict_host", name="evict_host", outcomes=Evict),
    ),
    rows=(
        row(S.UNBORN, "birth", Birth.COMPUTED, S.DEVICE, "computed or spliced", takes="slots"),
        row(S.UNBORN, "birth", Birth.FETCHED, S.STAGING, "a verified hold ended unspliced (cache mode)",
            takes="staging"),
        row(S.UNBORN, "birth", Birth.BARE, S.TOMBSTONE, "the component brought nothing here"),
        row(S.DEVICE, "backed_up", None, S.BOTH, "copy acknowledged (cache mode)", takes="staging"),
        row(S.DEVICE, "evict", Evict.TOMBSTONE, S.TOMBSTONE, "component other than FULL", releases="slots"),
        row(S.DEVICE, "evict", Evict.DELETE, S.GONE, "FULL without a copy: the whole node goes", releases="slots"),
        row(S.BOTH, "evict", None, S.STAGING, "demoted", releases="slots"),
        row(S.BOTH, "evict_host", None, S.DEVICE, "host space reclaimed", releases="staging"),
        row(S.STAGING, "load", None, S.BOTH, "spliced from the host tier", takes="slots"),
        row(S.STAGING, "recomputed", None, S.BOTH, "computed again by a request that did not load it",
            takes="slots"),
        row(S.STAGING, "evict_host", Evict.TOMBSTONE, S.TOMBSTONE, "component other than FULL",
            releases="staging"),
        row(S.STAGING, "evict_host", Evict.DELETE, S.GONE, "FULL: the last copy goes", releases="staging"),
        row(S.TOMBSTONE, "attach", None, S.DEVICE, "window repaired or recomputed", takes="slots"),
        row(S.TOMBSTONE, "stage", None, S.STAGING, "fetched window (cache mode)", takes="staging"),
        row(ANY, "delete", None, S.GONE, "flush, or the node is merged away", releases=ANY),
    ),
)  # fmt: skip
