"""The connector under the double: what is reused is right, and nothing is left behind."""

from __future__ import annotations

import pytest

from stagehold.cache.stores.open import open_store

from .bench import MODELS, bench, prompt

LOADS = ("sync", "async")
every_way = [pytest.mark.parametrize("loads", LOADS), pytest.mark.parametrize("model", MODELS)]


def in_every_way(test):
    for mark in every_way:
        test = mark(test)
    return test


@in_every_way
def test_cold_then_warm_from_host_memory(model, loads):
    """The second time vLLM has forgotten the prompt, and loads what it computed the first time."""
    with bench(model, loads=loads) as b:
        cold = b.serve("cold", prompt(42))
        b.forget_local()
        warm = b.serve("warm", prompt(42))
        assert (0, 40, cold.answered) == (cold.external, warm.external, warm.answered)
        assert (40, 1) == (b.counts["loaded_tokens"], b.counts["loaded_requests"])
        b.check()


@in_every_way
def test_what_vllm_has_itself_is_not_loaded(model, loads):
    """Its own hit comes first; only what lies behind it is promised."""
    with bench(model, loads=loads) as b:
        b.serve("long", prompt(60))
        b.forget_local()
        b.serve("head", prompt(60)[:30])
        assert "alloc head 28" in b.vllm.log[-4] or b.counts["loaded_tokens"] == 28
        again = b.serve("again", prompt(60))
        assert 28 == again.external, "28 of 56 tokens were there"
        b.check()


@in_every_way
def test_a_prompt_of_whole_pages_leaves_a_token_to_compute(model, loads):
    """All of it is stored, and what is promised ends one page before its end."""
    with bench(model, loads=loads) as b:
        b.serve("cold", prompt(40))
        b.forget_local()
        assert 36 == b.serve("warm", prompt(40)).external
        b.check()


@in_every_way
def test_a_second_server_finds_what_the_first_one_stored(model, loads, tmp_path):
    """Another connector, with empty pools, over the same folder."""
    for turn, expected in (("first", 0), ("second", 40)):
        with bench(model, loads=loads, store=open_store(f"file://{tmp_path}?floor=0", 1 << 12)) as b:
            found = b.serve(turn, prompt(42))
            assert expected == found.external
            b.check()
            assert (expected > 0) == (b.counts["store_hit_tokens"] > 0)


@in_every_way
def test_the_next_turn_of_a_chat_goes_on_from_the_answer(model, loads):
    """Pages that were decoded are saved as they fill."""
    with bench(model, loads=loads) as b:
        one = b.serve("turn 1", prompt(21), 20)
        b.forget_local()
        two = b.serve("turn 2", [*one.all_token_ids, *prompt(9, seed=2)], 6)
        assert 40 == two.external
        b.check()


@in_every_way
def test_preempted_requests_come_back_from_the_tier(model, loads):
    """Two requests outgrow vLLM's blocks; the one that is sent back finds its pages with us."""
    blocks = {"llama": 24, "gemma": 44}[model]
    with bench(model, loads=loads, n_blocks=blocks, pool_pages=120, model_tokens=80) as b:
        one, two = (b.ask(f"r{seed}", prompt(40, seed), 30) for seed in (1, 2))
        b.vllm.run()
        assert one.preemptions + two.preemptions
        assert b.counts["loaded_tokens"]
        taken = b.engine.stats().rows_taken
        assert one.preemptions + two.preemptions == taken["request.committed.retract"]
        b.check()


@pytest.mark.parametrize("loads", LOADS)
@pytest.mark.parametrize(("model", "window"), [("llama", 10), ("gemma", 8), ("gemma", 9), ("gemma", 10)])
def test_what_vllm_kept_longer_than_we_did_is_saved_again(model, window, loads):
    """Our pool has lost the prefix, vLLM has not: its blocks are copied when they are used again."""
    with bench(model, loads=loads, store=None, window=window) as b:
        b.serve("first", prompt(52))
        assert b.scheduler.reset()
        longer = b.serve("longer", [*prompt(52), *prompt(20, seed=3)])
        assert 0 == longer.external
        assert 18 == b.engine.stats().pools["full"].device_used
        b.forget_local()
        assert 72 == b.serve("again", [*prompt(52), *prompt(21, seed=3)]).external
        b.check()


@pytest.mark.parametrize("model", MODELS)
def test_salts_adapters_and_images_share_nothing(model):
    """The same tokens are other pages for each."""
    from types import SimpleNamespace

    lora = SimpleNamespace(lora_name="a", lora_path="/a")
    image = SimpleNamespace(identifier="cat", mm_position=SimpleNamespace(offset=3, length=8))
    with bench(model) as b:
        b.serve("plain", prompt(42))
        for rid, more in (
            ("salt", {"cache_salt": "s"}),
            ("lora", {"lora_request": lora}),
            ("mm", {"mm_features": [image]}),
        ):
            b.forget_local()
            assert 0 == b.serve(rid, prompt(42), **more).external
            b.forget_local()
            assert 40 == b.serve(f"{rid} again", prompt(42), **more).external
        b.check()


@pytest.mark.parametrize("more", [{"prompt_embeds": object()}, {"resumable": True}])
def test_a_request_that_its_tokens_do_not_describe_is_not_served(more):
    """It runs without the tier, and is counted."""
    with bench("llama") as b:
        b.serve("plain", prompt(42))
        b.forget_local()
        assert 0 == b.serve("odd", prompt(42), **more).external
        assert 1 == b.counts["unserved_requests"]
        b.check()


@pytest.mark.parametrize("layers_first", [True, False])
def test_any_strides(layers_first):
    """Layers apart, or side by side in each token's cell."""
    with bench("gemma", layers_first=layers_first) as b:
        b.serve("cold", prompt(42))
        b.forget_local()
        assert 40 == b.serve("warm", prompt(42)).external
        b.check()


@pytest.mark.parametrize(("window", "loads"), [(window, LOADS[window % 2]) for window in (1, 2, 5, 8, 9, 10, 13, 40)])
def test_every_window_ends_where_vllms_does(window, loads):
    """On a block's border, one before, one behind: each block that vLLM asks for has its page, and no more is saved."""
    with bench("gemma", loads=loads, window=window, n_blocks=96) as b:
        for length in (41, 42, 43, 44):
            b.serve(f"cold {length}", prompt(length, length), 9)
            b.forget_local()
            assert 40 == b.serve(f"warm {length}", prompt(length, length), 9).external
            b.forget_local()
        b.check()
