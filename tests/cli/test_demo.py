"""`stagehold demo` as people and programs run it, on small random weights."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from stagehold import Namespace
from stagehold.cli.demo import _lines, _told
from stagehold.cli.main import app
from stagehold.lab.demo.prompts import Kind, shipped_sessions
from stagehold.lab.demo.report import DemoReport

DOCS = (Path(__file__).resolve().parents[2] / "docs" / "demo.md").read_text(encoding="utf-8")


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(a) for a in arguments], env={"COLUMNS": "100"})


def test_json_has_the_agreed_fields_and_nothing_else(tmp_path: Path) -> None:
    """One object on standard output, progress beside it; logs that verify and diagrams are left."""
    (command,) = re.findall(r"^stagehold (demo .*)$", DOCS, flags=re.MULTILINE)
    done = run(*command.split(), "--folder", tmp_path)

    found = json.loads(done.stdout)
    assert 0 == done.exit_code, done.stderr
    assert ["model", "passes", "outputs_equal", "max_logit_difference", "ttft_cold_over_restart_1500",
            "ttft_cold_over_restart_4000", "store_path_over_cold"] == list(found)  # fmt: skip
    for figures in found["passes"].values():
        assert {"ttft_ms_median", "computed_tokens", "device_hit_tokens", "store_hit_tokens"} == set(figures)
    assert found["outputs_equal"]
    assert found["max_logit_difference"] <= 1e-4
    assert found["passes"]["restart"]["store_hit_tokens"] > 0
    assert found["passes"]["restart"]["computed_tokens"] < found["passes"]["cold"]["computed_tokens"]
    assert done.stderr.startswith("RANDOM weights: ")
    assert "<html" in (tmp_path / "demo.html").read_text().lower()
    told = (tmp_path / "demo-report.html").read_text()
    for name in ("cold", "warm", "restart", "dropped"):
        assert f"<h2>{name}</h2>" in told
    for name in ("cold", "restart", "dropped"):  # a log each; cold and warm share one
        assert f"<h2>{name}: machines</h2>" in told
        assert f": {name}: " in told.partition(f"<h2>{name}: states over time</h2>")[2].partition("<h2>")[0]
    for name in ("demo-before", "demo-after", "demo-after.dropped"):
        assert 0 == run("audit", "verify", tmp_path / f"{name}.jsonl").exit_code


def test_the_docs_program_serves(capsys: pytest.CaptureFixture[str]) -> None:
    """What the page says of other models is typed here, and a request goes through."""
    (program,) = re.findall(r"^```python\n(.*?)^```", DOCS, flags=re.DOTALL | re.MULTILINE)
    names: dict[str, Any] = {}
    exec(compile(program, "docs/demo.md", "exec"), names)

    names["scheduler"].submit("r", np.arange(100, dtype=np.uint32), Namespace("m"), 2)
    done = [names["scheduler"].step() for _ in range(2)]
    names["engine"].close()

    assert ["r"] == done[-1].finished
    assert "" == capsys.readouterr().out


ENGINE = {"compared": 5, "wrong": 0, "unknown": 0, "bytes": 10**9, "violations": 0}


def report(*, seconds: float = 0.5, equal: bool = True) -> DemoReport:
    """One opening of each class, cold, then from device, host and store."""
    cold = [record(Kind.SHORT, seconds=10.0, computed_tokens=1500)]
    cold += [record(Kind.LONG, seconds=each, computed_tokens=1500) for each in (10.0, 20.0)]
    again = [record(kind, seconds=seconds, store_hit_tokens=1472) for kind in (Kind.SHORT, Kind.LONG)]
    passes = {
        name: {"records": found, "host_hit_tokens": 1000, "retractions": 0}
        for name, found in (("cold", cold), ("warm", again), ("restart", again), ("dropped", again))
    }
    return DemoReport("a model", True, passes, [ENGINE], equal, 2e-5)


def record(kind: Kind, *, seconds: float, **more: object) -> dict[str, object]:
    return {
        "rid": kind.name,
        "kind": kind,
        "prompt_tokens": 1500,
        "first_token_seconds": seconds,
        "forward_seconds": seconds * 0.9,
        "computed_tokens": 28,
        "device_hit_tokens": 0,
        "store_hit_tokens": 0,
        "text": "Paris.",
        **more,
    }


def test_people_see_times_hits_and_bars() -> None:
    """Tables by pass, what was compared, and each bar with what was found."""
    text = "\n".join(_lines(report()))

    for part in (
        "opening, 1,500",
        f"{'cold, empty store':<32}{'10,000':>28}{'15,000 (10,000 to 20,000)':>28}",
        f"{'restarted, from the store':<32}     3,000        56         0     1,000     1,944",
        "pages taken over and compared  5 (1.00 GB), others than computed: 0",
        "answers                        equal in all passes",
        "largest logit difference       2e-05",
        "first token, cold / restarted, 1,500 tokens                    20   at least 8",
        "an answer: 'Paris.'",
    ):
        assert part in text, text
    assert "MISSED" not in text


def test_people_see_what_is_wrong() -> None:
    """A missed bar and different answers are spelt out."""
    text = "\n".join(_lines(report(seconds=2.0, equal=False)))

    assert "at least 8, MISSED" in text
    assert "DIFFERENT in all passes" in text


def test_the_first_line_says_which_weights_run() -> None:
    """Real or random, then what is served, and what was dropped where the machine is slow."""
    plan = {"event": "plan", "passes": ("cold", "warm"), "requests": 6, "prompt_tokens": 9000, "threads": 2,
            "estimate_seconds": 99.0, "pages": 150, "store_bytes": 442e6, "device_pages": 120}  # fmt: skip
    whole = _told({**plan, "sessions": [one.name for one in shipped_sessions()]})
    cut = _told({**plan, "sessions": ["logging", "warnings"]})

    assert "real weights: m" == _told({"event": "model", "name": "m", "real": True})
    assert "RANDOM weights: m" == _told({"event": "model", "name": "m", "real": False})
    assert "dropped" not in whole
    assert "150 pages, 442 MB in the store while it runs" in whole
    assert cut.endswith("this machine is slow now, so these sessions were dropped: warnings again, autodoc, tables")


def test_random_and_real_exclude_each_other(tmp_path: Path) -> None:
    """Nothing is started."""
    done = run("demo", "--random", "--expect-real", "--folder", tmp_path)

    assert 2 == done.exit_code
    assert "--random: expected without --expect-real" in done.stderr
    assert [] == list(tmp_path.iterdir())
