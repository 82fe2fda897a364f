"""What goes wrong beside the connector, and what vLLM does to it: the answer stays right and nothing is kept."""

from __future__ import annotations

import threading

import pytest

from stagehold.adapters.vllm.blocks import LayerBlocks
from stagehold.cache.stores.workers import WorkerStore
from stagehold.testing.faults import FaultAdapter, FaultPlan, Faults

from .bench import MODELS, Bench, bench, prompt
from .double import Status
from .liar import Liar
from .test_serving import in_every_way


def ask_often(b: Bench, request, times: int) -> set[tuple[int | None, bool]]:
    return {b.scheduler.matched(request, 0) for _ in range(times)}


@in_every_way
def test_questions_have_no_effect(model, loads):
    """Asked forty times in each of forty steps without being given blocks: one answer, no slot, no lock, no record."""
    with bench(model, loads=loads) as b:
        b.serve("cold", prompt(42))
        b.written()
        request = b.ask("warm", prompt(42))
        b.forget_local()
        b.vllm.waiting.clear()  # vLLM has no blocks for it, and asks in every step
        b.vllm.step()
        for _ in range(40):
            assert {(40, loads == "async")} == ask_often(b, request, 40)
            b.vllm.step()
            owned = {what: n for what, n in b.engine.stats().owned.items() if n and what != "link"}
            assert {} == owned
        b.vllm.waiting.append(request)
        b.vllm.run()
        assert 40 == request.external
        b.check()


@in_every_way
@pytest.mark.parametrize("steps", range(7))
def test_an_abort_at_any_step(model, loads, steps):
    """Never planned, asked for, loading, running: what it had is given back."""
    with bench(model, loads=loads) as b:
        b.serve("cold", prompt(42))
        b.forget_local()
        request = b.ask("warm", prompt(42), 4)
        for _ in range(steps):
            b.vllm.step()
        if request.status is not Status.FINISHED_LENGTH_CAPPED:
            b.vllm.abort(request)
        b.vllm.run()
        b.check()
        assert 40 == b.serve("after", prompt(42)).external
        b.check()


@pytest.mark.parametrize("model", MODELS)
def test_an_abort_during_a_load_is_reported_as_received(model, monkeypatch):
    """vLLM keeps the blocks, and we the slots, until the copy has ended; both are free after the report."""
    begun, go_on = threading.Event(), threading.Event()
    load = LayerBlocks.load

    def slow(self, *arguments):
        begun.set()
        assert go_on.wait(20)
        load(self, *arguments)

    with bench(model) as b:
        b.serve("cold", prompt(42))
        b.forget_local()
        free = len(b.vllm.pool.free)
        monkeypatch.setattr(LayerBlocks, "load", slow)
        request = b.ask("warm", prompt(42))
        while not begun.is_set():
            b.vllm.step()
        b.vllm.abort(request)
        for _ in range(5):
            b.vllm.step()
        assert not b.vllm.reset_prefix_cache()
        assert b.engine.stats().owned["slots"]
        assert len(b.vllm.pool.free) < free
        go_on.set()
        b.vllm.run()
        assert len(b.vllm.pool.free) == free
        b.check()


def break_loads(monkeypatch, *, times: int = 10**6) -> list[int]:
    """The next `times` copies into a block fail."""
    load, left = LayerBlocks.load, [times]

    def broken(self, pool, slots, blocks):
        if left[0]:
            left[0] -= 1
            raise OSError("the link is down")
        load(self, pool, slots, blocks)

    monkeypatch.setattr(LayerBlocks, "load", broken)
    return left


@pytest.mark.parametrize("model", MODELS)
def test_a_failed_load_beside_is_computed_and_not_promised_again(model, monkeypatch):
    """K47, K48: reported once; asked again, the connector has nothing for this request. The next one is served."""
    with bench(model) as b:
        b.serve("cold", prompt(42))
        b.forget_local()
        break_loads(monkeypatch, times=1)
        b.serve("warm", prompt(42))
        assert 1 == b.counts["failed_loads"]
        assert 1 == sum("alloc warm 40" in line for line in b.vllm.log)
        assert any("alloc warm 0" in line for line in b.vllm.log)
        b.forget_local()
        assert 40 == b.serve("next", prompt(42)).external
        b.check()


@pytest.mark.parametrize("model", MODELS)
def test_loads_that_always_fail_hold_nobody_up(model, monkeypatch):
    """Each request fails once, and is then computed: a bounded number of steps."""
    with bench(model) as b:
        b.serve("cold", prompt(42))
        break_loads(monkeypatch)
        for number in range(5):
            b.forget_local()
            begun = b.vllm.steps
            b.serve(f"warm {number}", prompt(42))
            assert b.vllm.steps - begun < 200
        assert 5 == b.counts["failed_loads"]
        b.check()


def test_a_failed_load_before_a_step_is_told_by_its_blocks(monkeypatch):
    """K47: with one group, vLLM cuts the request off at its first bad block and computes from there."""
    with bench("llama", loads="sync") as b:
        b.serve("cold", prompt(42))
        b.forget_local()
        break_loads(monkeypatch, times=1)
        warm = b.serve("warm", prompt(42))
        assert 40 == warm.external
        b.check()


def test_a_failed_load_before_a_step_stops_an_engine_of_several_groups(monkeypatch):
    """There is no way to report it; wrong pages are worse than an end."""
    with bench("gemma", loads="sync") as b:
        b.serve("cold", prompt(42))
        b.forget_local()
        break_loads(monkeypatch, times=1)
        with pytest.raises(OSError, match="the link is down"):
            b.serve("warm", prompt(42))


@in_every_way
def test_a_failed_save_is_nobodys_page(model, loads, monkeypatch):
    """The request goes on; what was not saved is not given to others."""
    save = LayerBlocks.save
    calls = []

    def broken(self, *arguments):
        calls.append(1)
        if len(calls) == 3:
            raise OSError("no")
        save(self, *arguments)

    monkeypatch.setattr(LayerBlocks, "save", broken)
    with bench(model, loads=loads) as b:
        b.serve("cold", prompt(60), 9)
        assert 1 == b.counts["spoiled_requests"]
        b.forget_local()
        assert b.serve("warm", prompt(60)).external < 40
        b.check()


@in_every_way
def test_a_store_that_promises_and_fails_holds_nobody_up(model, loads):
    """Each request asks a bounded number of times, is computed, and right."""
    liar = Liar()
    with bench(model, loads=loads, store=WorkerStore(liar)) as b:
        for seed in range(3):
            begun = b.vllm.steps
            b.serve(f"r{seed}", prompt(42, seed))
            assert b.vllm.steps - begun < 600
        assert 0 < liar.gets <= 3 * 9, "one attempt and eight more, each"
        assert 0 == b.counts["failed_loads"]
        b.check()


@pytest.mark.parametrize("kind", ["fail", "short", "corrupt", "stall"])
@pytest.mark.parametrize(("model", "loads"), [("llama", "sync"), ("gemma", "async")])
def test_a_store_that_misbehaves_costs_time(model, loads, kind):
    """K54: half of its operations go wrong; every answer is right."""
    from stagehold.cache.stores.simulated import Medium, SimulatedStore

    faults = Faults(**{kind: 0.5})
    store = FaultAdapter(SimulatedStore(medium=Medium()), 5, FaultPlan(faults, faults, faults))
    with bench(model, loads=loads, store=store, prefetch_policy="timeout", pool_pages=44, drain_seconds=0.0) as b:
        for seed in (1, 2, 3, 1, 2, 3):
            b.serve(f"r{len(b.asked)}", prompt(90, seed))
            b.forget_local()
        b.check(written=False)
        store.heal()


@in_every_way
def test_without_room_in_our_pool_a_request_goes_without_us(model, loads):
    """It is shed, and runs; the ones that we hold are served."""
    with bench(model, loads=loads, n_blocks=200, pool_pages=44, model_tokens=160, store=None) as b:
        held = [b.ask(f"r{seed}", prompt(90, seed), 8) for seed in range(4)]
        b.vllm.run()
        assert b.counts["shed_requests"]
        assert all(one.status is Status.FINISHED_LENGTH_CAPPED for one in held)
        b.check()


def test_a_reset_is_refused_while_a_request_runs():
    """K89; it empties host memory afterwards."""
    with bench("llama") as b:
        b.ask("one", prompt(42), 9)
        for _ in range(4):
            b.vllm.step()
        assert not b.scheduler.reset()
        b.vllm.run()
        b.written()
        assert b.scheduler.reset()
        assert 0 == b.engine.stats().pools["full"].device_used
        b.check()


def test_an_audit_log_on_a_full_disk_stops_no_server(caplog):
    """It is told once, and requests are served."""
    with bench("llama", audit_log="/dev/full") as b:
        b.serve("cold", prompt(42))
        b.forget_local()
        assert 40 == b.serve("warm", prompt(42)).external
        b.check()
    assert 1 == caplog.text.count("the audit log cannot be written")


@in_every_way
def test_what_host_memory_has_is_promised_in_the_first_step(model, loads):
    """The tick of a step comes before its questions: a hit without the store waits for nobody."""
    with bench(model, loads=loads) as b:
        b.serve("cold", prompt(42))
        b.written()
        b.forget_local()
        request = b.ask("warm", prompt(42))
        b.vllm.step()
        assert 40 == request.external
        b.vllm.run()
        b.check()
