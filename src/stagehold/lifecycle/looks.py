"""Looks of visits at the live tree: each request is matched once, and again only after the tree has changed.

A pass may select a request, and commit it, and select it in the next pass again; as long as the tree is what it was,
so is the answer. Owns no state of the engine: losing what is remembered here costs time and nothing else.
"""

from __future__ import annotations

from stagehold.lifecycle.core import Core
from stagehold.machines import Machine


class Looks:
    """What the live tree holds of the prompts of waiting requests, in pages."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._changes = -1
        self._joint: dict[int, int] = {}
        self._full: dict[int, int] = {}

    def joint(self, m: Machine) -> int:
        """Pages of the longest prefix that can be gone on from, of those that leave a token to compute."""
        self._forget_if_changed()
        found = self._joint.get(m.number)
        if found is None:
            data = m.data
            found = self._joint[m.number] = self._core.live.joint_match(data.chain, data.hit_limit)
        return found

    def full(self, m: Machine) -> int:
        """Pages of FULL that are live, of those that leave a token to compute."""
        self._forget_if_changed()
        found = self._full.get(m.number)
        if found is None:
            data = m.data
            found = self._full[m.number] = self._core.live.full_match(data.chain, data.hit_limit)
        return found

    def _forget_if_changed(self) -> None:
        if self._changes != self._core.live.changes:
            self._changes = self._core.live.changes
            self._joint.clear()
            self._full.clear()
