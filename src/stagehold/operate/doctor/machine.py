"""Memory, limits and clock of this machine, as its kernel tells them; cgroups of both versions are read.

`root` is where the kernel's files are looked for, `/` but in tests. Owns what counts as available: the least of what
is free and what each cgroup above this process still allows.
"""

from __future__ import annotations

import os
import platform
import resource
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from stagehold.operate.doctor.check import Check, size

ROOT = Path("/")
UNLIMITED_BYTES = 1 << 60  # what a cgroup of version 1 says where it has no limit is near the largest number it has
LEAST_FILES = 256
"""File descriptors: workers, connections, segments and the log of one engine, with room to spare."""


@dataclass(frozen=True, slots=True)
class Room:
    """Bytes that can still be had, and who says so."""

    available: int
    said_by: str


def rooms(root: Path = ROOT) -> list[Room]:
    """What the kernel and each cgroup above this process leave, in that order."""
    return [*_free(root), *_cgroups(root)]


def least(root: Path = ROOT) -> Room:
    """The smallest room of all."""
    found = rooms(root)
    return min(found, key=lambda room: room.available) if found else Room(0, "nobody: no /proc/meminfo")


def _free(root: Path) -> Iterator[Room]:
    for line in _lines(root / "proc" / "meminfo"):
        name, _, value = line.partition(":")
        if name == "MemAvailable":
            yield Room(int(value.split()[0]) * 1024, "the kernel (MemAvailable)")


def _cgroups(root: Path) -> Iterator[Room]:
    mount = root / "sys" / "fs" / "cgroup"
    for line in _lines(root / "proc" / "self" / "cgroup"):
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            yield from _above(mount, path, "memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            yield from _above(
                mount / "memory", path, "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
            )


def _above(mount: Path, path: str, limit: str, used: str, gives_up: str) -> Iterator[Room]:
    """The limits of a cgroup and of all above it. In a container the path may lie outside what is mounted."""
    parts = [part for part in path.split("/") if part]
    for depth in range(len(parts), -1, -1):
        folder = mount.joinpath(*parts[:depth])
        most = _number(folder / limit)
        if most is not None and most < UNLIMITED_BYTES:
            reclaimable = {line.split()[0]: int(line.split()[1]) for line in _lines(folder / "memory.stat")}
            left = most - (_number(folder / used) or 0) + reclaimable.get(gives_up, 0)
            name = "/" + "/".join(parts[:depth])
            yield Room(max(0, min(most, left)), f"cgroup {name} ({limit} {size(most)})")


def _number(path: Path) -> int | None:
    """A number from a file; None where there is no file, or it says `max`."""
    text = "".join(_lines(path)).strip()
    return int(text) if text.isdigit() else None


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except OSError:
        return []


def has_cuda(root: Path = ROOT) -> bool:
    """Whether there is a device of CUDA, on which staging is pinned and pools need not lie in host memory."""
    return any((root / "dev").glob("nvidia[0-9]*"))


def processors(root: Path = ROOT) -> tuple[float, str]:
    """Processors that this process may use, and who says so: its affinity, or a cgroup's quota."""
    found = [(float(len(os.sched_getaffinity(0))), "affinity")]
    mount = root / "sys" / "fs" / "cgroup"
    for folder, names in ((mount, ("cpu.max",)), (mount / "cpu", ("cpu.cfs_quota_us", "cpu.cfs_period_us"))):
        words = " ".join(" ".join(_lines(folder / name)) for name in names).split()
        if len(words) == 2 and all(word.isdigit() for word in words) and int(words[1]):
            found.append((int(words[0]) / int(words[1]), f"cgroup quota ({', '.join(names)})"))
    return min(found)


def look(root: Path = ROOT) -> Iterator[Check]:
    """Memory, processors, files, clock, versions."""
    room = least(root)
    told = "; ".join(f"{size(one.available)} by {one.said_by}" for one in rooms(root))
    yield Check("memory limits", ok=room.available > 0, detail=told or room.said_by,
                fix="" if room.available > 0 else f"free memory, or raise the limit of {room.said_by}")  # fmt: skip
    yield _processors(root)
    yield _files()
    yield _clock()
    yield _versions()


def _processors(root: Path) -> Check:
    count, said_by = processors(root)
    note = "" if count >= 2 else "give the process two processors: store workers and the scheduler share one"
    return Check("processors", ok=True, detail=f"{count:g} by {said_by}", fix=note)


def _files() -> Check:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    ok = soft == resource.RLIM_INFINITY or soft >= LEAST_FILES
    fix = f"raise the limit of open files to {LEAST_FILES} or more (ulimit -n 4096; LimitNOFILE= in a unit)"
    return Check("file limit", ok=ok, detail=f"{soft} open files, at most {hard}", fix="" if ok else fix)


def _clock() -> Check:
    info, year = time.get_clock_info("monotonic"), time.gmtime().tm_year
    ok = info.monotonic and info.resolution <= 0.001 and year >= 2024
    fix = "set the clock (timedatectl set-ntp true); deadlines of stores and groups, and leases, go by it"
    return Check("clock", ok=ok, detail=f"monotonic, {info.resolution:g} s; the year is {year}", fix="" if ok else fix)


def _versions() -> Check:
    names = ("stagehold", "torch", "numpy", "pydantic", "xxhash")
    told = ", ".join(f"{name} {_version(name)}" for name in names)
    ok = sys.version_info >= (3, 11) and sys.platform == "linux"
    detail = f"Python {platform.python_version()} on {platform.system()} {platform.machine()}; {told}"
    return Check("versions", ok=ok, detail=detail, fix="" if ok else "use Python 3.11 or newer on Linux")


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
