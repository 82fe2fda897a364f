"""Whether what is configured fits: memory by rank and pool, page books, equal options on all ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from stagehold import EngineConfig
from stagehold.operate.derived import device_bytes, host_bytes, pools
from stagehold.operate.doctor.check import Check, size
from stagehold.operate.doctor.machine import ROOT, Room, has_cuda, least
from stagehold.operate.given import ConfigurationError
from stagehold.operate.settings import Configuration, load

BOOK_BYTES = 48
"""What the books of a pool take for each page, tensors apart, as an engine of 200,000 pages has shown."""

OWN = frozenset({"kv_device"})
"""Options that may differ between ranks."""


def look(found: Configuration, ranks: int, root: Path = ROOT) -> Iterator[Check]:
    """Books, then bytes, of `ranks` ranks on this machine."""
    config, room = found.engine, least(root)
    share = Room(room.available // ranks, room.said_by)
    yield _books(config, share)
    yield _bytes(config, share, ranks)


def _books(config: EngineConfig, share: Room) -> Check:
    pages = sum(device + staging for _, device, staging, _ in pools(config))
    need = pages * BOOK_BYTES
    detail = f"{pages:,} pages of all pools, {BOOK_BYTES} bytes of books each: {size(need)} of {size(share.available)}"
    fix = "lower device_pages and staging_pages (or staging_ratio): they are pages, not tokens and not bytes"
    ok = need <= share.available // 2
    return Check("pool sizes", ok=ok, detail=detail, fix="" if ok else fix)


def _bytes(config: EngineConfig, share: Room, ranks: int) -> Check:
    here = config.kv_device == "cpu" or (config.kv_device == "auto" and not has_cuda())
    need = host_bytes(config) + (device_bytes(config) if here else 0)
    each = "; ".join(
        f"{name}: staging {staging:,} x {size(page)} = {size(staging * page)}"
        + (f", device pool on the CPU {size(device * page)}" if here else "")
        for name, device, staging, page in pools(config)
    )
    if not need:
        return Check("memory budget", ok=True, detail="no tensors are attached (parts = 0): staging takes no memory")
    told = f"{ranks} on this machine, each {size(need)} of {size(share.available)} ({share.said_by}): {each}"
    fits = max(0, share.available - (device_bytes(config) if here else 0))
    less = f"set staging_bytes to {fits // 10 * 9} or less" if fits else "lower device_pages, which lie here, too"
    fix = f"{less}, run fewer ranks here, or raise the limit of {share.said_by}"
    ok = need <= share.available
    return Check("memory budget", ok=ok, detail=told, fix="" if ok else fix)


def ranks_alike(found: Configuration, files: Sequence[Path]) -> Iterator[Check]:
    """Hold the configurations of other ranks against this one."""
    for file in files:
        try:
            other = load(file)
        except ConfigurationError as error:
            yield Check(f"rank {file}", ok=False, detail=str(error), fix="correct that file first")
            continue
        apart = _apart(found, other)
        fix = "give every rank the same file; only kv_device may differ, or the first exchange stops them all"
        told = "; ".join(apart) or "the same options"
        yield Check(f"rank {file}", ok=not apart, detail=told, fix=fix if apart else "")


def _apart(one: Configuration, other: Configuration) -> list[str]:
    ours, theirs = one.engine.model_dump(mode="json"), other.engine.model_dump(mode="json")
    limits, others = ours.pop("limits"), theirs.pop("limits")
    ours |= {f"limits.{name}": value for name, value in limits.items()}
    theirs |= {f"limits.{name}": value for name, value in others.items()}
    ours["has a store"], theirs["has a store"] = one.store is not None, other.store is not None
    return [f"{name} is {ours[name]} here and {theirs[name]} there" for name in ours
            if name not in OWN and ours[name] != theirs[name]]  # fmt: skip
