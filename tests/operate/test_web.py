"""Who may look, and what they are told who may not."""

from __future__ import annotations

import http.client
import socket
import time
from collections.abc import Iterator
from contextlib import closing

import pytest

from stagehold.operate import web as module
from stagehold.operate.web import MOST_STREAMS, Page, Place, Web, place

TOKEN = "0123456789abcdef"


def ask(web: Web, path: str = "/", method: str = "GET", **headers: str) -> tuple[int, bytes, dict[str, str]]:
    host, _, port = web.url.removeprefix("http://").rpartition(":")
    with closing(http.client.HTTPConnection(host.strip("[]"), int(port), timeout=10)) as connection:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read(), dict(answer.getheaders())


@pytest.fixture
def web():
    made = []

    def start(where: Place | None = None, streams=None) -> Web:
        def broken() -> Page:
            raise RuntimeError("no figures")

        pages = {"/": lambda: Page(b"hello"), "/broken": broken}
        made.append(Web(where or Place(), pages, streams))
        return made[-1]

    yield start
    for one in made:
        one.close()


def test_a_page_and_what_is_none(web) -> None:
    """Nothing may be kept, nothing from elsewhere may be loaded, nothing can be changed."""
    served = web()
    status, body, headers = ask(served)
    assert (200, b"hello") == (status, body)
    assert "no-store" == headers["Cache-Control"]
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert (200, b"") == ask(served, method="HEAD")[:2]
    assert (404, b"/x: expected one of /, /broken\n") == ask(served, "/x")[:2]
    assert (500, b"RuntimeError: no figures\n") == ask(served, "/broken")[:2]
    for method in ("POST", "PUT", "DELETE"):
        assert 501 == ask(served, method=method)[0]


def test_what_cannot_be_read_is_told(web) -> None:
    """And not hung up on."""
    served = web()
    assert 400 == ask(served, Host="[")[0]
    assert 400 == ask(served, "http://[", Host="localhost")[0]


def opened(web: Web) -> http.client.HTTPConnection:
    host, _, port = web.url.removeprefix("http://").rpartition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=10)
    connection.request("GET", "/")
    assert b"hello" == connection.getresponse().read()
    return connection


def test_a_connection_that_was_kept_gets_nothing_more_once_closed(web) -> None:
    """Else a scraper that comes often keeps a closed server, and its engine, for ever."""
    served = web()
    kept = opened(served)
    served.close()
    kept.request("GET", "/")
    with pytest.raises(http.client.RemoteDisconnected):
        kept.getresponse()
    kept.close()


def test_clients_that_hold_their_connections_are_bounded(web, monkeypatch) -> None:
    """Each takes a thread and a file of the engine's process; a place that gets free is given away again."""
    monkeypatch.setattr(module, "MOST_CLIENTS", 2)
    served = web()
    kept = [opened(served), opened(served)]
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        ask(served)
    kept[0].close()
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            assert 200 == ask(served)[0]
        except (http.client.RemoteDisconnected, ConnectionResetError):
            time.sleep(0.01)
        else:
            break
    else:
        raise AssertionError("the place was not given away again")
    kept[1].close()


@pytest.mark.parametrize("host", ["127.0.0.1:1", "localhost", "[::1]:80"])
def test_this_machine_may_look(web, host: str) -> None:
    """Under each of its names."""
    assert 200 == ask(web(), Host=host)[0]


@pytest.mark.parametrize("host", ["example.org", "127.0.0.1.example.org", "", "evil:80", "[::2]"])
def test_a_name_that_resolves_to_this_machine_may_not(web, host: str) -> None:
    """A page of another site must not read ours through the browser."""
    assert (403, b"expected a Host that is this machine\n") == ask(web(), Host=host)[:2]


def test_a_token_is_asked_of_everybody(web) -> None:
    """In a header or in the address."""
    served = web(Place(token=TOKEN))
    assert 401 == ask(served)[0]
    assert 401 == ask(served, Authorization="Bearer wrong")[0]
    assert 401 == ask(served, "/?token=")[0]
    assert 200 == ask(served, Authorization=f"Bearer {TOKEN}")[0]
    assert 200 == ask(served, f"/?token={TOKEN}", Host="example.org")[0]


@pytest.mark.parametrize(
    ("text", "token", "said"),
    [
        ("0.0.0.0:80", None, "host '0.0.0.0' lets other machines look: expected a token, or 127.0.0.1"),
        ("example.org:80", None, "lets other machines look"),
        ("127.0.0.1:x", None, "expected HOST:PORT"),
        ("127.0.0.1:70000", None, "port 70000: expected 0 (any) to 65535"),
        ("0.0.0.0:80", "short", "token: expected at least 16 characters"),
    ],
)
def test_a_place_that_makes_no_sense_is_refused(text: str, token: str | None, said: str) -> None:
    """Before anything is served."""
    with pytest.raises(ValueError, match="expected") as raised:
        place(text, token)
    assert said in str(raised.value)


def test_places() -> None:
    """As people write them."""
    assert Place("127.0.0.1", 8421) == place("8421") == place(":8421") == place("127.0.0.1:8421")
    assert Place("::1", 80) == place("[::1]:80")
    assert Place("0.0.0.0", 80, TOKEN) == place("0.0.0.0:80", TOKEN)


def open_stream(served: Web) -> socket.socket:
    host, port = served.url.removeprefix("http://").split(":")
    opened = socket.create_connection((host, int(port)), timeout=10)
    opened.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n")
    return opened


def read_until(opened: socket.socket, wanted: bytes) -> bytes:
    text = b""
    while wanted not in text and (piece := opened.recv(4096)):
        text += piece
    return text


def test_a_stream_goes_on_until_its_reader_goes(web) -> None:
    """Its iterator is closed then."""
    ended = []

    def events() -> Iterator[bytes]:
        try:
            for number in range(10_000):
                yield b"" if number % 2 else str(number).encode()
                time.sleep(0.01)
        finally:
            ended.append(True)

    served = web(streams={"/events": events})
    opened = open_stream(served)
    text = read_until(opened, b"data: 4\n\n")
    assert b"text/event-stream" in text
    assert b"data: 0\n\n:\n\ndata: 2\n\n:\n\ndata: 4\n\n" in text
    opened.close()
    deadline = time.monotonic() + 10
    while not ended and time.monotonic() < deadline:
        time.sleep(0.01)
    assert [True] == ended


def test_streams_are_bounded(web) -> None:
    """One more is told so, and may come when another has gone."""

    def events() -> Iterator[bytes]:
        while True:
            yield b"x"
            time.sleep(0.02)

    served = web(streams={"/events": events})
    opened = [open_stream(served) for _ in range(MOST_STREAMS)]
    for one in opened:
        read_until(one, b"data: x")
    one_more = open_stream(served)
    assert b"32 streams are open; close one" in read_until(one_more, b"close one")
    for one in (*opened, one_more):
        one.close()


def test_closing_ends_all_of_it(web) -> None:
    """At once, and once."""
    served = web()
    served.close()
    served.close()
    with pytest.raises(OSError, match="refused"):
        ask(served)
