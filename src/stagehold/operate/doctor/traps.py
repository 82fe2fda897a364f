"""Things that have cost others days: none is wrong by itself, so each is a note."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from stagehold import HostMode
from stagehold.operate.doctor.check import Check
from stagehold.operate.doctor.machine import ROOT
from stagehold.operate.settings import Configuration

IN_MEMORY = ("tmpfs", "ramfs", "devtmpfs")
SHARED = ("nfs", "nfs4", "cifs", "fuse.sshfs", "9p")


def look(found: Configuration | None, url: str | None, root: Path = ROOT) -> Iterator[Check]:
    """What is known to go wrong later."""
    notes = [*_of_store(url, root), *_of_engine(found), *_of_tenants(found, url), *_of_process()]
    for name, detail, fix in notes:
        yield Check(f"trap: {name}", ok=True, detail=detail, fix=fix)
    if not notes:
        yield Check("traps", ok=True, detail="none of those that are known")


Note = tuple[str, str, str]


def _of_store(url: str | None, root: Path) -> Iterator[Note]:
    if url is None or not url.startswith("file:"):
        return
    parts = urlsplit(url)
    kind = filesystem(Path(parts.path), root)
    if kind in IN_MEMORY:
        yield (
            "a store in memory",
            f"{parts.path} is on {kind}",
            "name a directory on a disk: this one takes host memory",
        )
    if kind in SHARED:
        yield (
            "a store on a network disk",
            f"{parts.path} is on {kind}",
            ("use it only where renames are atomic and clocks agree: the capacity is kept through files"),
        )


def filesystem(path: Path, root: Path = ROOT) -> str:
    """The kind of file system that a path lies on; empty where nobody says."""
    try:
        lines = (root / "proc" / "self" / "mounts").read_text(encoding="utf-8").splitlines()
    except OSError:
        return ""
    mounts = [(line.split()[1], line.split()[2]) for line in lines if len(line.split()) > 2]
    place = path.absolute()
    above = [(len(at), kind) for at, kind in mounts if place == Path(at) or Path(at) in place.parents]
    return max(above, default=(0, ""))[1]


def _of_engine(found: Configuration | None) -> Iterator[Note]:
    if found is None:
        return
    config = found.engine
    if config.host_memory_mode is HostMode.CACHE and 0 < config.staging_pages <= config.device_pages:
        yield (
            "a host tier smaller than the device",
            f"{config.staging_pages} of {config.device_pages} pages",
            ("set staging_ratio above 1: what leaves the device pushes out what left before it"),
        )
    if config.pin_fraction == 0:
        yield "no pins", "pin_fraction = 0", "every fetch is validated anew at its splice, and read in vain more often"
    if config.limits.wait_cap_ticks > config.limits.fetch_limit + config.limits.lookup_limit + config.limits.park_limit:
        yield (
            "a wait that outlasts its fetch",
            f"wait_cap_ticks = {config.limits.wait_cap_ticks}",
            ("lower it: a request would be held back after its bytes have been given up"),
        )


def _of_tenants(found: Configuration | None, url: str | None) -> Iterator[Note]:
    """Quotas in one place only: what a tenant keeps in one tier, another pushes out of the next."""
    if found is None or url is None or not url.startswith("file:"):
        return
    share, divided = found.engine.tenant_share, "tenants" in dict(parse_qsl(urlsplit(url).query))
    if share and not divided:
        yield (
            "quotas in the engine alone",
            f"tenant_share = {share}, and no tenants in the store's URL",
            "add a capacity and tenants=N to the URL: one tenant's pages can push another's out of the store",
        )
    if divided and not share:
        yield (
            "quotas in the store alone",
            "tenants in the store's URL, and tenant_share = 0",
            "set tenant_share: one tenant can fill host memory, pins and the write backlog",
        )


def _of_process() -> Iterator[Note]:
    if os.environ.get("OMP_WAIT_POLICY", "PASSIVE").upper() == "ACTIVE":
        yield (
            "spinning threads",
            "OMP_WAIT_POLICY=ACTIVE",
            "set it to PASSIVE: torch's threads take the store's processors",
        )
