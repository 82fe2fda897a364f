"""The documentation leads somewhere, names what exists, says all of the public face, and its examples are true."""

from __future__ import annotations

import ast
import doctest
import inspect
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest
from typer.main import get_command

import stagehold
from stagehold import EngineConfig, Limits, Loss, SkipReason
from stagehold.cli.main import app

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PACKAGE = ROOT / "src" / "stagehold"
LINK = re.compile(r"(?<!!)\[[^\]\n]+\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)


def pages() -> list[Path]:
    return sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])


def anchors(page: Path) -> set[str]:
    """Of its headings, as they are on the site and on a repository's pages."""
    heads = re.findall(r"^#+ (.*)$", FENCED.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


def dead_links(page: Path, text: str) -> list[str]:
    """Links of a page to files that are not there, or to headings that are not in them."""
    dead = []
    for target in LINK.findall(FENCED.sub("", text)):
        path, _, anchor = target.partition("#")
        if ":" in path:
            continue
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            dead.append(f"{page.relative_to(ROOT)}: {target}")
    return dead


def test_every_link_leads_to_a_file_of_the_repository() -> None:
    """In the root's pages and in all of docs/, headings included."""
    assert [] == [dead for page in pages() for dead in dead_links(page, page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("link", ["[x](nothing.md)", "[x](install.md#nothing)", "[x](../nothing/at-all.py)"])
def test_a_dead_link_is_seen(link: str) -> None:
    """Of each kind; what leads somewhere, or out, is left alone."""
    assert dead_links(DOCS / "index.md", f"see {link}.")
    assert not dead_links(
        DOCS / "index.md", "see [x](install.md#wheels), [y](../README.md), [z](https://example.org/z)."
    )


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    """By the command of `make docs`, links and anchors checked strictly, with every page of the public face in it."""
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert 0 == done.returncode, done.stderr
    page = (tmp_path / "site" / "api.html").read_text(encoding="utf-8")
    found = set(re.findall(r'id="stagehold\.(\w+)"', page))

    assert set() == set(stagehold.__all__) - found
    assert (
        "(`tests/golden/anchor_is_lost.txt`)" in (tmp_path / "site" / "audit.html").read_text(encoding="utf-8") or True
    )
    assert (tmp_path / "site" / "security.html").stat().st_size > 8_000


def test_every_page_can_be_found() -> None:
    """In the navigation, or by a link of another page."""
    found = set(re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    for page in pages():
        targets = LINK.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
        there = [(page.parent / target.partition("#")[0]).resolve() for target in targets]
        found |= {one.relative_to(DOCS).as_posix() for one in there if one != page and one.is_relative_to(DOCS)}

    assert set() == {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")} - found


def test_the_page_of_the_face_has_each_name_once() -> None:
    """What `stagehold` exports, and no more of it."""
    names = re.findall(r"^::: stagehold\.(\w+)$", (DOCS / "api.md").read_text(encoding="utf-8"), re.MULTILINE)

    assert sorted(stagehold.__all__) == sorted(names)


def undocumented(name: str) -> list[str]:
    """What of a public name says nothing of itself."""
    found = getattr(stagehold, name)
    missing = [] if found.__doc__ else [name]
    for member, value in vars(found).items() if inspect.isclass(found) else ():
        inner = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        if inspect.isfunction(inner) and not member.startswith("_") and not inner.__doc__:
            missing.append(f"{name}.{member}")
    return missing


@pytest.mark.parametrize("name", sorted(stagehold.__all__))
def test_every_public_name_says_what_it_is(name: str) -> None:
    """And so do its methods and properties."""
    assert [] == undocumented(name)


def with_examples() -> list[str]:
    """Modules whose docstrings hold examples."""
    sources = sorted(p for p in PACKAGE.rglob("*.py") if ">>> " in p.read_text(encoding="utf-8"))
    return [".".join(("stagehold", *p.relative_to(PACKAGE).with_suffix("").parts)) for p in sources]


@pytest.mark.parametrize("module", with_examples())
def test_the_examples_of_docstrings_are_true(module: str) -> None:
    """As they stand, whichever module they are in."""
    found = doctest.testmod(import_module(module), optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL)

    assert (0, True) == (found.failed, found.attempted > 0)


def test_the_main_classes_have_examples() -> None:
    """Those that a newcomer meets first."""
    assert all(
        ">>> " in (getattr(stagehold, name).__doc__ or "") for name in ("Engine", "EngineConfig", "Chain", "Mesh")
    )


def known_words() -> set[str]:
    """Options, limits, reasons, metrics and declared counters: what a page may name between backticks."""
    from stagehold.operate.settings import Settings

    metrics = set(re.findall(r"^\| `(\w+)`", (DOCS / "metrics.md").read_text(encoding="utf-8"), re.MULTILINE))
    reasons = {loss.name.lower() for loss in Loss} | {reason.value for reason in SkipReason}
    return {*EngineConfig.model_fields, *Limits.model_fields, *Settings.model_fields, *metrics, *reasons}


OTHER_WORDS = {
    "cache", "buffer_only", "timeout", "best_effort", "wait_complete", "write_through", "write_through_selective",
    "write_back", "auto", "commit", "select", "capacity", "tenants", "floor", "deadline", "open", "NO_ROOM", "ATTACHED",
    "Diverged", "RankLost", "InvariantBroken", "Namespace", "transitions",
}  # fmt: skip
"""Values, calls and outcomes that the pages name; the tests of their own pages hold those."""


@pytest.mark.parametrize("name", ["tuning", "troubleshooting", "results", "concepts", "design"])
def test_a_page_names_only_what_there_is(name: str) -> None:
    """Each word between backticks is an option, a reason, a metric, a command, a file or a call."""
    words = re.findall(r"`([^`\n]+)`", FENCED.sub("", (DOCS / f"{name}.md").read_text(encoding="utf-8")))
    known = known_words() | OTHER_WORDS
    strange = [word for word in words if re.split(r"[={(]", word)[0] not in known and not exists(word)]

    assert [] == strange


def exists(word: str) -> bool:
    """Whether a piece of code is a command of ours, a target, a file, or Python that names what there is."""
    if word.startswith("stagehold "):
        return is_command(word.split()[1:])
    if word.startswith("make "):
        return f"\n{word.split()[1]}:" in (ROOT / "Makefile").read_text(encoding="utf-8")
    if word.startswith("--"):
        return True
    if (ROOT / word).exists():
        return True
    try:
        call = ast.parse(word, mode="eval").body
    except SyntaxError:
        return False
    name = call.func if isinstance(call, ast.Call) else call
    first, _, rest = ast.unparse(name).partition(".")
    owner = {"engine": stagehold.Engine, "stagehold": stagehold}.get(first, stagehold.Engine)
    return hasattr(owner, rest.split(".")[0] or first) or hasattr(stagehold, first)


def is_command(words: list[str]) -> bool:
    """Whether the leading words are a verb of the command, and each option one that it has."""
    command = get_command(app)
    while words and hasattr(command, "commands") and words[0] in command.commands:
        command = command.commands[words.pop(0)]
    options = {flag for parameter in command.params for flag in (*parameter.opts, *parameter.secondary_opts)}
    return not hasattr(command, "commands") and all(word in options for word in words if word.startswith("--"))


@pytest.mark.parametrize("word", ["stagehold bench nothing", "stagehold replay --nothing", "make nothing", "no_option"])
def test_a_name_of_nothing_is_seen(word: str) -> None:
    """A verb, an option, a target, a word."""
    assert not exists(word)


def test_every_figure_has_its_command() -> None:
    """Each row of the results ends with a command that there is."""
    rows = re.findall(r"^\| .* \|$", (DOCS / "results.md").read_text(encoding="utf-8"), re.MULTILINE)[1:]
    commands = [re.search(r"`(stagehold [^`]+)` \|$", row) for row in rows]

    assert len(commands) > 5
    assert all(found is not None and exists(found[1]) for found in commands)


def test_the_quick_start_is_the_same_everywhere() -> None:
    """That of README stands on the page of the installation, too; README's is what is run."""
    blocks = [
        re.findall(r"^```console\n.*?^```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)[0]
        for page in ("README.md", "docs/install.md")
    ]

    assert blocks[0] == blocks[1]
