"""What each rank says of itself once the ranks have found that they differ, and the first thing that differs.

Owns the message of the one further exchange. Everything here is read by people afterwards; nothing decides by it but
whether the ranks can still go on without the store.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b

from stagehold.lifecycle.core import Core
from stagehold.machines import Block
from stagehold.machines.audit_diff import Difference, parted
from stagehold.machines.records import decode, encode
from stagehold.specs.attachment import AttachmentState

MOST_OPERATIONS = 12
"""Operations of a rank that a message names; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Testimony:
    """One rank's word: how it was started, its last block, what it flies, and what its device tier amounts to."""

    start: dict[str, str]
    block: Block | None
    operations: tuple[str, ...]
    device: str


@dataclass(frozen=True, slots=True)
class Divergence:
    """The first difference between rank `right` (what most ranks have) and rank `wrong`, the first that has not.

    `difference` is the first differing record or instance of the blocks; None where something else differs, which
    `what` says. `operations` are those of `right` and of `wrong`. `salvageable`: started alike, same device tier.
    """

    right: int
    wrong: int
    what: str
    difference: Difference | None
    operations: tuple[tuple[str, ...], tuple[str, ...]]
    salvageable: bool

    def __str__(self) -> str:
        ours, theirs = map(_listed, self.operations)
        told = f"; operations of rank {self.right}: {ours}; of rank {self.wrong}: {theirs}"
        flying = told if any(self.operations) else ""
        return f"rank {self.wrong} differs from rank {self.right}: {self.what}{flying}"


def _listed(operations: Sequence[str]) -> str:
    more = len(operations) - MOST_OPERATIONS
    return (", ".join(operations[:MOST_OPERATIONS]) or "none") + (f" and {more} more" if more > 0 else "")


def start_of(core: Core) -> dict[str, str]:
    """What every rank must be started with: options by name, the declarations, and whether there is a store."""
    limits = {f"limits.{name}": str(value) for name, value in core.config.limits.model_dump().items()}
    options = {name: str(value) for name, value in core.config.model_dump().items() if name != "limits"}
    stored = str(core.link.state is not AttachmentState.DETACHED)
    return {**options, **limits, "declarations": core.journal.declaration.hex(), "a store": stored}


def start_digest(core: Core) -> bytes:
    """16 bytes of it: what the first exchange compares, when no block is closed yet."""
    return blake2b(json.dumps(start_of(core)).encode(), digest_size=16).digest()


def device_digest(core: Core) -> bytes:
    """16 bytes of what the device tier amounts to: what is compared once the ranks go on without the store."""
    figures = (core.tree.total, core.device.free_count, core.reserved, core.committed, len(core.requests))
    return blake2b(repr(figures).encode(), digest_size=16).digest()


def testify(core: Core, block: Block | None) -> bytes:
    """This rank's message; `block` is the last one closed."""
    device = blake2b(core.tree.digest() + device_digest(core), digest_size=16).hexdigest()
    told = {
        "start": start_of(core),
        "block": None if block is None else encode(block),
        "operations": core.operations.told(),
        "device": device,
    }
    return json.dumps(told).encode()


def read(message: bytes) -> Testimony:
    """What `testify` gave."""
    told = json.loads(message)
    block = None if told["block"] is None else decode(told["block"])
    return Testimony(told["start"], block, tuple(told["operations"]), told["device"])


def compare(told: Sequence[Testimony]) -> Divergence | None:
    """The first difference among ranks, in their order; None where their words are the same."""
    right = _usual(told)
    for wrong, other in enumerate(told):
        found = _compared(told[right], other)
        if found is not None:
            what, difference = found
            salvageable = len({(one.device, tuple(one.start.items())) for one in told}) == 1
            return Divergence(right, wrong, what, difference, (told[right].operations, other.operations), salvageable)
    return None


def _usual(told: Sequence[Testimony]) -> int:
    """The first rank of those whose words most ranks share."""
    keys = [(tuple(one.start.items()), one.block and one.block.digest, one.operations) for one in told]
    most = Counter(keys).most_common(1)[0][0]  # of equally common ones the one that was counted first
    return keys.index(most)


def _compared(ours: Testimony, theirs: Testimony) -> tuple[str, Difference | None] | None:
    for name in {**ours.start, **theirs.start}:
        a, b = ours.start.get(name, "nothing"), theirs.start.get(name, "nothing")
        if a != b:
            return f"started with another {name}: expected {a}, found {b}", None
    if ours.block is not None and theirs.block is not None:
        difference = parted(ours.block, theirs.block)
        if difference is not None:
            return str(difference), difference
    if _places(ours.operations) != _places(theirs.operations):
        return "other operations are in flight", None
    return None


def _places(operations: Sequence[str]) -> list[str]:
    """Which operations fly where, without what is only known locally."""
    return [told.partition(" at ")[0] + told.partition(" at ")[2].partition(" ")[0] for told in operations]
