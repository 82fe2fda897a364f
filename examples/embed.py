"""A foreign scheduler in forty lines: how it embeds the engine. `docs/embedding.md` explains each call.

Run it with the folder of a file store, twice: `python examples/embed.py pages`. The second run finds what the first
one stored.
"""

import sys
import time
from collections import deque

import numpy as np

from stagehold import AttachmentState, Engine, EngineConfig, Namespace, NoRoom, Skip
from stagehold.cache.stores.open import open_store

BUDGET = 128  # tokens that one pass computes
SPACE = Namespace(model="toy, int8")


def serve(engine: Engine, prompts: dict[str, np.ndarray], answer: int) -> dict[str, int]:
    """Serve all prompts, each with `answer` tokens; returns the tokens that each found in the cache."""
    waiting = deque(engine.arrive(name, prompt, SPACE, answer) for name, prompt in prompts.items())
    running, found = {}, {}  # running: tokens of each request that have their KV
    known = {name: len(prompt) for name, prompt in prompts.items()}  # tokens whose ids the engine has
    while waiting or running:
        engine.tick()  # first in every pass
        if not running:
            time.sleep(0.001)  # waits are counted in passes, so a loop with nothing to compute is paced
        budget = BUDGET
        for handle in [*running]:  # requests that run: the next piece of the prompt, or one token of the answer
            count = max(1, min(budget, known[handle.rid] - running[handle]))
            token = [running[handle] % 251] if running[handle] == known[handle.rid] else None
            if isinstance(engine.extend(handle, count, token), NoRoom):
                waiting.appendleft(engine.retract(handle))  # never within prompt and answer; shown for completeness
                del running[handle]
                continue
            running[handle] += count
            known[handle.rid] = max(known[handle.rid], running[handle])  # a retracted request keeps its answer so far
            # Here the model runs: it reads and writes KV at engine.page_slots(handle).
            if token is None:
                engine.publish(handle, running[handle])
            if running[handle] == len(prompts[handle.rid]) + answer:
                engine.finish(handle)
                del running[handle]
            budget -= count
        for _ in range(len(waiting)):  # requests that wait; one whose bytes are on their way blocks nobody
            handle = waiting.popleft()
            plan = engine.select(handle, max(1, budget))
            if isinstance(plan, Skip) or not (admission := engine.commit(plan)).admitted:
                waiting.append(handle)
                continue
            running[handle] = found[handle.rid] = admission.hit_tokens
    return found


if __name__ == "__main__":
    config = EngineConfig(page_size=16, device_pages=256, staging_pages=256, largest_request_tokens=2048)
    engine = Engine(config, store=open_store(f"file:{sys.argv[1]}", config.largest_page_bytes))
    while engine.attachment is AttachmentState.ATTACHING:  # the store is tried before it is used
        engine.tick()
        time.sleep(0.001)
    shared = np.arange(1000) % 251
    prompts = {f"request {n}": np.append(shared, np.full(40, n)) for n in range(4)}
    for name, tokens in serve(engine, prompts, answer=8).items():
        print(f"{name}: {tokens} of {len(prompts[name])} tokens were reused")
    engine.drain(2000, pause=lambda: time.sleep(0.001))  # what is written is found by the next start
    engine.close()
