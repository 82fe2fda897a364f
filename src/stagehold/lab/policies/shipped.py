"""The policies that come with the package, by name."""

from __future__ import annotations

from stagehold.lab.policies.policy import Policy

NONE = Policy(name="none", doc="The device pool alone: what is evicted is computed again.", tier=False)
LIVE = Policy(name="live", doc="This package's own machines: every decision looks at the live tree.")

POLICIES = {policy.name: policy for policy in (NONE, LIVE)}
"""In the order of a table's columns."""


def policy_named(name: str) -> Policy:
    """The policy of that name; ValueError names those that there are."""
    if name not in POLICIES:
        raise ValueError(f"no policy {name!r}; there are: {', '.join(POLICIES)}")
    return POLICIES[name]
