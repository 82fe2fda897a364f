"""Where a view comes from: an engine, a log that grows, a page; and what is said when it cannot be had."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from stagehold.machines.logs import AuditLog
from stagehold.operate.live import EngineSource, LogSource, PageSource, serve
from stagehold.operate.live.sources import of_snapshot
from stagehold.operate.snapshot import Feed
from stagehold.operate.web import Place
from stagehold.testing.storm import Storm


@pytest.fixture(scope="module")
def blocks():
    return Storm(6, 60).run().blocks


def plain(view):
    return {name: part for name, part in view.items() if name not in ("name", "trouble", "behind", "moment")}


def test_a_log_is_followed_as_it_grows(blocks, tmp_path: Path) -> None:
    """Block by block the same as an engine that is looked at; half a line waits for its other half."""
    path = tmp_path / "a.jsonl"
    source, engine = LogSource(path), EngineSource()
    assert "there is no such file yet" == source.view()["trouble"]
    with AuditLog(path) as log:
        for block in blocks[:-1]:
            log.block(block)
            engine.block(block)
            assert plain(engine.view()) == plain(source.view())
    whole = path.read_bytes()
    with AuditLog(tmp_path / "b.jsonl") as other:
        other.block(blocks[-1])
    line = (tmp_path / "b.jsonl").read_bytes()
    path.write_bytes(whole + line[: len(line) // 2])
    half = source.view()
    assert (len(blocks) - 1, len(line) // 2, "") == (half["blocks"], half["behind"], half["trouble"])
    path.write_bytes(whole + line)
    assert (len(blocks), 0) == tuple(source.view()[name] for name in ("blocks", "behind"))


def test_a_long_log_is_caught_up_with_in_pieces(blocks, tmp_path: Path) -> None:
    """So that a look never takes long."""
    path = tmp_path / "a.jsonl"
    with AuditLog(path) as log:
        for block in blocks:
            log.block(block)
    source = LogSource(path, most=20_000)
    assert 0 < source.view()["behind"]
    for _ in range(1_000):
        if not (view := source.view())["behind"]:
            break
    assert len(blocks) == view["blocks"]


def test_a_log_that_is_begun_anew_is_followed_anew(blocks, tmp_path: Path) -> None:
    """As a server that was started again does."""
    path = tmp_path / "a.jsonl"
    source = LogSource(path)
    for count in (50, 20):
        with AuditLog(path) as log:
            for block in blocks[:count]:
                log.block(block)
        assert count == source.view()["blocks"]
    path.unlink()
    assert 0 == source.view()["blocks"]


BAD = {
    "no log": b"hello\n",
    "another event": b'{"event":"weather"}\n',
    "half a block": b'{"event":"block","index":0}\n',
    "no object": b"[1,2,3]\n",
}


@pytest.mark.parametrize("what", BAD)
def test_what_is_no_log_is_said(blocks, tmp_path: Path, what: str) -> None:
    """With its line; what came before stays in the view."""
    path = tmp_path / "a.jsonl"
    with AuditLog(path) as log:
        log.block(blocks[0])
    with path.open("ab") as file:
        file.write(BAD[what])
    view = LogSource(path).view()
    assert f"{path}:2: " in view["trouble"]
    assert 1 == view["blocks"]


def test_what_a_block_does_not_say_comes_from_the_feed_or_the_log_s_summaries(hand, tmp_path: Path) -> None:
    """Pools, rates and tick times."""
    source = EngineSource()
    h = hand(engine_options={"sink": source.block})
    source.feed = feed = Feed(h.engine, pace_seconds=0)
    feed.tick()
    moment = source.view()["moment"]
    assert [0, 64] == moment["pools"]["full device"]
    assert {"pins", "write backlog", "full staging"} < set(moment["pools"])
    path = tmp_path / "a.jsonl"
    with AuditLog(path) as log:
        log.summary(feed.latest.tick, **of_snapshot(feed.latest))
    assert moment["pools"] == LogSource(path).view()["moment"]["pools"]


def test_a_page_of_another_process(blocks) -> None:
    """Its view is ours; when it has gone, the last view stays and the trouble is said."""
    engine = EngineSource(name="there")
    for block in blocks[:30]:
        engine.block(block)
    served = serve(engine)
    source = PageSource(served.url)
    assert plain(engine.view()) == plain(source.view())
    served.close()
    gone = source.view()
    assert "refused" in gone["trouble"]
    assert 30 == gone["blocks"]


TOKEN = "0123456789abcdef"


def test_a_page_that_asks_for_a_token(blocks) -> None:
    """It is given in the variable, or in the address as a browser has it; without one, that is said."""
    served = serve(EngineSource(name="there"), Place(token=TOKEN))
    assert "" == PageSource(served.url, TOKEN).view()["trouble"]
    source = PageSource(f"{served.url}/?token={TOKEN}")
    assert "" == source.view()["trouble"]
    assert TOKEN not in source.name
    assert (
        "401 Unauthorized: expected its token in the variable STAGEHOLD_TOKEN"
        == PageSource(served.url).view()["trouble"]
    )
    assert (
        PageSource(f"{served.url}/metrics", TOKEN).view()["trouble"].startswith("404 Not Found: expected the address")
    )
    served.close()


def answering(raw: bytes) -> tuple[str, list[bytes]]:
    """The address of a server that gives one answer, and what it was asked."""
    asked: list[bytes] = []
    listening = socket.create_server(("127.0.0.1", 0))

    def answer() -> None:
        with listening, listening.accept()[0] as client:
            asked.append(client.recv(1 << 16))
            client.sendall(raw)

    threading.Thread(target=answer, daemon=True).start()
    return f"http://127.0.0.1:{listening.getsockname()[1]}", asked


@pytest.mark.parametrize(
    "raw", [b"-ERR unknown command\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b""]
)
def test_what_answers_and_is_no_server_of_pages_is_a_trouble(raw) -> None:
    """Such as a store at that port."""
    assert PageSource(answering(raw)[0]).view()["trouble"]


def test_a_token_is_given_to_nobody_else() -> None:
    """A server may send us elsewhere; what is there has no right to it."""
    there, asked = answering(b"")
    here, first = answering(f"HTTP/1.1 302 x\r\nLocation: {there}/view.json\r\nContent-Length: 0\r\n\r\n".encode())
    PageSource(here, TOKEN).view()
    assert TOKEN.encode() in first[0]
    assert asked
    assert TOKEN.encode() not in asked[0]


def test_a_look_at_a_long_log_ends_in_time(blocks, tmp_path: Path) -> None:
    """A line at least is read, and the rest is said to be behind."""
    path = tmp_path / "a.jsonl"
    with AuditLog(path) as log:
        for block in blocks[:4]:
            log.block(block)
    source = LogSource(path, seconds=0)
    for count in (1, 2, 3, 4):
        view = source.view()
        assert (count, count < 4) == (view["blocks"], view["behind"] > 0)
