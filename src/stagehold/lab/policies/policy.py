"""What a policy is: the machines of an engine, settings that belong to it, and what it is allowed to do wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """One way to bring pages back.

    `settings` are of `EngineConfig`, and go before whatever else is chosen. Without a `tier` there is the device pool
    alone.
    """

    name: str
    doc: str
    tier: bool = True
    settings: Mapping[str, Any] = field(default_factory=dict)
