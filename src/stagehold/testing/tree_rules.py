"""A Hypothesis rule machine over the live tree and its reference model: any call, in any order.

Owns the rules and how long they run; the comparing is the trial's. Needs hypothesis, which nothing else here does.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, ClassVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from stagehold.cache.components.full import FULL
from stagehold.cache.components.state import STATE
from stagehold.cache.components.swa import SWA
from stagehold.specs.outcomes import Eviction
from stagehold.testing.tree_shape import Mark, Shape
from stagehold.testing.tree_trial import TreeTrial

NUMBER = st.integers(0, 1 << 16)
"""What a call is given; the trial folds it into what can be asked."""

STEPS_PER_RUN = 50


class TreeRules(RuleBasedStateMachine):
    """Any call in any order; the trial compares."""

    eviction = Eviction.LRU
    done = 0
    marks: ClassVar[Counter[Mark]] = Counter()
    trial: TreeTrial

    @initialize(
        page_size=st.sampled_from([1, 16, 32, 64, 128]),
        reach=st.sampled_from([1, 2, 3, 5, 9]),
        gates=st.sampled_from([(True, True), (True, False), (False, True), (False, False)]),
        mapped=st.booleans(),
    )
    def begin(self, page_size: int, reach: int, gates: tuple[bool, bool], mapped: bool) -> None:
        """Choose what the trial is about."""
        self.trial = TreeTrial(
            Shape(page_size, reach, window_gates=gates[0], state_gates=gates[1], mapped=mapped, eviction=self.eviction)
        )

    @rule(which=NUMBER, cut=NUMBER, letters=NUMBER, count=NUMBER)
    def write(self, which: int, cut: int, letters: int, count: int) -> None:
        """Make a new text."""
        self.trial.write(which, cut, letters, count)

    @rule(which=NUMBER, back=NUMBER, window=NUMBER, state=NUMBER)
    def insert(self, which: int, back: int, window: int, state: int) -> None:
        """Publish a text."""
        self.trial.insert(which, back, window, state)

    @rule(which=NUMBER, cut=NUMBER, letters=NUMBER, window=NUMBER)
    def write_and_insert(self, which: int, cut: int, letters: int, window: int) -> None:
        """Publish what was just written."""
        self.trial.write(which, cut, letters, letters // 9)
        self.trial.insert(len(self.trial.texts) - 1, 1 + letters % 2, window, window)

    @rule(which=NUMBER, limit=NUMBER)
    def match(self, which: int, limit: int) -> None:
        """Match as a use."""
        self.trial.match(which, limit)

    @rule(which=NUMBER, limit=NUMBER)
    def touch(self, which: int, limit: int) -> None:
        """Use any boundary."""
        self.trial.touch(which, limit)

    @rule(which=NUMBER, limit=NUMBER, start=NUMBER, kind=NUMBER)
    def hold(self, which: int, limit: int, start: int, kind: int) -> None:
        """Take a hold."""
        self.trial.hold(which, limit, start, kind)

    @rule(which=NUMBER)
    def give(self, which: int) -> None:
        """Give one back."""
        self.trial.give(which)

    @rule(n=st.integers(1, 20), component=st.sampled_from([FULL, FULL, SWA, STATE]))
    def evict(self, n: int, component: str) -> None:
        """Evict from a component."""
        self.trial.evict(n, component)

    @rule(which=NUMBER, other=NUMBER, letters=NUMBER, n=st.integers(1, 6))
    def outlive(self, which: int, other: int, letters: int, n: int) -> None:
        """Evict past an older run that is held; once free, it goes before what a younger child went on from."""
        self.trial.outlive(which, other, letters)
        for _ in range(n):
            self.trial.evict(1, FULL)

    @rule(which=NUMBER, limit=NUMBER)
    def attach(self, which: int, limit: int) -> None:
        """Repair a window."""
        self.trial.attach(which, limit)

    @rule(which=NUMBER, limit=NUMBER, n=st.integers(1, 20))
    def lock_without_a_window(self, which: int, limit: int, n: int) -> None:
        """Lock what has lost its window, and repair it under the lock, which dies."""
        self.trial.evict(n, SWA)
        self.trial.hold(which, limit, 0, limit % 2 * 2)
        self.trial.attach(which, limit)

    @rule(which=NUMBER, limit=NUMBER, cut=NUMBER)
    def hold_twice_and_cut(self, which: int, limit: int, cut: int) -> None:
        """Hold a run twice, as lock or pin, and cut it: what is counted once must not count twice."""
        self.trial.hold(which, limit, 0, limit)
        self.trial.hold(which, limit, 0, 1 + limit % 2)
        self.trial.touch(which, cut)

    @rule(which=NUMBER, limit=NUMBER, start=NUMBER)
    def load_twice(self, which: int, limit: int, start: int) -> None:
        """Begin a load and another over the same boundary."""
        self.trial.hold(which, limit, start, 3)
        self.trial.hold(which, limit, start // 3, 3)

    @rule(which=NUMBER, start=NUMBER)
    def remove(self, which: int, start: int) -> None:
        """Remove a tail."""
        self.trial.remove(which, start)

    @rule()
    def flush(self) -> None:
        """Flush."""
        self.trial.flush()

    @rule()
    def snapshot(self) -> None:
        """Go on with a copy."""
        self.trial.snapshot()

    @rule(which=NUMBER, limit=NUMBER)
    def ask(self, which: int, limit: int) -> None:
        """Ask everything."""
        self.trial.ask(which, limit)

    @invariant()
    def always(self) -> None:
        """Compare everything that always holds."""
        if hasattr(self, "trial"):
            type(self).marks.update(self.trial.marks)
            self.trial.marks.clear()
            self.trial.always()
            self.trial.ask(self.trial.steps, self.trial.steps * 5)
            type(self).done += 1


class QueueRules(TreeRules):
    """The same, of a tree that evicts by S3-FIFO."""

    eviction = Eviction.S3FIFO
    done = 0
    marks: ClassVar[Counter[Mark]] = Counter()


def rule_settings(steps: int, **more: Any) -> settings:
    """Enough runs for this many rule steps; no deadline, no database, nothing shrunk from former runs."""
    return settings(
        max_examples=steps // STEPS_PER_RUN,
        stateful_step_count=STEPS_PER_RUN,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        **more,
    )
