"""The mix of the machine bench: recorded from a log, kept, read back."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from stagehold import AuditLog
from stagehold.lab.bench.mix import STEPS, MixError, read_mix, recorded_mix, shipped_mix, write_mix
from stagehold.specs.outcomes import Launch
from stagehold.specs.request import RequestState
from stagehold.testing.hand import Hand


@pytest.fixture(name="log", scope="module")
def _log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two requests that miss and are served."""
    path = tmp_path_factory.mktemp("mix") / "log.jsonl"
    with AuditLog(path) as log, Hand(engine_options={"sink": log.block}) as h:
        for family in (1, 2):
            handle = h.arrive(f"r{family}", h.prompt(4, family))
            h.tick(2)
            h.serve(handle)
    return path


def test_the_shipped_mix_is_ten_thousand_steps_of_several_machines() -> None:
    """Requests, holds, writes and the store, all by declared rows."""
    mix = shipped_mix()

    assert STEPS == mix.steps
    assert {"request", "hold", "write", "store"} <= {machine for machine, *_ in mix.taken}
    assert 1 < mix.block_steps < 100


def test_a_log_gives_its_steps_and_blocks(log: Path) -> None:
    """Each row as often as it was taken."""
    mix = recorded_mix(log)

    assert 2 == mix.taken["request", RequestState.QUEUED, "issue", Launch.LOOKUP]
    assert 2 == mix.taken["request", RequestState.COMMITTED, "finish", None]
    assert len(log.read_text().splitlines()) == mix.blocks


def test_only_the_first_steps_are_taken(log: Path) -> None:
    """As many as asked for, and no block after them."""
    mix = recorded_mix(log, steps=5)

    assert 5 == mix.steps
    assert mix.blocks < recorded_mix(log).blocks


def test_a_mix_that_was_kept_reads_back(log: Path, tmp_path: Path) -> None:
    """Rows by name, in order of declaration."""
    write_mix(tmp_path / "mix.json", recorded_mix(log))

    assert recorded_mix(log) == read_mix(tmp_path / "mix.json")
    assert "request.queued.issue.LOOKUP" == next(iter(orjson.loads((tmp_path / "mix.json").read_bytes())["rows"]))


def test_a_row_that_is_declared_no_more_is_named(tmp_path: Path) -> None:
    """With what to do about it."""
    (tmp_path / "mix.json").write_bytes(orjson.dumps({"blocks": 1, "rows": {"hold.parked.sing": 3}}))

    with pytest.raises(MixError, match=r"no row is declared as hold\.parked\.sing; record it anew"):
        read_mix(tmp_path / "mix.json")


def test_a_log_without_a_step_is_refused(tmp_path: Path) -> None:
    """An empty run has no mix."""
    (tmp_path / "log.jsonl").touch()

    with pytest.raises(MixError, match="no step was recorded"):
        recorded_mix(tmp_path / "log.jsonl")
