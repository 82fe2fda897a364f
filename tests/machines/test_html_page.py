"""The page in a real browser: clicked through, by mouse and keyboard, wide and narrow, light and dark."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stagehold.machines import MACHINES, audit, diagram, labels
from stagehold.specs.declare import ANY
from stagehold.specs.hold import HOLD
from stagehold.specs.request import REQUEST

SECONDS = 30
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """Headless Chromium, spoken to over the two pipes that it reads and writes itself: no port, no package."""

    def __init__(self, program: str, profile: Path) -> None:
        theirs, self.to = os.pipe()
        self.back, answers = os.pipe()
        command = ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{answers} 2>/dev/null', "chromium", program, *FLAGS]
        self.process = subprocess.Popen(
            [*command, f"--user-data-dir={profile}", "about:blank"], pass_fds=(theirs, answers)
        )
        os.close(theirs)
        os.close(answers)
        self.rest = b""
        self.count = 0
        self.events: list[dict[str, Any]] = []

    def call(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        """Send a command and wait for its answer; what arrives meanwhile is kept in `events`."""
        self.count += 1
        message = {"id": self.count, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        while True:
            answer = self.read()
            if answer.get("id") == self.count:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self.events.append(answer)

    def read(self) -> dict[str, Any]:
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.back], [], [], SECONDS)
            piece = os.read(self.back, 1 << 20) if ready else b""
            assert piece, "the browser is silent"
            self.rest += piece
        message, _, self.rest = self.rest.partition(b"\0")
        return dict(json.loads(message))

    def close(self) -> None:
        self.call("Browser.close")
        self.process.wait(SECONDS)
        os.close(self.to)
        os.close(self.back)


class Page:
    """One page in the browser, with what a reader does to it."""

    def __init__(self, browser: Browser, file: Path, *, width: int = 1200, scheme: str = "light") -> None:
        self.browser = browser
        browser.events.clear()
        self.target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = browser.call("Target.attachToTarget", targetId=self.target, flatten=True)["sessionId"]
        for part in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{part}.enable")
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Page.navigate", url=file.as_uri())
        while not any(event.get("method") == "Page.loadEventFired" for event in browser.events):
            browser.events.append(browser.read())

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        return self.browser.call(method, self.session, **params)

    def ask(self, script: str) -> Any:
        """The value of a JavaScript expression."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def click(self, selector: str) -> None:
        """Press the mouse in the middle of an element, wherever on the page it stands."""
        box = f"document.querySelector({json.dumps(selector)})"
        self.ask(f"{box}.scrollIntoView({{block: 'center', inline: 'center'}})")
        x, y = self.ask(f"(b => [b.x + b.width / 2, b.y + b.height / 2])({box}.getBoundingClientRect())")
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)

    def press(self, key: str, code: int) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def texts(self, selector: str) -> list[str]:
        """The texts of all visible elements of a selector."""
        seen = f"[...document.querySelectorAll({json.dumps(selector)})].filter(e => e.getClientRects().length)"
        return list(self.ask(f"{seen}.map(e => e.textContent)"))

    def troubles(self) -> list[str]:
        """Errors and warnings on the console, and addresses asked for besides the file itself."""
        self.ask("0")
        found = []
        for event in self.browser.events:
            params, method = event.get("params", {}), event.get("method")
            if method in ("Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled"):
                found.append(json.dumps(params))
            if method == "Network.requestWillBeSent" and not params["request"]["url"].startswith(("file:", "data:")):
                found.append(params["request"]["url"])
        return found


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One browser for all tests of this file."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        assert os.environ.get("CI") != "true", "CI needs Chromium: install Debian's package chromium"
        pytest.skip("no Chromium on this machine")
    opened = Browser(program, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def visit(browser: Browser, tmp_path: Path, run_log: Path) -> Iterator[Callable[..., Page]]:
    """Opens the page of a log in the browser; at the end nothing may have gone wrong on its console."""
    diagram.write_html(tmp_path / "page.html", run_log)
    opened: list[Page] = []

    def visit(**look: Any) -> Page:
        opened.append(Page(browser, tmp_path / "page.html", **look))
        return opened[-1]

    yield visit
    assert [] == [trouble for page in opened for trouble in page.troubles()]
    for page in opened:
        browser.call("Target.closeTarget", targetId=page.target)


def touching(state: str) -> int:
    """How many declared rows of *request* start or end in a state that is not terminal."""
    return sum(state in (labels.source(row), labels.word(row.target)) or row.source == ANY for row in REQUEST.rows)


def test_every_machine_shows_its_states_and_rows(visit: Callable[..., Page]) -> None:
    """Clicking through the machines brings up each one's diagram and table, and hides the others'."""
    page = visit()

    for spec in MACHINES:
        page.click(f"#tab-{spec.name}")
        drawn = page.texts("svg .state tspan:first-child")
        assert [labels.word(s.name) for s in spec.states] == [name for name in drawn if name != labels.ANY_TEXT]
        assert len(spec.rows) == len(page.texts(".rows tbody tr"))
        assert f"{len(spec.rows)} of {len(spec.rows)} rows" in page.texts("output.shown")


def test_choosing_a_state_narrows_the_rows(visit: Callable[..., Page]) -> None:
    """A click on a state leaves the rows that touch it, and a second one brings all of them back."""
    page = visit()
    page.click('#panel-request [data-state="staged"]')
    narrowed = page.texts("#panel-request .rows tbody tr")
    page.click('#panel-request [data-state="staged"]')

    assert touching("staged") == len(narrowed)
    assert len(REQUEST.rows) == len(page.texts("#panel-request .rows tbody tr"))


def test_the_keyboard_reaches_machines_and_states(visit: Callable[..., Page]) -> None:
    """Arrow keys move along the machines, and Enter chooses the state that has the focus."""
    page = visit()
    page.ask("document.querySelector('#tab-request').focus()")
    page.press("ArrowRight", 39)
    opened = page.texts("h2")
    page.press("ArrowLeft", 37)
    page.ask("document.querySelector('#panel-request [data-state=retry]').focus()")
    page.press("Enter", 13)

    assert ["hold"] == opened
    assert touching("retry") == len(page.texts("#panel-request .rows tbody tr"))


def test_the_heat_marks_rows_never_taken(visit: Callable[..., Page], run_log: Path) -> None:
    """Counts stand in the table, rows never taken can be singled out, and the sum is on its own panel."""
    page = visit()
    page.click("#tab-hold")
    counts = page.texts("#panel-hold .rows td[data-head=taken]")
    page.click("#panel-hold .never-only")
    never = len(audit.stats(run_log).never(HOLD))

    assert (never, len(HOLD.rows) - never) == (counts.count("never"), counts.count("3"))
    assert never == len(page.texts("#panel-hold .rows tbody tr"))
    page.click("#tab-heat")
    assert any(text.startswith("hold31505 of 27") for text in page.texts("#panel-heat tbody tr"))


def test_a_timeline_shows_a_request_and_its_hold(visit: Callable[..., Page]) -> None:
    """Choosing a request draws its lane and its hold's, and lists the steps of both in order."""
    page = visit()
    page.click("#tab-timelines")
    page.click(".requests li:nth-child(2) button")

    assert ["request 2: r1 #0", "hold 3: pages 0 to 7 of …01010101"] == page.texts(".lane b")
    assert ["queued", "lookup", "staged", "anchor_locked", "committed", "finished"] == page.texts(
        ".lane:nth-of-type(1) .strip span"
    )
    steps = page.texts(".story tbody tr")
    assert 13 == len(steps)
    assert steps[0] == "5request 2bornqueued"


def test_requests_can_be_searched(visit: Callable[..., Page]) -> None:
    """Typing a request's name leaves the requests that bear it."""
    page = visit()
    page.click("#tab-timelines")
    page.click(".request-filter")
    page.call("Input.insertText", text="r2")

    assert ["1 of 3 requests"] == page.texts("output.found")


def test_the_page_never_scrolls_sideways_on_a_phone(visit: Callable[..., Page]) -> None:
    """At 360 pixels every panel fits; what is wider scrolls in a box of its own."""
    page = visit(width=360)

    for name in [*(spec.name for spec in MACHINES), "heat", "timelines"]:
        page.click(f"#tab-{name}")
        assert 360 >= page.ask("document.documentElement.scrollWidth"), name


def test_the_page_follows_the_readers_colours(visit: Callable[..., Page]) -> None:
    """Light on dark where the reader asked for dark, dark on light otherwise."""
    ground = "getComputedStyle(document.body).backgroundColor"

    assert "rgb(251, 251, 249)" == visit(scheme="light").ask(ground)
    assert "rgb(20, 24, 30)" == visit(scheme="dark").ask(ground)


def test_the_page_holds_all_it_needs(tmp_path: Path, run_log: Path) -> None:
    """No address of anything else, with a log and without."""
    for log in (None, run_log):
        diagram.write_html(tmp_path / "page.html", log)
        text = (tmp_path / "page.html").read_text()
        assert not any(word in text for word in ("http:", "https:", "@import", 'src="', "url(//"))
