"""A live run with `transitions` looking on: every step of 200 requests is one that the library would have taken."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from stagehold.lab import replay as lab
from stagehold.lab.expand import Scale
from stagehold.lab.replay import Replay, ReplayOptions
from stagehold.lifecycle import assembly
from stagehold.machines import Stepper
from stagehold.machines import oracle as oracles
from stagehold.machines.compile import stepper_of
from stagehold.machines.oracle import OracleDifference
from stagehold.serving.pattern import Layout
from stagehold.specs.declare import MachineSpec


@pytest.fixture(autouse=True)
def thin(monkeypatch: pytest.MonkeyPatch) -> None:
    """A token has few bytes: these runs are about steps."""
    monkeypatch.setattr(lab, "Layout", partial(Layout, layers=1, token_part_bytes=64))


def replay(folder: Path, requests: int, *, shadow_oracle: bool = True) -> Replay:
    """A replay in small: four tokens stand for a block of 512, and the device holds little more than one request."""
    return Replay(
        ReplayOptions(
            audit=folder / f"audit-{shadow_oracle}.jsonl",
            requests=requests,
            scale=Scale(4),
            page_size=4,
            device_pages=300,
            shadow_oracle=shadow_oracle,
        )
    )


def test_two_hundred_requests_are_replayed_beside_the_oracle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No difference in any of the steps, and each of them was held against the oracle."""
    held = 0
    agree = oracles._agree

    def counted(*asked: Any) -> None:
        nonlocal held
        held += 1
        agree(*asked)

    monkeypatch.setattr(oracles, "_agree", counted)
    report = replay(tmp_path, 200).run()

    assert (200, []) == (report.requests, report.faults())
    assert sum(report.state_entries.values()) < held


def test_the_oracle_leaves_no_trace_in_the_run(tmp_path: Path) -> None:
    """The same run with and without it writes the same log."""
    with_oracle = Path(replay(tmp_path, 20).run().audit_log)
    without = Path(replay(tmp_path, 20, shadow_oracle=False).run().audit_log)

    assert without.read_bytes() == with_oracle.read_bytes()


def test_a_step_that_goes_astray_stops_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted fault: lookups that hit are aborted; the first one ends the replay, with its cell."""
    bind = assembly.bind

    def astray(spec: MachineSpec, **bound: Any) -> Stepper:
        right = bind(spec, **bound)
        if spec.name != "request":
            return right
        methods = {event: lambda _, m, arg=None, step=step: step(m, arg) for event, step in right.steps.items()}
        methods["answer"] = methods["abort"]
        return stepper_of(spec, right.source, methods, right.birth, right.module)

    monkeypatch.setattr(assembly, "bind", astray)
    with pytest.raises(OracleDifference, match=r"'request'.*LOOKUP.*'answer'.*ABORTED"):
        replay(tmp_path, 20).run()
