"""The rounds of `make fuzz`: seed after seed until the time is over, and an end at the first that fails."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

RUN = Path(__file__).resolve().parent / "fuzz" / "run.py"
SAYS = """
import os, pathlib, resource
from hypothesis import given, settings, strategies as st

@settings(max_examples=3, database=None)
@given(st.integers())
def test_a_round(number):
    told = pathlib.Path({folder!r}) / "told"
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    told.write_text(f"{{os.environ['FUZZ_EXAMPLES']}} {{limit}}")
    assert {right}
"""


@pytest.fixture(name="rounds")
def _rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The program, over a folder of this test's own."""
    spec = spec_from_file_location("fuzz_run", RUN)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    folder = tmp_path / "tests" / "fuzz"
    folder.mkdir(parents=True)
    monkeypatch.setattr(module, "HERE", folder)
    return module


def started(rounds: ModuleType, monkeypatch: pytest.MonkeyPatch, right: bool) -> int:
    (rounds.HERE / "test_it.py").write_text(SAYS.format(folder=str(rounds.HERE), right=right))
    monkeypatch.setattr(sys, "argv", ["run.py", "--seconds", "0", "--seed", "7", "--examples", "3"])
    status: int = rounds.main()
    return status


def test_a_round_is_a_process_under_a_limit(
    rounds: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """At least one is run, with as many examples as were asked for."""
    assert 0 == started(rounds, monkeypatch, right=True)
    assert f"3 {rounds.MEMORY_BYTES}" == (rounds.HERE / "told").read_text()
    assert "fuzz: seeds 7 to 7, 3 examples of each kind, nothing found" in capfd.readouterr().out


def test_a_round_that_fails_is_the_last(
    rounds: ModuleType, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """And says how it is done again."""
    assert 1 == started(rounds, monkeypatch, right=False)
    assert "fuzz: `make fuzz SEED=7 EXAMPLES=3` does it again" in capfd.readouterr().err
