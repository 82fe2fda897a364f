"""Machines as diagrams: the Mermaid text, and the folder of generated pages that people review.

Owns the Mermaid text and the list of generated files. Two runs over the same declarations give the same
bytes: everything is sorted, and nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from stagehold.machines import counters, dot, exits, labels, matrix
from stagehold.machines.declared import MACHINES, declaration_hash
from stagehold.machines.dot import NotDrawn
from stagehold.machines.heat import stats
from stagehold.machines.html_page import Story, page
from stagehold.machines.timeline import timelines
from stagehold.specs.declare import MachineSpec, Row, State

_ANY = "any_state"


def mermaid(spec: MachineSpec, digest: str) -> str:
    """The machine as a Mermaid state diagram, one row a line; `digest` is the declaration's hash."""
    head = [
        f"%% {spec.name}: one per {spec.one_per}. {spec.doc}",
        f"%% declaration {digest}",
        "stateDiagram-v2",
    ]
    begins = [f"    [*] --> {labels.word(name)}" for name in labels.begins(spec)]
    return "\n".join([*head, *_boxes(spec), *begins, *_arrows(spec)]) + "\n"


def pages(specs: Sequence[MachineSpec], digest: str) -> dict[str, str]:
    """Every generated file of `specs`: name to text."""
    files = {"README.md": matrix.index(specs, digest)}
    for spec in specs:
        picture = mermaid(spec, digest)
        files[f"{spec.name}.mmd"] = picture
        files[f"{spec.name}.dot"] = dot.text(spec, digest)
        files[f"{spec.name}.md"] = matrix.page(spec, digest, picture)
    return files


def write_all(folder: Path) -> list[Path]:
    """Write every generated file into `folder`, which is made if need be; the paths written, in order."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, text in _declared().items():
        path = folder / name
        path.write_text(text, encoding="utf-8")
        written.append(path)
    return written


def write_svgs(folder: Path, program: Path | None, log: Path | None = None) -> list[Path] | NotDrawn:
    """Write a picture of every machine, drawn by Graphviz; with a log, how often each row was taken is in it.

    `program` is where `dot` lies, None where there is none. Pictures depend on the version of `dot`, so nobody
    compares them, and they are not among the pages.
    """
    heat = None if log is None else stats(log)
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for spec in MACHINES:
        taken = None if heat is None else dict(enumerate(heat.taken[spec.name]))
        drawn = dot.draw(dot.text(spec, declaration_hash().hex(), taken), program)
        if isinstance(drawn, NotDrawn):
            return drawn
        written.append(folder / f"{spec.name}.svg")
        written[-1].write_text(drawn.svg, encoding="utf-8")
    return written


def write_html(path: Path, log: Path | None = None) -> None:
    """Write the one page with all machines, and with heat and timelines if there is a log.

    Raises `BadLogError` where the log cannot be read, before anything is written.
    """
    story = None if log is None else Story(log.name, stats(log), timelines(log))
    path.write_text(page(MACHINES, declaration_hash().hex(), story), encoding="utf-8")


def stale(folder: Path) -> list[str]:
    """The names in `folder` that differ from what the declarations give: changed, missing, or left over."""
    wanted = _declared()
    found = {path.name: path for path in folder.iterdir()} if folder.is_dir() else {}
    differ = [name for name, text in wanted.items() if name not in found or _text(found[name]) != text]
    orphans = [name for name in found if name not in wanted and found[name].suffix in {".mmd", ".dot"}]
    return sorted([*differ, *orphans])


def _declared() -> dict[str, str]:
    digest = declaration_hash().hex()
    beside = {"exits.md": exits.page(digest), "counters.md": counters.page(digest)}
    return {**pages(MACHINES, digest), **beside}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


def _boxes(spec: MachineSpec) -> list[str]:
    lines = [line for state in spec.states for line in _box(spec, state)]
    if any(labels.source(row) == labels.ANY_TEXT for row in spec.rows):
        lines.append(f"    {_ANY} : {labels.ANY_TEXT}")
    return lines


def _box(spec: MachineSpec, state: State) -> list[str]:
    """The first line of a Mermaid state is its title; those after it stand below a rule.

    A row that stays in its state is such a line, too: of several loops at one state Mermaid draws only one.
    """
    name = labels.word(state.name)
    loops = [f"↺ {labels.label(spec, row)}" for row in _rows(spec) if _loops(row) and row.source is state.name]
    return [f"    {name} : {line}" for line in (name, *labels.facts(state), *loops)]


def _arrows(spec: MachineSpec) -> list[str]:
    return [
        f"    {_end(labels.source(row))} --> {labels.word(row.target)} : {labels.label(spec, row)}"
        for row in _rows(spec)
        if not _loops(row)
    ]


def _rows(spec: MachineSpec) -> list[Row]:
    return [row for _, row in labels.in_order(spec)]


def _loops(row: Row) -> bool:
    return row.source is row.target


def _end(source: str) -> str:
    return _ANY if source == labels.ANY_TEXT else source
