"""One vLLM engine in a process of its own: it serves what it is told, and prints what it answered as JSON.

Run as a program: the model's folder, the connector's options as JSON or `none`, then the names of acts. Options of its
own are `blocks`, how many vLLM has, and `liar`, for a store that always fails.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.update(
    VLLM_ENABLE_V1_MULTIPROCESSING="0", VLLM_CPU_KVCACHE_SPACE="1", HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1",
    VLLM_LOGGING_LEVEL="WARNING", OMP_NUM_THREADS="1",
)  # fmt: skip

BLOCK = 32
LONG = 300
PATIENCE_SECONDS = 60
Answer = dict[str, Any]


def prompt(length: int, seed: int) -> list[int]:
    """Token ids from 3 on, drawn by a fixed rule."""
    state = seed * 2654435761 % 2**32 + 12345
    found = []
    for _ in range(length):
        state = (state * 1664525 + 1013904223) % 2**32
        found.append(3 + (state >> 8) % 509)
    return found


class Server:
    """One engine, stepped by hand."""

    def __init__(self, model: str, options: dict[str, Any] | None) -> None:
        from vllm import EngineArgs, LLMEngine
        from vllm.config import KVTransferConfig

        blocks = options.pop("blocks", 256) if options is not None else 256
        if options is not None and options.pop("liar", False):
            plant_liar()
        transfer = None if options is None else KVTransferConfig(
            kv_connector="StageholdConnector", kv_role="kv_both", kv_connector_module_path="stagehold.adapters.vllm",
            kv_load_failure_policy="recompute", kv_connector_extra_config=options,
        )  # fmt: skip
        self.engine = LLMEngine.from_engine_args(
            EngineArgs(
                model=model, skip_tokenizer_init=True, dtype="float32", enforce_eager=True, block_size=BLOCK,
                max_model_len=640, max_num_batched_tokens=320, num_gpu_blocks_override=blocks, seed=1,
                kv_transfer_config=transfer, max_num_seqs=8, disable_log_stats=False,
            )
        )  # fmt: skip
        self.core = self.engine.engine_core.engine_core
        self.scheduler = self.core.scheduler
        self.preemptions = 0
        self.answers: dict[str, Answer] = {}
        self._serial = self.steps = 0

    @property
    def counts(self) -> dict[str, int]:
        """What the connector counted."""
        return dict(self.scheduler.connector.scheduler.counts)

    def ask(self, tokens: list[int], count: int) -> str:
        from vllm import SamplingParams

        self._serial += 1
        rid = f"r{self._serial}"
        params = SamplingParams(temperature=0.0, max_tokens=count, logprobs=5, ignore_eos=True, detokenize=False)
        self.engine.add_request(rid, {"prompt_token_ids": tokens}, params)
        return rid

    def step(self) -> None:
        self.steps += 1
        for request in self.scheduler.requests.values():
            self.preemptions = max(self.preemptions, request.num_preemptions)
        for output in self.engine.step():
            if output.finished:
                [found] = output.outputs
                self.answers[output.request_id] = {
                    "tokens": list(found.token_ids),
                    "cached": output.num_cached_tokens,
                    "logprobs": [
                        {str(token): one.logprob for token, one in step.items()} for step in found.logprobs or []
                    ],
                }

    def run(self, limit: int = 4000) -> None:
        for _ in range(limit):
            if not self.engine.has_unfinished_requests():
                return
            self.step()
        raise AssertionError("the engine does not come to an end")

    def serve(self, tokens: list[int], count: int = 12) -> Answer:
        rid = self.ask(tokens, count)
        self.run()
        return self.answers[rid]

    def forget(self) -> None:
        """vLLM's own prefix cache is emptied; it refuses as long as a block is used, and so for ever if one leaks."""
        until = time.monotonic() + PATIENCE_SECONDS
        while self.scheduler.requests or self.scheduler.finished_req_ids:
            self.core.step()  # ends are told to the worker, and reported by it, in steps of their own
            assert time.monotonic() < until, f"{list(self.scheduler.requests)} do not end"
        assert self.scheduler.reset_prefix_cache(), "blocks have leaked"


def plant_liar() -> None:
    """Whatever store is asked for, it is one that says yes and fails."""
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from liar import Liar

    from stagehold.adapters.vllm import tier
    from stagehold.cache.stores.workers import WorkerStore

    tier.open_store = lambda _url, _page_bytes: WorkerStore(Liar())


def cold(server: Server) -> Answer:
    return server.serve(prompt(LONG, 1))


def warm(server: Server) -> Answer:
    server.forget()
    return server.serve(prompt(LONG, 1))


def full(server: Server) -> Answer:
    """A prompt of whole blocks, all of them stored."""
    server.serve(prompt(BLOCK * 9, 3))
    server.forget()
    return server.serve(prompt(BLOCK * 9, 3))


def crowd(server: Server) -> Answer:
    """Three that grow: too large together for a small pool."""
    rids = [server.ask(prompt(200, seed), 200) for seed in (4, 5, 6)]
    server.run()
    found = [server.answers[rid] for rid in rids]
    return {
        "tokens": [token for one in found for token in one["tokens"]],
        "logprobs": [step for one in found for step in one["logprobs"]],
        "cached": 0,
        "preemptions": server.preemptions,
    }


def aborted(server: Server) -> Answer:
    """Given up while its load is under way: its blocks are kept until the load has ended."""
    from stagehold.adapters.vllm.blocks import LayerBlocks

    server.forget()
    begun, go_on = threading.Event(), threading.Event()
    load = LayerBlocks.load

    def slow(self: Any, *arguments: Any) -> None:
        begun.set()
        assert go_on.wait(60)
        load(self, *arguments)

    with replaced(LayerBlocks, slow):
        rid = server.ask(prompt(LONG, 1), 4)
        while not begun.is_set():
            server.step()
        server.engine.abort_request([rid])
        for _ in range(3):
            server.core.step()
        assert not server.scheduler.reset_prefix_cache(), "the load still writes to the blocks"
        go_on.set()
    server.forget()
    return server.serve(prompt(LONG, 1))


def failed(server: Server) -> Answer:
    """The first copy of its load fails."""
    from stagehold.adapters.vllm.blocks import LayerBlocks

    server.forget()
    load, left = LayerBlocks.load, [1]

    def broken(self: Any, *arguments: Any) -> None:
        if left[0]:
            left[0] -= 1
            raise OSError("planted")
        load(self, *arguments)

    with replaced(LayerBlocks, broken):
        answer = server.serve(prompt(LONG, 1))
    assert not left[0], "nothing was loaded"
    return answer


class replaced:  # noqa: N801
    """Another `load` for a while."""

    def __init__(self, owner: Any, other: Callable[..., None]) -> None:
        self.owner, self.other, self.own = owner, other, owner.load

    def __enter__(self) -> None:
        self.owner.load = self.other

    def __exit__(self, *_: object) -> None:
        self.owner.load = self.own


ACTS = {act.__name__: act for act in (cold, warm, full, crowd, aborted, failed)}


def main() -> None:
    model, options, *names = sys.argv[1:]
    server = Server(model, None if options == "none" else json.loads(options))
    found: dict[str, Any] = {name: ACTS[name](server) for name in names}
    server.forget()
    if options != "none":
        found |= {"counts": server.counts, "steps": server.steps}
    server.engine.engine_core.shutdown()
    sys.stdout.write("\n" + json.dumps(found) + "\n")


if __name__ == "__main__":
    main()
