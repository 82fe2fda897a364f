"""What a hold brings of each component: how much, under which keys, in which staging pages, from take to give-back.

Owns no state and decides nothing of a hold's life. The pages [base, last) are those of the component that carries the
tree; of each other one a hold brings what it declared (`HoldData.parts`): a window of pages, or the checkpoint at its
end. Keys, names and buffers stand in one order: the tree's pages first, then the parts as they were declared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from stagehold.cache.components.base import Span
from stagehold.cache.stores.protocol import Buffer
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.data import Brought, HoldData
from stagehold.lifecycle.stocks import Stock, Stocks


def units(stocks: Stocks, hold: HoldData, name: str) -> int:
    """Staging pages of a component that the hold brings: one for each page, or one for its end."""
    return stocks.part(name).units([Span(hold.parts[name].first, hold.last)])


def parts(stocks: Stocks, hold: HoldData) -> Iterator[tuple[Stock, Brought, list[bytes]]]:
    """Of each declared component its stock, what is brought, and the keys of that."""
    for name, one in hold.parts.items():
        stock = stocks.by_name[name]
        yield stock, one, stock.keys(hold.chain, hold.last - units(stocks, hold, name), hold.last)


def all_keys(stocks: Stocks, hold: HoldData) -> list[bytes]:
    """Keys of all that was brought."""
    keys = stocks.spine.keys(hold.chain, hold.base, hold.last)
    return keys + [key for _, _, own in parts(stocks, hold) for key in own]


# Before it is taken


def is_local(stocks: Stocks, hold: HoldData, live: int) -> bool:
    """Whether the host tiers have all that is to be brought behind `live` pages."""
    if not stocks.spine.hosts(hold.chain, live, hold.last):
        return False
    return all(stocks.by_name[name].hosts(hold.chain, one.first, hold.last) for name, one in hold.parts.items())


def fits(core: Core, hold: HoldData, pages: int, elders: Sequence[HoldData] = ()) -> bool:
    """Whether staging has room for `pages` and all that gates a match, besides what is kept for the `elders`.

    What a tenant is guaranteed is not kept for the elders of others.
    """
    spine = core.stocks.spine
    gates = [core.stocks.by_name[part.name] for part in core.stocks.gates if part.name in hold.parts]
    for stock in (spine, *gates):
        need = pages if stock is spine else units(core.stocks, hold, stock.name)
        covered = core.quotas.on and core.quotas.staging[stock.index].covers(hold.namespace, need)
        kept = sum(_kept(core.stocks, one, stock) for one in elders if one.namespace == hold.namespace or not covered)
        if need > core.staging_room(stock, hold.namespace) - kept:
            return False
    return True


def _kept(stocks: Stocks, elder: HoldData, stock: Stock) -> int:
    if stock is stocks.spine:
        return elder.last - elder.start
    return units(stocks, elder, stock.name) if stock.name in elder.parts else 0


def fits_held(core: Core, hold: HoldData, live: int) -> bool:
    """Whether its tenant may hold the pages and all that gates a match, which the host tiers have."""
    spine = core.stocks.spine
    if not core.may_be_lent(spine, spine.keys(hold.chain, live, hold.last), hold.namespace):
        return False
    found = parts(core.stocks, hold)
    gating = ((stock, keys) for stock, _, keys in found if core.stocks.part(stock.name).gates)
    return all(core.may_be_lent(stock, keys, hold.namespace) for stock, keys in gating)


def salvage(core: Core, hold: HoldData) -> None:
    """What gates no match is left out where there is no staging for it: the hold is declared without it."""
    for name in list(hold.parts):
        stock, part = core.stocks.by_name[name], core.stocks.part(name)
        if not part.gates and units(core.stocks, hold, name) > core.staging_room(stock, hold.namespace):
            del hold.parts[name]


def salvage_held(core: Core, hold: HoldData) -> None:
    """The same of a hold that the host tiers have: what gates no match, and its tenant may not hold, is left out."""
    for stock, _, keys in list(parts(core.stocks, hold)):
        if not (core.stocks.part(stock.name).gates or core.may_be_lent(stock, keys, hold.namespace)):
            del hold.parts[stock.name]


def lent(core: Core, hold: HoldData, live: int) -> int:
    """The end of the run of pages behind the live prefix that host memory can lend; at least one is fetched."""
    return core.host.reach(hold.chain, live, hold.last - 1) if live < hold.last else live


# Taking and giving back


def take(core: Core, hold: HoldData, live: int, middle: int) -> tuple[list[bytes], list[Buffer]]:
    """Staging for all: pages [live, middle) lent by host memory, the rest new; object names and buffers of the rest."""
    spine = core.stocks.spine
    hold.staging = core.host.borrow(core.keys(hold.chain, live, middle))
    fresh = core.allocate_staging(spine, hold.namespace, max(0, hold.last - middle))
    hold.staging += fresh
    names = spine.names(core.keys(hold.chain, middle, hold.last), core.at)
    buffers = core.buffers(spine, fresh)
    for stock, one, keys in parts(core.stocks, hold):
        one.staging = core.allocate_staging(stock, hold.namespace, len(keys))
        names += stock.names(keys, core.at)
        buffers += core.buffers(stock, one.staging)
    return names, buffers


def borrow(stocks: Stocks, hold: HoldData) -> None:
    """All of it is in the host tiers: share their pages."""
    hold.staging = stocks.spine.host.borrow(stocks.spine.keys(hold.chain, hold.base, hold.last))
    for stock, one, keys in parts(stocks, hold):
        one.staging = stock.host.borrow(keys)


def give_back(core: Core, hold: HoldData, *, keep: bool) -> None:
    """Its staging pages go: verified ones to the host tiers where they `keep` them, others to the pools."""
    if not keep:
        core.free_staging(core.stocks.spine, hold.staging)
        for name, one in hold.parts.items():
            core.free_staging(core.stocks.by_name[name], one.staging)
        return
    front = hold.chain.page_key(hold.base - 1) if hold.base else b""
    core.keep_staging(core.stocks.spine, core.keys(hold.chain, hold.base, hold.last), hold.staging, before=front)
    for stock, one, keys in parts(core.stocks, hold):
        core.keep_staging(stock, keys, one.staging)
