"""The index of the cases and the files beside it say the same."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_every_case_is_listed_once_and_every_file_by_its_case():
    """By id, in order; a case has a file, or a line that says where it belongs, and not both."""
    listed, _, elsewhere = (HERE / "README.md").read_text().partition("## Cases without a file")
    rows = re.findall(r"^\| (K\d+) \| `(test_k\d+_\w+\.py)` \|", listed, re.MULTILINE)
    numbers = [int(case[1:]) for case, _ in rows]
    assert sorted(set(numbers)) == numbers
    assert {path.name for path in HERE.glob("test_k*.py")} == {name for _, name in rows}
    without = {case for line in re.findall(r"^\| (K[K\d, ]+) \|", elsewhere, re.MULTILINE) for case in line.split(", ")}
    assert "K101" in without
    assert without.isdisjoint(case for case, _ in rows)
