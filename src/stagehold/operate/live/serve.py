"""The live view as one page: HTML, the view as JSON, and a stream of views."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import orjson

from stagehold.operate.live.sources import Source
from stagehold.operate.web import Page, Place, Web

PAGE = Path(__file__).with_name("page.html")
"""One file, styles and script in it; it asks for nothing from anywhere else."""

SECONDS = 1.0
"""From view to view."""


def serve(
    source: Source,
    place: Place | None = None,
    *,
    seconds: float = SECONDS,
    more: dict[str, Callable[[], Page]] | None = None,
) -> Web:
    """Serve `source` at `place` (this machine, any port) until the result is closed; `more` pages beside it.

    `/` is the page, `/view.json` the view of now, `/events` a view each `seconds` as server-sent events.
    """
    text = PAGE.read_bytes()

    def events() -> Iterator[bytes]:
        last = b""
        while True:
            view = orjson.dumps(source.view())
            yield b"" if view == last else view
            last = view
            time.sleep(seconds)

    pages = {
        "/": lambda: Page(text),
        "/view.json": lambda: Page(orjson.dumps(source.view()), "application/json"),
        **(more or {}),
    }
    return Web(place or Place(), pages, {"/events": events})
