"""What is rebuilt from a log is what the engine had, however it is rebuilt."""

from __future__ import annotations

from pathlib import Path

import pytest

from stagehold.machines import audit, replay
from stagehold.machines.audit import BadLogError, Damage, standing
from stagehold.machines.logs import AuditLog
from stagehold.testing.storm import Storm
from stagehold.testing.watch import check_replay
from stagehold.testing.world import World


def logged(world: World, path: Path) -> Path:
    with AuditLog(path) as log:
        for block in world.blocks:
            log.block(block)
    return path


@pytest.fixture(scope="module", params=[11, 12, 13])
def storm(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Path]:
    """A World after a storm of sixty requests, and its log."""
    world = Storm(request.param, 60).run()
    return world, logged(world, tmp_path_factory.mktemp("storm") / "log")


def test_a_storm_s_log_is_rebuilt_to_what_the_engine_had(storm: tuple[World, Path]) -> None:
    """Every instance, its counters, every token, and the digest of the last block."""
    world, path = storm
    rebuilt = audit.replay(path)

    assert check_replay(world.core, world.blocks) == rebuilt
    assert world.engine.digest() == rebuilt.digest
    stats = world.engine.stats()
    assert (stats.queried, stats.spliced) == (rebuilt.totals.queried, rebuilt.totals.spliced)


def test_both_ways_to_rebuild_agree(storm: tuple[World, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Block by block, all at once, or in small batches: the same, twice."""
    world, path = storm
    rebuilt = audit.replay(path)
    monkeypatch.setattr("stagehold.machines.audit_read.BATCH", 7)

    assert replay(world.blocks) == rebuilt == audit.replay(path)
    assert standing(replay(world.blocks)) == standing(audit.replay(path))


def test_the_standing_is_of_everything(storm: tuple[World, Path]) -> None:
    """A state, a counter, a token or an instance that is another gives another digest."""
    world, path = storm
    whole = standing(audit.replay(path))
    last = max(at for at, block in enumerate(world.blocks) if block.records)
    shorter = replay(world.blocks[:last])
    other = audit.replay(path)
    next(iter(i for i in other.instances.values() if i.counters)).counters["issues"] += 1
    books = audit.replay(path)
    books.totals.spliced += 1
    fewer = audit.replay(path)
    del fewer.instances[max(fewer.instances)]

    assert 5 == len({whole, standing(shorter), standing(other), standing(books), standing(fewer)})


def test_what_cannot_be_followed_is_named(storm: tuple[World, Path], tmp_path: Path) -> None:
    """Line and block of the first record that cannot be; no figures are given."""
    _, path = storm
    lines = path.read_bytes().splitlines(keepends=True)
    (tmp_path / "log").write_bytes(b"".join([*lines[:20], *lines[30:]]))

    with pytest.raises(BadLogError) as caught:
        audit.replay(tmp_path / "log")
    assert caught.value.fault.damage in (Damage.DISCONTINUOUS, Damage.UNBORN, Damage.BAD_BIRTH, Damage.UNBALANCED)
    assert 20 < caught.value.fault.line


def test_an_empty_log_amounts_to_nothing(tmp_path: Path) -> None:
    """No block, no instance, and the digest that a chain begins with."""
    (tmp_path / "log").touch()
    rebuilt = audit.replay(tmp_path / "log")

    assert ({}, bytes(16)) == (rebuilt.instances, rebuilt.digest)
