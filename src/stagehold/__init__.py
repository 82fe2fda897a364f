"""stagehold: declared state machines that bring staged KV cache back into an LLM server.

The public face is what `__all__` names, besides `stagehold.cache.stores` and `stagehold.testing`. Names are loaded
at first use, so that importing the package costs nothing that is not needed.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stagehold.cache.keys import Chain, Namespace, RankCoordinates
    from stagehold.lifecycle.acts import Acts
    from stagehold.lifecycle.admission import Delivery
    from stagehold.lifecycle.claims import Look
    from stagehold.lifecycle.data import Admission, Extension, Handle, NoRoom, Plan, Skip
    from stagehold.lifecycle.drain import Drained
    from stagehold.lifecycle.engine import Engine
    from stagehold.lifecycle.errors import (
        Diverged,
        InvariantBroken,
        Misuse,
        PartialDelivery,
        RankLost,
        Reentered,
        StageholdError,
        UnknownHandle,
        WrongThread,
    )
    from stagehold.lifecycle.policy import Machines
    from stagehold.lifecycle.ranks.group import Group
    from stagehold.lifecycle.ranks.in_process import InProcess
    from stagehold.lifecycle.ranks.mesh import Mesh
    from stagehold.lifecycle.ranks.one_copy import OneCopy
    from stagehold.lifecycle.ranks.pipeline import staged
    from stagehold.lifecycle.ranks.solo import Solo
    from stagehold.lifecycle.ranks.torch_group import MeetingPlace, TorchGroup
    from stagehold.lifecycle.snapshots import Snapshot
    from stagehold.lifecycle.stats import Stats
    from stagehold.machines.logs import AuditLog
    from stagehold.specs.attachment import AttachmentState
    from stagehold.specs.component import ComponentConfig
    from stagehold.specs.config import EngineConfig
    from stagehold.specs.limits import Limits
    from stagehold.specs.outcomes import (
        AdmissionOutcome,
        ComponentKind,
        DivergencePolicy,
        Eviction,
        FetchGate,
        HostMode,
        Loss,
        PrefetchPolicy,
        SkipReason,
        WindowWrites,
        WritePolicy,
    )
    from stagehold.specs.request import RequestState

__version__ = "0.1.0"

_HOMES = {
    "stagehold.cache.keys": ("Chain", "Namespace", "RankCoordinates"),
    "stagehold.lifecycle.acts": ("Acts",),
    "stagehold.lifecycle.admission": ("Delivery",),
    "stagehold.lifecycle.claims": ("Look",),
    "stagehold.lifecycle.data": ("Admission", "Extension", "Handle", "NoRoom", "Plan", "Skip"),
    "stagehold.lifecycle.drain": ("Drained",),
    "stagehold.lifecycle.engine": ("Engine",),
    "stagehold.lifecycle.errors": (
        "Diverged",
        "InvariantBroken",
        "Misuse",
        "PartialDelivery",
        "RankLost",
        "Reentered",
        "StageholdError",
        "UnknownHandle",
        "WrongThread",
    ),
    "stagehold.lifecycle.policy": ("Machines",),
    "stagehold.lifecycle.ranks.group": ("Group",),
    "stagehold.lifecycle.ranks.in_process": ("InProcess",),
    "stagehold.lifecycle.ranks.mesh": ("Mesh",),
    "stagehold.lifecycle.ranks.one_copy": ("OneCopy",),
    "stagehold.lifecycle.ranks.pipeline": ("staged",),
    "stagehold.lifecycle.ranks.solo": ("Solo",),
    "stagehold.lifecycle.ranks.torch_group": ("MeetingPlace", "TorchGroup"),
    "stagehold.lifecycle.snapshots": ("Snapshot",),
    "stagehold.lifecycle.stats": ("Stats",),
    "stagehold.machines.logs": ("AuditLog",),
    "stagehold.specs.attachment": ("AttachmentState",),
    "stagehold.specs.component": ("ComponentConfig",),
    "stagehold.specs.config": ("EngineConfig",),
    "stagehold.specs.limits": ("Limits",),
    "stagehold.specs.outcomes": (
        "AdmissionOutcome",
        "ComponentKind",
        "DivergencePolicy",
        "Eviction",
        "FetchGate",
        "HostMode",
        "Loss",
        "PrefetchPolicy",
        "SkipReason",
        "WindowWrites",
        "WritePolicy",
    ),
    "stagehold.specs.request": ("RequestState",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Acts",
    "Admission",
    "AdmissionOutcome",
    "AttachmentState",
    "AuditLog",
    "Chain",
    "ComponentConfig",
    "ComponentKind",
    "Delivery",
    "Diverged",
    "DivergencePolicy",
    "Drained",
    "Engine",
    "EngineConfig",
    "Eviction",
    "Extension",
    "FetchGate",
    "Group",
    "Handle",
    "HostMode",
    "InProcess",
    "InvariantBroken",
    "Limits",
    "Look",
    "Loss",
    "Machines",
    "MeetingPlace",
    "Mesh",
    "Misuse",
    "Namespace",
    "NoRoom",
    "OneCopy",
    "PartialDelivery",
    "Plan",
    "PrefetchPolicy",
    "RankCoordinates",
    "RankLost",
    "Reentered",
    "RequestState",
    "Skip",
    "SkipReason",
    "Snapshot",
    "Solo",
    "StageholdError",
    "Stats",
    "TorchGroup",
    "UnknownHandle",
    "WindowWrites",
    "WritePolicy",
    "WrongThread",
    "staged",
]


def __getattr__(name: str) -> Any:
    home = _HOME_OF.get(name)
    if home is None:
        raise AttributeError(f"module 'stagehold' has no attribute {name!r}; its public names are {', '.join(__all__)}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(__all__)
