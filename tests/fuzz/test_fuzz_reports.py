"""Runs that others made, for the report: refused in a line, or shown as text, whatever their names are."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagehold.lab.reports.page import write_report
from stagehold.lab.reports.run import RunError, as_run, read_runs
from stagehold.testing.hostile import attempt, corpus, damaged

HOSTILE = settings.get_profile("hostile")
CORPUS = corpus(Path(__file__).parent / "corpus" / "reports")
MARKUP = """</script></style><script>alert(1)</script><img src=x onerror=alert(1)>"'&{{}}`${x}`"""
BASE: dict[str, Any] = {
    "requests": 6, "prompt_tokens": 9000, "ideal_hit_tokens": 10, "device_hit_tokens": 5, "store_hit_tokens": 2,
}  # fmt: skip
FULL: dict[str, Any] = {
    **BASE, "losses": {"lost": 3}, "ttft_ms": {"p50": 80.0, "p95": 95.0}, "ttft_ms_sorted": [80.0, 95.0],
    "slowest": [{"request": "r", "ttft_ms": 5.0}], "series": {"seconds": [0, 1], "prompt_tokens": [1, 2]},
}  # fmt: skip
WORDS = [b"1e999", b"NaN", b"null", b"{}", b"[]", b'"x"', b"[" * 2000, b"9" * 400, b"-1", b"true", MARKUP.encode()]


LEADING = ("href", "src", "xlink:href", "action", "data", "formaction")


class Active(HTMLParser):
    """Elements and attributes that run something, but for the page's own script."""

    def __init__(self) -> None:
        super().__init__()
        self.scripts = 0
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.scripts += tag == "script"
        if tag in ("img", "iframe", "object", "embed", "base", "form"):
            self.found.append(tag)
        self.found += [
            f"{tag} {name}"
            for name, value in attrs
            if name.startswith("on") or (name in LEADING and "script:" in (value or ""))
        ]


def looked_at(page: str) -> Active:
    found = Active()
    found.feed(page)
    return found


def shown(path: Path, *names: str) -> None:
    """All runs of a file on one page, which has one script of its own and nothing else that runs."""
    runs = read_runs(path)
    page = path.with_suffix(".html")
    write_report(page, runs, title="".join(names) or MARKUP)
    found = looked_at(page.read_text(encoding="utf-8"))
    assert [] == found.found
    assert found.scripts <= 1


@settings(HOSTILE)
@given(raw=damaged([orjson.dumps(FULL), orjson.dumps(BASE)], WORDS))
def test_any_run_is_shown_or_refused(tmp_path: Path, raw: bytes) -> None:
    """Files of runs with any damage."""
    attempt(tmp_path / "run.json", raw, shown, refusals=(RunError, OSError), most=(64 << 20) + 100 * len(raw))


NAMES = st.sampled_from([MARKUP, "<b>", "a'b", 'x" onload="y', "&lt;", "-->", "]]>", "\u2028", "javascript:alert(1)"])


@settings(HOSTILE)
@given(name=NAMES, other=NAMES)
def test_no_name_is_markup(tmp_path: Path, name: str, other: str) -> None:
    """Of a run, a reason, a request, a rank of times, a column, or a page."""
    found = {**FULL, "losses": {name: 3, other: 1}, "slowest": [{"request": name, "ttft_ms": 5.0}], "trace": name}
    for more in ({"ttft_ms": {name: 1.0, "p50": 2.0}}, {"series": {"seconds": [0, 1], name: [1, 2]}}, {other: name}):
        page = tmp_path / "page.html"
        try:
            write_report(page, [as_run(name, {**found, **more}), as_run(other, found)], title=name)
        except RunError:
            continue
        seen = looked_at(page.read_text(encoding="utf-8"))
        assert ([], True) == (seen.found, seen.scripts <= 1)


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_what_once_went_wrong_is_shown_or_refused(tmp_path: Path, path: Path) -> None:
    """The inputs that were found, and one to begin with."""
    attempt(tmp_path / "run.json", path.read_bytes(), shown, refusals=(RunError, OSError), most=64 << 20)


def test_a_script_is_seen() -> None:
    """The check itself: an element, an attribute, an address."""
    assert looked_at("<img src=x>").found
    assert looked_at("<p onclick='x'>").found
    assert looked_at("<a href='javascript:x'>").found
    assert 1 == looked_at("<script>").scripts
