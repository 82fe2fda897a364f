"""Worlds whose tenants have quotas: every act is checked, books and guarantees with it, and everybody ends.

What a World checks after each act counts again what every tenant has, and holds it against what others are guaranteed.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from stagehold import EngineConfig, HostMode, Namespace
from stagehold.cache.tenants import Quota, Tenancy
from stagehold.lifecycle import brought
from stagehold.lifecycle.errors import InvariantBroken
from stagehold.testing.content import Prompt
from stagehold.testing.mixes import PAIRWISE, mixed
from stagehold.testing.ranks import RankWorld, in_turns, shape_of, values
from stagehold.testing.shapes import WorldShape, drawn
from stagehold.testing.steps import Walk
from stagehold.testing.watch import WorldBroken
from stagehold.testing.world import World

SEEDS = 8
ACTS = 250
SHARES = (1.0, 0.5, 0.34)
TENANTS = (Namespace("m"), Namespace("m", cache_salt="s"), Namespace("m", cache_salt="t"))


class Crowd(Walk):
    """A walk whose requests come from all tenants, and whose tenants come and go."""

    def _arrive(self) -> None:
        dice = self._dice
        prompt = Prompt(dice.randrange(5), dice.randint(1, 48), dice.randrange(4), dice.choice((0, 1, 5, 9, 17)))
        who = self.world.tick_number // 40 % len(TENANTS)
        self.world.arrive(
            prompt, dice.choice((who, who, *range(3))), dice.choice((1, 3, 9)), dice.choice((0, 2, 6, 18))
        )


def shared(shape: WorldShape, seed: int, mode: HostMode) -> WorldShape:
    """The same world with a share for each tenant, as small as its sizes allow, and in a mode."""
    options = shape.config.model_dump() | {"host_memory_mode": mode, "query_limit": 8}
    options |= {"prefetch_threshold_tokens": options["page_size"]}
    for share in SHARES[seed % 3 :: -1]:
        try:
            config = EngineConfig.model_validate(options | {"tenant_share": share})
        except ValueError:
            continue
        return replace(shape, config=config, namespaces=TENANTS)
    raise AssertionError(f"seed {seed}: no share is large enough")


def walked(world: World) -> World:
    Crowd(world).run(ACTS)
    world.quiesce()
    return world


@pytest.mark.parametrize("mode", HostMode)
def test_walks_of_tenants_with_quotas_come_to_their_end(mode):
    """Requests of three tenants in small worlds, with every fault that a World knows; and quotas were met."""
    refused: Counter[str] = Counter()
    ends: Counter[str] = Counter()
    for seed in range(SEEDS):
        world = walked(World(seed, shared(drawn(seed), seed, mode)))
        refused.update(world.core.quotas.refused)
        ends.update(world.ends)
        world.close()
    assert {"staging", "backlog"} <= set(+refused)
    assert ends["finished"] > 10 * SEEDS


def test_tenants_share_windows_and_checkpoints():
    """Each component's staging by itself."""
    for seed, mix in enumerate(PAIRWISE[::3]):
        world = walked(World(seed, shared(mixed(seed, mix), 0, mix.mode)))
        assert len(world.core.quotas.staging) == 1 + len(world.shape.config.components)
        world.close()


@pytest.mark.parametrize("mode", HostMode)
def test_ranks_decide_alike(mode):
    """Two ranks with stores and copies of their own speed."""

    def program(member):
        shape = shared(shape_of(5, member.rank, member.size), 1, mode)
        world = walked(RankWorld(5, shape, member))
        world.close()
        return world.engine.digest(), sum(world.core.quotas.refused.values())

    _, outcomes = in_turns(2, 5, program)
    first, second = values(outcomes)
    assert first == second


def of_others(resource: str):
    """Nothing of a resource is left for others."""

    def plant(world: World, patch: pytest.MonkeyPatch) -> None:
        real = Quota.for_others

        def nothing(quota: Quota, tenant: bytes) -> int:
            quotas = world.core.quotas
            chosen = {"staging": quotas.staging[0], "lookups": quotas.lookups, "backlog": quotas.backlog}
            return 0 if quota is chosen[resource] else real(quota, tenant)

        patch.setattr(Quota, "for_others", nothing)

    return plant


def held_unasked(_world: World, patch: pytest.MonkeyPatch) -> None:
    """Holds take what host memory has of them, however much that is."""
    patch.setattr(brought, "fits_held", lambda *_: True)


def forgetful(_world: World, patch: pytest.MonkeyPatch) -> None:
    """Some pages that change hands are not counted."""
    dice, changed = random.Random(1), Tenancy.changed

    def most(tenancy: Tenancy, page: int, before: int, after: int) -> None:
        if dice.random() < 0.9:
            changed(tenancy, page, before, after)

    patch.setattr(Tenancy, "changed", most)


PLANTED = {
    **{resource: of_others(resource) for resource in ("staging", "lookups", "backlog")},
    "held": held_unasked,
    "forgetful": forgetful,
}


@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_fault_is_found(monkeypatch, fault):
    """In one of a few walks at the latest."""
    noticed = ""
    for seed in range(SEEDS):
        with monkeypatch.context() as patch:
            world = World(seed, shared(drawn(seed), 1, HostMode.CACHE))
            PLANTED[fault](world, patch)
            try:
                Crowd(world).run(ACTS)
            except (WorldBroken, InvariantBroken) as error:
                noticed = str(error)
                break
    assert "quotas" in noticed or "were promised" in noticed
