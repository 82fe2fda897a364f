"""The lines of a log as bytes: how each is written, so that readers can hold what they find against it.

Owns the rendering. A block's line is sealed by the block's own digest, a refusal's follows from its block, and every
other line carries a checksum of itself: so no byte of a log can change unseen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from zlib import crc32

import orjson

from stagehold.machines import audit_words
from stagehold.machines.declared import MACHINES
from stagehold.machines.records import REFUSED_FLAG, Block, encode
from stagehold.specs.declare import MachineSpec

BLOCK, REFUSAL, SUMMARY, VIOLATION = "block", "refusal", "summary", "violation"
SEALED = (SUMMARY, VIOLATION)
EVENTS = (BLOCK, REFUSAL, *SEALED)
"""Everything that a line of a log can be."""

SEAL = "seal"


def rendered(event: str, facts: Mapping[str, Any]) -> bytes:
    """One JSON object, the name of the event first, then the facts as they were given; no end of line."""
    return orjson.dumps({"event": event, **facts})


def sealed(event: str, facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a line that nothing else vouches for, with a checksum of what they are rendered as: 8 hex digits."""
    return {**facts, SEAL: f"{crc32(rendered(event, facts)):08x}"}


def is_sealed(event: str, facts: Mapping[str, Any]) -> bool:
    """Whether the checksum is there, and right."""
    plain = {name: fact for name, fact in facts.items() if name != SEAL}
    return sealed(event, plain) == facts


def block_line(block: Block) -> bytes:
    """The line of a block; no end of line."""
    return rendered(BLOCK, encode(block))


def refusals(block: Block, machines: tuple[MachineSpec, ...] = MACHINES) -> Iterator[dict[str, Any]]:
    """The facts of the line that follows a block for each event refused in it, in order; none for what names none."""
    if not block.records:
        return
    table = block.table()
    for record in table[(table["flags"] & REFUSED_FLAG).astype(bool)].tolist():
        said = audit_words.refusal(record, machines)
        if said is not None:
            spec = machines[record[1] >> 8]
            yield {
                "tick": block.tick,
                "instance": record[0],
                "machine": spec.name,
                "state": said[0].upper(),
                "refused": said[1],
            }
