"""Where a view comes from: an engine in this process, a log that somebody writes, or a page that somebody serves.

Each has `name` and `view()`, which gives the view of now as plain data; a source that cannot be read says so in it,
under `trouble`, and is tried again the next time.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from pathlib import Path
from typing import Any, Protocol
from urllib.error import URLError
from urllib.request import Request, urlopen

import orjson

from stagehold.machines.audit_read import LINE_BYTES, BadLogError, read_line
from stagehold.machines.records import Block
from stagehold.operate.live.follower import Follower
from stagehold.operate.snapshot import Feed, Snapshot

MOST_WAITING = 1 << 17
"""Blocks that wait to be looked at; a view that falls behind so far begins anew, and says so."""

PAGE_SECONDS = 5.0
"""How long another process may take to give its view."""

PAGE_BYTES = 1 << 24
"""No view is larger."""


class Source(Protocol):
    """What a terminal or a page shows."""

    name: str

    def view(self) -> dict[str, Any]:
        """The view of now. Never raises for what happens to the source."""


class EngineSource:
    """An engine of this process: `block` is a sink for it, and `feed` tells of pools and bytes.

    The engine's thread appends to a queue and does no more; whoever asks for a view adds up what has come since.
    `Engine(config, sink=source.block)`, or `both(log.block, source.block)` where there is a log, too.
    """

    def __init__(self, feed: Feed | None = None, name: str = "engine") -> None:
        self.name = name
        self.feed = feed
        self._blocks: deque[Block] = deque(maxlen=MOST_WAITING)
        self._lock = threading.Lock()
        self._follower = Follower()
        self._trouble = ""

    def block(self, block: Block) -> None:
        """One tick's block, from the engine's thread."""
        self._blocks.append(block)

    def view(self) -> dict[str, Any]:
        """See `Source.view`."""
        with self._lock:
            if len(self._blocks) == MOST_WAITING:
                self._blocks.clear()
                self._follower = Follower()
                self._trouble = "nobody looked for so long that the view begins anew"
            while self._blocks:
                self._follower.take(self._blocks.popleft())
            view = self._follower.view()
        moment = None if self.feed is None else of_snapshot(self.feed.latest)
        return {"name": self.name, "trouble": self._trouble, **view, "moment": moment}


def of_snapshot(found: Snapshot) -> dict[str, Any]:
    """What a snapshot tells beside the blocks: pools in pages, bytes a second, seconds of a tick."""
    stats, rates = found.stats, found.rates
    pools = {}
    for name, pool in stats.pools.items():
        pools[f"{name} device"] = [pool.device_used, pool.device_pages]
        pools[f"{name} staging"] = [pool.staging_used, pool.staging_pages]
    pools["pins"] = [stats.pinned_pages, found.config.pin_cap]
    pools["write backlog"] = [stats.backlog_pages, found.config.backlog_pages]
    return {
        "wall": found.wall,
        "fault": found.fault,
        "pools": pools,
        "rates": {
            "from the store": rates.store_read,
            "to the store": rates.store_written,
            "to the device": rates.to_device,
            "from the device": rates.from_device,
        },
        "tick_seconds": {
            "mean": found.durations.sum / max(1, found.durations.count),
            "most": found.durations.most,
        },
    }


class LogSource:
    """An audit log at `path`, from its begin, as it grows. A log that is begun anew is followed anew.

    `most` is how many bytes one look reads: a long log is caught up with in several.
    """

    def __init__(self, path: Path, most: int = 1 << 24) -> None:
        self.name = str(path)
        self._path = path
        self._most = most
        self._lock = threading.Lock()
        self._begin()

    def _begin(self) -> None:
        self._follower = Follower()
        self._at = self._line = 0
        self._inode: int | None = None
        self._moment: dict[str, Any] | None = None
        self._bad: str | None = None
        self._rest = 0

    def view(self) -> dict[str, Any]:
        """See `Source.view`."""
        with self._lock:
            trouble = self._look()
            view = self._follower.view()
            return {"name": self.name, "trouble": trouble, "behind": self._rest, **view, "moment": self._moment}

    def _look(self) -> str:
        try:
            with self._path.open("rb") as file:
                found = os.fstat(file.fileno())
                if found.st_size < self._at or self._inode not in (None, found.st_ino):
                    self._begin()
                self._inode = found.st_ino
                if self._bad is None:
                    file.seek(self._at)
                    self._take(file.read(self._most))
                self._rest = found.st_size - self._at
        except FileNotFoundError:
            self._begin()
            return "there is no such file yet"
        except OSError as error:
            return error.strerror or str(error)
        return self._bad or ""

    def _take(self, data: bytes) -> None:
        """Whole lines; the last one may be half written, and waits."""
        end = data.rfind(b"\n") + 1
        if not end and len(data) >= min(self._most, LINE_BYTES):
            self._bad = f"{self._path}:{self._line + 1}: a line longer than any of an audit log"
        try:
            for text in data[:end].splitlines(keepends=True):
                self._line += 1
                found = read_line(self._path, self._line, text)
                self._at += len(text)
                if isinstance(found, Block):
                    self._follower.take(found)
                elif found["event"] == "summary":
                    self._moment = {key: fact for key, fact in found.items() if key not in ("event", "seal")}
        except BadLogError as error:
            self._bad = str(error)
        except (KeyError, IndexError, ValueError) as error:
            self._bad = f"{self._path}:{self._line}: written by other declarations, or damaged ({error!r})"


class PageSource:
    """What another process serves at `url` (see `serve`)."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self.name = url
        self._request = Request(url.rstrip("/") + "/view.json")  # noqa: S310 - the scheme is checked by who asks
        if token is not None:
            self._request.add_header("Authorization", f"Bearer {token}")
        self._last: dict[str, Any] = Follower().view()

    def view(self) -> dict[str, Any]:
        """See `Source.view`."""
        trouble = ""
        try:
            with urlopen(self._request, timeout=PAGE_SECONDS) as answer:  # noqa: S310
                found = orjson.loads(answer.read(PAGE_BYTES))
            if isinstance(found, dict) and self._last.keys() <= found.keys():
                self._last = found
            else:
                trouble = "what is served there is no view"
        except URLError as error:
            trouble = str(error.reason)
        except (OSError, ValueError) as error:
            trouble = str(error)
        return {**self._last, "name": self.name, "trouble": trouble or self._last.get("trouble", "")}
