"""`stagehold top` and `stagehold watch`, over a log that grows, in a terminal and in a real browser."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from urllib.request import urlopen

import orjson
import pytest
from typer.testing import CliRunner

from stagehold.cli.main import app
from stagehold.machines.logs import AuditLog
from stagehold.operate.live import EngineSource, Follower, serve
from stagehold.operate.live.sources import of_snapshot
from stagehold.operate.snapshot import Feed
from stagehold.operate.web import Page, Place, Web
from stagehold.testing.hand import Hand
from stagehold.testing.storm import Storm

LENT = Path(__file__).resolve().parents[1] / "machines" / "test_html_page.py"
"""Where the browser that tests talk to is."""


def run(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def blocks():
    return Storm(7, 80).run().blocks


@pytest.fixture(scope="module")
def log(blocks, tmp_path_factory):
    path = tmp_path_factory.mktemp("live") / "a.jsonl"
    with AuditLog(path) as opened, Hand() as h:
        for block in blocks:
            opened.block(block)
        opened.summary(blocks[-1].tick, **of_snapshot(Feed(h.engine).latest))
    return path


def test_one_view_in_a_terminal(log, blocks) -> None:
    """States, tokens, pools, troubles."""
    done = run("top", log, "--once")
    assert 0 == done.exit_code, done.output
    for word in (f"tick {blocks[-1].tick:,}", "queried", "spliced", "full device", "waiting longest", "last of them"):
        assert word in done.stdout
    view = orjson.loads(run("top", log, "--json").stdout)
    assert len(blocks) == view["blocks"]


def test_a_request_cannot_write_to_the_terminal() -> None:
    """Nor make up its own colours: it is named by whoever sent it."""
    rid = "\x1b]0;owned\x07\x1b[2J\u202e[red]a"
    source = EngineSource()
    with Hand(engine_options={"sink": source.block}) as h:
        h.arrive(rid, [1, 2, 3])
        h.engine.tick()
        served = serve(source)
        done = run("top", served.url, "--once")
        served.close()
    assert 0 == done.exit_code, done.output
    assert "\ufffd]0;owned\ufffd\ufffd[2J\ufffd[red]a" in done.stdout
    assert not set("\x1b\x07\u202e") & set(done.output)


def test_what_is_served_may_be_anything(monkeypatch) -> None:
    """It is no view, and that is said in a line."""
    monkeypatch.setenv("STAGEHOLD_TOKEN", "0123456789abcdef")
    view = Follower().view()
    odd = {"tick": "x", "states": [1], "store": 3, "recent": [{}], "moment": {"pools": {"a": [5, "x"]}}}
    pages = [orjson.dumps({**view, key: value}) for key, value in odd.items()] + [b"[]", b"no JSON"]
    for body in pages:
        served = Web(Place(), {"/view.json": lambda body=body: Page(body, "application/json")})
        done = run("top", served.url, "--once")
        served.close()
        assert done.exit_code in (1, 2), done.output
        assert "what is served there is no view" in done.stderr
        assert 1 == done.stderr.count("\n")


def test_what_cannot_be_shown_is_said(tmp_path) -> None:
    """In one line, with what was expected."""
    (tmp_path / "x").write_text("hello\n")
    os.mkfifo(tmp_path / "pipe")
    cases = [
        (("top", tmp_path / "x", "--once"), 1, "x:1: not a line of an audit log"),
        (("top", tmp_path / "none", "--json"), 1, "there is no such file yet"),
        (("top", tmp_path), 2, "expected an audit log, found a directory"),
        (("top", tmp_path / "pipe", "--once"), 2, "expected an audit log, found a pipe or a device"),
        (("top", "ftp://x"), 2, "expected an audit log or an http:// address"),
        (("top", "http://["), 2, "Invalid IPv6 URL"),
        (("top", "http://a b"), 2, "expected an http:// address"),
        (("top", "http://127.0.0.1:1", "--once"), 1, "refused"),
        (("watch", tmp_path / "x", "--http", "0.0.0.0:0"), 2, "lets other machines look: expected a token"),
        (("watch", tmp_path / "x", "--http", "here"), 2, "expected HOST:PORT"),
    ]
    for arguments, status, said in cases:
        done = run(*arguments)
        assert status == done.exit_code, arguments
        assert said in done.stderr, (arguments, done.output)


def test_watch_serves_until_it_is_ended(log, blocks) -> None:
    """A process of its own, as an operator starts it; `top` looks at it in turn."""
    command = [sys.executable, "-c", "from stagehold.cli.main import app; app()", "watch", str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            url = running.stdout.readline().strip()
            with urlopen(f"{url}view.json", timeout=10) as answer:
                assert len(blocks) == orjson.loads(answer.read())["blocks"]
            assert "queried" in run("top", url, "--once").stdout
        finally:
            running.send_signal(signal.SIGINT)
        assert 0 == running.wait(20)


@pytest.fixture(scope="module")
def lent():
    spec = importlib.util.spec_from_file_location("lent_browser_live", LENT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["lent_browser_live"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def visit(lent, tmp_path):
    """Opens an address; at the end nothing may have gone wrong on its console, nor been asked for from elsewhere."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        assert os.environ.get("CI") != "true", "CI needs Chromium: install Debian's package chromium"
        pytest.skip("no Chromium on this machine")
    browser = lent.Browser(program, tmp_path / "profile")
    pages = []

    def visit(url, **look):
        pages.append((url, lent.Page(browser, SimpleNamespace(as_uri=lambda: url), **look)))
        return pages[-1][1]

    yield visit
    troubles = [(url, trouble) for url, page in pages for trouble in page.troubles()]
    browser.close()
    assert [] == [trouble for url, trouble in troubles if not trouble.startswith(url)]


def until(page, script, wanted, seconds=15.0):
    deadline = time.monotonic() + seconds
    while (found := page.ask(script)) != wanted:
        assert time.monotonic() < deadline, found
        time.sleep(0.1)


@pytest.mark.parametrize(("width", "scheme"), [(1200, "light"), (390, "dark")])
def test_the_page_shows_an_engine_as_it_runs(visit, blocks, width, scheme) -> None:
    """Figures move without a reload; a phone needs no sideways scrolling; the colours follow the system."""
    source = EngineSource(name="server 1")
    middle = len(blocks) // 2
    for block in blocks[:middle]:
        source.block(block)
    served = serve(source, seconds=0.1)
    try:
        page = visit(f"{served.url}/", width=width, scheme=scheme)
        until(page, "document.querySelectorAll('#states tbody tr').length > 10", wanted=True)
        half = page.ask("document.querySelector('#says').textContent")
        assert f"{middle} blocks" in half.replace(",", "")
        for block in blocks[middle:]:
            source.block(block)
        until(page, f"document.querySelector('#says').textContent.includes('{len(blocks):,} blocks')", wanted=True)
        shown = page.texts("#tokens tbody td.n")
        assert f"{source.view()['tokens']['queried']:,}" == shown[0]
        assert 3 == page.ask("document.querySelectorAll('#flows polyline').length")
        assert page.ask("document.querySelector('#flows .queried').getBBox().height") > 10
        assert len(source.view()["recent"]) == page.ask("document.querySelectorAll('#recent tbody tr').length")
        assert page.ask("document.documentElement.scrollWidth <= innerWidth")
        ground = page.ask("getComputedStyle(document.body).backgroundColor")
        assert ("rgb(20, 24, 30)" if scheme == "dark" else "rgb(251, 251, 249)") == ground
        assert "server 1" in page.texts("h1")[0]
    finally:
        served.close()


def test_the_page_says_when_nobody_answers(visit, blocks) -> None:
    """And hostile names are text, not markup."""
    source = EngineSource(name="<img src=x onerror=alert(1)>")
    source.block(blocks[0])
    served = serve(source, seconds=0.1)
    page = visit(f"{served.url}/")
    until(page, "document.querySelector('#name').textContent", wanted="<img src=x onerror=alert(1)>")
    assert 0 == page.ask("document.images.length")
    served.close()
    until(page, "document.querySelector('#trouble').textContent.startsWith('No connection')", wanted=True)
    page.browser.events[:] = [e for e in page.browser.events if "ERR_" not in json.dumps(e)]
