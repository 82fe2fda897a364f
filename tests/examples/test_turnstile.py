"""The framework on another lifecycle: the example runs, and the page about it quotes it."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from stagehold.machines import DeclarationError, require
from stagehold.machines.audit import verify
from stagehold.specs.declare import MachineSpec

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "turnstile.py"
HOWTO = ROOT / "docs" / "machines-howto.md"


@pytest.fixture(name="turnstile", scope="module")
def _turnstile() -> Iterator[ModuleType]:
    """The example as a module."""
    spec = spec_from_file_location("turnstile", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["turnstile"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["turnstile"]


def without(spec: MachineSpec, event: str, **change: object) -> MachineSpec:
    """A copy in which the rows on an event are changed, or gone."""
    rows = [row.model_copy(update=change) if row.event == event else row for row in spec.rows]
    kept = tuple(row for row in rows if change or row.event != event)
    return spec.model_copy(update={"rows": kept})


def test_the_example_runs(tmp_path: Path) -> None:
    """As a reader runs it: everybody ends, one fare is earned, the log is sound, the oracle agrees."""
    done = subprocess.run([sys.executable, EXAMPLE, tmp_path], check=True, capture_output=True, text=True)

    assert [
        "a visitor takes at most 8 steps",
        "refused: machine 'passage' has no row for event 'walk' in state <Passage.OUTSIDE: 0>",
        "ada: inside, 0 bad coins",
        "ben: turned_away, 0 bad coins",
        "cyd: turned_away, 2 bad coins",
        "dot: turned_away, 0 bad coins",
        "earned: 1",
        "drawn: passage.mmd, 6 rows",
        "log: 8 steps of 4 visitors, sound",
        "oracle: 19 cells, 0 differences",
    ] == done.stdout.splitlines()
    assert "outside --> paid : insert [coin: GOOD] / keep +fare" in (tmp_path / "passage.mmd").read_text()


def test_its_log_is_foreign_to_the_engine_s_machines(turnstile: ModuleType, tmp_path: Path) -> None:
    """A log belongs to the declarations that wrote it."""
    turnstile.run(tmp_path / "gate.jsonl")

    assert verify(tmp_path / "gate.jsonl", machines=turnstile.MACHINES).sound
    assert not verify(tmp_path / "gate.jsonl").sound


@pytest.mark.parametrize(
    ("event", "change", "says"),
    [
        ("walk", {"releases": ()}, "row paid --walk--> inside: keeps fare, which inside does not own; write it in"),
        ("timeout", {}, 'state paid: no row fires at its deadline; write row(S.PAID, "timeout", ...)'),
        ("abort", {}, 'state outside: cannot be aborted; write row(S.OUTSIDE, "abort", ...)'),
        ("insert", {"counts": None}, "counter bad: no row moves it"),
    ],
)
def test_a_wrong_turnstile_is_refused(turnstile: ModuleType, event: str, change: dict[str, object], says: str) -> None:
    """With the sentence that the page promises."""
    with pytest.raises(DeclarationError, match=re.escape(says)):
        require(without(turnstile.PASSAGE, event, **change), turnstile.MACHINES, limits=turnstile.GateLimits)


def test_a_limit_must_be_one_of_those_given(turnstile: ModuleType) -> None:
    """The engine's own limits do not bound another lifecycle."""
    with pytest.raises(DeclarationError, match="'walk_ticks' is no limit; add it to Limits, with its reason"):
        require(turnstile.PASSAGE, turnstile.MACHINES)


def test_the_page_quotes_the_example() -> None:
    """Every piece of Python in it stands in the program, letter by letter, and the sentence it shows is right."""
    pieces = re.findall(r"```python\n(.*?)```", HOWTO.read_text(), re.DOTALL)

    assert len(pieces) >= 6
    assert [] == [piece for piece in pieces if piece not in EXAMPLE.read_text()]
    assert (
        "    passage: row paid --walk--> inside: keeps fare, which inside does not own; write it" in HOWTO.read_text()
    )
