"""`stagehold report`: the page of two simulations, looked at in a real browser."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from stagehold.cli.main import app
from stagehold.lab.traces import shipped_trace
from stagehold.machines import MACHINES

LENT = Path(__file__).resolve().parents[1] / "machines" / "test_html_page.py"
"""Where the browser that tests talk to is."""


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(name="html", scope="module")
def _html(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of two runs, the second with a slow store and with a log."""
    folder = tmp_path_factory.mktemp("report")
    trace = folder / "agents.jsonl"
    assert 0 == run("trace", "convert", shipped_trace("miniswe"), trace, "--session-every", 0.5).exit_code
    small = ("simulate", "--trace", trace, "--requests", 60, "--device-pages", 300)
    fast, slow = folder / "fast.json", folder / "slow.json"
    assert 0 == run(*small, "--out", fast).exit_code
    assert 0 == run(*small, "--out", slow, "--store-gbps", 0.5, "--audit", folder / "a.jsonl").exit_code
    done = run("report", fast, slow, "--out", folder / "r.html", "--title", "Fast and slow")
    assert f"2 runs on {folder / 'r.html'}\n" == done.stdout
    return folder / "r.html"


@pytest.fixture(name="visit", scope="module")
def _visit(html: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """Opens the page; at the end nothing may have gone wrong on its console, nor been asked for from elsewhere."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        assert os.environ.get("CI") != "true", "CI needs Chromium: install Debian's package chromium"
        pytest.skip("no Chromium on this machine")
    spec = importlib.util.spec_from_file_location("lent_browser", LENT)
    assert spec is not None
    assert spec.loader is not None
    lent = importlib.util.module_from_spec(spec)
    sys.modules["lent_browser"] = lent
    spec.loader.exec_module(lent)
    browser = lent.Browser(program, tmp_path_factory.mktemp("profile"))
    opened: list[Any] = []
    troubles: list[str] = []

    def look_back() -> None:
        """What happened on the last page, before the next one is opened."""
        if opened:
            troubles.extend(opened[-1].troubles())

    def visit(file: Path = html, **look: Any) -> Any:
        look_back()
        opened.append(lent.Page(browser, file, **look))
        return opened[-1]

    yield visit
    look_back()
    browser.close()
    assert [] == troubles


def test_charts_are_drawn(visit: Callable[..., Any]) -> None:
    """Every chart has curves that take room, and all that belong to runs over time are there for both."""
    page = visit()
    titles = page.ask("[...document.querySelectorAll('figcaption')].map(e => e.firstChild.textContent.trim())")
    boxes = page.ask(
        "[...document.querySelectorAll('.chart .line, .chart .area')]"
        ".map(e => e.getBBox()).map(b => [b.width, b.height])"
    )

    each = ["Prompt tokens by tier", "Hit tokens by tier", "Queried hit tokens", "Bytes moved",
            "Staging, pins, backlog", "Retries and deferrals", "Requests waiting or running"]  # fmt: skip
    lost = "Hit tokens lost, by reason"
    assert sorted(["Waiting for the first token", *each, *each, lost]) == sorted(titles)
    assert all(width > 50 for width, _ in boxes)
    assert sum(height > 20 for _, height in boxes) >= len(boxes) / 2
    assert 2 == page.ask("document.querySelectorAll('.chart')[0].querySelectorAll('.line').length")
    assert page.texts("p")[0].startswith("slow hit ")


def test_runs_stand_side_by_side(visit: Callable[..., Any], html: Path) -> None:
    """A bar for each, as long as its prompts, in parts; and a row for each, with every reason for which it lost any."""
    page = visit()
    bars = page.ask(
        "[...document.querySelectorAll('.parts')].map(e => [e.clientWidth, ...[...e.children].map(b => b.offsetWidth)])"
    )
    losses = json.loads((html.parent / "slow.json").read_text())["losses"]
    heads = page.texts("[aria-label='Where hit tokens ended'] th")

    assert 2 == len(bars)
    for whole, *parts in bars:
        assert 3 == len(parts)
        assert abs(whole - sum(parts)) <= 3
    assert bars[0][2] > bars[1][2]
    assert ["run", "queried", "spliced", *sorted(losses)] == heads


def test_everything_can_be_reached_by_keyboard(visit: Callable[..., Any]) -> None:
    """Tab goes to every head, every table and every fold in turn, each with an outline to be seen."""
    page = visit()
    wanted = page.ask(
        "[...document.querySelectorAll('button, summary, [tabindex]')].filter(e => e.checkVisibility()).length"
    )
    seen = set()
    for _ in range(wanted):
        page.press("Tab", 9)
        where = "[...document.querySelectorAll('*')].indexOf(document.activeElement)"
        seen.add(page.ask(f"[{where}, getComputedStyle(document.activeElement).outlineStyle].join()"))

    assert wanted == len(seen) > 40
    assert {"solid"} == {one.split(",")[1] for one in seen}


def test_tables_sort_by_mouse_and_keyboard(visit: Callable[..., Any]) -> None:
    """Largest first, then smallest first; the head says which way it is."""
    page = visit()
    head = "[aria-label='Slowest requests'] th:nth-child(3)"
    column = (
        "[...document.querySelectorAll('[aria-label=\"Slowest requests\"]')][0].querySelectorAll('td:nth-child(3)')"
    )

    def prompts() -> list[float]:
        return [float(value) for value in page.ask(f"[...{column}].map(e => e.dataset.by)")]

    page.click(f"{head} button")
    largest = prompts()
    page.ask(f"document.querySelector({json.dumps(head + ' button')}).focus()")
    page.call("Input.dispatchKeyEvent", type="keyDown", key="Enter", code="Enter", windowsVirtualKeyCode=13, text="\r")
    page.call("Input.dispatchKeyEvent", type="keyUp", key="Enter", code="Enter", windowsVirtualKeyCode=13)

    assert sorted(largest, reverse=True) == largest
    assert sorted(largest) == prompts()
    assert "ascending" == page.ask(f"document.querySelector({json.dumps(head)}).getAttribute('aria-sort')")


def test_the_machines_of_a_log_are_drawn(visit: Callable[..., Any]) -> None:
    """The run with a log brings a diagram of every machine, and its rows by how often they were taken."""
    page = visit()

    assert len(MACHINES) == page.ask("document.querySelectorAll('svg.machine').length")
    page.click("details:has(svg.machine) summary")
    assert page.texts("details[open] td.n")
    assert 0 == page.ask("document.querySelectorAll('svg.machine [tabindex]').length")


def test_the_slowest_requests_have_their_states(visit: Callable[..., Any], html: Path) -> None:
    """In the order of their waits, each with a lane of its own and one for each hold, from birth to end."""
    slowest = json.loads((html.parent / "slow.json").read_text())["slowest"]
    page = visit()
    titles = page.texts("details:has(.strip) summary")
    page.click("details:has(.strip) summary")

    assert 20 == len(titles)
    assert f": {slowest[0]['request']} #0: ticks" in titles[0]
    states = page.texts("details[open] .strip:nth-of-type(1) span")
    assert ("queued", "finished") == (states[0], states[-1])


@pytest.mark.parametrize(("scheme", "ground"), [("light", "rgb(251, 251, 249)"), ("dark", "rgb(20, 24, 30)")])
def test_a_phone_in_light_and_dark(visit: Callable[..., Any], scheme: str, ground: str) -> None:
    """At 360 pixels the page never scrolls sideways; text on charts stays readable; colours are the reader's."""
    page = visit(width=360, scheme=scheme)

    assert 360 >= page.ask("document.documentElement.scrollWidth")
    assert ground == page.ask("getComputedStyle(document.body).backgroundColor")
    assert 8 < page.ask("document.querySelector('.chart text').getBoundingClientRect().height")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_of_tables_and_sizes(visit: Callable[..., Any], tmp_path: Path, scheme: str) -> None:
    """Both are drawn on a phone, too: a curve and its dots over each option, and a box for each pair of sizes."""
    small = ("--trace", "miniswe", "--requests", 12, "--users", 6, "--device-pages", 300)
    grid = ("--host-gb", "1-2", "--store-gbps", "1-4", "--cells", tmp_path / "c.jsonl", "--within", 60)
    assert 0 == run("size", *small, *grid, "--out", tmp_path / "size.html").exit_code
    assert 0 == run("report", tmp_path / "c.jsonl", "--out", tmp_path / "cells.html").exit_code

    for name, selector in (("size", ".sizes rect"), ("cells", ".dot")):
        page = visit(tmp_path / f"{name}.html", width=360, scheme=scheme)
        boxes = page.ask(f"[...document.querySelectorAll('{selector}')].map(e => e.getBoundingClientRect().width)")
        fill = f"getComputedStyle(document.querySelector('{selector}')).fill"

        assert 4 <= len(boxes)
        assert all(width > 3 for width in boxes)
        assert 360 >= page.ask("document.documentElement.scrollWidth")
        assert page.ask(f"{fill} !== 'rgb(0, 0, 0)' && {fill} !== getComputedStyle(document.body).backgroundColor")


def test_the_page_holds_all_it_needs(html: Path) -> None:
    """No address of anything else."""
    text = html.read_text()

    assert not any(word in text for word in ("http:", "https:", "@import", 'src="', "url(//"))
    assert "<title>stagehold: Fast and slow</title>" in text


def test_a_replay_can_be_reported(tmp_path: Path) -> None:
    """The JSON of a replay on real bytes has no samples, and is enough."""
    real, page = tmp_path / "real.json", tmp_path / "r.html"
    found = run("replay", "--requests", 6, "--json", "--audit", tmp_path / "a.jsonl", "--out", real)

    assert json.loads(found.stdout) == json.loads(real.read_bytes())
    assert 0 == run("report", real, "--out", page).exit_code
    assert "6 requests with" in page.read_text()
    assert "real: machines" in page.read_text()


def test_both_modes_stand_side_by_side(tmp_path: Path) -> None:
    """One file with two runs, each with the machines of its own log."""
    both, page = tmp_path / "both.json", tmp_path / "r.html"
    assert 0 == run("replay", "--requests", 6, "--modes", "--audit", tmp_path / "a.jsonl", "--out", both).exit_code

    assert f"2 runs on {page}\n" == run("report", both, "--out", page).stdout
    for mode in ("buffer_only", "cache"):
        assert f"<h2>both: {mode}: machines</h2>" in page.read_text()


def test_a_log_of_other_machines_is_drawn_by_them(html: Path, tmp_path: Path) -> None:
    """A policy has rows of its own, and its logs are of no other."""
    bare, page = tmp_path / "blind.json", tmp_path / "r.html"
    small = ("--trace", html.parent / "agents.jsonl", "--requests", 12, "--device-pages", 300)
    assert 0 == run("simulate", *small, "--policy", "blind", "--audit", tmp_path / "b.log", "--out", bare).exit_code

    done = run("report", bare, "--out", page)

    assert 0 == done.exit_code, done.output
    assert "blind: machines" in page.read_text()


def test_bad_input_is_one_line(tmp_path: Path) -> None:
    """What is no run, a page over a run, a log that is none."""
    (tmp_path / "a.json").write_text("[]")
    good = dict.fromkeys(("requests", "prompt_tokens", "ideal_hit_tokens", "device_hit_tokens"), 1)
    (tmp_path / "b.json").write_text(json.dumps(good | {"store_hit_tokens": 0, "audit_log": str(tmp_path / "a.json")}))
    for arguments, told in (
        ([tmp_path / "a.json"], "expected a run as one JSON object"),
        ([tmp_path / "a.json", "--out", tmp_path / "a.json"], "expected another file"),
        ([tmp_path / "b.json", "--out", tmp_path / "r.html"], "a.json"),
    ):
        done = run("report", *arguments)
        assert 2 == done.exit_code, done.output
        assert told in done.stderr
