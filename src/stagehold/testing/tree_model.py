"""The naive reference model of the live tree: pages named by their whole prefix, no tree, no index, no counters.

Owns the definition of every answer that the tree gives. A prefix is a text, one letter per page, behind its namespace;
everything is found by looking at all pages or all holds. Slow on purpose, and never imported by what it judges.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from stagehold.cache.holds import Hold


class Key(NamedTuple):
    """A page, named by namespace and the letters of all pages up to and including itself."""

    space: str
    text: str


@dataclass(slots=True)
class Page:
    """What one page has: a FULL slot, a window slot or none, and when a use last ran over it."""

    full: int
    window: int | None
    used: int


@dataclass(slots=True)
class Held:
    """One hold. `window` is the first page whose window it protects; None: it protects none, or that died."""

    kind: Hold
    key: Key
    window: int | None = None
    state: bool = False
    load: int | None = None
    dead: bool = False


@dataclass(slots=True)
class TreeModel:
    """Pages, run ends, checkpoints, two recencies and the holds. `reach` is the window in pages."""

    reach: int
    window_gates: bool = True
    state_gates: bool = True
    clock: int = 0
    pages: dict[Key, Page] = field(default_factory=dict)
    ends: set[Key] = field(default_factory=set)
    states: dict[Key, int] = field(default_factory=dict)
    windows_order: list[Key] = field(default_factory=list)
    states_order: list[Key] = field(default_factory=list)
    holds: dict[int, Held] = field(default_factory=dict)

    # -- what is where -------------------------------------------------------------------------------------

    def live(self, space: str, text: str) -> int:
        """Pages of the text that are live."""
        at = 0
        while at < len(text) and Key(space, text[: at + 1]) in self.pages:
            at += 1
        return at

    def path(self, key: Key) -> list[Key]:
        """All pages up to and including one."""
        return [Key(key.space, key.text[: at + 1]) for at in range(len(key.text))]

    def children(self, key: Key) -> list[Key]:
        """Live pages that go on from one."""
        size = len(key.text) + 1
        return [k for k in self.pages if k.space == key.space and len(k.text) == size and k.text[:-1] == key.text]

    def run(self, key: Key) -> list[Key]:
        """The run of pages with one history that a page lies in."""
        end = key
        while end not in self.ends:
            (end,) = self.children(end)
        start = len(key.text) - 1
        while start and Key(key.space, key.text[:start]) not in self.ends:
            start -= 1
        return self.path(end)[start:]

    def runs(self, key: Key, start: int) -> list[list[Key]]:
        """Runs of the path to `key`, which is a run's end, from the one with page `start` on."""
        found = []
        at = len(key.text)
        while at > start:
            run = self.run(Key(key.space, key.text[:at]))
            found.append(run)
            at -= len(run)
        return found[::-1]

    def held(self, key: Key) -> bool:
        """Whether any hold protects a page."""
        return any(h.key.space == key.space and h.key.text.startswith(key.text) for h in self.holds.values())

    def window_locked(self, key: Key) -> bool:
        """Whether a hold protects the window slot of a page."""
        return any(self.locks_window(hold, key) for hold in self.holds.values())

    def locks_window(self, hold: Held, key: Key) -> bool:
        """Whether this hold protects the window slot of a page."""
        if hold.window is None or hold.key.space != key.space or not hold.key.text.startswith(key.text):
            return False
        return len(key.text) > hold.window

    def state_locked(self, key: Key) -> bool:
        """Whether a hold protects the checkpoint of a boundary."""
        return any(hold.state and hold.key == key for hold in self.holds.values())

    # -- questions -----------------------------------------------------------------------------------------

    def valid(self, space: str, text: str) -> bool:
        """Whether every gating component can go on behind the text, which is live."""
        window = self.path(Key(space, text))[max(0, len(text) - self.reach) :]
        if self.window_gates and any(self.pages[key].window is None for key in window):
            return False
        return not (self.state_gates and text and Key(space, text) not in self.states)

    def joint(self, space: str, text: str) -> int:
        """Pages of the longest live valid prefix."""
        return max(at for at in range(self.live(space, text) + 1) if self.valid(space, text[:at]))

    def missing(self, space: str, text: str, start: int, end: int) -> list[tuple[int, int]]:
        """Maximal spans of [start, end) without window slots."""
        spans: list[tuple[int, int]] = []
        for at in range(start, end):
            page = self.pages.get(Key(space, text[: at + 1]))
            if page is not None and page.window is not None:
                continue
            if spans and spans[-1][1] == at:
                spans[-1] = (spans[-1][0], at + 1)
            else:
                spans.append((at, at + 1))
        return spans

    def evictable(self) -> int:
        """Pages that nobody holds."""
        return sum(not self.held(key) for key in self.pages)

    def evictable_windows(self) -> int:
        """Window slots that nobody locks."""
        return sum(p.window is not None and not self.window_locked(key) for key, p in self.pages.items())

    def evictable_states(self) -> int:
        """Checkpoints that nobody locks."""
        return sum(not self.state_locked(key) for key in self.states)

    def pins(self, key: Key) -> bool:
        """Whether a pin is over a page."""
        pins = [hold.key for hold in self.holds.values() if hold.kind is Hold.PIN]
        return any(pin.space == key.space and pin.text.startswith(key.text) for pin in pins)

    def pinned(self) -> int:
        """Pages under a pin."""
        return sum(self.pins(key) for key in self.pages)

    def loads_over(self, space: str, text: str, start: int, end: int) -> tuple[int, ...]:
        """Loads in flight over pages [start, end) of a text."""
        found = set()
        for serial, hold in self.holds.items():
            for at in range(start, end):
                inside = hold.load is not None and hold.load <= at < len(hold.key.text)
                if inside and hold.key.space == space and hold.key.text.startswith(text[: at + 1]):
                    found.add(serial)
        return tuple(sorted(found))

    # -- use -----------------------------------------------------------------------------------------------

    def cut(self, key: Key) -> None:
        """Make a page the end of a run; the upper half is just older than the lower one."""
        if not key.text or key in self.ends:
            return
        lower = self.run(key)[-1]
        self.ends.add(key)
        if lower in self.windows_order:
            self.windows_order.insert(self.windows_order.index(lower), key)

    def touch(self, key: Key) -> None:
        """Count a use that ends with a page."""
        self.cut(key)
        self.clock += 1
        for above in self.path(key):
            self.pages[above].used = self.clock
        for run in self.runs(key, max(0, len(key.text) - self.reach)):
            renew(self.windows_order, run[-1])
        renew(self.states_order, key)

    def hold(self, serial: int, hold: Held, start: int | None) -> None:
        """Take a hold; `start` is the first page that its window must cover, None for a pin."""
        self.cut(hold.key)
        self.holds[serial] = hold
        if start is None:
            return
        runs = self.runs(hold.key, start)
        hold.window = len(runs[0][0].text) - 1
        hold.state = True
        for run in runs:
            drop(self.windows_order, run[-1])
        drop(self.states_order, hold.key)

    def release(self, serial: int) -> None:
        """Give a hold back: what it leaves unlocked counts as used just now."""
        self.unlock_window(serial)
        hold = self.holds.pop(serial)
        if hold.state and hold.key in self.states and not self.state_locked(hold.key):
            self.states_order.append(hold.key)

    def unlock_window(self, serial: int) -> None:
        """End the window part of a hold."""
        hold = self.holds[serial]
        if hold.window is None:
            return
        runs = self.runs(hold.key, hold.window)
        hold.window = None
        for run in runs:
            if self.pages[run[-1]].window is not None and not self.window_locked(run[-1]):
                self.windows_order.append(run[-1])

    # -- changes -------------------------------------------------------------------------------------------

    def grow(self, space: str, text: str, full: list[int], window: list[int], state: int | None) -> None:
        """Add the last len(full) pages of a text; window slots are for the last of them."""
        start, bare = len(text) - len(full), len(text) - len(window)
        if start:
            self.cut(Key(space, text[:start]))
        self.clock += 1
        for at in range(start, len(text)):
            slot = window[at - bare] if at >= bare else None
            self.pages[Key(space, text[: at + 1])] = Page(full[at - start], slot, 0)
        end = Key(space, text)
        if start < bare < len(text):
            self.ends.add(Key(space, text[:bare]))
        self.ends.add(end)
        for key in self.path(end):
            self.pages[key].used = self.clock
        if window:
            self.windows_order.append(end)
        if state is not None:
            self.add_state(end, state)

    def add_state(self, key: Key, slot: int) -> None:
        """Put a checkpoint at a boundary; a lock there counted none, and dies."""
        self.cut(key)
        for hold in self.holds.values():
            if hold.state and hold.key == key:
                hold.state, hold.dead = False, True
        self.states[key] = slot
        self.states_order.append(key)

    def fill(self, run: list[Key], slots: Iterable[int]) -> None:
        """Give window slots to a run without any; locks over it die."""
        for serial, hold in self.holds.items():
            if self.locks_window(hold, run[-1]):
                self.unlock_window(serial)
                hold.dead = True
        for key, slot in zip(run, slots, strict=True):
            self.pages[key].window = slot
        self.windows_order.append(run[-1])

    def fill_span(self, key: Key, start: int, slots: list[int]) -> list[list[Key]]:
        """Fill the pages from `start` to `key` with window slots; returns their runs."""
        self.cut(Key(key.space, key.text[:start]))
        self.cut(key)
        runs = self.runs(key, start)
        for run in runs:
            mine, slots = slots[: len(run)], slots[len(run) :]
            self.fill(run, mine)
        return runs

    def remove_page(self, key: Key) -> None:
        """Take the last page of a run away; the run ends one page earlier, or is gone."""
        assert not self.children(key), key
        del self.pages[key]
        self.ends.discard(key)
        self.states.pop(key, None)
        drop(self.states_order, key)
        above = Key(key.space, key.text[:-1])
        if above.text and above not in self.ends:
            self.ends.add(above)
            if key in self.windows_order:
                self.windows_order[self.windows_order.index(key)] = above
        else:
            drop(self.windows_order, key)

    def evict(self, n: int) -> int:
        """Take the least recently used leaf page, n times."""
        freed = 0
        while freed < n:
            parents = {Key(key.space, key.text[:-1]) for key in self.pages}
            leaves = [key for key in self.pages if key not in parents and not self.held(key)]
            if not leaves:
                break
            self.remove_page(min(leaves, key=lambda key: self.pages[key].used))
            freed += 1
        return freed

    def evict_windows(self, n: int) -> int:
        """Take the least recently used unlocked runs' windows; a free leaf goes whole."""
        freed = 0
        while freed < n and self.windows_order:
            run = self.run(self.windows_order[0])
            freed += len(run)
            if self.children(run[-1]) or self.held(run[-1]):
                self.windows_order.pop(0)
                for key in run:
                    self.pages[key].window = None
            else:
                for key in reversed(run):
                    self.remove_page(key)
        return freed

    def evict_states(self, n: int) -> int:
        """Take the least recently used unlocked checkpoints; a free leaf goes whole."""
        freed = 0
        while freed < n and self.states_order:
            key = self.states_order.pop(0)
            del self.states[key]
            freed += 1
        return freed

    def remove(self, space: str, text: str, start: int) -> int:
        """Take the live tail of a text from `start` on, run by run, as far as it is free."""
        at, gone = self.live(space, text), 0
        while at > start:
            run = self.run(Key(space, text[:at]))
            if len(run[-1].text) > at or self.held(run[-1]) or self.children(run[-1]):
                break
            count = min(len(run), at - start)
            for key in reversed(run[-count:]):
                self.remove_page(key)
            gone, at = gone + count, at - count
        return gone

    def flush(self) -> None:
        """Forget everything."""
        self.pages.clear()
        self.ends.clear()
        self.states.clear()
        self.windows_order.clear()
        self.states_order.clear()


def renew(order: list[Key], key: Key) -> None:
    """Make a member the newest."""
    if key in order:
        order.remove(key)
        order.append(key)


def drop(order: list[Key], key: Key) -> None:
    """Take a member out, if it is one."""
    if key in order:
        order.remove(key)
