"""One tree and its reference model, given the same calls, and every answer compared.

Owns the translation of small numbers into calls, so that a rule machine or a plain loop can drive it, and the books of
what it handed out itself. Raises AssertionError at the first difference.
"""

from __future__ import annotations

import copy
from collections import Counter
from functools import partial

from stagehold.cache.components.base import Component, Span
from stagehold.cache.components.full import FULL
from stagehold.cache.components.state import STATE, Checkpoints
from stagehold.cache.components.swa import SWA, IndexMap, SlidingWindow
from stagehold.cache.errors import (
    AttachRefused,
    ClaimRefused,
    DeadReceipt,
    FlushRefused,
    ReceiptRefused,
    SpanRefused,
)
from stagehold.cache.holds import Hold, Receipt
from stagehold.cache.keys import Chain, Namespace
from stagehold.cache.orders import eviction_order
from stagehold.cache.pools import Pool
from stagehold.cache.recency import LeafLRU
from stagehold.cache.tree import Tree
from stagehold.testing.tree_model import Held, Key
from stagehold.testing.tree_model_queues import QueuesModel, model_of
from stagehold.testing.tree_shape import LETTERS, SPACES, TEXTS, Mark, Shape, refused, text_tokens


class TreeTrial:
    """A tree under trial. Every method takes numbers of any size and folds them into what can be asked now."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.model = model_of(shape)
        pools = {FULL: Pool(shape.room, FULL), SWA: Pool(shape.room * 3 // 4, SWA), STATE: Pool(TEXTS, STATE)}
        self.map = IndexMap(shape.room) if shape.mapped else None
        window = SlidingWindow(shape.reach, gates=shape.window_gates, index_map=self.map)
        parts: list[Component] = [window, Checkpoints(gates=shape.state_gates)]
        order = eviction_order(shape.eviction, shape.room)
        self.tree = Tree(shape.page_size, pools, components=parts, checked=True, order=order)
        self.texts: list[tuple[str, str]] = [(SPACES[0], "ab")]
        self.receipts: list[Receipt] = []
        self.given: list[Receipt] = []
        self.steps = 0
        self.marks: Counter[Mark] = Counter()

    def mark(self, mark: Mark, reached: object) -> None:
        """Count a mark if it was reached."""
        if reached:
            self.marks[mark] += 1

    def mark_cut(self, key: Key) -> None:
        """Note whether making this page a boundary cuts a held run."""
        self.mark(Mark.SPLIT_HELD, key not in self.model.ends and self.model.held(self.model.run(key)[-1]))

    # -- texts ---------------------------------------------------------------------------------------------

    def chain(self, space: str, text: str) -> Chain:
        """Make a fresh chain of a text, with a hint that is wrong as often as not, and a tail that is no page."""
        namespace = Namespace(space, "key", "salt") if space == SPACES[0] else Namespace("left", "ke", "ysalt")
        chain = Chain(namespace, text_tokens(text, self.shape.page_size), self.shape.page_size)
        if self.shape.page_size > 1:
            chain.extend([7])
        chain.hint = (self.steps * 7) % (len(text) + 2)
        return chain

    def pick(self, which: int) -> tuple[str, str, Chain]:
        """Return one of the texts known so far."""
        space, text = self.texts[which % len(self.texts)]
        return space, text, self.chain(space, text)

    def write(self, which: int, cut: int, letters: int, count: int) -> None:
        """Make a new text: a prefix of an old one, and up to some pages more; in the other namespace at times."""
        space, text = self.texts[which % len(self.texts)]
        text = text[: cut % (len(text) + 1)] + LETTERS[letters % 3] * (1 + count % 6) + LETTERS[letters // 3 % 3]
        space = SPACES[1] if letters % 7 == 0 else space
        self.texts.append((space, text[: self.shape.room]))
        del self.texts[:-TEXTS]

    # -- questions -----------------------------------------------------------------------------------------

    def ask(self, which: int, limit: int) -> None:
        """Ask everything about a text that is read-only: equal answers, and the tree's digest does not move."""
        space, text, chain = self.pick(which)
        before = self.tree.digest()
        limit %= len(text) + 1
        live = self.model.live(space, text)
        self.mark(Mark.RETREATED, self.model.joint(space, text) < live)
        assert self.tree.full_match(chain) == live
        assert self.tree.full_match(chain, limit) == min(live, limit)
        assert self.tree.joint_match(chain) == self.model.joint(space, text)
        assert self.tree.joint_match(chain, limit) == self.model.joint(space, text[:limit])
        self.ask_spans(space, text, chain, limit)
        if live:
            at = 1 + limit % live
            self.ask_costs(space, text[:at], chain)
            self.ask_slots(space, text[:at], chain, limit % at)
        assert self.tree.digest() == before, "a read-only call changed the tree"

    def ask_spans(self, space: str, text: str, chain: Chain, start: int) -> None:
        """Compare what is missing, of each component."""
        size, live = len(text), self.model.live(space, text)
        assert self.tree.missing(chain, start, size, SWA) == self.model.missing(space, text, start, size)
        tail = [(max(start, live), size)] if max(start, live) < size else []
        assert self.tree.missing(chain, start, size) == tail
        have = Key(space, text) in self.model.states
        assert self.tree.missing(chain, start, size, STATE) == ([] if have or start >= size else [(size - 1, size)])

    def ask_costs(self, space: str, text: str, chain: Chain) -> None:
        """Compare what holds over a live text would cost."""
        path = self.model.path(Key(space, text))
        assert self.tree.protect_cost(chain, len(text)) == sum(not self.model.held(key) for key in path)
        assert self.tree.pin_cost(chain, len(text)) == sum(not self.model.pins(key) for key in path)

    def ask_slots(self, space: str, text: str, chain: Chain, start: int) -> None:
        """Compare slots over a live text."""
        end = len(text)
        pages = [self.model.pages[key] for key in self.model.path(Key(space, text))][start:]
        full = [page.full for page in pages]
        assert self.tree.slots(chain, start, end) == full
        window = [page.window for page in pages]
        if None in window:
            assert refused(SpanRefused, lambda: self.tree.slots(chain, start, end, SWA))
        else:
            assert self.tree.slots(chain, start, end, SWA) == window
            assert self.map is None or self.map.translate(full) == window
        if Key(space, text) in self.model.states:
            assert self.tree.slots(chain, start, end, STATE) == [self.model.states[Key(space, text)]]
        assert self.tree.loads_over(chain, start, end) == self.model.loads_over(space, text, start, end)

    # -- use and holds -------------------------------------------------------------------------------------

    def match(self, which: int, limit: int) -> None:
        """Match as a use."""
        space, text, chain = self.pick(which)
        limit %= len(text) + 1
        found = self.tree.match(chain, limit)
        assert found == self.model.joint(space, text[:limit])
        if found:
            self.model.touch(Key(space, text[:found]))

    def touch(self, which: int, limit: int) -> None:
        """Count a use at any live boundary, cutting a run if need be."""
        space, text, chain = self.pick(which)
        at = limit % (self.model.live(space, text) + 1)
        self.tree.touch(chain, at)
        if at:
            self.mark_cut(Key(space, text[:at]))
            self.model.touch(Key(space, text[:at]))

    def hold(self, which: int, limit: int, start: int, kind: int) -> None:
        """Take a hold of one of four kinds over a live prefix."""
        space, text, chain = self.pick(which)
        at = limit % (self.model.live(space, text) + 1)
        if not at:
            return
        start %= at
        self.mark_cut(Key(space, text[:at]))
        first: int | None = max(0, at - self.shape.reach)
        load = None
        if kind % 4 == 0:
            receipt = self.tree.lock(chain, at)
        elif kind % 4 == 1:
            receipt, first = self.tree.pin(chain, at), None
        else:
            loading = kind % 4 == 3
            if loading and self.model.loads_over(space, text, start, at):
                assert refused(ClaimRefused, lambda: self.tree.hold_span(chain, start, at, load=True))
                self.mark(Mark.CLAIMED, reached=True)
                return
            receipt = self.tree.hold_span(chain, start, at, load=loading)
            first = min(start, at - self.shape.reach) if at > self.shape.reach else 0
            if loading:
                load = start
                self.model.cut(Key(space, text[:start]))
        self.model.hold(receipt.serial, Held(receipt.kind, Key(space, text[:at]), load=load), first)
        self.receipts.append(receipt)

    def give(self, which: int) -> None:
        """Give a hold back; a dead one is refused first, a second time is refused always."""
        if not self.receipts:
            return
        receipt = self.receipts.pop(which % len(self.receipts))
        calls = {Hold.LOCK: self.tree.unlock, Hold.PIN: self.tree.unpin, Hold.SPAN: self.tree.release_span}
        call = calls[receipt.kind]
        wrong = calls[Hold.PIN if receipt.kind is Hold.LOCK else Hold.LOCK]
        assert refused(ReceiptRefused, lambda: wrong(receipt))
        if self.model.holds[receipt.serial].dead:
            assert refused(DeadReceipt, lambda: call(receipt))
            self.mark(Mark.DEAD_RECEIPT, reached=True)
        self.release(receipt)
        self.model.release(receipt.serial)
        assert refused(ReceiptRefused, lambda: call(receipt))

    def release(self, receipt: Receipt) -> None:
        """Give a receipt back, dead or not."""
        if receipt.kind is Hold.PIN:
            self.tree.unpin(receipt)
        elif receipt.kind is Hold.LOCK:
            self.tree.unlock(receipt, forfeit=True)
        else:
            self.tree.release_span(receipt, forfeit=True)

    # -- changes -------------------------------------------------------------------------------------------

    def take(self, n: int, component: str) -> list[int] | None:
        """Allocate, evicting what is short first; None if it stays short."""
        pool = self.tree.pools[component]
        if n > pool.free_count:
            self.evict(n - pool.free_count, component)
        return pool.alloc(n)

    def insert(self, which: int, back: int, window: int, state: int) -> None:
        """Publish the rest of a text, from before the end of its live prefix, with window and checkpoint or not."""
        space, text, chain = self.pick(which)
        if not text:
            return
        end = len(text) if back % 3 else 1 + back % len(text)
        text = text[:end]
        slots: dict[str, list[int]] = {}
        for name, n in ((STATE, state % 2), (SWA, min(window % (end + 2), end)), (FULL, end)):
            mine = self.take(n, name)
            if mine is None:
                self.put_back(slots)
                return
            slots[name] = mine
        live = self.model.live(space, text)
        start = min(max(0, live - back % 5), end - 1)
        self.cut_down(slots, end - start)
        result = self.tree.insert(chain, start, end, slots)
        assert result.first_new == live
        expected = self.insert_model(space, text, start, slots)
        assert {name: rest for name, rest in result.duplicates.items() if rest} == expected
        self.put_back(result.duplicates)

    def put_back(self, slots: dict[str, list[int]]) -> None:
        """Free slots that were not taken."""
        for name, mine in slots.items():
            self.tree.pools[name].free(mine)

    def cut_down(self, slots: dict[str, list[int]], size: int) -> None:
        """Free what is too much for a span of this size."""
        for name in (FULL, SWA):
            extra = slots[name][size:]
            del slots[name][size:]
            self.tree.pools[name].free(extra)

    def insert_model(self, space: str, text: str, start: int, slots: dict[str, list[int]]) -> dict[str, list[int]]:
        """Insert into the model; returns the slots that it did not take."""
        model, end = self.model, len(text)
        live = model.live(space, text)
        full, window, state = list(slots[FULL]), list(slots[SWA]), list(slots[STATE])
        bare = end - len(window)
        rest: dict[str, list[int]] = {FULL: full[: live - start], SWA: window[: max(0, live - bare)], STATE: []}
        for low, high in model.missing(space, text[:live], max(start, bare), live) if live > max(start, bare) else ():
            mine = window[low - bare : high - bare]
            for run in model.fill_span(Key(space, text[:high]), low, mine):
                at = len(run[0].text) - 1
                rest[SWA] = [slot for slot in rest[SWA] if slot not in window[at - bare : at - bare + len(run)]]
                self.mark(Mark.KEPT if model.held(run[0]) else Mark.REBUILT, reached=True)
                if not model.held(run[0]):
                    fresh = full[at - start : at - start + len(run)]
                    for key, slot in zip(run, fresh, strict=True):
                        model.pages[key].full = slot
                    rest[FULL] = [slot for slot in rest[FULL] if slot not in fresh]
        key = Key(space, text)
        if live < end:
            model.grow(space, text, full[live - start :], window[max(0, live - bare) :], state[0] if state else None)
        elif state and key in model.states:
            rest[STATE] = state
        elif state:
            model.add_state(key, state[0])
        return {name: mine for name, mine in rest.items() if mine}

    def attach(self, which: int, limit: int) -> None:
        """Repair the window of a live boundary, after every kind of wrong attach was refused."""
        space, text, chain = self.pick(which)
        at = limit % (self.model.live(space, text) + 1)
        start = max(0, at - self.shape.reach)
        spans = self.tree.missing(chain, start, at, SWA) if at else []
        need = sum(high - low for low, high in spans)
        slots = self.take(need, SWA) if need else None
        if slots is None:
            return
        if self.model.live(space, text) < at or self.tree.missing(chain, start, at, SWA) != spans:
            self.tree.pools[SWA].free(slots)
            return
        self.refuse_wrong(chain, at, spans, slots)
        ends = len(self.model.ends)
        cuts = self.tree.attach(chain, at, spans, slots, component=SWA)
        for low, high in spans:
            self.model.fill_span(Key(space, text[:high]), low, slots[: high - low])
            slots = slots[high - low :]
        assert len(cuts) == len(self.model.ends) - ends
        self.mark(Mark.ATTACHED, reached=True)
        self.mark(Mark.CUT, cuts)

    def refuse_wrong(self, chain: Chain, at: int, spans: list[Span], slots: list[int]) -> None:
        """Try a wrong size, a part over a live window, and incomplete coverage; nothing may change."""
        before = self.tree.digest()
        wrong: list[tuple[list[Span], list[int]]] = [
            (spans, slots[1:]),
            (spans[1:], slots[spans[0].end - spans[0].start :]),
        ]
        if spans[0].start and not self.tree.missing(chain, spans[0].start - 1, spans[0].start, SWA):
            wrong.append(([Span(spans[0].start - 1, spans[0].end), *spans[1:]], [*slots, 0]))
        for those, some in wrong:
            attach = partial(self.tree.attach, chain, at, those, some, component=SWA)
            assert refused(AttachRefused, attach)
        assert self.tree.digest() == before, "a refused attach changed the tree"

    def evict(self, n: int, component: str) -> None:
        """Evict from one component."""
        evicts = {FULL: self.model.evict, SWA: self.model.evict_windows, STATE: self.model.evict_states}
        bare, ends = self.bare_runs(), len(self.model.ends)
        freed = self.tree.evict(n, component)
        assert freed == evicts[component](n)
        self.mark(Mark.EMPTY, not freed)
        self.mark(Mark.TRIMMED, component == FULL and freed and ends == len(self.model.ends))
        gone = [key for key in self.bare_runs() if key not in bare] if component == SWA else []
        self.mark(Mark.TOMBSTONE, gone)
        self.mark(Mark.TORN, [key for key in gone if not self.model.children(key)])

    def bare_runs(self) -> list[Key]:
        """Ends of the runs whose window is gone."""
        return [key for key in self.model.ends if self.model.pages[key].window is None]

    def outlive(self, which: int, other: int, letters: int) -> None:
        """Use one text, then another, then a child of the first; evict until the child goes while the other is held."""
        for index in (which, other):
            space, text, _ = self.pick(index)
            self.touch(index, self.model.live(space, text))
        space, text, _ = self.pick(other)
        before = len(self.receipts)
        self.hold(other, self.model.live(space, text), 0, 1)
        self.write(which, len(self.pick(which)[1]), letters, 0)
        self.insert(len(self.texts) - 1, 0, self.shape.room, 0)
        space, text, _ = self.pick(len(self.texts) - 1)
        for _ in range(self.shape.room):
            if self.model.live(space, text) < len(text):
                break
            self.evict(1, FULL)
        if len(self.receipts) > before:
            self.give(len(self.receipts) - 1)

    def remove(self, which: int, start: int) -> None:
        """Remove the live tail of a text."""
        space, text, chain = self.pick(which)
        start %= len(text) + 1
        assert self.tree.remove(chain, start) == self.model.remove(space, text, start)

    def flush(self) -> None:
        """Flush, or be refused while something is held."""
        if self.receipts:
            assert refused(FlushRefused, self.tree.flush)
            return
        assert self.tree.flush() == len(self.model.pages)
        self.model.flush()

    def snapshot(self) -> None:
        """Go on with a copy; what happens to the original afterwards must not matter."""
        tree, self.map = copy.deepcopy((self.tree, self.map))
        assert tree.digest() == self.tree.digest()
        for receipt in self.receipts:
            self.release(receipt)
        for name in (STATE, SWA, FULL):
            self.tree.evict(self.shape.room, name)
        self.tree = tree

    # -- always --------------------------------------------------------------------------------------------

    def always(self) -> None:
        """Compare totals, count everything again, and see that every slot is free or in the tree."""
        self.steps += 1
        model, tree = self.model, self.tree
        self.mark(Mark.TWO_SPACES, len(tree.index.roots) == len(SPACES))
        self.mark(Mark.LATE, isinstance(tree.order, LeafLRU) and tree.order.late)
        self.mark(Mark.SEEN_AGAIN, isinstance(model, QueuesModel) and model.seen_again)
        self.mark(Mark.SPENT, isinstance(model, QueuesModel) and model.spent)
        assert tree.total == len(model.pages)
        assert tree.nodes == len(model.ends)
        assert (tree.evictable, tree.pinned) == (model.evictable(), model.pinned())
        assert tree.evictable_slots(SWA) == model.evictable_windows()
        assert tree.evictable_slots(STATE) == model.evictable_states()
        tree.check()
        for name, pool in tree.pools.items():
            pool.check({"tree": tree.owned(name)})
