"""Options of a cell as people type them: which there are, what each may be, and the cell that some of them make.

It owns the names and the bounds. An option is one of `OWN`, a limit, or a setting of the engine; the last two are
known by the engine's own names and bounds. A value that cannot be is told with its option and what was expected.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError
from pydantic.fields import FieldInfo

from stagehold import EngineConfig, HostMode, Limits
from stagehold.lab.cells import DEFAULTS, PLAIN, Cell
from stagehold.lab.policies.shipped import POLICIES
from stagehold.lab.traces import SHIPPED, Format
from stagehold.lab.virtual_costs import MODELS, AcceleratorName, ModelName

PAGES_MAX = 100_000_000
"""Of either tier: each costs some tens of bytes here, whatever it stands for."""
LATENCY_MS_MAX = 1e6
PAGE_TOKENS = 64
NUMBER_END = 1 << 63
"""JSON holds no whole number from here on, and nothing that is infinite."""

Pages = Annotated[int, Field(ge=0, le=PAGES_MAX)]
Count = Annotated[int, Field(ge=1, le=10**9)]
Gigabytes = Annotated[float, Field(gt=0, le=1e9)]

OWN: Mapping[str, tuple[Any, str]] = {
    "trace": (str, f"a file, or one of {', '.join(SHIPPED)}"),
    "format": (Format, "its format; known by content if left out"),
    "requests": (Count, "only the first so many; all of them"),
    "policy": (str, "how pages are brought back"),
    "mode": (HostMode, "what host memory is"),
    "store": (bool, "false: host memory alone, with --mode cache"),
    "store_gbps": (Annotated[float, Field(ge=0.001, le=1e6)], "GB a second between server and store"),
    "store_latency_ms": (str, "least and most of an operation, 0.5-2"),
    "store_gb": (Annotated[float, Field(ge=0, le=1e9)], "capacity of the store; 0: it keeps everything"),
    "device_pages": (Pages, "pages on the device; 0: what fits beside the weights"),
    "device_gb": (Gigabytes, "the same in GB"),
    "staging_pages": (Pages, "pages of host memory; 0: 1.2 x or 2 x the device's"),
    "host_gb": (Gigabytes, "the same in GB"),
    "model": (ModelName, "whose sizes are used"),
    "accelerator": (AcceleratorName, "what it runs on"),
    "accelerators": (Annotated[int, Field(ge=1, le=1024)], "how many of them share every layer"),
    "prefill_rate": (Annotated[float, Field(ge=1, le=1e12)], "prompt tokens a second, instead"),
    "step_ms": (Annotated[float, Field(ge=1e-6, le=1e5)], "milliseconds of a decode step, instead"),
    "page_size": (Annotated[int, Field(ge=1, le=4096)], "tokens in a page"),
    "token_budget": (Count, "tokens that one pass may compute"),
    "running_limit": (Count, "requests that run at once"),
    "steps_per_pass": (Annotated[int, Field(ge=0, le=10**6)], "decode steps in a pass; 0: what makes about 10 ms"),
    "users": (Annotated[int, Field(ge=0, le=10**6)], "deal the sessions out to so many; 0: the trace's own times"),
    "longest_pause_s": (Annotated[float, Field(ge=0, le=1e9)], "with users: pauses in a session are cut to that"),
    "pin_fraction": (Annotated[float, Field(ge=0, le=1)], "part of the device pool that pins may hold"),
    "belady": (bool, "true: pages leave the device by their next use in the trace, whatever the eviction"),
    "scale": (Annotated[int, Field(ge=1, le=512)], "tokens that stand for 512 of the trace"),
    "seed": (int, "draws the store's delays"),
    "strict": (bool, "true: check all books after every tick; slow"),
}
"""Type and meaning of each; the others are the engine's."""

ALIASES = {"retries": "retry_max_reissues", "retry_interval": "retry_interval_ticks"}
"""Names that `simulate` has for limits."""
CELL = ("requests", "policy", "mode", "store_gbps", "seed", "device_pages", "staging_pages")
ELSEWHERE = {"page_size", "device_pages", "staging_pages", "host_memory_mode", "largest_request_tokens",
             "pin_fraction", "parts", "page_part_bytes", "kv_device", "components", "limits"}  # fmt: skip
"""Settings of the engine that have another name here, or that a simulation makes."""
LIMITS = Limits.model_fields
SETTINGS = {name: found for name, found in EngineConfig.model_fields.items() if name not in ELSEWHERE}


class OptionError(ValueError):
    """An option that is none, or a value that it cannot have."""


def names() -> tuple[str, ...]:
    """All options, this module's own first."""
    return (*OWN, *SETTINGS, *LIMITS)


def dashed(name: str) -> str:
    """As it is typed."""
    return f"--{name.replace('_', '-')}"


def known_as(name: str) -> str:
    """The option's own name."""
    return ALIASES.get(name, name)


def value(name: str, text: str) -> Any:
    """The value of one option, as JSON can hold it; `OptionError` where there is no such option or value."""
    if name not in names():
        near = [dashed(one) for one in get_close_matches(name, names())]
        raise OptionError(
            f"{dashed(name)}: expected {' or '.join(near) or 'an option'}, see `stagehold sweep --options`"
        )
    try:
        found = TypeAdapter(_type(name)).validate_python(text)
    except ValidationError as error:
        expected = error.errors()[0]["msg"].removeprefix("Input should be ")
        raise OptionError(f"{dashed(name)} {text}: expected {expected}") from error
    if isinstance(found, int | float) and not abs(found) < NUMBER_END:
        raise OptionError(f"{dashed(name)} {text}: expected a number below 2 to the power of 63")
    if name == "store_latency_ms":
        return _span(text)
    if name == "policy" and text not in POLICIES:
        raise OptionError(f"{dashed(name)} {text}: expected one of {', '.join(POLICIES)}")
    if name == "trace" and text not in SHIPPED and not Path(text).is_file():
        raise OptionError(f"{dashed(name)} {text}: expected a file, or one of {', '.join(SHIPPED)}")
    return found.value if isinstance(found, Enum) else found


def values(name: str, text: str) -> list[Any]:
    """The values of a list with commas; each may stand there once."""
    found = [value(name, part) for part in text.split(",")]
    if any(one in found[:at] for at, one in enumerate(found)):
        raise OptionError(f"{dashed(name)} {text}: expected every value once")
    return found


def cell_of(chosen: Mapping[str, Any]) -> Cell:
    """The cell of some options, with values as `value` gives them; what is not named is as `simulate` has it."""
    model, page = chosen.get("model", "llama-3.1-8b"), chosen.get("page_size", PAGE_TOKENS)
    page_bytes = page * MODELS[ModelName(model)].kv_token_bytes
    sizes = {"device_pages": 0, "staging_pages": 0}
    for pages, gigabytes in (("device_pages", "device_gb"), ("staging_pages", "host_gb")):
        if gigabytes in chosen:
            sizes[pages] = _pages(gigabytes, chosen, pages, page_bytes)
    own = {**sizes, **{name: chosen[name] for name in CELL if name in chosen}}
    if "mode" in own:
        own["mode"] = HostMode(own["mode"])
    if not chosen.get("store", True) and own.get("mode") != HostMode.CACHE:
        raise OptionError("--store false: expected with --mode cache, since a buffer alone keeps nothing")
    beside = (name for name in DEFAULTS if name not in ("limits", "settings"))
    options = {name: chosen[name] for name in (*PLAIN, *beside) if name in chosen}
    for kind, known in (("limits", LIMITS), ("settings", SETTINGS)):
        named = {name: chosen[name] for name in known if name in chosen}
        options |= {kind: named} if named else {}
    trace = chosen.get("trace", "conversation")
    return Cell(trace=trace, path=None if trace in SHIPPED else Path(trace), options=options, **own)


def told(name: str, found: Any) -> str:
    """A value as it is typed."""
    if name == "store_latency_ms":
        return "-".join(f"{part:g}" for part in found)
    return f"{found:g}" if isinstance(found, float) else f"{found}"


def _pages(gigabytes: str, chosen: Mapping[str, Any], pages: str, page_bytes: int) -> int:
    if pages in chosen:
        raise OptionError(f"{dashed(gigabytes)}: expected without {dashed(pages)}, which says the same")
    found = int(chosen[gigabytes] * 1e9) // page_bytes
    if not 1 <= found <= PAGES_MAX:
        raise OptionError(
            f"{dashed(gigabytes)} {chosen[gigabytes]:g}: expected 1 to {PAGES_MAX:,} pages of {page_bytes:,} bytes"
        )
    return found


def _type(name: str) -> Any:
    if name in OWN:
        return OWN[name][0]
    found: FieldInfo = {**SETTINGS, **LIMITS}[name]
    return Annotated[found.annotation, *found.metadata] if found.metadata else found.annotation


def _span(text: str) -> Sequence[float]:
    """`0.5-2` or `1`, in milliseconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?", text)
    least = float(found[1]) if found else 0.0
    most = float(found[2]) if found and found[2] else least
    if not found or not least <= most <= LATENCY_MS_MAX:
        raise OptionError(f"--store-latency-ms {text}: expected milliseconds such as 1 or 0.5-2, at most 1,000,000")
    return [least, most]
