"""Within prompt and `max_new_tokens` there is always room, whatever else runs, is published, retracted or copied."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from stagehold import Admission, Extension, Plan
from stagehold.testing.hand import AT_ONCE, Hand
from stagehold.testing.places import HeldCopies

BYTES = 8


class Traffic:
    """An engine whose pools are little more than one request needs, and requests that share prefixes."""

    def __init__(self, draw, parts_of) -> None:
        self.draw = draw
        self.page = draw(st.sampled_from((1, 4)), "page")
        window = draw(st.integers(1, 4), "window pages")
        chunk = draw(st.integers(1, 5), "chunk pages")
        ring = draw(st.booleans(), "ring")
        least = 2 * window + max(chunk, window) + 1 + (not ring)
        kinds = draw(st.sampled_from(("w", "s", "ws")), "components")
        parts = parts_of(
            kinds,
            window=window * self.page,
            device=least + draw(st.integers(0, 12), "spare slots"),
            states=3 + draw(st.integers(0, 3), "spare checkpoints"),
            staging=2 * window + draw(st.integers(0, 4), "spare staging"),
            ring=ring,
            gates=draw(st.booleans(), "gates"),
        )
        self.copies = HeldCopies()
        self.chunk = chunk * self.page
        self.hand = Hand(
            delays=AT_ONCE,
            engine_options={"copies": self.copies},
            components=parts,
            parts=1,
            page_part_bytes=BYTES,
            page_size=self.page,
            device_pages=40,
            staging_pages=20,
            largest_request_tokens=24 * self.page,
            prefetch_threshold_tokens=self.page,
            chunk_tokens=self.chunk,
        )
        self.waiting: list = []
        self.running: list = []
        self.left: dict = {}  # tokens that a request may still ask for
        self.number = 0

    def arrive(self) -> None:
        pages = self.draw(st.sampled_from((16, 12, 6, 1)), "prompt pages")
        shared = self.draw(st.sampled_from((pages, pages // 2, 0)), "shared pages")
        new = self.draw(st.integers(1, 6 * self.page), "new tokens")
        self.number += 1
        tokens = self.hand.prompt(pages, self.number, shared=shared, tail=1)
        handle = self.hand.arrive(f"r{self.number}", tokens, new)
        self.left[handle] = len(tokens) + new
        self.waiting.append(handle)

    def visit(self) -> None:
        for handle in list(self.waiting):
            plan = self.hand.engine.select(handle, self.chunk)
            if isinstance(plan, Plan):
                admission = self.hand.engine.commit(plan)
                assert isinstance(admission, Admission)
                if admission.admitted:
                    self.waiting.remove(handle)
                    self.running.append(handle)

    def pick(self):
        return self.running[self.draw(st.integers(0, len(self.running) - 1), "request")]

    def extend(self) -> None:
        handle = self.pick()
        data = self.hand.machine(handle).data
        prompt = data.prompt_tokens - data.n_tokens
        most = min(self.chunk, prompt) if prompt > 0 else min(self.page, self.left[handle] - data.n_tokens)
        if most < 1:
            return
        tokens = self.draw(st.sampled_from((most, max(1, most - 1), 1)), "tokens")
        ids = [] if prompt > 0 else [7] * (data.n_tokens + tokens - data.chain.n_tokens)
        found = self.hand.engine.extend(handle, tokens, ids or None)
        assert isinstance(found, Extension), found

    def compute(self) -> None:
        self.extend()
        self.publish()

    def publish(self) -> None:
        handle = self.pick()
        data = self.hand.machine(handle).data
        known = min(data.n_tokens, data.chain.n_tokens)
        self.hand.engine.publish(handle, known - min(known, self.draw(st.sampled_from((0, self.page)), "held back")))

    def end(self) -> None:
        handle = self.pick()
        self.running.remove(handle)
        data = self.hand.machine(handle).data
        how = self.draw(st.sampled_from(("finish", "retract", "abort")), "end")
        if how == "retract" and data.chain.n_tokens - data.prompt_tokens < data.max_new_tokens:
            again = self.hand.engine.retract(handle)
            self.left[again] = self.left[handle]
            self.waiting.append(again)
        elif how == "abort":
            self.hand.engine.abort(handle)
        else:
            self.hand.engine.finish(handle)

    def tick(self) -> None:
        self.copies.free = self.draw(st.booleans(), "copies end")
        self.hand.tick()

    def act(self) -> None:
        acts = [self.arrive, self.visit, self.tick]
        if self.running:
            acts += [*[self.compute] * 4, self.extend, self.publish, self.end]
        self.draw(st.sampled_from(acts), "act")()
        self.hand.core.tree.check()
        for stock in self.hand.core.stocks.others:
            assert self.hand.core.room_of(stock) >= 0, f"{stock.name}: promised more than there is"


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_was_promised_can_always_be_had(parts, data):
    """Sizes, chunks, windows and acts at random."""
    traffic = Traffic(data.draw, parts)
    try:
        for _ in range(data.draw(st.integers(10, 60), "acts")):
            traffic.act()
    finally:
        traffic.copies.free = True
        traffic.hand.engine.close()
    assert {} == traffic.hand.engine.stats().owned
