"""Diagrams and tables of the machines: complete, stable, and the same as the committed ones."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stagehold.machines import MACHINES, declaration_hash, diagram, dot, labels, matrix
from stagehold.machines.dot import Drawn, NotDrawn
from stagehold.machines.html_layout import Link, lay_out
from stagehold.machines.html_svg import svg
from stagehold.specs.declare import MachineSpec
from stagehold.specs.hold import HOLD
from stagehold.specs.request import REQUEST

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "machines"
HASH = declaration_hash().hex()
EACH = pytest.mark.parametrize("spec", MACHINES, ids=lambda spec: spec.name)


def test_the_committed_pages_are_up_to_date() -> None:
    """What stands in `docs/machines` is what the declarations give."""
    assert [] == diagram.stale(FOLDER)


def test_stale_names_changed_missing_and_left_over_files(tmp_path: Path) -> None:
    """Each way to be out of date is seen, and notes of people's own are left alone."""
    diagram.write_all(tmp_path)
    assert [] == diagram.stale(tmp_path)
    (tmp_path / "hold.md").write_text("edited\n")
    (tmp_path / "tick.dot").unlink()
    (tmp_path / "gone.mmd").write_text("stateDiagram-v2\n")
    (tmp_path / "notes.md").write_text("by hand\n")

    assert ["gone.mmd", "hold.md", "tick.dot"] == diagram.stale(tmp_path)


def test_a_folder_that_is_not_there_is_wholly_stale(tmp_path: Path) -> None:
    """Every page is missing: three for each machine, their list, exits and counters."""
    assert 3 + 3 * len(MACHINES) == len(diagram.stale(tmp_path / "nowhere"))


def test_pages_do_not_depend_on_hashing() -> None:
    """Two processes with different hash seeds write the same bytes."""
    code = "from stagehold.machines import diagram as d; print(*d._declared().values(), sep='')"
    texts = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True
        ).stdout
        for seed in ("1", "2")
    ]

    assert texts[0] == texts[1]
    assert HASH.encode() in texts[0]


@EACH
def test_mermaid_shows_every_row(spec: MachineSpec) -> None:
    """Each row is one line with its label, in the box of its state if it stays there, else as an arrow."""
    lines = diagram.mermaid(spec, HASH).splitlines()

    assert f"%% declaration {HASH}" == lines[1]
    for row in spec.rows:
        label = labels.label(spec, row)
        if row.source is row.target:
            assert 1 == lines.count(f"    {labels.word(row.target)} : ↺ {label}")
        else:
            start = "any_state" if labels.source(row) == labels.ANY_TEXT else labels.source(row)
            assert 1 == lines.count(f"    {start} --> {labels.word(row.target)} : {label}")


def test_a_label_shows_decision_effect_and_ownership() -> None:
    """`event [decision: OUTCOME] / effect +takes -releases`, and what bounds a repetition."""
    found = {row.why: labels.label(REQUEST, row) for row in REQUEST.rows}

    assert "issue [launch: LOOKUP] / ask +query (issues +1)" == found["ask the store"]
    assert "commit [commit: NO_ROOM] / unlock -lock (while ready_limit)" == found["no room while others run"]
    assert "abort / abort -all it owns" == found["legal everywhere"]


def test_a_box_shows_kind_ownership_and_deadline() -> None:
    """What a state owns and what bounds the wait in it stand under its name."""
    assert ["waiting", "owns query", "lookup_limit → timeout"] == labels.facts(REQUEST.states[1])
    assert ["waiting", "owns claim", "bounded by hold"] == labels.facts(REQUEST.states[2])


@EACH
def test_the_page_spells_out_every_outcome(spec: MachineSpec) -> None:
    """Each member of each decision's enum has a line with its number and where it leads."""
    text = matrix.outcomes(spec)

    for asked in spec.decisions:
        for row in spec.rows:
            if row.source is asked.state and row.event == asked.event:
                assert row.outcome is not None
                line = f"| {int(row.outcome)} | {row.outcome.name} | `{labels.word(row.target)}` | {row.why} |"
                assert line in text
        assert "no row" not in text


@EACH
def test_the_page_puts_sglangs_name_beside_ours(spec: MachineSpec) -> None:
    """Where HiCache has a name for a state, the table of states gives it."""
    text = matrix.states(spec)

    for state in spec.states:
        if state.elsewhere:
            assert f"| {state.elsewhere} | {state.doc} |" in text


def test_the_matrix_leaves_refused_events_empty() -> None:
    """A cell says where an event leads, by outcome; one that no row fills is empty."""
    lines = {line.split(" | ")[0]: line.split(" | ") for line in matrix.matrix(HOLD).splitlines()}
    column = lines["| "].index("`cut`")

    assert "USABLE → `ready`<br>HOPELESS → `draining`" == lines["| **fetching**"][column]
    assert "" == lines["| **loading**"][column].strip()
    assert "| **spliced**" not in lines


def test_a_pipe_in_a_cell_does_not_split_it() -> None:
    """Markdown's own column mark is escaped."""
    assert "| a\\|b |" == matrix.table(["x"], [["a|b"]]).splitlines()[-1]


def test_dot_marks_rows_never_taken() -> None:
    """With counts, rows never taken are dashed and red, and the others grow with their count."""
    lines = dot.text(HOLD, HASH, {0: 1000}).splitlines()

    assert 1 == sum("(1000 times)" in line and "penwidth=5" in line for line in lines)
    assert len(HOLD.rows) - 1 == sum("(never)" in line and "color=red" in line for line in lines)


def graphviz() -> Path:
    """Where `dot` lies; skips the test where it is missing, and fails it in CI."""
    program = shutil.which("dot")
    if program is None:
        assert os.environ.get("CI") != "true", "CI needs Graphviz: install Debian's package graphviz"
        pytest.skip("no Graphviz on this machine")
    return Path(program)


@EACH
def test_graphviz_draws_every_machine(spec: MachineSpec) -> None:
    """Where `dot` is installed it accepts our text and draws each state."""
    drawn = dot.draw(dot.text(spec, HASH), graphviz())

    assert isinstance(drawn, Drawn)
    assert all(f">{labels.word(state.name)}</text>" in drawn.svg for state in spec.states)


def test_pictures_show_a_logs_heat(tmp_path: Path, run_log: Path) -> None:
    """One picture a machine; rows that the log never took are marked in it."""
    written = diagram.write_svgs(tmp_path, graphviz(), run_log)

    assert [tmp_path / f"{spec.name}.svg" for spec in MACHINES] == written
    assert len(HOLD.rows) - 5 == (tmp_path / "hold.svg").read_text().count("(never)")
    assert NotDrawn.NO_PROGRAM is diagram.write_svgs(tmp_path, None)


def test_a_missing_or_failing_program_is_an_answer(tmp_path: Path) -> None:
    """No picture is a typed result with its reason, never an exception."""
    assert NotDrawn.NO_PROGRAM is dot.draw("digraph {}", None)
    assert NotDrawn.FAILED is dot.draw("digraph {}", tmp_path / "nowhere")
    assert NotDrawn.FAILED is dot.draw("digraph {}", Path(shutil.which("false") or "false"))


@EACH
def test_our_own_picture_has_every_state_and_event(spec: MachineSpec) -> None:
    """Each state is a box that can be chosen, and each event stands on some arrow or in a box."""
    text = svg(spec)

    assert all(f">{event}" in text or f"↺ {event}" in text for event in spec.events())
    assert all(f'data-state="{labels.word(state.name)}"' in text for state in spec.states)


def test_the_layout_keeps_boxes_and_captions_apart() -> None:
    """A tangle of arrows, ways back among them: no two of all boxes and captions touch."""
    sizes = [(60.0 + 10 * n, 30.0) for n in range(8)]
    ends = [(0, 1), (0, 2), (0, 7), (1, 3), (2, 3), (3, 1), (3, 4), (4, 0), (5, 6), (6, 7), (7, 5), (2, 6), (1, 7)]
    laid = lay_out(sizes, [Link(a, b, (80.0, 20.0)) for a, b in ends])
    rooms = [*zip(laid.boxes, sizes, strict=True), *((at, (80.0, 20.0)) for at in laid.captions)]

    for n, ((x, y), (width, height)) in enumerate(rooms):
        assert width / 2 <= x <= laid.width - width / 2
        assert height / 2 <= y <= laid.height - height / 2
        for (u, v), (wide, high) in rooms[:n]:
            assert abs(x - u) >= (width + wide) / 2 or abs(y - v) >= (height + high) / 2
