"""What every store has to do, one function for each promise, and the driver that they use.

A check opens the store through the driver, writes pages under names that nobody else has, and raises
AssertionError with what was wrong, or `Skipped` where the store lacks what the check is about. It knows no
store by name.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from stagehold.cache.keys import Namespace
from stagehold.cache.stores.open import open_store, parse_url, size
from stagehold.cache.stores.page import HEADER_BYTES, WHOLE, Layout
from stagehold.cache.stores.protocol import Buffer, CuttableStore, Progress, Store, Verdict, assign_tenant

PATIENCE_SECONDS = 60.0
"""How long a check waits for an operation; well over any deadline that a store should have."""
GOOD = (Verdict.HIT, Verdict.STORED)


class Skipped(Exception):
    """Raised by a check that does not apply to this store; the text says why."""


@dataclass(slots=True)
class Driver:
    """A store under test: opens it, runs operations to their end, and makes names and pages.

    The operations are for the tenant with the digest `namespace`, if any.
    """

    url: str
    page_bytes: int
    prefix: bytes = field(default_factory=lambda: secrets.token_bytes(16))
    tick: int = 0
    tickets: int = 0
    namespace: bytes = b""

    @contextmanager
    def store(self, layout: Layout = WHOLE) -> Iterator[Store]:
        """Open the store and close it again."""
        opened = open_store(self.url, self.page_bytes, layout=layout)
        try:
            yield opened
        finally:
            opened.close()

    def names(self, count: int) -> list[bytes]:
        """Return `count` object names that were never used before, 32 bytes each."""
        first = self.tickets = self.tickets + 1
        return [self.prefix + first.to_bytes(8) + index.to_bytes(8) for index in range(count)]

    def page(self, name: bytes, length: int | None = None) -> Buffer:
        """Return the one right body for `name`: bytes that follow from it."""
        count = self.page_bytes if length is None else length
        return memoryview(bytearray(random.Random(name).randbytes(count)))  # noqa: S311 - test content

    def pages(self, names: Sequence[bytes]) -> list[Buffer]:
        """Return the right bodies for `names`."""
        return [self.page(name) for name in names]

    def blanks(self, count: int, length: int | None = None) -> list[Buffer]:
        """Return `count` empty buffers."""
        return [memoryview(bytearray(self.page_bytes if length is None else length)) for _ in range(count)]

    def start(self, store: Store, call: str, names: Sequence[bytes], *buffers: Sequence[Buffer]) -> int:
        """Submit `exists`, `get_into` or `put`; return the ticket."""
        self.tickets += 1
        if self.namespace:
            assign_tenant(store, self.tickets, self.namespace)
        getattr(store, call)(self.tickets, names, *buffers, self.tick)
        return self.tickets

    def finish(self, store: Store, tickets: Sequence[int]) -> tuple[dict[int, Progress], list[list[Progress]]]:
        """Poll until all tickets are done; return their last progress, and every poll that told something."""
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        done: dict[int, Progress] = {}
        polls: list[list[Progress]] = []
        while len(done) < len(tickets):
            self.tick += 1
            polls.append(store.poll(self.tick))
            done.update({p.ticket: p for p in polls[-1] if p.done})
            if time.monotonic() > give_up_at:
                raise AssertionError(f"{len(tickets) - len(done)} operations never ended")
            if not polls[-1]:
                time.sleep(0.0005)
        return done, [reports for reports in polls if reports]

    def run(self, store: Store, call: str, names: Sequence[bytes], *buffers: Sequence[Buffer]) -> Progress:
        """Submit one operation and wait for its end."""
        ticket = self.start(store, call, names, *buffers)
        return self.finish(store, [ticket])[0][ticket]

    def fill(self, store: Store, count: int) -> list[bytes]:
        """Put `count` new pages and insist that all were stored."""
        names = self.names(count)
        put = self.run(store, "put", names, self.pages(names))
        require(put.good == count, f"only {put.good} of {count} pages were stored: {told(put)}")
        return names


def told(ended: Progress) -> str:
    """The verdicts by name, in the order of the keys."""
    return ", ".join(verdict.name for verdict in ended.verdicts) or "nothing"


def require(condition: bool, reason: str) -> None:
    """Fail the check with `reason` unless the condition holds."""
    if not condition:
        raise AssertionError(reason)


Check = Callable[[Driver], None]


def pages_come_back_as_they_were_put(driver: Driver) -> None:
    """Batches of 1, 7 and 64."""
    with driver.store() as store:
        for count in (1, 7, 64):
            names, out = driver.fill(store, count), driver.blanks(count)
            got = driver.run(store, "get_into", names, out)
            require(got.verdicts == (Verdict.HIT,) * count, f"batch of {count}: {told(got)}")
            require(out == driver.pages(names), f"batch of {count}: bytes differ")


def bodies_of_any_length_and_alignment_come_back(driver: Driver) -> None:
    """Lengths from 1 byte to a page, at an odd address."""
    with driver.store() as store:
        for length in sorted({1, min(255, driver.page_bytes), min(4097, driver.page_bytes)}):
            (name,) = driver.names(1)
            body = memoryview(bytearray(b"x" + driver.page(name, length)))[1:]
            out = memoryview(bytearray(length + 3))[3:]
            require(driver.run(store, "put", [name], [body]).good == 1, f"{length} bytes were not stored")
            require(driver.run(store, "get_into", [name], [out]).good == 1, f"{length} bytes did not come")
            require(out == body, f"{length} bytes differ")


def an_absent_page_is_a_plain_miss(driver: Driver) -> None:
    """Neither found nor read, and not a fault of the store."""
    with driver.store() as store:
        names = driver.names(2)
        looked = driver.run(store, "exists", names)
        require(looked.verdicts == (Verdict.MISS,) * 2, f"exists: {told(looked)}")
        got = driver.run(store, "get_into", names, driver.blanks(2))
        require(got.good == 0 and got.verdicts[0] is Verdict.MISS, f"get: {told(got)}")


def exists_answers_key_by_key(driver: Driver) -> None:
    """Present and absent keys in any order, `good` being the leading part."""
    with driver.store() as store:
        (first, second, last), absent = driver.fill(store, 3), driver.names(1)
        looked = driver.run(store, "exists", [first, second, *absent, last])
        require(looked.good == 2, f"good is {looked.good} for {told(looked)}")
        expected = (Verdict.HIT, Verdict.HIT, Verdict.MISS, Verdict.HIT)
        require(looked.verdicts == expected, f"verdicts {told(looked)}")


def a_read_is_right_as_far_as_it_says(driver: Driver) -> None:
    """With a page missing in the middle, the leading pages are right and no other one is claimed wrongly."""
    with driver.store() as store:
        head, tail = driver.fill(store, 3), driver.fill(store, 2)
        names = [*head, *driver.names(1), *tail]
        out = driver.blanks(6)
        got = driver.run(store, "get_into", names, out)
        require(
            got.good == 3 and got.verdicts[3] is Verdict.MISS, f"expected three hits, then a miss, found {told(got)}"
        )
        hits = [index for index, verdict in enumerate(got.verdicts) if verdict is Verdict.HIT]
        require(all(out[i] == driver.page(names[i]) for i in hits), "a hit has the wrong bytes")
        require(
            set(got.verdicts[4:]) <= {Verdict.HIT, Verdict.UNREAD},
            f"expected hits or unread pages behind the miss, found {told(got)}",
        )


def a_page_put_twice_is_still_there(driver: Driver) -> None:
    """Names stand for contents, so the second put is STORED and harmless."""
    with driver.store() as store:
        names, out = driver.fill(store, 2), driver.blanks(2)
        again = driver.run(store, "put", names, driver.pages(names))
        require(again.verdicts == (Verdict.STORED,) * 2, f"second put: {told(again)}")
        require(driver.run(store, "get_into", names, out).good == 2, "the pages are gone")
        require(out == driver.pages(names), "bytes differ")


def a_page_of_another_length_is_no_hit(driver: Driver) -> None:
    """Shorter or longer than asked for: a miss of some kind, whatever the bytes."""
    with driver.store() as store:
        for length in (driver.page_bytes // 2, driver.page_bytes * 2):
            names = driver.fill(store, 1)
            got = driver.run(store, "get_into", names, driver.blanks(1, length))
            require(got.good == 0 and got.verdicts[0] not in GOOD, f"{length} bytes: {told(got)}")


def a_page_of_another_rank_is_no_hit(driver: Driver) -> None:
    """Rank coordinates and component are part of what a page is."""
    layouts = (Layout(tensor_rank=1, tensor_size=2), Layout(component=1), Layout(pipeline_size=2))
    with driver.store() as store:
        _persistent(store)
        names = driver.fill(store, len(layouts))
    for name, layout in zip(names, layouts, strict=True):
        with driver.store(layout) as other:
            got = driver.run(other, "get_into", [name], driver.blanks(1))
            require(got.good == 0 and got.verdicts[0] not in GOOD, f"{layout}: {told(got)}")


def another_handle_sees_the_pages(driver: Driver) -> None:
    """While the first is open, and after it was closed."""
    with driver.store() as store, driver.store() as other:
        _persistent(store)
        names = driver.fill(store, 3)
        require(driver.run(other, "exists", names).good == 3, "not seen beside the writer")
    with driver.store() as later:
        out = driver.blanks(3)
        require(driver.run(later, "get_into", names, out).good == 3, "not seen after the writer closed")
        require(out == driver.pages(names), "bytes differ")


def each_ticket_ends_once_and_in_order(driver: Driver) -> None:
    """Forty operations at once: every poll lists ascending tickets, progress never shrinks, one end each."""
    with driver.store() as store:
        names = driver.fill(store, 8)
        tickets = [driver.start(store, "exists", names) for _ in range(20)]
        tickets += [driver.start(store, "get_into", names, driver.blanks(8)) for _ in range(20)]
        done, polls = driver.finish(store, tickets)
        require(all(done[ticket].good == 8 for ticket in tickets), "an operation fell short")
        for reports in polls:
            seen = [report.ticket for report in reports]
            require(seen == sorted(set(seen)), f"a poll listed {seen}")
        ends = [report.ticket for reports in polls for report in reports if report.done]
        require(sorted(ends) == tickets, "a ticket ended twice, or another one did")
        for ticket in tickets:
            goods = [r.good for reports in polls for r in reports if r.ticket == ticket]
            require(goods == sorted(goods), f"progress went back: {goods}")


def an_operation_without_keys_ends(driver: Driver) -> None:
    """Nothing asked, nothing answered, but answered."""
    with driver.store() as store:
        for call, buffers in (("exists", ()), ("get_into", ([],)), ("put", ([],))):
            progress = driver.run(store, call, [], *buffers)
            require(progress.done and progress.verdicts == (), f"{call}: {progress}")


def reads_and_writes_of_the_same_pages_may_race(driver: Driver) -> None:
    """Puts and gets of the same names under way together: a hit is right, anything else is a plain miss."""
    with driver.store() as store:
        names = driver.names(16)
        outs, tickets, gets = [], [], []
        for _ in range(4):
            tickets.append(driver.start(store, "put", names, driver.pages(names)))
            for name in names:
                outs.append((name, driver.blanks(1)))
                gets.append(driver.start(store, "get_into", [name], outs[-1][1]))
        done, _ = driver.finish(store, [*tickets, *gets])
        require(all(done[ticket].good == 16 for ticket in tickets), "a put fell short")
        for ticket, (name, out) in zip(gets, outs, strict=True):
            verdict = done[ticket].verdicts[0]
            require(verdict in (Verdict.HIT, Verdict.MISS), f"a get ended {verdict.name}{_errors(store)}")
            require(verdict is Verdict.MISS or out == [driver.page(name)], "a hit has the wrong bytes")


def an_operation_that_is_cut_ends_between_two_pages(driver: Driver) -> None:
    """Forty reads and a write, cut at once: each ends, right as far as it says; what is over is not cut."""
    with driver.store() as store:
        if not isinstance(store, CuttableStore):
            raise Skipped("the store has no `cut(ticket, tick)`, and reads on for nobody")
        names, more = driver.fill(store, 16), driver.names(16)
        reads = [(driver.start(store, "get_into", names, out), out) for out in (driver.blanks(16) for _ in range(40))]
        write = driver.start(store, "put", more, driver.pages(more))
        tickets = [*(ticket for ticket, _ in reads), write]
        for ticket in (write + 1, *reversed(tickets), *tickets):
            store.cut(ticket, driver.tick)
        done, _ = driver.finish(store, tickets)
        for ticket, kind in [(ticket, Verdict.HIT) for ticket, _ in reads] + [(write, Verdict.STORED)]:
            good, said = done[ticket].good, done[ticket].verdicts
            require(said == (kind,) * good + (Verdict.UNREAD,) * (16 - good), f"a cut operation: {told(done[ticket])}")
        right = all(out[: done[ticket].good] == driver.pages(names)[: done[ticket].good] for ticket, out in reads)
        require(right, "a hit has the wrong bytes")
        require(any(done[ticket].good < 16 for ticket, _ in reads), "all pages were read, though nobody wanted them")
        written = driver.run(store, "exists", more).good
        require(written >= done[write].good, f"{done[write].good} pages were told as written, and {written} are there")
        store.cut(write, driver.tick)
        require(driver.run(store, "get_into", names, driver.blanks(16)).good == 16, "a later read fell short")


def a_damaged_page_is_a_miss_with_its_reason(driver: Driver) -> None:
    """One bit flipped where it is stored: CORRUPT, then gone, then replaceable."""
    with driver.store() as store:
        damage = getattr(store, "damage", None) or getattr(getattr(store, "blocking", None), "damage", None)
        if damage is None:
            raise Skipped("the store has no `damage(name, length)` to flip a stored bit with")
        names, out = driver.fill(store, 1), driver.blanks(1)
        damage(names[0], driver.page_bytes)
        first = driver.run(store, "get_into", names, out)
        require(first.verdicts == (Verdict.CORRUPT,), f"first read: {told(first)}")
        second = driver.run(store, "get_into", names, out)
        require(second.verdicts == (Verdict.MISS,), f"second read: {told(second)}")
        driver.run(store, "put", names, driver.pages(names))
        require(driver.run(store, "get_into", names, out).good == 1, "a new put did not replace it")
        require(out == driver.pages(names), "bytes differ")


def an_engine_serves_the_right_bytes_from_it(driver: Driver) -> None:
    """Two engines, one after the other: every request finishes, every byte is right, and the second finds pages."""
    from stagehold.testing.service import Service

    page_bytes = -(-driver.page_bytes // 1024) * 1024
    namespace = Namespace(driver.prefix.hex())
    found = []
    for _ in range(2):
        with Service(open_store(driver.url, page_bytes), page_bytes=page_bytes, wait_base_ticks=512) as service:
            service.attach()
            service.serve(range(4), namespace)
            service.drain()
            require(service.breaches() == [], "; ".join(service.breaches()))
            found.append(service.served.store_hit_tokens)
            persistent = getattr(service.store, "persistent", True)
    require(found[1] > 0 or not persistent, "the second engine found nothing of what the first had stored")


def capacity_limits(driver: Driver) -> None:
    """After twice the capacity was put, no more pages are there than fit."""
    option = parse_url(driver.url, driver.page_bytes).options.get("capacity")
    if option is None:
        raise Skipped("the URL sets no capacity")
    fits = size(option) // (driver.page_bytes + HEADER_BYTES)
    if not 0 < fits <= 10_000:
        raise Skipped(f"a capacity of {fits} pages is not one that a check can fill")
    with driver.store() as store:
        names = driver.names(2 * fits + 1)
        for start in range(0, len(names), 16):
            part = names[start : start + 16]
            driver.run(store, "put", part, driver.pages(part))
        held = driver.run(store, "exists", names).verdicts.count(Verdict.HIT)
        require(0 < held <= fits, f"{held} pages are there, {fits} fit")


def closing_is_final_and_leaves_nothing(driver: Driver) -> None:
    """Twice is once; no store thread and no file descriptor is left after three openings."""
    _open_and_close(driver)
    threads, descriptors = threading.active_count(), _descriptors()
    for _ in range(3):
        _open_and_close(driver)
    require(threading.active_count() <= threads, "threads were left")
    require(_descriptors() <= descriptors, f"{_descriptors() - descriptors} descriptors were left")


def _errors(store: Store) -> str:
    """Return what the store itself said last, for the reason of a failure."""
    errors = getattr(store, "errors", None)
    return f" ({errors[-1]})" if errors else ""


def _open_and_close(driver: Driver) -> None:
    store = open_store(driver.url, driver.page_bytes)
    driver.start(store, "exists", driver.names(4))
    store.close()
    store.close()
    require(store.poll(driver.tick + 1) == [], "a closed store told something")


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def _persistent(store: Store) -> None:
    if not getattr(store, "persistent", True):
        raise Skipped("the store keeps nothing beyond one handle, and says so (`persistent`)")


CHECKS: tuple[Check, ...] = (
    pages_come_back_as_they_were_put,
    bodies_of_any_length_and_alignment_come_back,
    an_absent_page_is_a_plain_miss,
    exists_answers_key_by_key,
    a_read_is_right_as_far_as_it_says,
    a_page_put_twice_is_still_there,
    a_page_of_another_length_is_no_hit,
    a_page_of_another_rank_is_no_hit,
    another_handle_sees_the_pages,
    each_ticket_ends_once_and_in_order,
    an_operation_without_keys_ends,
    reads_and_writes_of_the_same_pages_may_race,
    an_operation_that_is_cut_ends_between_two_pages,
    a_damaged_page_is_a_miss_with_its_reason,
    an_engine_serves_the_right_bytes_from_it,
    capacity_limits,
    closing_is_final_and_leaves_nothing,
)
