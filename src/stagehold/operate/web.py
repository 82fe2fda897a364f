"""A small read-only web server in a thread of its own: pages, and streams that go on.

Owns who may look: this machine alone unless a token is asked for. It knows nothing of what it serves; a page is a
function that is called in the server's threads, so what it reads must be safe to read from there.
"""

from __future__ import annotations

import hmac
import ipaddress
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

MOST_STREAMS = 32
"""Streams that may be open at a time: each has a thread."""

MOST_CLIENTS = 128
"""Connections that may be open at a time, each with a thread and a file; who comes later is hung up on."""

PATIENCE_SECONDS = 10.0
"""How long a client may take to send its request or to take a piece of the answer."""

HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"
    ),
}


@dataclass(frozen=True, slots=True)
class Page:
    """An answer: its bytes, what they are, and its HTTP status."""

    body: bytes
    kind: str = "text/html; charset=utf-8"
    status: int = HTTPStatus.OK


@dataclass(frozen=True, slots=True)
class Place:
    """Where to serve. A `token` is needed to serve anybody but this machine, and then asked of everybody."""

    host: str = "127.0.0.1"
    port: int = 0
    token: str | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.port < 1 << 16:
            raise ValueError(f"port {self.port}: expected 0 (any) to 65535")
        if self.token is not None and len(self.token) < 16:
            raise ValueError("token: expected at least 16 characters")
        if self.token is None and not is_here(self.host):
            raise ValueError(f"host {self.host!r} lets other machines look: expected a token, or 127.0.0.1")


def is_here(host: str) -> bool:
    """Whether a name or address is this machine's own, which no other can reach."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def place(text: str, token: str | None = None) -> Place:
    """Parse `HOST:PORT`, `:PORT` or `PORT`. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not port.isdigit():
        raise ValueError(f"{text!r}: expected HOST:PORT, such as 127.0.0.1:8421")
    return Place(host.strip("[]") or "127.0.0.1", int(port), token)


class Web:
    """Serves `pages` and `streams` by path, at once and until `close`; `url` says where.

    A stream is a function that gives an iterator of events; each is sent as one server-sent event, and an empty one as
    a sign of life. The iterator is closed when the client has gone or the server closes.
    """

    def __init__(
        self,
        place: Place,
        pages: Mapping[str, Callable[[], Page]],
        streams: Mapping[str, Callable[[], Iterator[bytes]]] | None = None,
    ) -> None:
        self.pages = dict(pages)
        self.streams = dict(streams or {})
        self.place = place
        self.closing = threading.Event()
        self.open_streams = threading.BoundedSemaphore(MOST_STREAMS)
        self._server = _Server((place.host, place.port), self)
        host = f"[{place.host}]" if ":" in place.host else place.host
        self.url = f"http://{host}:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, name="stagehold-web", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop serving; streams end. Idempotent."""
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False  # a stream ends by itself within its next piece
    request_queue_size = MOST_CLIENTS  # many that come at once wait to be accepted, and need not knock again

    def __init__(self, address: tuple[str, int], web: Web) -> None:
        self.web = web
        self._clients = threading.BoundedSemaphore(MOST_CLIENTS)
        if ":" in address[0]:
            import socket

            self.address_family = socket.AF_INET6
        super().__init__(address, _Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own, while there are not too many: slow clients must not take the engine's files."""
        if not self._clients.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:  # no thread could be started, so none gives it back
            self._clients.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """See `process_request`."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._clients.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no error of ours."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "stagehold", ""
    timeout = PATIENCE_SECONDS

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Nothing is logged for a request."""

    def do_HEAD(self) -> None:
        """See `do_GET`."""
        self.do_GET()

    def do_GET(self) -> None:
        """A page or a stream, to who may see it."""
        web = self.server.web
        if web.closing.is_set():  # a connection that was kept
            self.close_connection = True
            return
        try:
            parts = urlsplit(self.path)
            refused = self._refused(parts.query)
        except ValueError as error:
            self._send(_told(HTTPStatus.BAD_REQUEST, f"expected a path and a Host that can be read: {error}"))
            return
        if refused is not None:
            self._send(refused)
        elif parts.path in web.streams:
            self._stream(web.streams[parts.path])
        elif parts.path in web.pages:
            self._send(self._made(web.pages[parts.path]))
        else:
            known = ", ".join([*web.pages, *web.streams])
            self._send(_told(HTTPStatus.NOT_FOUND, f"{parts.path}: expected one of {known}"))

    def _refused(self, query: str) -> Page | None:
        here = self.server.web.place
        if here.token is None:
            # A page of another site could have its name resolved to this machine; it cannot forge this header.
            name = urlsplit(f"//{self.headers.get('Host', '')}").hostname or ""
            if is_here(name):
                return None
            return _told(HTTPStatus.FORBIDDEN, "expected a Host that is this machine")
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        given = given or parse_qs(query).get("token", [""])[0]
        if hmac.compare_digest(given.encode(), here.token.encode()):
            return None
        return _told(HTTPStatus.UNAUTHORIZED, "expected a token: Authorization: Bearer ..., or ?token=...")

    def _made(self, page: Callable[[], Page]) -> Page:
        try:
            return page()
        except Exception as error:  # noqa: BLE001 - a page that fails must not end the thread without a word
            return _told(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")

    def _send(self, page: Page) -> None:
        self._begin(page.status, page.kind)
        self.send_header("Content-Length", str(len(page.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(page.body)

    def _stream(self, stream: Callable[[], Iterator[bytes]]) -> None:
        web = self.server.web
        if not web.open_streams.acquire(blocking=False):
            self._send(_told(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST_STREAMS} streams are open; close one"))
            return
        try:
            self._begin(HTTPStatus.OK, "text/event-stream")
            self.send_header("Connection", "close")
            self.end_headers()
            self.close_connection = True
            if self.command != "HEAD":
                self._events(stream())
        finally:
            web.open_streams.release()

    def _events(self, events: Iterator[bytes]) -> None:
        try:
            for event in events:
                if self.server.web.closing.is_set():
                    return
                self.wfile.write(b"data: " + event + b"\n\n" if event else b":\n\n")
                self.wfile.flush()
        except OSError:
            pass  # the client has gone
        finally:
            close = getattr(events, "close", None)
            if close is not None:
                close()

    def _begin(self, status: int, kind: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        for name, value in HEADERS.items():
            self.send_header(name, value)


def _told(status: HTTPStatus, text: str) -> Page:
    return Page(f"{text}\n".encode(), "text/plain; charset=utf-8", status)
