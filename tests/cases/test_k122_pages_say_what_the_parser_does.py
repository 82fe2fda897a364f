"""K122: documents and parser disagreed about names and defaults.

Here both pages are generated, compared in every run of the tests, and read back: each option of the page is accepted
under its name, has the default that stands there, and takes what is said to be allowed; nothing else is accepted.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stagehold.operate import reference
from stagehold.operate.settings import ComponentSettings, Settings, names
from stagehold.specs.limits import Limits

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "configuration.md").read_text(encoding="utf-8")
MODELS = {"Options": (Settings, ""), "`[limits]`": (Limits, "limits."),
          "`[[components]]`": (ComponentSettings, "components.")}  # fmt: skip


def rows(page: str) -> list[tuple[str, str, str, str]]:
    """Section, option, default and what is allowed, of every row."""
    found = []
    for section in page.split("\n## ")[1:]:
        title, _, text = section.partition("\n")
        if title in MODELS:
            found += [(title, *row) for row in re.findall(r"^\| `(\w+)` \| (.*?) \| (.*?) \|", text, re.MULTILINE)]
    return found


def differences(page: str) -> list[str]:
    """What the page says otherwise than the models."""
    wrong, listed = [], set()
    for section, name, default, allowed in rows(page):
        model, before = MODELS[section]
        listed.add(before + name)
        field = model.model_fields.get(name)
        if field is None:
            wrong.append(f"{before}{name} is not accepted")
        elif default != reference._default(field.default):
            wrong.append(f"{before}{name} is {field.default!r} by default, not {default}")
        elif allowed != reference._allowed(field):
            wrong.append(f"{before}{name} takes {reference._allowed(field)}, not {allowed}")
    return [*wrong, *(f"{name} is not on the page" for name in sorted(set(names()) - listed))]


def test_the_page_and_the_parser_agree():
    """In both directions."""
    assert [] == differences(PAGE)
    assert reference.page() == PAGE


@pytest.mark.parametrize(
    ("right", "wrong", "told"),
    [
        ("| `fetch_limit` | `512` |", "| `fetch_limit` | `513` |", "limits.fetch_limit is 512 by default, not `513`"),
        ("| `pin_fraction` |", "| `pin_share` |", "pin_share is not accepted"),
        (
            "| `tries` | `3` | whole number ≥ 1 |",
            "| `tries` | `3` | number |",
            "limits.tries takes whole number ≥ 1, not",
        ),
    ],
)
def test_a_page_that_says_something_else_is_caught(right, wrong, told):
    """Planted: a default, a name, a bound."""
    assert right in PAGE
    assert any(one.startswith(told) for one in differences(PAGE.replace(right, wrong)))
