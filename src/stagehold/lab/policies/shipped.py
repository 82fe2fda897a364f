"""The policies that come with the package, by name, and by the logs that they write."""

from __future__ import annotations

from stagehold.lab.policies.blind import BLIND
from stagehold.lab.policies.paced import PACED
from stagehold.lab.policies.policy import Policy

NONE = Policy(name="none", doc="The device pool alone: what is evicted is computed again.", tier=False)
LIVE = Policy(name="live", doc="This package's own machines: every decision looks at the live tree.")

POLICIES = {policy.name: policy for policy in (NONE, BLIND, PACED, LIVE)}
"""In the order of a table's columns."""

BY_DECLARATION = {policy.machines.declaration: policy for policy in (BLIND, PACED, LIVE)}
"""By what their logs say of who wrote them."""


def policy_named(name: str) -> Policy:
    """The policy of that name; ValueError names those that there are."""
    if name not in POLICIES:
        raise ValueError(f"no policy {name!r}; there are: {', '.join(POLICIES)}")
    return POLICIES[name]
