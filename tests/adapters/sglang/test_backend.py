"""The SGLang backend against doubles of SGLang's host pools: what goes in comes out, and all else is a miss."""

from __future__ import annotations

import importlib.util
import sys
import threading
from pathlib import Path

import pytest
import torch

from stagehold.adapters.sglang.backend import CALLS_KEPT, Backend, Traffic
from stagehold.adapters.sglang.options import UnsupportedError
from stagehold.cache.stores.open import StoreUrlError
from stagehold.cache.stores.protocol import Verdict

_SPEC = importlib.util.spec_from_file_location("sglang_double", Path(__file__).with_name("double.py"))
double = sys.modules["sglang_double"] = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(double)

PAGES = 8


@pytest.fixture
def backend(tmp_path):
    made = []

    def start(store=None, *, pools=("kv",), pool=None, **changes):
        one = Backend(double.config(store or f"file://{tmp_path}", **changes))
        made.append(one)
        for name in pools:
            own = double.Pool(**(pool or {}))
            if name == "kv":
                one.register_mem_pool_host(own)
            one.register_mem_host_pool_v2(own, name)
        one.on_host_pools_registered()
        return one

    yield start
    for one in made:
        one.close()


def kv(backend):
    return backend.mem_pool_host


def window(backend):
    return backend._pools["swa"].pool


@pytest.mark.parametrize("layout", ["page_first", "layer_first"])
def test_what_one_server_puts_another_gets_to_other_slots(backend, layout) -> None:
    """Without a copy where the pool knows addresses, by copy where it does not."""
    pool = {"layout": layout}
    first, second = backend(pool=pool), backend(pool=pool)
    assert (layout == "page_first") == first._pools["kv"].direct
    kv(first).fill(1)
    keys = double.keys_of(PAGES)
    assert [True] * PAGES == first.batch_set_v1(keys, double.slots(*range(PAGES)))
    assert PAGES == second.batch_exists(keys)
    moved = [PAGES + 3 + index for index in range(PAGES)]
    assert [True] * PAGES == second.batch_get_v1(keys, double.slots(*moved))
    for page, other in zip(range(PAGES), moved, strict=True):
        assert torch.equal(kv(first).get_data_page(page * 4), kv(second).get_data_page(other * 4))
    assert not kv(second).get_data_page(0).any(), "no other slot was touched"


def test_pages_as_tensors(backend) -> None:
    """The interface without host indices: values come back bit for bit, a missing one is None."""
    one = backend(extra={"interface_v1": 0})
    keys = double.keys_of(3)
    kv(one).fill(2)
    values = [kv(one).get_data_page(page * 4) for page in range(2)]
    assert one.batch_set(keys[:2], values)
    assert one.set(keys[1], values[1])
    assert [True, True, False] == [one.exists(key) for key in keys]
    targets = [kv(one).get_dummy_flat_data_page() for _ in keys]
    found = one.batch_get(keys, targets)
    assert [True, True] == [torch.equal(*pair) for pair in zip(values, found, strict=False)]
    assert found[2] is None
    assert torch.equal(values[0], one.get(keys[0]))


def test_the_end_of_a_prefix_is_the_first_page_that_is_missing(backend) -> None:
    """Also where later ones are there."""
    one = backend()
    keys = double.keys_of(5)
    one.batch_set_v1(keys[:2] + keys[3:], double.slots(0, 1, 3, 4))
    assert 2 == one.batch_exists(keys)
    got = one.batch_get_v1(keys, double.slots(*range(5)))
    assert [True, True, False] == got[:3]


def test_two_pools_and_what_can_be_restored(backend) -> None:
    """A window of two pages ends where both are; prefixes that all pools can restore are told one by one."""
    first, second = (backend(pools=("kv", "swa")) for _ in range(2))
    keys = double.keys_of(6)
    kv(first).fill(3)
    window(first).fill(4)
    stored = first.batch_set_v2(
        [
            double.transfer("kv", keys, double.slots(*range(6))),
            double.transfer("swa", keys[2:4], double.slots(7, 8)),
        ]
    )
    assert {"kv": [True] * 6, "swa": [True] * 2} == stored
    wanted = double.transfer("swa", ["", ""], policy="trailing_pages")
    assert (4, {"kv": 6, "swa": 4}, [4]) == second.restorable(keys, [wanted])
    assert (6, {"kv": 6}, [1, 2, 3, 4, 5, 6]) == second.restorable(keys, None)
    assert (0, {"kv": 6}, []) == second.restorable(keys, [double.transfer("swa", None)])
    got = second.batch_get_v2([double.transfer("swa", keys[2:4], double.slots(0, 1))])
    assert {"swa": [True, True]} == got
    assert torch.equal(window(first).get_data_page(28), window(second).get_data_page(0))


OTHERS = {
    "dtype": {"pool": {"dtype": torch.float16}},
    "layout": {"pool": {"layout": "layer_first"}},
    "width": {"pool": {"width": 128}},
    "page size": {"pool": {"page_size": 8, "width": 32}},
    "model": {"model_name": "other"},
    "namespace": {"extra": {"namespace": "revision 2"}},
    "rank": {"tp_rank": 1, "tp_size": 2},
    "stage": {"pp_rank": 1, "pp_size": 2},
    "context rank": {"attn_cp_rank": 1, "attn_cp_size": 2},
    "interface": {"extra": {"interface_v1": 0}},
}


@pytest.mark.parametrize("other", OTHERS)
def test_what_decides_bytes_is_in_the_name(backend, other) -> None:
    """A server that differs in it finds nothing."""
    first = backend()
    keys = double.keys_of(2)
    first.batch_set_v1(keys, double.slots(0, 1))
    assert 0 == backend(**OTHERS[other]).batch_exists(keys)
    assert 2 == backend().batch_exists(keys)


def test_replicas_share_latents_but_not_states(backend) -> None:
    """With MLA every tensor rank has the same KV; recurrent states are cut by heads all the same."""
    both = [backend(pools=("kv", "mamba"), is_mla_model=True, tp_rank=rank, tp_size=2) for rank in range(2)]
    keys = double.keys_of(1)
    both[0].batch_set_v2([double.transfer(name, keys, double.slots(0)) for name in ("kv", "mamba")])
    assert 1 == both[1].batch_exists(keys)
    assert (0, {"kv": 1}, []) == both[1].restorable(keys, [double.transfer("mamba", keys)])


def test_heads_of_a_draft_are_one_rank_s_beside_shared_latents(backend) -> None:
    """A draft with heads beside a model of latents: no rank gets the heads of another."""
    both = [backend(pools=("kv", "draft"), is_mla_model=True, tp_rank=rank, tp_size=2) for rank in range(2)]
    keys = double.keys_of(1)
    both[0].batch_set_v2([double.transfer(name, keys, double.slots(0)) for name in ("kv", "draft")])
    draft = double.transfer("draft", keys)
    assert (1, {"kv": 1, "draft": 1}, [1]) == both[0].restorable(keys, [draft])
    assert (0, {"kv": 1}, []) == both[1].restorable(keys, [draft])


def damage(folder):
    for path in (folder / "pages").rglob("*"):
        if path.is_file():
            raw = bytearray(path.read_bytes())
            raw[-1] ^= 1
            path.write_bytes(bytes(raw))


def test_a_damaged_page_is_not_given_out(backend, tmp_path) -> None:
    """It is counted, removed, and can be written again."""
    one = backend(extra={"interface_v1": 0})
    value = torch.ones_like(kv(one).get_dummy_flat_data_page())
    assert one.set("a", value)
    damage(tmp_path)
    assert one.get("a") is None
    assert 1 == one.verdicts[Verdict.CORRUPT]
    assert one.set("a", value)
    assert torch.equal(value, one.get("a"))


def test_a_capacity_limits(backend, tmp_path) -> None:
    """The directory stays below it; the latest pages are there, the first are not."""
    size = 1 << 20
    one = backend(f"file://{tmp_path}?capacity={size}&floor=0", pool={"width": 4096})
    keys = double.keys_of(32)
    one.batch_set_v1(keys, double.slots(*range(32)))
    taken = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert 0 < taken <= size
    assert one.exists(keys[-1])
    assert not one.exists(keys[0])


def test_a_store_that_fails_is_misses(backend) -> None:
    """Nothing is raised to SGLang's threads, and nothing that failed is said to be stored or read."""
    one = backend("sim:?fail=1&seed=1")
    keys = double.keys_of(3)
    for call in (one.batch_set_v1, one.batch_get_v1):
        assert not all(call(keys, double.slots(0, 1, 2)))
    assert one.batch_exists(keys) < 3
    assert one.verdicts[Verdict.FAILED] > 0


def test_many_threads(backend) -> None:
    """Each gets its own answer and its own bytes."""
    one = backend(pool={"pages": 64})
    kv(one).fill(6)
    before = kv(one).kv_buffer.clone()
    wrong = []

    def work(number):
        keys = double.keys_of(4, chain="abcdefgh"[number])
        at = double.slots(*range(4 * number, 4 * number + 4))
        for _ in range(20):
            if not (all(one.batch_set_v1(keys, at)) and one.batch_exists(keys) == 4):
                wrong.append(number)
            kv(one).kv_buffer[:, at] = 0
            if not all(one.batch_get_v1(keys, at)):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [] == wrong
    assert torch.equal(before[:, : 32 * 4], kv(one).kv_buffer[:, : 32 * 4])


def test_what_went_through_is_told_once(backend) -> None:
    """Pages of each call, and a rate."""
    one = backend()
    one.batch_set_v1(double.keys_of(3), double.slots(0, 1, 2))
    pages, rates = one.writes.taken()
    assert [3] == pages
    assert rates[0] > 0
    assert ([], []) == one.writes.taken()


def test_what_nobody_asks_for_does_not_grow() -> None:
    """Where metrics are off; the latest calls are kept."""
    traffic = Traffic()
    for pages in range(CALLS_KEPT + 9):
        traffic.note(pages, 1000, 0.5)
    pages, rates = traffic.taken()
    assert list(range(9, CALLS_KEPT + 9)) == pages
    assert len(pages) == len(rates)


REFUSED = [
    ({"extra": {"store": ""}}, ValueError, "\"store\" is ''; expected a URL"),
    ({"extra": {"stroe": "x"}}, ValueError, "unknown key 'stroe'; stagehold takes: store, namespace, operation_pages"),
    ({"extra": {"namespace": 3}}, ValueError, '"namespace" is 3; expected text'),
    ({"extra": {"operation_pages": 0}}, ValueError, '"operation_pages" is 0; expected a whole number, 1 or more'),
    ({"dcp_size": 2}, UnsupportedError, "dcp_size=2: decode context parallelism is not supported"),
    ({"should_split_heads": True, "tp_lcm_size": 8}, UnsupportedError, "tp_lcm_size=8: pages split by heads"),
    ({"extra": {"store": "gopher://x"}}, StoreUrlError, "unknown scheme 'gopher'"),
    ({"extra": {"store": "file:///x?capacity=much"}}, StoreUrlError, "capacity='much'"),
]


@pytest.mark.parametrize(("changes", "error", "said"), REFUSED)
def test_what_cannot_work_is_refused_at_the_start(backend, changes, error, said) -> None:
    """With the place and what was expected."""
    with pytest.raises(error) as raised:
        backend(**changes)
    assert said in str(raised.value)


def test_calls_that_make_no_sense(backend) -> None:
    """Indices that are not pages, a pool that nobody registered, a policy that nobody knows, tensors beside slots."""
    one = backend()
    keys = double.keys_of(2)
    with pytest.raises(ValueError, match="2 keys with 4 host indices: expected 4 a key"):
        one.batch_set_v1(keys, double.slots(0))
    with pytest.raises(ValueError, match="pool 'swa' was never registered; known: kv"):
        one.batch_get_v2([double.transfer("swa", keys, double.slots(0, 1))])
    one.batch_set_v1(keys, double.slots(0, 1))
    with pytest.raises(UnsupportedError, match="hit policy 'block_groups' is not supported"):
        one.restorable(keys, [double.transfer("kv", keys, policy="block_groups")])
    with pytest.raises(UnsupportedError, match="with interface_v1 pages go by host index"):
        one.get(keys[0])
    assert not one.clear()
    assert 2 == one.batch_exists(keys)


def test_keys_that_do_not_pair_up_are_told_page_by_page(backend, caplog) -> None:
    """With several pools this is an answer, and the other pools are served: SGLang's thread has to live on."""
    one = backend(pools=("kv", "swa"))
    keys = double.keys_of(3)
    several = [
        double.transfer("kv", keys, double.slots(0, 1)),
        double.transfer("swa", keys[:2], double.slots(0, 1)),
    ]
    assert {"kv": [False] * 3, "swa": [True] * 2} == one.batch_set_v2(several)
    assert {"kv": [False] * 3, "swa": [True] * 2} == one.batch_get_v2(several)
    assert {"kv": []} == one.batch_get_v2([double.transfer("kv", None, None)])
    assert "pool kv: 3 keys with 8 host indices, nothing is moved" in caplog.text
    assert 0 == one.batch_exists(keys)


def test_nothing_asked_is_nothing_done(backend) -> None:
    """Lists of no keys, in every call."""
    one = backend()
    none = double.slots(0)[:0]
    assert [] == one.batch_set_v1([], none) == one.batch_get_v1([], none)
    assert {"kv": []} == one.batch_set_v2([double.transfer("kv", [], none)])
    assert 0 == one.batch_exists([])
    assert (0, {}, []) == one.restorable([], [double.transfer("kv", [])])
    assert {} == one.batch_get_v2([])


@pytest.mark.parametrize(
    ("count", "width", "said"), [(1, 512, "2 keys with 1 buffers"), (3, 512, "2 keys with 3"), (2, 8, "expected 1024")]
)
def test_tensors_that_are_no_pages_of_these_keys_are_refused(backend, count, width, said) -> None:
    """A page of another size would be found, and never be read."""
    one = backend(extra={"interface_v1": 0})
    keys, pages = double.keys_of(2), [torch.zeros(width, dtype=torch.bfloat16)] * count
    for call in (one.batch_set, one.batch_get):
        with pytest.raises(ValueError, match=said):
            call(keys, pages)
    assert 0 == one.batch_exists(keys)


def test_packed_pages_are_of_one_size(backend, tmp_path) -> None:
    """Said at the first start, where the directory is empty, and not at the second."""
    url = f"file://{tmp_path}?form=packed"
    one = backend(url, pools=("kv", "swa"))
    with pytest.raises(ValueError, match="form=packed is for pages of one size; the pools have some of 512 and 1024"):
        one.register_mem_host_pool_v2(double.Pool(width=128), "indexer")
    assert (True, True) == tuple(one.batch_set_v1(double.keys_of(2), double.slots(0, 1)))


def test_a_store_that_is_divided_among_tenants_is_refused(backend, tmp_path) -> None:
    """All pages would go to the small part of no tenant."""
    with pytest.raises(ValueError, match="SGLang does not say whose a page is: leave tenants out"):
        backend(f"file://{tmp_path}?capacity=1GiB&tenants=4")
    assert [] == list(tmp_path.iterdir())


def test_a_closed_backend_says_so(backend) -> None:
    """And closes once."""
    one = backend()
    one.close()
    one.close()
    with pytest.raises(RuntimeError, match="is closed"):
        one.batch_exists(double.keys_of(1))
