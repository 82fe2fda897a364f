"""Acts of a World on requests that run: a model computes, publishes and answers, a scheduler ends or retracts.

Owns the bytes that are written; it reads every byte that a forward would read, each time.
"""

from __future__ import annotations

from stagehold.lifecycle.data import NoRoom
from stagehold.testing.checks import check_read, write_kv
from stagehold.testing.content import answer_to
from stagehold.testing.guests import Guest
from stagehold.testing.stage import act
from stagehold.testing.visiting import Visiting
from stagehold.testing.watch import require


class Running(Visiting):
    """Prefill, decode, publication, and the ends of what was admitted."""

    @act
    def compute(self, who: int, tokens: int, publish: bool = True) -> None:
        """Prefill the next tokens of a running prompt."""
        guests = [guest for guest in self.running if guest.computed < guest.prompt]
        if guests:
            guest = guests[who % len(guests)]
            last = min(guest.prompt, guest.computed + max(1, self.shape.stretch(tokens)))
            while guest.computed < last:
                self._forward(guest, min(self.shape.chunk, last - guest.computed), None)
                if publish:
                    self._publish(guest)

    @act
    def decode(self, who: int, beyond: bool = False) -> None:
        """One token of an answer; the last one promised needs no KV. `beyond` asks for more than was promised."""
        largest = self.shape.config.largest_request_tokens
        guests = [guest for guest in self.running if guest.computed >= guest.prompt and self._may_say(guest, beyond)]
        guests = [guest for guest in guests if guest.chain.n_tokens + 1 < largest]
        if guests:
            guest = guests[who % len(guests)]
            self._forward(guest, 1, answer_to(guest.chain.tokens))

    def _may_say(self, guest: Guest, beyond: bool) -> bool:
        return beyond or guest.chain.n_tokens + 1 < guest.prompt + guest.answer

    def _forward(self, guest: Guest, count: int, token: int | None) -> None:
        check_read(self.engine, guest)
        promised = guest.computed + count <= guest.prompt + guest.answer
        given = self.engine.extend(guest.handle, count, None if token is None else [token])
        if isinstance(given, NoRoom):
            require(not promised, f"{guest.handle}: {given} within what was promised")
            self.marks.note("extend.no_room")
            return
        if token is not None:
            guest.say(token)
            self.library.learn(guest.chain)
        write_kv(self.engine, guest, guest.computed + count)
        guest.computed += count

    @act
    def publish(self, who: int) -> None:
        """Publish what a running request has computed, decoded pages too."""
        running = self.running
        if running:
            self._publish(running[who % len(running)])

    def _publish(self, guest: Guest) -> None:
        self.engine.publish(guest.handle, guest.computed)
        self._is_published(guest)
        check_read(self.engine, guest)

    def _is_published(self, guest: Guest) -> None:
        pages = guest.computed // self.shape.config.page_size
        live = self.core.tree.full_match(guest.chain, pages)
        require(live == pages, f"{guest.handle} published {pages} pages, the tree has {live}")

    @act
    def finish(self, who: int) -> None:
        """A request that has computed its prompt ends well."""
        guests = [guest for guest in self.running if guest.computed >= guest.prompt]
        if guests:
            self._finish(guests[who % len(guests)])

    def _finish(self, guest: Guest) -> None:
        check_read(self.engine, guest)
        self.engine.finish(guest.handle)
        self._is_published(guest)
        self._gone(guest, "finished")

    @act
    def retract(self, who: int) -> None:
        """The slots of a request that lacks some of its answer are taken back; its next attempt is the youngest."""
        running = [guest for guest in self.running if guest.chain.n_tokens < guest.prompt + guest.answer]
        if not running:
            return
        guest = running[who % len(running)]
        handle = self.engine.retract(guest.handle)
        answer = guest.prompt + guest.answer - guest.chain.n_tokens
        self._gone(guest, "retracted")
        self.guests.append(Guest.arrived(handle, guest.chain, answer, self.library.known))
