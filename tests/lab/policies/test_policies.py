"""The shipped policies: each runs strictly and in the open, and its logs are read by whoever knows it."""

from __future__ import annotations

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

import stagehold.lab.policies
from stagehold import EngineConfig, HostMode
from stagehold.cli.main import app
from stagehold.lab.cells import Cell
from stagehold.lab.policies.policy import Policy
from stagehold.lab.policies.shipped import BLIND, BY_DECLARATION, LIVE, NONE, PACED, POLICIES, policy_named
from stagehold.lab.simulate import Simulation
from stagehold.lab.simulate_report import faults, figures
from stagehold.machines import MACHINES, Rule, audit
from stagehold.machines.audit_explain import explain
from stagehold.machines.audit_read import BadLogError, Damage
from stagehold.machines.checks import check
from stagehold.specs.request import REQUEST

CELL = {
    "trace": "agentic", "requests": 24, "device_pages": 600, "staging_pages": 600, "store_gbps": 2.0,
    "options": {"users": 32, "longest_pause_s": 5.0, "scale": 64, "accelerators": 1},
}  # fmt: skip


def simulated(policy: Policy, mode: HostMode, log: Path | None = None) -> tuple[dict, Simulation]:
    cell = Cell(**CELL, policy=policy.name, mode=mode)
    simulation = Simulation(replace(cell.simulation(), strict=True, audit=log))
    found = figures(simulation, simulation.run())
    return found, simulation


@pytest.fixture(scope="module")
def logs(tmp_path_factory) -> dict[str, Path]:
    """A log of each policy that keeps one."""
    folder = tmp_path_factory.mktemp("logs")
    found = {}
    for policy in (BLIND, PACED, LIVE):
        found[policy.name] = folder / f"{policy.name}.jsonl"
        simulated(policy, HostMode.BUFFER_ONLY, found[policy.name])
    return found


@pytest.mark.parametrize("mode", HostMode)
@pytest.mark.parametrize("name", POLICIES)
def test_each_policy_keeps_the_books(name, mode):
    """Every owner and every token counted after every tick, under contention."""
    found, simulation = simulated(policy_named(name), mode)
    assert [] == faults(found)
    assert len(simulation.requests) == found["requests"]
    assert (name == "none") is (found["lookups"] == 0)


def test_only_blind_charges_ahead_and_breaks_rules():
    """What a policy is allowed is written on it, with the reason."""
    assert ["blind"] == [policy.name for policy in POLICIES.values() if policy.charges_ahead]
    assert {"blind": 3, "none": 0, "paced": 0, "live": 0} == {p.name: len(p.machines.waive) for p in POLICIES.values()}
    assert all(reason.strip() for reason in BLIND.waived.values())
    assert MACHINES == LIVE.machines.specs == NONE.machines.specs


def test_a_waived_rule_without_a_reason_is_refused():
    """Nobody waives a rule in passing."""
    with pytest.raises(ValueError, match="expected a reason for each of"):
        Policy(name="rash", doc="", machines=BLIND.machines)


def test_blind_breaks_the_rules_that_it_names():
    """In rows and states that the checks point at."""
    broken = {problem.rule for spec in BLIND.machines.changed for problem in check(spec, BLIND.machines.specs)}
    assert {Rule.DEADLINE, Rule.CYCLE, Rule.UNUSED} == broken


def test_the_settings_of_a_policy_go_before_all_others():
    """A cell cannot pin what its policy does not pin."""
    cell = Cell(**{**CELL, "options": {**CELL["options"], "pin_fraction": 0.9}}, policy="blind")
    config: EngineConfig = Simulation(cell.simulation()).config
    assert 0.0 == config.pin_fraction


@pytest.mark.parametrize("name", ["blind", "paced"])
def test_a_log_of_a_policy_is_foreign_to_ours(logs, name):
    """Unless it is read with the machines that wrote it; then it is sound, and replays to where the engine stood."""
    log, machines = logs[name], POLICIES[name].machines.specs
    fault = audit.verify(log).fault
    assert fault is not None
    assert Damage.FOREIGN is fault.damage
    for reading in (audit.replay, audit.stats, lambda path: explain(path, "1")):
        with pytest.raises(BadLogError, match="written by other declarations"):
            reading(log)
    found = audit.verify(log, machines=machines)
    assert (None, True) == (found.fault, found.instances > 0)
    replayed = audit.replay(log, machines)
    assert (found.digest, 0) == (replayed.digest, replayed.totals.open)
    assert None is audit.diff(log, log, machines)


@pytest.mark.parametrize("name", ["blind", "paced", "live"])
def test_the_commands_know_who_wrote_a_log(logs, name):
    """By the hash of the declarations."""
    log = str(logs[name])
    rid = next(
        birth.key.rid for placed in audit.blocks(logs[name]) for birth in placed.block.births if birth.machine == 0
    )
    runner = CliRunner()
    for words, said in (
        (["verify", log], "sound"),
        (["replay", log], "request: "),
        (["stats", log], "| "),
        (["explain", rid, log], "In short"),
        (["diff", log, log], ""),
    ):
        done = runner.invoke(app, ["audit", *words])
        assert (0, True) == (done.exit_code, said in done.output), done.output
    assert POLICIES[name] is BY_DECLARATION[next(audit.blocks(logs[name])).block.declaration]


def test_two_policies_part_in_their_declaration(logs):
    """Before anything else."""
    found = audit.diff(logs["live"], logs["blind"])
    assert found is not None
    assert "DECLARATION" == found.differs.name


def test_a_snapshot_keeps_what_a_policy_gave_a_request(hand):
    """The pin of a request that waits for its answer, given back as often as the moment is lived through."""
    h = hand(engine_options={"machines": PACED.machines})
    tokens = h.prompt(8)
    h.put(tokens)
    h.grow(tokens, 4)
    a = h.arrive("a", tokens)
    h.tick()
    books, saved = h.books(), h.engine.snapshot()
    assert (4, 4) == (books["pin"], h.core.tree.pinned)
    for _ in range(2):
        h.tick(3)
        assert 4 * 16 == h.admit(a).store_hit_tokens
        assert 0 == h.core.tree.pinned
        h.engine.restore(saved)
        assert (books, 4) == (h.books(), h.core.tree.pinned)


def test_a_policy_touches_nothing_that_is_not_handed_to_it():
    """No private name, no assignment to a name of another object but the payload of its own machine, no patching."""
    folder = Path(stagehold.lab.policies.__file__).parent
    for path in sorted(folder.glob("*.py")):
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute):
                assert not node.attr.startswith("_"), f"{path.name}:{node.lineno} reads {node.attr}"
                assert isinstance(node.ctx, ast.Load), f"{path.name}:{node.lineno} sets {node.attr}"
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                assert node.func.id not in ("setattr", "delattr", "vars", "exec", "eval", "__import__"), path.name
            kept = isinstance(node, ast.Global | ast.Nonlocal)
            assert not kept, f"{path.name} keeps something beside its machines"


def test_there_is_no_other_policy():
    """ValueError names those that there are; the machines keep their order."""
    with pytest.raises(ValueError, match="there are: none, blind, paced, live"):
        policy_named("best")
    assert [spec.name for spec in MACHINES] == [spec.name for spec in PACED.machines.specs]
    assert REQUEST.rows[0].takes != PACED.machines.of("request").rows[0].takes
