"""Engines that serve several tenants from one store: none reads the pages of another, or costs it its own."""

import pytest

from stagehold.cache.keys import Namespace
from stagehold.cache.stores.delayed import DelayedStore
from stagehold.cache.stores.inspect import list_pages, verify_pages
from stagehold.cache.stores.open import open_store
from stagehold.cache.stores.protocol import Verdict
from stagehold.lifecycle.data import Admission
from stagehold.specs.store import StoreState
from stagehold.testing.hand import Hand
from stagehold.testing.ranks import in_turns, values
from stagehold.testing.service import PAGE_SIZE, PROMPT_PAGES, Service

PAGE_BYTES = 16 << 10
MODEST, GREEDY, LATE = (Namespace("model", cache_salt=salt) for salt in ("modest", "greedy", "late"))
WHOLE = PROMPT_PAGES * PAGE_SIZE
CAPACITY = 48 * PAGE_BYTES


def service(url, page_bytes=PAGE_BYTES):
    """A server; its tenants keep nothing between two requests but what the store keeps."""
    made = Service(open_store(url, page_bytes), page_bytes=page_bytes, wait_base_ticks=512)
    made.attach()
    return made


def serve(server, families, tenant):
    """Serve a request for each; return how many tokens the store brought."""
    before = server.served.store_hit_tokens
    server.serve(families, tenant)
    server.drain()
    assert server.breaches() == []
    return server.served.store_hit_tokens - before


def part(root, tenant):
    return root / "tenants" / tenant.digest(PAGE_SIZE)[:16].hex()


@pytest.mark.parametrize("form", ["pages", "packed"])
def test_a_greedy_tenant_costs_nobody_a_page(tmp_path, form):
    """It writes ten times the capacity. The other one's prompt comes back whole; were they not apart, not at all."""
    url = f"file://{tmp_path}/{{}}?floor=0&form={form}&capacity={CAPACITY}"
    for name, option, kept in (("apart", "&tenants=2", WHOLE), ("together", "", 0)):
        with service(url.format(name) + option) as server:
            assert serve(server, [1], MODEST) == 0
            for family in range(10, 10 + 10 * CAPACITY // (PROMPT_PAGES * PAGE_BYTES)):
                serve(server, [family], GREEDY)
            assert server.engine.stats().stored_pages >= 10 * CAPACITY // PAGE_BYTES
        with service(url.format(name) + option) as server:
            assert serve(server, [1], GREEDY) == 0  # not its own prompt, though it is the same text
            assert serve(server, [1], MODEST) == kept


@pytest.mark.parametrize("address", ["file://{}?floor=0&form=pages", "file://{}?floor=0&form=packed", "sim:?seed=5"])
def test_tenants_with_the_same_prompts_share_nothing(tmp_path, address):
    """Each finds what it has stored itself, in a folder that has nothing else."""
    address = f"{address.format(tmp_path)}&capacity=4MiB&tenants=2"
    with service(address) as server:
        for tenant in (MODEST, GREEDY):
            assert serve(server, range(3), tenant) == 0
        server.engine.flush()
        for tenant in (MODEST, GREEDY):
            assert serve(server, range(3), tenant) == 3 * WHOLE
    if address.startswith("file"):
        names = [{page.identity.name for page in list_pages(part(tmp_path, tenant))} for tenant in (MODEST, GREEDY)]
        assert [len(found) for found in names] == [3 * PROMPT_PAGES] * 2
        assert not names[0] & names[1]
        assert verify_pages(tmp_path / "tenants" / "nobody") == {Verdict.HIT: 1}  # the test page


def test_a_tenant_without_a_place_is_served_all_the_same(tmp_path):
    """It computes; the breaker does not trip; the others have their pages."""
    with service(f"file://{tmp_path}?floor=0&form=pages&capacity=4MiB&tenants=2") as server:
        for tenant in (MODEST, GREEDY):
            serve(server, range(2), tenant)
        for _ in range(2):
            serve(server, range(20), LATE)
        server.engine.flush()
        assert serve(server, range(20), LATE) == 0
        assert [serve(server, range(2), tenant) for tenant in (MODEST, GREEDY)] == [2 * WHOLE] * 2
        assert server.breaker is StoreState.HEALTHY
        assert server.engine.stats().owned == {"link": 1}
    assert not part(tmp_path, LATE).exists()


def test_ranks_stay_in_step_where_one_of_them_turns_a_tenant_away(tmp_path):
    """Two ranks with a store each, one of which has a place less: what it refuses is refused on both."""

    def program(member):
        url = f"file://{tmp_path}/{member.rank}?floor=0&form=pages&capacity=4MiB&tenants={2 - member.rank}"
        store = DelayedStore(open_store(url, 0), 3 + member.rank)
        with Hand(store=store, engine_options={"group": member}) as hand:
            hits = []
            for number, tenant in enumerate((MODEST, GREEDY, MODEST, GREEDY)):
                if number == 2:
                    hand.engine.flush()
                handle = hand.arrive(f"r{number}", hand.prompt(8), namespace=tenant)
                admission = None
                while not (isinstance(admission, Admission) and admission.admitted):
                    hand.tick()
                    admission = hand.visit(handle)
                hits.append(admission.store_hit_tokens)
                hand.compute(handle)
                hand.engine.finish(handle)
                hand.engine.drain(2000)
            return hand.engine.digest(), hits

    group, outcomes = in_turns(2, 7, program)
    (digest, hits), other = values(outcomes)
    assert (digest, hits) == other
    assert hits == [0, 0, 8 * 16, 0]
    assert group.gathers == 0
    assert [part(tmp_path / rank, GREEDY).is_dir() for rank in "01"] == [True, False]
