"""The published table of policies is what its cells say, and all of its cells are there."""

from __future__ import annotations

from pathlib import Path

from stagehold.cli.compare import DEFAULT
from stagehold.lab.cells import read
from stagehold.lab.compare import cells_of, claims, rows
from stagehold.lab.compare_page import markdown

RESULTS = Path(__file__).resolve().parents[2] / "docs" / "results"
LAB = (RESULTS.parent / "lab.md").read_text(encoding="utf-8")


def test_the_page_is_made_from_the_cells() -> None:
    """Every cell of the table, once, in the places that the code names; nothing on the page was written by hand."""
    table, records = rows(dict.fromkeys(DEFAULT.split(","))), read(RESULTS / "policies.jsonl")
    assert {cell.key() for cell in cells_of(table)} == set(records)
    page = markdown(table, records, claims(table, records), "stagehold compare --markdown PAGE")
    assert page == (RESULTS / "policies.md").read_text(encoding="utf-8")


def test_no_cell_had_a_fault() -> None:
    """Books that did not balance, tokens without an end, phantoms of a policy that may have none."""
    assert all([] == record["faults"] for record in read(RESULTS / "policies.jsonl").values())
