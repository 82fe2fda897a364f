"""A machine as Markdown: its states, its matrix of states and events, its rows, and every outcome spelt out.

Owns the text of `docs/machines/*.md`. An empty cell of the matrix is an event that the state refuses.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from stagehold.machines import labels
from stagehold.specs.declare import Books, Decision, Kind, MachineSpec, Row, State


def page(spec: MachineSpec, digest: str, picture: str) -> str:
    """The machine's whole page; `picture` is its Mermaid text, `digest` the declaration's hash."""
    parts = [
        f"# {spec.name}",
        f"<!-- Generated from the declaration by `stagehold diagram`; declaration {digest} -->",
        _lead(spec),
        f"```mermaid\n{picture.rstrip()}\n```",
        f"## States\n\n{states(spec)}",
        f"## States and events\n\nAn empty cell is refused.\n\n{matrix(spec)}",
        f"## Rows\n\n{rows(spec)}",
        f"## Outcomes\n\n{outcomes(spec)}",
    ]
    return "\n\n".join(parts) + "\n"


def index(specs: Sequence[MachineSpec], digest: str) -> str:
    """The page that lists all machines."""
    lines = [
        (
            f"[{s.name}]({s.name}.md)",
            s.one_per,
            str(len(s.states)),
            str(len(s.rows)),
            s.life.value,
            s.doc,
            f"[Mermaid]({s.name}.mmd), [DOT]({s.name}.dot)",
        )
        for s in specs
    ]
    heads = ("machine", "one per", "states", "rows", "life", "what it does", "pictures")
    note = f"<!-- Generated from the declarations by `stagehold diagram`; declaration {digest} -->"
    truth = (
        "The rows in `src/stagehold/specs/` are the truth, and these pages are drawn from them. Where they are not as "
        "they were first tabled, and why: [differences](differences.md). How to declare a machine of your own: "
        "[how-to](../machines-howto.md)."
    )
    beside = "What ends a wait: [exits](exits.md). What is counted, and what HiCache calls it: [counters](counters.md)."
    return f"# Machines\n\n{note}\n\n{truth}\n\n{table(heads, lines)}\n\n{beside}\n"


def states(spec: MachineSpec) -> str:
    """One line for each state, with the name that SGLang's HiCache uses for it where it has one."""
    heads = ("#", "state", "kind", "owns", "deadline", "SGLang's name", "meaning")
    return table(heads, (_state(state) for state in spec.states))


def matrix(spec: MachineSpec) -> str:
    """States down, events across; in each cell where the event leads, by outcome."""
    events = spec.events()
    cells: dict[tuple[str, str], list[str]] = {}
    for row in spec.expanded():
        cells.setdefault((labels.source(row), row.event), []).append(_leads(row))
    lines = []
    for state in spec.states:
        if state.kind is Kind.TERMINAL:
            continue
        name = labels.word(state.name)
        lines.append((f"**{name}**", *("<br>".join(cells.get((name, event), ())) for event in events)))
    return table(("", *(f"`{event}`" for event in events)), lines)


def rows(spec: MachineSpec) -> str:
    """One line for each declared row, sorted by source, event and outcome."""
    heads = (
        "source",
        "event",
        "decision: outcome",
        "target",
        "effect",
        "takes",
        "releases",
        "bounded by",
        "books",
        "why",
    )
    return table(heads, (_row(spec, row) for _, row in labels.in_order(spec)))


def outcomes(spec: MachineSpec) -> str:
    """Every decision with all members of its closed enum, their numbers and the rows that they lead to."""
    if not spec.decisions:
        return "No decision: every event of this machine has one way to go."
    return "\n\n".join(_decision(spec, asked) for asked in spec.decisions)


def table(heads: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; pipes inside cells are escaped."""
    body = [_line(heads), _line(["---"] * len(heads)), *(_line(cells) for cells in lines)]
    return "\n".join(body)


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _lead(spec: MachineSpec) -> str:
    begins = " or ".join(f"`{labels.word(name)}`" for name in labels.begins(spec))
    counted = "".join(f" Counter `{name}` is bounded by `{limit}`." for name, limit in spec.counters.items())
    return f"One per {spec.one_per}. {spec.doc} A {spec.life.value} machine, born in {begins}.{counted}"


def _state(state: State) -> tuple[str, ...]:
    return (
        str(int(state.name)),
        f"`{labels.word(state.name)}`",
        state.kind.value,
        labels.listed(state.owns),
        labels.deadline(state) or "-",
        state.elsewhere or "-",
        state.doc,
    )


def _leads(row: Row) -> str:
    target = f"`{labels.word(row.target)}`"
    return target if row.outcome is None else f"{row.outcome.name} → {target}"


def _row(spec: MachineSpec, row: Row) -> tuple[str, ...]:
    asked = labels.decision(spec, row)
    outcome = "-" if row.outcome is None else f"{asked.name if asked else '?'}: {row.outcome.name}"
    start = labels.source(row)
    return (
        f"*{start}*" if start == labels.ANY_TEXT else f"`{start}`",
        f"`{row.event}`",
        outcome,
        f"`{labels.word(row.target)}`",
        f"`{row.effect}`" if row.effect else "-",
        labels.listed(row.takes),
        labels.listed(part.removeprefix("-") for part in labels.moves(row) if part.startswith("-")),
        labels.counting(row) or "-",
        "-" if row.books is Books.NONE else row.books.value,
        row.why,
    )


def _decision(spec: MachineSpec, asked: Decision) -> str:
    doc = " ".join((asked.outcomes.__doc__ or "").split())
    targets = {row.outcome: row for row in spec.rows if row.source is asked.state and row.event == asked.event}
    lines = []
    for member in asked.outcomes:
        row = targets.get(member)
        lines.append(
            (
                str(int(member)),
                member.name,
                f"`{labels.word(row.target)}`" if row else "-",
                row.why if row else "no row",
            )
        )
    title = f"### `{asked.name}`: {asked.outcomes.__name__}"
    place = f"Asked in `{labels.word(asked.state)}` on `{asked.event}`. {doc}"
    return f"{title}\n\n{place}\n\n{table(('#', 'outcome', 'target', 'why'), lines)}"
