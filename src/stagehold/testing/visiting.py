"""Acts of a World on requests that wait: they arrive, are looked at, and are admitted or not.

Owns what an admission may look like from outside; it never says which request should be admitted.
"""

from __future__ import annotations

from enum import Enum, auto
from itertools import count

from stagehold.cache.keys import Chain
from stagehold.lifecycle.data import Admission, Plan, Skip
from stagehold.lifecycle.errors import PartialDelivery
from stagehold.specs.outcomes import AdmissionOutcome, PrefetchPolicy, SkipReason
from stagehold.specs.request import RequestState
from stagehold.testing.checks import check_read, note_strays
from stagehold.testing.content import Prompt
from stagehold.testing.guests import Guest
from stagehold.testing.stage import Stage, act
from stagehold.testing.watch import require
from stagehold.testing.watch_parts import look, note_commit, note_tombstone
from stagehold.testing.watched import Delivers, write_page

RIDS = 61
"""Request ids come round again after so many arrivals, as another attempt of the same id."""


class Ending(Enum):
    """How a visit ends."""

    COMMIT = auto()
    RELEASE = auto()
    ABORT = auto()


class Visiting(Stage):
    """Arrivals, visits, and the end of any request."""

    @act
    def arrive(self, prompt: Prompt, space: int = 0, answer: int = 1, stored: int = 0) -> None:
        """A request with this prompt, cut to what is admissible, in namespace number `space`.

        Another server has already stored its first `stored` pages.
        """
        namespace = self.shape.namespaces[space % len(self.shape.namespaces)]
        answer = self.shape.answer(answer)
        room = self.shape.config.largest_request_tokens - answer
        chain = Chain(namespace, self.shape.tokens(prompt)[:room], self.shape.config.page_size)
        self._arrive(chain, answer)
        self._store(chain, stored)

    @act
    def follow(self, which: int, own: int, answer: int = 1) -> None:
        """The next turn of a conversation that was held here: a known sequence and `own` more tokens."""
        chain = self.library.pick(which)
        if chain is None:
            return
        answer = self.shape.answer(answer)
        tokens = [*chain.tokens.tolist(), *self.shape.tokens(Prompt(0, 1, which, own)).tolist()]
        room = self.shape.config.largest_request_tokens - answer
        self._arrive(Chain(chain.namespace, tokens[:room], self.shape.config.page_size), answer)

    def _arrive(self, chain: Chain, answer: int) -> None:
        alive = {guest.handle.rid for guest in self.guests}
        rid = next(name for i in count() if (name := f"r{self.arrivals % RIDS + i}") not in alive)
        self.arrivals += 1
        handle = self.engine.arrive(rid, chain.tokens, chain.namespace, answer)
        self.library.learn(chain)
        self.guests.append(Guest.arrived(handle, chain, answer, self.library.known))

    @act
    def select(self, who: int, budget: int = 64) -> None:
        """Look at a waiting request; its visit stays open until `end` or the next tick."""
        self._select(who, budget)

    def _select(self, who: int, budget: int) -> bool:
        waiting = self.waiting
        if not waiting:
            return False
        guest = waiting[who % len(waiting)]
        note_tombstone(self.marks.note, self.core, guest)
        found = self.engine.select(guest.handle, budget)
        if isinstance(found, Plan):
            self.open.append((guest, found))
            return True
        self.skipped(guest, found)
        return False

    def skipped(self, guest: Guest, skip: Skip) -> None:
        """A request is held back for its wait budget and no longer, from when there was room for it."""
        self.marks.note(f"skip.{skip.reason}")
        if skip.reason not in (SkipReason.WAITING_LOOKUP, SkipReason.WAITING_FETCH):
            return
        if guest.skipped_at is None:
            if not self._has_room(guest):
                return
            guest.skipped_at = self.tick_number
        waited, budget = self.tick_number - guest.skipped_at, self.wait_budget(self._awaited(guest))
        require(waited < budget, f"{guest.handle} was skipped for {waited} ticks, budget {budget}: {skip.reason}")

    def _has_room(self, guest: Guest) -> bool:
        """Whether the request could be admitted now without the store."""
        data = next(m.data for m in self.core.requests.values() if m.data.handle == guest.handle)
        live = self.core.live.joint_match(data.chain, data.hit_limit)
        return self.engine._parts.visits.admission.fits(data, live)  # noqa: SLF001 - a World looks inside

    def _awaited(self, guest: Guest) -> int:
        """Pages of the hold that this request has a claim on; 0 while the store is being asked."""
        spans = [h.data.last - h.data.start for h in self.core.holds.values() for number in h.data.claims
                 if self.core.requests[number].data.handle == guest.handle]  # fmt: skip
        return sum(spans)

    def wait_budget(self, pages: int) -> int:
        """The most ticks for which a visit may be put off because of so many pages of the store."""
        config, limits = self.shape.config, self.shape.config.limits
        match config.prefetch_policy:
            case PrefetchPolicy.BEST_EFFORT:
                return 0
            case PrefetchPolicy.TIMEOUT:
                return min(limits.wait_cap_ticks, limits.wait_base_ticks + int(limits.wait_per_page_ticks * pages))
            case PrefetchPolicy.WAIT_COMPLETE:
                return config.wait_complete_ticks

    @act
    def end(self, which: int, ending: Ending, delivers: Delivers = Delivers.ALL) -> None:
        """End one of the open visits."""
        if self.open:
            self._end(which % len(self.open), ending, delivers)

    @act
    def visit(self, who: int, ending: Ending, delivers: Delivers = Delivers.ALL) -> None:
        """Select and end at once."""
        if self._select(who, 64):
            self._end(-1, ending, delivers)

    def _end(self, which: int, ending: Ending, delivers: Delivers) -> None:
        guest, plan = self.open.pop(which)
        match ending:
            case Ending.COMMIT:
                self._commit(guest, plan, delivers)
            case Ending.RELEASE:
                self.engine.release(plan)
            case Ending.ABORT:
                self._abort(guest)

    def _commit(self, guest: Guest, plan: Plan, delivers: Delivers) -> None:
        locked = self.engine.state_of(guest.handle) is RequestState.ANCHOR_LOCKED
        torn = locked and delivers is Delivers.SOME and plan.promised_pages > 1
        self.delivery.next = delivers
        was = look(self.core, guest)
        try:
            admission = self.engine.commit(plan)
        except PartialDelivery:
            require(torn, f"{guest.handle}: a whole delivery was called partial")
            self.marks.note("admission.partial")
            return
        finally:
            self.delivery.next = Delivers.ALL
        require(not torn, f"{guest.handle}: a partial delivery was taken for {admission.outcome}")
        self.marks.note(f"admission.{admission.outcome}")
        note_commit(self.marks.note, was, admission, self.shape.config.page_size)
        if admission.admitted:
            self.admitted(guest, plan, admission)
        elif admission.outcome is AdmissionOutcome.NO_ROOM:
            busy = self.core.committed or self._is_copying() or self.open
            require(bool(busy), f"{guest.handle}: no room, and nothing runs, is copied or is being visited")

    def admitted(self, guest: Guest, plan: Plan, admission: Admission) -> None:
        """A request runs from now on: the figures of its admission add up, and all that it hit is right."""
        hit, size = admission.hit_tokens, self.shape.config.page_size
        require(hit == size * len(admission.slots) < guest.prompt, f"{admission}: {guest.prompt} tokens of prompt")
        require(hit == admission.device_hit_tokens + admission.store_hit_tokens, f"{admission}: the hits do not add up")
        require(0 < admission.extend_tokens <= min(plan.extend_tokens, guest.prompt - hit), f"{admission} for {plan}")
        guest.running, guest.computed, guest.skipped_at = True, hit, None
        require(admission.slots == self.engine.page_slots(guest.handle), f"{admission}: other slots than its own")
        note_strays(self.engine, guest)
        check_read(self.engine, guest)

    def _store(self, chain: Chain, pages: int) -> None:
        """What another server has of the first pages: its windows, and a checkpoint half-way and at the end."""
        pages = min(pages, chain.n_pages)
        for one in self.library.known:
            for page in range(pages):
                if one.per_page or page + 1 in (pages // 2, pages):
                    name = self.library.name(chain, page, one.name)
                    write_page(self.store.medium, name, self.library.bodies[name])

    @act
    def abort(self, who: int) -> None:
        """End any request, whatever it is doing."""
        if self.guests:
            guest = self.guests[who % len(self.guests)]
            self.open = [(other, plan) for other, plan in self.open if other is not guest]
            self._abort(guest)

    def _abort(self, guest: Guest) -> None:
        self.marks.note(f"abort.{self.engine.state_of(guest.handle).name.lower()}")
        self.engine.abort(guest.handle)
        self._gone(guest, "aborted")

    def _gone(self, guest: Guest, how: str) -> None:
        self.guests.remove(guest)
        self.ends[how] += 1
