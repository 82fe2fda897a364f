"""Where a view comes from: an engine in this process, a log that somebody writes, or a page that somebody serves.

Each has `name` and `view()`, which gives the view of now as plain data; a source that cannot be read says so in it,
under `trouble`, and is tried again the next time.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import orjson

from stagehold.machines.audit_read import LINE_BYTES, BadLogError, read_line
from stagehold.machines.records import Block
from stagehold.operate.live.follower import Follower
from stagehold.operate.snapshot import Feed, Snapshot

MOST_WAITING = 1 << 17
"""Blocks that wait to be looked at; a view that falls behind so far begins anew, and says so."""

LOOK_SECONDS = 0.5
"""How long one look at a log takes, about: a long one is caught up with view by view."""

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

    A look reads at most `most` bytes and adds up for about `seconds`: a long log is caught up with in several.
    """

    def __init__(self, path: Path, most: int = 1 << 24, seconds: float = LOOK_SECONDS) -> None:
        self.name = str(path)
        self._path = path
        self._most = most
        self._seconds = seconds
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
        """Whole lines, as long as there is time; the last one may be half written, and waits."""
        until, end = time.monotonic() + self._seconds, data.rfind(b"\n") + 1
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
                if time.monotonic() > until:
                    break
        except BadLogError as error:
            self._bad = str(error)
        except (KeyError, IndexError, ValueError) as error:
            self._bad = f"{self._path}:{self._line}: written by other declarations, or damaged ({error!r})"


REMEDIES = {
    401: ": expected its token in the variable STAGEHOLD_TOKEN",
    404: ": expected the address of a live view, which stagehold.operate.live.serve gives",
}
"""What to do about an answer that is no view, by its status."""


class PageSource:
    """What another process serves at `url` (see `serve`). ValueError if that is no http:// address."""

    def __init__(self, url: str, token: str | None = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc.isprintable() or " " in parts.netloc:
            raise ValueError(f"{url!r}: expected an http:// address")
        self.name = url.partition("?")[0]  # what follows may be the token
        target = parts._replace(path=parts.path.rstrip("/") + "/view.json", fragment="")
        self._request = Request(target.geturl())  # noqa: S310 - looked at above
        if token is not None:  # for that address alone, wherever it sends us
            self._request.add_unredirected_header("Authorization", f"Bearer {token}")
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
        except HTTPError as error:
            trouble = f"{error.code} {error.reason}{REMEDIES.get(error.code, '')}"
        except URLError as error:
            trouble = str(error.reason)
        except (OSError, HTTPException) as error:
            trouble = str(error).strip() or type(error).__name__
        except ValueError:
            trouble = "what is served there is no view"
        return {**self._last, "name": self.name, "trouble": trouble or self._last.get("trouble", "")}
