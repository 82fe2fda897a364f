"""The checks after a tick: every unit has one owner, each state owns what its declaration says, tokens balance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from stagehold.cache.errors import InvariantBroken
from stagehold.lifecycle.core import Core
from stagehold.machines import Machine
from stagehold.specs.attachment import ATTACHMENT
from stagehold.specs.declare import MachineSpec
from stagehold.specs.hold import HOLD, HoldState
from stagehold.specs.request import REQUEST, RequestState
from stagehold.specs.store import STORE
from stagehold.specs.write import WRITE


@dataclass(frozen=True, slots=True)
class Violation:
    """One book that does not balance, and how."""

    book: str
    what: str


def check(core: Core) -> list[Violation]:
    """All violations at the end of a tick; a list, so that a service can count them and go on."""
    return [*_owners(core), *_pools(core), *_claims(core), *_limits(core), *_tokens(core)]


def _owners(core: Core) -> Iterator[Violation]:
    owned: dict[int, set[str]] = {}
    for resource, owner in core.ledger.entries:
        owned.setdefault(owner, set()).add(resource)
    for spec, m in _alive(core):
        declared = set(spec.state(m.state).owns)
        actual = owned.pop(m.number, set())
        if actual != declared:
            yield Violation(
                "owners",
                f"{spec.name} {m.number} is {m.state.name} and owns {sorted(actual)}, not {sorted(declared)}",
            )
    for owner, resources in owned.items():
        yield Violation("owners", f"machine {owner} is over and owns {sorted(resources)}")


def _alive(core: Core) -> Iterator[tuple[MachineSpec, Machine]]:
    for spec, machines in ((REQUEST, core.requests), (HOLD, core.holds), (WRITE, core.writes)):
        for m in machines.values():
            yield spec, m
    yield STORE, core.breaker
    yield ATTACHMENT, core.link


def _pools(core: Core) -> Iterator[Violation]:
    own = sum(len(m.data.slots) - m.data.published for m in core.requests.values())
    used = core.device.size - core.device.free_count
    if used != core.tree.total + own:
        yield Violation("device", f"{used} slots are out: {core.tree.total} in the tree, {own} with requests")
    reserved = sum(m.data.reserve for m in core.requests.values())
    if reserved != core.reserved or core.ledger.totals["slots"] != own + reserved:
        yield Violation("device", f"{core.reserved} pages are promised, requests count {reserved}, the ledger "
                                  f"{core.ledger.totals['slots']} with {own} taken")  # fmt: skip
    if core.room() < 0:
        yield Violation("device", f"{core.reserved} pages are promised, only {core.room() + core.reserved} can be had")
    owners = {f"{m.number}": m.data.staging for _, m in _alive(core) if hasattr(m.data, "staging")}
    try:
        core.staging.check({**owners, "host tier": core.host.pages()})
    except InvariantBroken as error:
        yield Violation("staging", str(error))
    entered = sum(len(pages) for pages in owners.values())
    if entered != core.ledger.totals["staging"]:
        yield Violation("staging", f"owners hold {entered} pages, the ledger says {core.ledger.totals['staging']}")
    committed = sum(m.state is RequestState.COMMITTED for m in core.requests.values())
    if committed != core.committed:
        yield Violation("device", f"{committed} requests are committed, {core.committed} are counted")


def _claims(core: Core) -> Iterator[Violation]:
    claims = {number: h.number for h in core.holds.values() for number in h.data.claims}
    for m in core.requests.values():
        if claims.pop(m.number, 0) != m.data.hold:
            yield Violation("claims", f"request {m.number} names hold {m.data.hold}, which does not list it")
    if claims:
        yield Violation("claims", f"holds list requests that are gone: {sorted(claims)}")
    for h in core.holds.values():
        wanted = h.state in (HoldState.PARKED, HoldState.FETCHING, HoldState.READY)
        if wanted != bool(h.data.claims):
            yield Violation("claims", f"hold {h.number} is {h.state.name} with claims {h.data.claims}")
        if h.state is HoldState.PLANNED:
            yield Violation("claims", f"hold {h.number} is planned at a tick")
    pages = sum(h.data.last - h.data.start for h in core.holds.values())
    if pages != core.counts["hold_pages"]:
        yield Violation("claims", f"holds span {pages} pages, {core.counts['hold_pages']} are counted")


def _limits(core: Core) -> Iterator[Violation]:
    limits = core.limits
    for m in core.requests.values():
        if m.issues > limits.issue_limit or m.defers > limits.max_staged_admission_defers:
            yield Violation("limits", f"request {m.number}: {m.issues} issues, {m.defers} deferrals")
    for w in core.writes.values():
        if w.tries > limits.tries:
            yield Violation("limits", f"write {w.number}: {w.tries} tries")
    if core.tree.pinned > core.config.pin_cap:
        yield Violation("pins", f"{core.tree.pinned} pages are pinned, the cap is {core.config.pin_cap}")


def _tokens(core: Core) -> Iterator[Violation]:
    ledger = core.ledger
    if ledger.token_gap:
        lost = sum(ledger.losses.values())
        what = f"queried {ledger.queried}, spliced {ledger.spliced}, lost {lost}, open {ledger.open}"
        yield Violation("tokens", f"{what}: {ledger.token_gap} are missing")
    claimed = sum(m.data.claim_tokens for m in core.requests.values())
    if claimed != ledger.open:
        yield Violation("tokens", f"{ledger.open} tokens are open, requests claim {claimed}")
