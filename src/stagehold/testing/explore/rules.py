"""What must hold in every situation of a small world, and what must be left at its end.

Owns the questions. A page is right when it holds the name of the page that the tree, a hold or a table says it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from stagehold.cache.keys import Chain
from stagehold.lifecycle.books import check as balance
from stagehold.lifecycle.core import Core
from stagehold.lifecycle.operations import Kind
from stagehold.lifecycle.parts import Parts
from stagehold.lifecycle.retries import RetryRules
from stagehold.specs.hold import HoldState
from stagehold.specs.request import RequestState
from stagehold.testing.checks import unreturned
from stagehold.testing.explore.broken import require
from stagehold.testing.explore.chosen import ChosenStore, Labels

if TYPE_CHECKING:
    from stagehold.testing.explore.pair import Pair

STANDS = {
    "waits": (
        RequestState.QUEUED, RequestState.LOOKUP, RequestState.STAGED, RequestState.COVERED, RequestState.RETRY,
        RequestState.CAPPED, RequestState.ANCHOR_LOCKED,
    ),
    "runs": (RequestState.COMMITTED,),
    "computed": (RequestState.COMMITTED,),
}  # fmt: skip
"""Where a request may be in the engine, by where it is for the scheduler."""


def check(parts: Parts, pair: Pair) -> None:
    """Books, names in the tree and in staging, lent pages, and where everybody stands."""
    core = parts.core
    if not core.visits:
        for one in balance(core):
            require(False, f"{one.book}: {one.what}")
    labels = labels_of(core)
    check_tree(core, pair, labels)
    check_holds(core, pair, labels)
    check_lent(core)
    check_stands(core, pair)
    check_armed(core, parts.retries)
    if not pair.world.budget.lose:
        check_beliefs(core, pair)


def labels_of(core: Core) -> Labels:
    """The memory of a rank."""
    labels: object = core.tensors
    assert isinstance(labels, Labels), "a small world has no bytes"
    return labels


def check_tree(core: Core, pair: Pair, labels: Labels) -> None:
    """Every page that the tree shows is the page that it says."""
    for chain in (*pair.chains, *(chain for chain, _ in pair.siblings)):
        live = core.tree.full_match(chain)
        for page, slot in enumerate(core.tree.slots(chain, 0, live)):
            require(labels.device[slot] == pair.names[chain, page], f"the tree shows a wrong page {page}")


def check_read(core: Core, pair: Pair, chain: Chain, slots: Sequence[int]) -> None:
    """Every page that a forward would read is right."""
    labels = labels_of(core)
    for page, slot in enumerate(slots[: chain.n_pages]):
        require(labels.device[slot] == pair.names[chain, page], f"a request reads a wrong page {page}")


def check_holds(core: Core, pair: Pair, labels: Labels) -> None:
    """Verified staging is right, and what a pin, a load or a copy protects is live."""
    for h in core.holds.values():
        data = h.data
        if h.state in (HoldState.READY, HoldState.PLANNED):
            for page, key_page in zip(data.staging, range(data.base, data.last), strict=True):
                right = pair.names[_named(pair, data.chain), key_page]
                require(labels.staging[page] == right, f"a {h.state.name.lower()} hold has a wrong page {key_page}")
        if data.pin is not None:
            _is_live(core, data.chain, data.pin.pages, "the anchor of a hold")
        if data.span is not None:
            # The end of what is being loaded; none where a sibling had published all of it by then.
            _is_live(core, data.chain, data.span.pages, "what a hold loads")
    for w in core.writes.values():
        if w.data.span is not None:
            _is_live(core, w.data.chain, w.data.last, "what a write copies")


def _named(pair: Pair, chain: Chain) -> Chain:
    """The chain of ours that has the same prompt."""
    return next(one for one in pair.chains if one.keys == chain.keys and one.tokens.tolist() == chain.tokens.tolist())


def _is_live(core: Core, chain: Chain, pages: int, what: str) -> None:
    live = core.tree.full_match(chain, pages)
    require(live == pages, f"{what} should be live up to page {pages} and is up to {live}")


def check_lent(core: Core) -> None:
    """Staging that the store may touch belongs to the machine whose operation it is."""
    for store in (core.store, *core.former):
        assert store is None or isinstance(store, ChosenStore), "a small world attaches no other store"
        for ticket, asked in store.asked.items() if store is not None else ():
            operation = core.operations.live.get(ticket)
            lent = asked.lent
            if operation is None:
                require(not lent, f"operation {ticket} is over for the engine, and the store still has its pages")
                continue
            owner = core.holds.get(operation.owner) or core.writes.get(operation.owner)
            owned = owner.data.staging if owner is not None else []
            behind = lent if operation.kind is not Kind.FETCH else _unread(asked.lent, asked.good, operation.good)
            require(set(behind) <= set(owned), f"operation {ticket} uses pages {behind}, its owner has {owned}")


def _unread(lent: list[int], here: int, agreed: int) -> list[int]:
    """Of the pages that the store may write to on this rank, those that are not verified on all."""
    return lent[max(0, agreed - here) :]


def check_stands(core: Core, pair: Pair) -> None:
    """The engine knows the requests of this world and no other, each where it must be."""
    states = {m.data.handle: m.state for m in core.requests.values()}
    for handle, stands in zip(pair.own.handles, pair.own.stands, strict=True):
        if handle is not None and stands in STANDS:
            state = states.pop(handle, None)
            require(state in STANDS[stands], f"{handle} {stands} and is {state}")
    require(not states, f"alive are {sorted(states)}, too")


def check_armed(core: Core, retries: RetryRules) -> None:
    """Whoever waits for a write, or for the store to heal, is in `retry`."""
    armed = [*retries.untimed, *(number for waiting in retries.waiting.values() for number in waiting)]
    states = [core.requests[number].state if number in core.requests else None for number in armed]
    require(set(states) <= {RequestState.RETRY}, f"a retry is armed for requests that are {states}")


def check_beliefs(core: Core, pair: Pair) -> None:
    """Where no store loses a page, every page that is believed stored is in the stores of all ranks."""
    for (chain, page), name in pair.names.items():
        if core.beliefs.knows(chain.page_key(page)):
            missing = [rank for rank, one in enumerate(pair.cores) if name not in store_of(one).pages]
            require(not missing, f"page {page} is believed stored, and rank {missing} has none")


def store_of(core: Core) -> ChosenStore:
    """The store of a rank."""
    assert isinstance(core.store, ChosenStore), "a small world attaches no other store"
    return core.store


def check_rest(core: Core) -> None:
    """Nobody is left: no machine, no receipt, no page without a home."""
    wrong = {what: count for what, count in unreturned(core).items() if count}
    require(not wrong, f"everything has ended, and there is left: {wrong}")
