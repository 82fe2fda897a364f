"""What a policy is: machines, settings that belong to them, and whether they may charge what they did not deliver."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stagehold import Machines

OURS = Machines()


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One way to bring pages back.

    `settings` are of `EngineConfig`, and go before whatever else is chosen. `waived` has the reason for each rule that
    `machines` waive. `charges_ahead`: hit tokens are charged before they are delivered, so that some may be phantoms.
    Without a `tier` there is the device pool alone.
    """

    name: str
    doc: str
    machines: Machines = OURS
    settings: Mapping[str, Any] = field(default_factory=dict)
    waived: Mapping[str, str] = field(default_factory=dict)
    charges_ahead: bool = False
    tier: bool = True

    def __post_init__(self) -> None:
        if set(self.waived) != set(map(str, self.machines.waive)):
            raise ValueError(f"policy {self.name!r}: expected a reason for each of {list(self.machines.waive)}, "
                             f"got {list(self.waived)}")  # fmt: skip
