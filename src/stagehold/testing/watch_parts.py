"""What a World notes about components: how a hit was joined, shortened or refused because of one.

Owns the questions. It looks before and after a call of the engine and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from stagehold.cache.keys import Chain
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import Admission, HoldData, RequestData
from stagehold.specs.hold import HoldState
from stagehold.specs.outcomes import AdmissionOutcome
from stagehold.testing.guests import Guest, Library

Note = Callable[[str], None]

REACHED = (
    "part.tombstone_in_window",
    "part.window_repaired",
    "part.window_only",
    "part.exposes_more",
    "part.hit_shortened",
    "part.no_room",
    "part.unfit",
    "part.salvaged",
)
"""Marks that worlds of several components must reach."""


@dataclass(frozen=True, slots=True)
class Before:
    """A visit just before its commit: pages live and joint, those of its hold, whether a window has to be filled."""

    live: int
    joint: int
    last: int
    full_pages: int
    repairs: bool
    tree_fits: bool


def look(core: Core, guest: Guest) -> Before:
    """What a commit of this guest's visit would find."""
    data = _request(core, guest)
    live, joint = core.matches(data.chain, data.hit_limit)
    hold = core.holds[data.hold].data if data.hold else None
    last = hold.last if hold is not None else joint
    low = min(live, last)
    needed = -(-(data.prompt_tokens + data.max_new_tokens) // core.config.page_size)
    fits = needed - low + core.live.protect_cost(data.chain, low) <= core.room()
    full_pages = max(0, last - live)
    return Before(live, joint, last, full_pages, hold is not None and _repairs(core, hold, live), fits)


def _request(core: Core, guest: Guest) -> RequestData:
    data: RequestData = next(m.data for m in core.requests.values() if m.data.handle == guest.handle)
    return data


def _repairs(core: Core, hold: HoldData, live: int) -> bool:
    """Whether slots would be filled below the live pages."""
    return any(
        span.start < min(live, hold.last)
        for name, part in hold.parts.items()
        if core.stocks.part(name).per_page
        for span in core.tree.missing(hold.chain, part.first, hold.last, name)
    )


def note_commit(note: Note, was: Before, admission: Admission, page_size: int) -> None:
    """How the commit went, and why."""
    if admission.admitted and admission.store_hit_tokens:
        if was.repairs:
            note("part.window_repaired")
        if not was.full_pages:
            note("part.window_only")
        if admission.hit_tokens > page_size * max(was.last, was.joint):
            note("part.exposes_more")
    if was.tree_fits and admission.outcome is AdmissionOutcome.NO_ROOM:
        note("part.no_room")
    if was.tree_fits and admission.outcome is AdmissionOutcome.UNFIT:
        note("part.unfit")


def note_tombstone(note: Note, core: Core, guest: Guest) -> None:
    """A live prefix that cannot be gone on from, since its last window has a hole."""
    data = _request(core, guest)
    live = core.live.full_match(data.chain, data.hit_limit)
    for part in core.stocks.gates:
        if part.per_page and core.tree.missing(data.chain, part.reach(live), live, part.name):
            note("part.tombstone_in_window")


def note_holds(note: Note, core: Core, library: Library, seen: set[int], stored: Callable[[bytes], bool]) -> None:
    """Holds that are new: shorter than the pages stored, or without a component that gates nothing."""
    for h in core.holds.values():
        if h.number in seen or h.state is not HoldState.FETCHING:
            continue
        seen.add(h.number)
        data = h.data
        for part in core.stocks.parts:
            if (
                not part.gates
                and part.name not in data.parts
                and part.staging_demand(data.start, data.last - data.start)
            ):
                note("part.salvaged")
        if core.stocks.gates and _is_shortened(core, data, library, stored):
            note("part.hit_shortened")


def _is_shortened(core: Core, data: HoldData, library: Library, stored: Callable[[bytes], bool]) -> bool:
    """Whether the store has the next page of the tree's component, and not what others need there."""
    for number in data.claims:
        asked: RequestData = core.requests[number].data
        if asked.known_end == data.last < asked.asked_to and stored(library.name(asked.chain, data.last)):
            return _lacks(core, asked.chain, data, library, stored)
    return False


def _lacks(core: Core, chain: Chain, data: HoldData, library: Library, stored: Callable[[bytes], bool]) -> bool:
    return any(not stored(library.name(chain, data.last, part.name)) for part in core.stocks.gates)
