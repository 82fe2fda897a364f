"""The queued writes, and which of them may begin next: what a tick looks at does not grow with what waits.

Each component has two lanes, small writes and large ones, each in order of arrival; small ones go first, a bounded
number of times. Where tenants have quotas each has lanes of its own, and they take turns. A write whose parent is
queued waits behind it. Owns the order and nothing else: whether a write may begin is its own decision, and the first
one of a lane that may not ends the lane's turn.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass, field

from stagehold.machines import Machine
from stagehold.specs.write import WriteState

PASSES_BEFORE_LARGE_FIRST = 8
"""Small writes that may begin past a waiting large one before it goes first: eight of them are about one large one."""

STARTS_A_TICK = 256
"""Writes of one component that are looked at in one tick: many times what staging can take, and a bound on what the
backlog of a prompt that was evicted as a whole costs a tick."""

SWEPT_A_TICK = 8
"""Writes that are looked at each tick for pages that have gone, wherever they wait: a full backlog of 10,000 is gone
through well within `write_wait_limit`."""

Lane = OrderedDict[int, Machine]


@dataclass(slots=True)
class Lanes:
    """The queued writes of one component, or of one tenant's of it, that wait for no parent."""

    small: Lane = field(default_factory=OrderedDict)
    large: Lane = field(default_factory=OrderedDict)
    passed: int = 0  # small writes that began since the first large one waits


@dataclass(slots=True)
class Backlog:
    """All queued writes. `looked` counts how many were handed out, for those who measure."""

    _lanes: dict[tuple[str, bytes], Lanes] = field(default_factory=dict)
    _bringing: dict[bytes, Machine] = field(default_factory=dict)  # page key -> queued write of its page
    _behind: dict[int, Lane] = field(default_factory=dict)  # number of a queued write -> those that wait behind it
    _place: dict[int, Lane] = field(default_factory=dict)  # number of a queued write -> where it stands
    _paused: dict[int, list[Machine]] = field(default_factory=dict)  # tick -> writes whose pause ends there
    _rota: Lane = field(default_factory=OrderedDict)  # all of them, the one not asked after for longest first
    looked: int = 0
    unfinished: bool = False
    """Whether the last turn ended before every lane was empty or found blocked."""

    def __len__(self) -> int:
        return len(self._place)

    def enter(self, w: Machine, *, now: int) -> None:
        """The write is queued: at the end of its lane, now or when its pause is over."""
        data = w.data
        for key in data.keys:
            self._bringing[key] = w
        if data.not_before > now:
            paused = self._place[w.number] = OrderedDict()
            paused[w.number] = w
            self._paused.setdefault(data.not_before, []).append(w)
        else:
            self._join(w)
        self._rota[w.number] = w

    def _join(self, w: Machine) -> None:
        lanes = self._lanes.setdefault((w.data.component, w.data.lane), Lanes())
        self._stand(w, lanes.small if w.data.small else lanes.large)

    def _stand(self, w: Machine, lane: Lane) -> None:
        lane[w.number] = w
        self._place[w.number] = lane

    def leave(self, w: Machine) -> None:
        """The write is queued no more; those behind it come forward, in their order."""
        lane = self._place.pop(w.number, None)
        if lane is None:
            return
        del lane[w.number]
        del self._rota[w.number]
        for key in w.data.keys:
            if self._bringing.get(key) is w:
                del self._bringing[key]
        for child in self._behind.pop(w.number, {}).values():
            self._join(child)

    def resume(self, tick: int) -> None:
        """Pauses that are over by `tick`."""
        for due in sorted(due for due in self._paused if due <= tick):
            for w in self._paused.pop(due):
                if w.number in self._place:
                    self._join(w)

    def turn(self) -> Iterator[Machine]:
        """Writes to be tried, one at a time: each is tried before the next is asked for."""
        self.unfinished = False
        for component in dict.fromkeys(name for name, _ in self._lanes):
            yield from self._turn(self._in_turn(component))

    def _in_turn(self, component: str) -> list[Lanes]:
        """The lanes of a component; of several another one begins each time, and empty ones are forgotten."""
        keys = [key for key in self._lanes if key[0] == component]
        if len(keys) > 1:
            self._lanes[keys[0]] = self._lanes.pop(keys[0])
            for key in keys:
                if not (self._lanes[key].small or self._lanes[key].large):
                    del self._lanes[key]
        return [lanes for key, lanes in self._lanes.items() if key[0] == component]

    def _turn(self, whose: list[Lanes]) -> Iterator[Machine]:
        """One of each in turn. Small before large, unless the first large one was passed too often: then all wait."""
        going: list[tuple[Lanes, list[Lane]]] = [(lanes, []) for lanes in whose]
        for _ in range(STARTS_A_TICK):
            found = None
            while going and (found := self._next(*going[0])) is None:
                del going[0]
            if found is None:
                return
            lane, w = found
            lanes, blocked = going[0]
            self.looked += 1
            yield w
            if w.number in lane:
                blocked.append(lane)
            else:
                self._count(lanes, lane, w)
            going.append(going.pop(0))
        self.unfinished = True

    def _next(self, lanes: Lanes, blocked: list[Lane]) -> tuple[Lane, Machine] | None:
        elder = lanes.passed >= PASSES_BEFORE_LARGE_FIRST
        for lane in (lanes.large, lanes.small) if elder else (lanes.small, lanes.large):
            if not any(lane is one for one in blocked):
                w = self._first(lane)
                if w is not None:
                    return lane, w
            elif elder and lane is lanes.large:
                return None
        return None

    def _count(self, lanes: Lanes, lane: Lane, w: Machine) -> None:
        if lane is lanes.large:
            lanes.passed = 0
        elif lanes.large and w.state is not WriteState.DROPPED:
            lanes.passed += 1

    def _first(self, lane: Lane) -> Machine | None:
        """The first of a lane whose parent is not queued; children on the way there go behind their parents."""
        while lane:
            w = next(iter(lane.values()))
            parent = self._bringing.get(w.data.parent)
            if parent is None or parent is w:
                return w
            del lane[w.number]
            self._stand(w, self._behind.setdefault(parent.number, OrderedDict()))
        return None

    def rota(self) -> Iterator[Machine]:
        """A few writes, whichever have not been asked after for longest."""
        for _ in range(min(SWEPT_A_TICK, len(self._rota))):
            if not self._rota:
                return
            w = next(iter(self._rota.values()))
            self._rota.move_to_end(w.number)
            self.looked += 1
            yield w
