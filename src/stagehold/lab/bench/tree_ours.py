"""Our tree behind the verbs of the tree bench. Owns its calls and their timing; compares nothing."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterable
from hashlib import sha256
from time import perf_counter_ns, thread_time_ns
from typing import Any

from stagehold.cache.components.base import Component
from stagehold.cache.components.full import FULL
from stagehold.cache.components.state import STATE, Checkpoints
from stagehold.cache.components.swa import SWA, SlidingWindow
from stagehold.cache.keys import Chain, Namespace
from stagehold.cache.node import Node
from stagehold.cache.pools import Pool
from stagehold.cache.snapshot import nodes_of
from stagehold.cache.tree import Tree
from stagehold.lab.bench import tree_workload as work

WINDOW_TOKENS = 1_024
SPACE = Namespace("bench")


def timed(call: Callable[[Any], object], items: Iterable[Any]) -> list[int]:
    """Nanoseconds of each call, collector off; the first one is a warm-up and left out."""
    times = []
    gc.disable()
    try:
        for item in items:
            start = perf_counter_ns()
            call(item)
            times.append(perf_counter_ns() - start)
    finally:
        gc.enable()
    return times[1:]


class OurTree:
    """One tree under the workload, of FULL alone or of three components."""

    def __init__(self, name: str, page: int, turns: int, lengths: list[int], reps: int) -> None:
        self.name, self.page, self.reps = name, page, reps
        room = work.room(page, turns, lengths, reps)
        pools = {FULL: Pool(room, FULL)}
        parts: list[Component] = []
        if name == "three":
            pools |= {SWA: Pool(room, SWA), STATE: Pool(turns + room * page // 100, STATE)}
            parts = [SlidingWindow(-(-WINDOW_TOKENS // page)), Checkpoints()]
        self.tree = Tree(page, pools, components=parts)
        for text in work.chats(turns):
            self.publish(Chain(SPACE, text, page))
        self.nodes_built, self.bytes_built = self.tree.nodes, self.bytes_per_node()
        self.probes = {length: work.probes(length) for length in lengths}
        for length, texts in self.probes.items():
            for text in texts:
                for end in range(work.STRIDE[length], length + 1, work.STRIDE[length]):
                    self.publish(Chain(SPACE, text[:end], page))

    # -- calls ---------------------------------------------------------------------------------------------

    def slots(self, n: int) -> dict[str, list[int]]:
        """Slots of every component for `n` new pages that end a turn."""
        wants = {name: 1 if name == STATE else n for name in self.tree.pools}
        found = {name: self.tree.pools[name].alloc(want) for name, want in wants.items()}
        return {name: mine for name, mine in found.items() if mine is not None}

    def publish(self, chain: Chain) -> None:
        """Insert what of a text is not live."""
        live = self.tree.match(chain)
        if live < chain.n_pages:
            known = self.tree.insert(chain, live, chain.n_pages, self.slots(chain.n_pages - live)).duplicates
            for name, mine in known.items():
                self.tree.pools[name].free(mine)

    def chains(self, job: work.Job) -> list[Chain]:
        """Fresh chains over the probes in turn: no key object of theirs is one that the tree holds."""
        return [Chain(SPACE, self.probes[job.length][i % work.PROBES], self.page) for i in range(job.reps)]

    def run(self, op: str, job: work.Job) -> list[int]:
        """Times of one operation, in nanoseconds."""
        times: list[int] = getattr(self, f"time_{op}")(job)
        return times

    def time_match_hit(self, job: work.Job) -> list[int]:
        """All of a chain is live."""
        return timed(self.tree.match, self.chains(job))

    def time_match_half(self, job: work.Job) -> list[int]:
        """The first half is live, the rest was never seen."""
        return timed(self.tree.match, [Chain(SPACE, text, self.page) for text in work.half_known(job)])

    def time_first_contact(self, job: work.Job) -> list[int]:
        """Keys and match of a prompt never seen."""
        return timed(lambda text: self.tree.match(Chain(SPACE, text, self.page)), work.strangers(job))

    def time_bare_hash(self, job: work.Job) -> list[int]:
        """Nothing but one hash call for each stretch of the same prompt that has a key."""
        step = 4 * max(self.page, 64)

        def loop(text: Any) -> None:
            raw, key = text.astype("<u4").tobytes(), bytes(32)
            for at in range(0, len(raw), step):
                key = sha256(key + raw[at : at + step]).digest()

        return timed(loop, work.strangers(job))

    def time_insert_turn(self, job: work.Job) -> list[int]:
        """A new turn behind a live chain; keys and slots are there."""
        jobs = []
        for chain, turn in zip(self.chains(job), work.continuations(job, 1), strict=True):
            live = self.tree.match(chain)
            chain.extend(turn)
            jobs.append((chain, live, chain.n_pages, self.slots(chain.n_pages - live)))
        return timed(lambda job: self.tree.insert(*job), jobs)

    def time_lock(self, job: work.Job) -> list[int]:
        """A lock over a path that nobody holds, given back before the next."""
        return self._lock_and_unlock(job, warm=False)

    def time_lock_warm(self, job: work.Job) -> list[int]:
        """The same while the node above the leaf is held."""
        return self._lock_and_unlock(job, warm=True)

    def _lock_and_unlock(self, job: work.Job, *, warm: bool) -> list[int]:
        tree, pages = self.tree, job.length // self.page
        chains = self.chains(job)
        above = (job.length - work.STRIDE[job.length]) // self.page
        held = [tree.lock(chain, above) for chain in chains[: work.PROBES]] if warm else []
        times = timed(lambda chain: tree.unlock(tree.lock(chain, pages)), chains)
        for receipt in held:
            tree.unlock(receipt)
        return times

    def time_cycle(self, job: work.Job) -> list[int]:
        """What a request costs: match, lock, hash and insert a turn, match, lock, and both unlocks."""
        tree = self.tree
        pages = (job.length % self.page + work.TURN_TOKENS) // self.page
        turns = work.continuations(job, 2)
        jobs = [(chain, turn, self.slots(pages)) for chain, turn in zip(self.chains(job), turns, strict=True)]

        def cycle(job: tuple[Chain, Any, dict[str, list[int]]]) -> None:
            chain, turn, slots = job
            live = tree.match(chain)
            first = tree.lock(chain, live)
            chain.extend(turn)
            tree.insert(chain, live, chain.n_pages, slots)
            second = tree.lock(chain, tree.match(chain))
            tree.unlock(first)
            tree.unlock(second)

        return timed(cycle, jobs)

    def time_evict_page(self, job: work.Job) -> list[int]:
        """One page; `length` says nothing."""
        return timed(self.tree.evict, [1] * job.reps)

    def time_evict_4096(self, job: work.Job) -> list[int]:
        """4,096 tokens."""
        return timed(self.tree.evict, [4_096 // self.page] * job.reps)

    # -- sizes ---------------------------------------------------------------------------------------------

    def drain(self) -> list[int]:
        """Processor time of each eviction of one page until the tree is empty, in nanoseconds."""
        times, evict = [], self.tree.evict
        gc.collect()
        gc.disable()
        while self.tree.evictable:
            start = thread_time_ns()
            evict(1)
            times.append(thread_time_ns() - start)
        gc.enable()
        return times

    def bytes_per_node(self) -> float:
        """Bytes of a node beside its tokens and slots, with its share of the index and its key objects."""
        total = sum(map(node_bytes, nodes_of(self.tree))) + sys.getsizeof(self.tree.index.pages)
        return total / self.tree.nodes


def node_bytes(node: Node) -> int:
    """Bytes of a node, its numbers, cells, keys and links; a collector head is counted with each object."""
    size = sys.getsizeof
    total = size(node) + size(node.keys) + sum(map(size, node.keys)) + size(node.stamp) + size(node.cells)
    total += sum(size(number) for number in (node.start, node.end) if number > 256)
    return total + sum(map(size, node.cells))
