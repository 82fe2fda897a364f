"""The checks after a tick: every unit has one owner, each state owns what its declaration says, tokens balance.

Two depths. Sums are held against sums after every tick, in service too: that costs the same whatever waits. Counting
every owner again costs what there is, and is for strict engines, tests and searches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from stagehold.cache.errors import InvariantBroken
from stagehold.cache.residency import IN_HOST, ON_DEVICE
from stagehold.cache.snapshot import nodes_of
from stagehold.cache.tenants import Quota
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.facts import Capacity
from stagehold.lifecycle.stocks import Stock
from stagehold.machines import Machine
from stagehold.specs.declare import MachineSpec
from stagehold.specs.hold import HoldState
from stagehold.specs.request import RequestState

JOINABLE = (HoldState.PARKED, HoldState.FETCHING, HoldState.READY)
"""States of a hold, between passes, in which a request may claim a share of it."""


@dataclass(frozen=True, slots=True)
class Violation:
    """One book that does not balance, and how."""

    book: str
    what: str


def check(core: Core) -> list[Violation]:
    """All violations at the end of a tick, everything counted again."""
    counted = [_owners, _pools, _claims, _spans, _limits, _tokens, _tenants, _sums]
    return [violation for book in counted for violation in book(core)]


def check_sums(core: Core) -> list[Violation]:
    """The violations that sums show, at a cost that does not depend on how many wait."""
    return [*_sums(core)]


def _sums(core: Core) -> Iterator[Violation]:
    ledger = core.ledger
    if ledger.token_gap:
        lost = sum(ledger.losses.values())
        what = f"queried {ledger.queried}, spliced {ledger.spliced}, lost {lost}, open {ledger.open}"
        yield Violation("tokens", f"{what}: {ledger.token_gap} are missing")
    used, own = core.device.size - core.device.free_count, ledger.totals["slots"] - core.reserved
    if used != core.tree.total + own:
        yield Violation("device", f"{used} slots are out: {core.tree.total} in the tree, {own} with requests")
    if core.own_room() < 0:
        can = core.own_room() + core.reserved
        yield Violation("device", f"{core.reserved} pages are promised, only {can} can be had")
    owned = ledger.totals["staging"] + len(core.host)
    if core.staging.used > owned:
        yield Violation("staging", f"{core.staging.used} pages are out, {owned} have an owner")
    if core.tree.pinned > core.config.pin_cap:
        yield Violation("pins", f"{core.tree.pinned} pages are pinned, the cap is {core.config.pin_cap}")
    for name, quota in core.quotas.bounds if core.quotas.on else ():
        if quota.beyond > quota.overdue:
            what = f"{quota.total} of {quota.size} {name} are in use, and tenants lack {quota.lack} of what they are"
            yield Violation("quotas", f"{what} guaranteed; only {quota.overdue} had been given away before they came")
    if core.uneven > 1 and not core.quarantined:  # where the records differ, too, the next exchange would have told
        yield Violation("ranks", f"left on the poorest rank {_left(core.least)}, on the richest {_left(core.most)}")


def _left(capacity: Capacity) -> str:
    return ", ".join(
        f"{pages} pages of {name}" for name, pages in capacity._asdict().items() if pages or name[-1] > "9"
    )


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
    spec = {spec.name: spec for spec in core.journal.machines}
    for name, machines in (("request", core.requests), ("hold", core.holds), ("write", core.writes)):
        for m in machines.values():
            yield spec[name], m
    yield spec["store"], core.breaker
    yield spec["attachment"], core.link


def _pools(core: Core) -> Iterator[Violation]:
    own = sum(len(m.data.slots) - m.data.published for m in core.requests.values())
    reserved = sum(m.data.reserve for m in core.requests.values())
    if reserved != core.reserved or core.ledger.totals["slots"] != own + reserved:
        yield Violation("device", f"{core.reserved} pages are promised, requests count {reserved}, the ledger "
                                  f"{core.ledger.totals['slots']} with {own} taken")  # fmt: skip
    entered = sum(len(pages) for pages in _staged(core, core.stocks.spine).values())
    if entered != core.ledger.totals["staging"]:
        yield Violation("staging", f"owners hold {entered} pages, the ledger says {core.ledger.totals['staging']}")
    for stock in core.stocks:
        yield from _staging(core, stock)
        yield from _residency(core, stock)
    for stock in core.stocks.others:
        yield from _slots(core, stock)
    committed = sum(m.state is RequestState.COMMITTED for m in core.requests.values())
    if committed != core.committed:
        yield Violation("device", f"{committed} requests are committed, {core.committed} are counted")


def _staged(core: Core, stock: Stock) -> dict[str, list[int]]:
    """Staging pages of a component by the number of the hold or write that owns them."""
    owners = {f"{w.number}": w.data.staging for w in core.writes.values() if w.data.component == stock.name}
    for h in core.holds.values():
        mine = h.data if stock is core.stocks.spine else h.data.parts.get(stock.name)
        if mine is not None:
            owners[f"{h.number}"] = mine.staging
    return owners


def _staging(core: Core, stock: Stock) -> Iterator[Violation]:
    try:
        stock.staging.check({**_staged(core, stock), "host tier": stock.host.pages()})
    except InvariantBroken as error:
        yield Violation("staging", str(error))
    written = sum(len(w.data.staging) for w in core.writes.values() if w.data.component == stock.name)
    if written != stock.written:
        yield Violation("staging", f"writes own {written} pages of {stock.name}, {stock.written} are counted")


def _residency(core: Core, stock: Stock) -> Iterator[Violation]:
    """What the book of residency says of a component, by numbers."""
    if core.book is None:
        return
    live = core.tree.total if stock is core.stocks.spine else len(core.tree.owned(stock.name))
    told = core.book.count(stock.name, ON_DEVICE)
    if told != live:
        yield Violation("residency", f"{told} pages of {stock.name} are on the device by the rows, the tree has {live}")
    hosted = len(stock.host) if core.is_tier else 0
    told = core.book.count(stock.name, IN_HOST)
    if told != hosted:
        what = f"{told} pages of {stock.name} are in host memory by the rows, its tier has {hosted}"
        yield Violation("residency", what)


def _slots(core: Core, stock: Stock) -> Iterator[Violation]:
    """The slots of a component that does not carry the tree."""
    shares = {str(m.number): m.data.shares[stock.name] for m in core.requests.values() if m.data.shares}
    owners = {number: share.own() for number, share in shares.items()}
    try:
        stock.device.check({**owners, "tree": core.tree.owned(stock.name)})
    except InvariantBroken as error:
        yield Violation("device", str(error))
    reserved = sum(share.reserve for share in shares.values())
    if reserved != stock.reserved:
        yield Violation("device", f"{stock.reserved} slots of {stock.name} are promised, requests count {reserved}")
    if core.own_room_of(stock) < 0:
        can = core.own_room_of(stock) + stock.reserved
        yield Violation("device", f"{stock.reserved} slots of {stock.name} are promised, only {can} can be had")


def _claims(core: Core) -> Iterator[Violation]:
    claims = {number: h.number for h in core.holds.values() for number in h.data.claims}
    for m in core.requests.values():
        if claims.pop(m.number, 0) != m.data.hold:
            yield Violation("claims", f"request {m.number} names hold {m.data.hold}, which does not list it")
    if claims:
        yield Violation("claims", f"holds list requests that are gone: {sorted(claims)}")
    for h in core.holds.values():
        wanted = h.state in JOINABLE
        if wanted != bool(h.data.claims):
            yield Violation("claims", f"hold {h.number} is {h.state.name} with claims {h.data.claims}")
        if h.state is HoldState.PLANNED:
            yield Violation("claims", f"hold {h.number} is planned at a tick")
    pages = sum(h.data.last - h.data.start for h in core.holds.values())
    if pages != core.hold_pages:
        yield Violation("claims", f"holds span {pages} pages, {core.hold_pages} are counted")


def _spans(core: Core) -> Iterator[Violation]:
    """At most one hold of a span can be joined, and whoever joins finds the span that was named."""
    for span, number in core.spans.items():
        h = core.holds.get(number)
        if h is None or h.state not in JOINABLE or not h.data.claims:
            yield Violation("spans", f"hold {number} may be joined for pages {span[1:]}, and is over or flying")
        elif span != (h.data.key, h.data.start, h.data.last):
            what = f"pages {span[1:]}, and brings {(h.data.start, h.data.last)}"
            yield Violation("spans", f"hold {number} may be joined for {what}")


def _limits(core: Core) -> Iterator[Violation]:
    limits = core.limits
    for m in core.requests.values():
        if m.issues > limits.issue_limit or m.defers > limits.max_staged_admission_defers:
            yield Violation("limits", f"request {m.number}: {m.issues} issues, {m.defers} deferrals")
    for w in core.writes.values():
        if w.tries > limits.tries:
            yield Violation("limits", f"write {w.number}: {w.tries} tries")


def _tenants(core: Core) -> Iterator[Violation]:
    """What each tenant has, counted again where tenants have quotas."""
    quotas = core.quotas
    if not quotas.on:
        return
    for m in (*core.requests.values(), *core.holds.values(), *core.writes.values()):
        if m.data.namespace not in quotas.tenants:
            yield Violation("quotas", f"machine {m.number} is alive, and its namespace is no tenant")
    for name, quota, units in _quotas(core):
        counted = _summed(units)
        if quota.used != counted:
            yield Violation("quotas", f"{name}: tenants have {counted}, {quota.used} is counted")
    if quotas.pins.total != core.tree.pinned:
        yield Violation("quotas", f"{core.tree.pinned} pages are pinned, {quotas.pins.total} of them for tenants")


def _quotas(core: Core) -> Iterator[tuple[str, Quota, Iterable[tuple[bytes, int]]]]:
    """Each quota by name, with what its owners have of it: a tenant, and units."""
    quotas, tree, holds = core.quotas, core.tree, [h.data for h in core.holds.values()]
    yield "lookups", quotas.lookups, _entered(core, "query")
    yield "backlog", quotas.backlog, _entered(core, "backlog")
    yield "loads", quotas.loads, ((hold.namespace, hold.last - hold.start) for hold in holds)
    yield "device", quotas.device, ((tree.tenant(node), node.end - node.start) for node in nodes_of(tree))
    for stock in core.stocks:
        writes = [w.data for w in core.writes.values() if w.data.component == stock.name]
        yield "writes", quotas.writes[stock.index], ((w.namespace, len(w.staging)) for w in writes)
        pages = {page: w.namespace for w in writes for page in w.staging}  # by page: holds may have some in common
        for hold in holds:
            mine = hold if stock is core.stocks.spine else hold.parts.get(stock.name)
            pages |= dict.fromkeys(mine.staging if mine is not None else (), hold.namespace)
        yield "staging", quotas.staging[stock.index], ((whose, 1) for whose in pages.values())


def _entered(core: Core, resource: str) -> Iterator[tuple[bytes, int]]:
    for (name, _), entry in core.ledger.entries.items():
        if name == resource:
            yield entry.namespace, entry.units


def _summed(units: Iterable[tuple[bytes, int]]) -> dict[bytes, int]:
    """By tenant, without those that have none."""
    found: Counter[bytes] = Counter()
    for whose, count in units:
        found[whose] += count
    return {whose: count for whose, count in found.items() if count}


def _tokens(core: Core) -> Iterator[Violation]:
    claimed = sum(m.data.claim_tokens for m in core.requests.values())
    if claimed != core.ledger.open:
        yield Violation("tokens", f"{core.ledger.open} tokens are open, requests claim {claimed}")
