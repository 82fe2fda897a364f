"""The index of the cases and the files beside it say the same."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_every_case_is_listed_once_and_every_file_by_its_case():
    """By id, in order; each case has a file, which several may share."""
    rows = re.findall(r"^\| (K\d+) \| `(test_k\d+_\w+\.py)` \|", (HERE / "README.md").read_text(), re.MULTILINE)
    numbers = [int(case[1:]) for case, _ in rows]
    assert sorted(set(numbers)) == numbers
    assert {path.name for path in HERE.glob("test_k*.py")} == {name for _, name in rows}
