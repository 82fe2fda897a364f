"""What the site does with pages of the root and with links that leave docs/: they become its own, or plain text.

And it draws all machines on one page that needs no network: the pictures on the other pages are drawn by a browser.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

ROOT_PAGES = {
    "ARCHITECTURE.md": "architecture.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "README.md": "index.md",
    "SECURITY.md": "security.md",
}
"""Pages of the root, and what shows them on the site."""
LINK = re.compile(r"\[([^\]\n]+)\]\(([^)\s#]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the page of all machines, from their rows."""
    from mkdocs.structure.files import File

    from stagehold.machines.declared import MACHINES, declaration_hash
    from stagehold.machines.html_page import page

    drawn = page(MACHINES, declaration_hash().hex(), None)
    files.append(File.generated(config, "machines/all.html", content=drawn))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Turn links of one page, whose text may be that of a page of the root."""
    here = page.file.src_uri
    shown = next((root for root, name in ROOT_PAGES.items() if name == here != "index.md"), None)
    text = markdown if shown is None else _read(shown)
    return LINK.sub(lambda found: _turned(found, here, "" if shown else "docs"), text)


def _read(name: str) -> str:
    with open(name, encoding="utf-8") as file:  # noqa: PTH123 - the site is built from the root
        return file.read()


def _turned(found: re.Match[str], here: str, base: str) -> str:
    """A link as the site can follow it: within docs/ as it is, to a page of the root by its page, else its text."""
    label, target, anchor = found[1], found[2], found[3] or ""
    if ":" in target or target.startswith("/"):
        return found[0]
    folder = posixpath.dirname(posixpath.join(base, here)) if base else ""
    path = posixpath.normpath(posixpath.join(folder, target))
    if path in ROOT_PAGES:
        path = posixpath.join("docs", ROOT_PAGES[path])
    if not path.startswith("docs/"):
        return f"{label} (`{path}`)" if path not in label else label
    return f"[{label}]({posixpath.relpath(path, posixpath.join('docs', posixpath.dirname(here)))}{anchor})"
