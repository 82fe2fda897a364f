"""Cases that servers had with a KV tier beside vLLM, by their ids; those of load failures stand in `test_trouble`."""

from __future__ import annotations

import threading

import pytest

from stagehold.adapters.vllm.blocks import LayerBlocks
from stagehold.cache.stores.simulated import Delays, Medium, SimulatedStore

from .bench import MODELS, bench, prompt
from .test_serving import in_every_way
from .test_trouble import break_loads

SLOW = Delays(exists=(1, 1), get=(40, 40), put=(60, 60))


@pytest.mark.parametrize("model", MODELS)
def test_k49_slots_that_a_copy_reads_go_to_nobody(model, monkeypatch):
    """A load is given up while it reads; others fill the pool meanwhile, and each reads its own pages afterwards."""
    begun, go_on = threading.Event(), threading.Event()
    load = LayerBlocks.load

    def slow(self, *arguments):
        if threading.current_thread() is not threading.main_thread() and not go_on.is_set():
            begun.set()
            assert go_on.wait(20)
        load(self, *arguments)

    with bench(model, pool_pages=60, store=None, n_blocks=120) as b:
        b.serve("cold", prompt(42))
        b.forget_local()
        monkeypatch.setattr(LayerBlocks, "load", slow)
        request = b.ask("warm", prompt(42))
        while not begun.is_set():
            b.vllm.step()
        b.vllm.abort(request)
        others = [b.ask(f"r{seed}", prompt(60, seed)) for seed in range(2, 8)]
        while any(other.request_id in b.vllm.requests for other in others):
            b.vllm.step()
        go_on.set()
        b.vllm.run()
        b.forget_local()
        b.serve("again", prompt(42))
        b.check()


@in_every_way
def test_k84_preempted_with_its_writes_in_flight(model, loads):
    """The next attempt adopts what is published, and each page is stored once."""
    blocks = {"llama": 24, "gemma": 44}[model]
    store = SimulatedStore(medium=Medium(), delays=SLOW)
    with bench(model, loads=loads, n_blocks=blocks, pool_pages=120, model_tokens=80, store=store) as b:
        pair = [b.ask(f"r{seed}", prompt(40, seed), 30) for seed in (1, 2)]
        b.vllm.run()
        assert sum(one.preemptions for one in pair)
        b.check()
        stats = b.engine.stats()
        assert stats.stored_pages == stats.offered_pages - stats.refused_pages - stats.dropped_pages


@in_every_way
@pytest.mark.parametrize("steps", range(3))
def test_k85_an_abort_of_what_was_never_planned(model, loads, steps):
    """Before the first step, and while it is asked for."""
    with bench(model, loads=loads, store=SimulatedStore(medium=Medium(), delays=SLOW)) as b:
        request = b.ask("gone", prompt(42))
        for _ in range(steps):
            b.vllm.step()
        b.vllm.abort(request)
        b.vllm.run()
        b.serve("stays", prompt(42))
        b.check()


@in_every_way
def test_k86_blocks_are_not_overwritten_while_they_are_saved(model, loads):
    """In the step after a save every block can belong to somebody else; what was saved is what was computed."""
    blocks = {"llama": 21, "gemma": 48}[model]  # one request at a time: the next one takes what the last one leaves
    with bench(model, loads=loads, n_blocks=blocks, pool_pages=200, model_tokens=80) as b:
        first = [b.ask(f"r{seed}", prompt(60, seed), 13) for seed in range(4)]  # its last step fills a block
        b.vllm.run()
        b.forget_local()
        second = [b.ask(f"{one.request_id} again", one.all_token_ids, 2) for one in first]
        b.vllm.run()
        assert [72] * 4 == [one.external for one in second]
        b.check()


@in_every_way
def test_k88_who_is_given_up_fetches_no_more(model, loads):
    """Its fetch is let go, and its buffers come back with the end of the IO."""
    medium = Medium()
    with bench(model, loads=loads, store=SimulatedStore(medium=medium)) as b:
        b.serve("cold", prompt(42))
        b.check()
    with bench(model, loads=loads, store=SimulatedStore(medium=medium, delays=SLOW)) as b:
        request = b.ask("gone", prompt(42))
        while not b.engine.stats().states["hold.fetching"]:
            b.vllm.step()
        b.vllm.abort(request)
        assert 0 == b.engine.stats().states["hold.fetching"]
        for _ in range(60):
            b.vllm.step()
        assert 0 == b.engine.stats().pools["full"].staging_used
        b.check()


@pytest.mark.parametrize("model", MODELS)
def test_k92_everything_beside_vllm_fails(model, monkeypatch):
    """Saves, loads and the store: both sides go on, and every answer is right."""
    with bench(model) as b:
        b.serve("cold", prompt(42))
        break_loads(monkeypatch)
        for number in range(3):
            b.forget_local()
            b.serve(f"warm {number}", prompt(42))

        def broken(*_arguments):
            raise OSError("no")

        monkeypatch.setattr(LayerBlocks, "save", broken)
        b.engine.detach()
        for number in range(3):
            b.forget_local()
            b.serve(f"{number}", prompt(50, 5 + number))
        assert (3, 3) == (b.counts["failed_loads"], b.counts["spoiled_requests"])
        b.check()
