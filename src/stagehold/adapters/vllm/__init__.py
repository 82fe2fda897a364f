"""The vLLM connector: `kv_connector="StageholdConnector"`, `kv_connector_module_path="stagehold.adapters.vllm"`.

vLLM owns the accelerator's blocks: it allocates, evicts and reads them, and tells nobody in time. A mirror of that
pool in our tree would believe in pages that are gone, so there is none. What the engine calls its device pool is here
a pool in host memory, beside vLLM's blocks, and the connector embeds the engine as any scheduler would: the "forward
pass" that fills our slots is a copy out of vLLM's blocks at the end of the step that filled them, the one that reads
them is a copy into blocks that vLLM has allocated. So every rule, book and audit record is the engine's own, from the
lookup in the store to the eviction from host memory, and a request in vLLM is a request in the engine:

    vLLM                                           engine
    a request is added                             arrive
    the first question in a step                   tick
    get_num_new_matched_tokens                     select; the visit stays open for repeated questions
    update_state_after_alloc                       commit, in the same step; nothing is taken before
    build_connector_meta                           release of what was not allocated; extend by whole pages
    the step's copies were made                    publish
    preempted                                      retract, a next attempt
    finished, aborted                              finish, abort

While bytes travel from the store, vLLM is told to ask again, and holds no block for them. What it is promised lies
in host memory, verified, under the request's lock: after that a load is one copy inside this machine.

The two sides share nothing but the orders in vLLM's metadata and the pool's memory, which has a name, so they may live
in one process or in two. Nothing here is imported before `StageholdConnector` is asked for: vLLM is no requirement.
"""

from __future__ import annotations

from typing import Any

__all__ = ["StageholdConnector"]


def __getattr__(name: str) -> Any:
    if name != "StageholdConnector":
        raise AttributeError(f"module 'stagehold.adapters.vllm' has no attribute {name!r}; it has StageholdConnector")
    from stagehold.adapters.vllm.connector import StageholdConnector

    return StageholdConnector
