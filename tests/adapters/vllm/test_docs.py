"""What docs/vllm.md says is so: the command is taken, each key and each figure is there, refusals are worded so."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from stagehold.adapters.vllm.options import Options, read_options
from stagehold.cli.main import app

from .bench import bench, prompt

ROOT = Path(__file__).resolve().parents[3]
TEXT = (ROOT / "docs" / "vllm.md").read_text(encoding="utf-8")
SOURCES = ROOT / "src" / "stagehold" / "adapters" / "vllm"
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| ")]
BLOCKS = re.findall(r"^```sh\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)


def transfer_config():
    words = shlex.split(BLOCKS[0])
    return orjson.loads(words[words.index("--kv-transfer-config") + 1])


def test_the_command_names_the_connector():
    """As vLLM finds it, with options that are taken."""
    found = transfer_config()
    assert "stagehold.adapters.vllm" == found["kv_connector_module_path"]
    assert f"class {found['kv_connector']}(" in (SOURCES / "connector.py").read_text()
    assert ("recompute", "kv_both") == (found["kv_load_failure_policy"], found["kv_role"])
    assert "file:///var/cache/kv?capacity=50GiB" == read_options(found["kv_connector_extra_config"]).store


def test_all_keys_are_named_with_their_defaults():
    """And no other."""
    at = next(i for i, row in enumerate(ROWS) if row[0] == "key")
    told = {row[0].strip("`"): row[1].strip("`") for row in ROWS[at + 1 : at + 1 + len(Options.model_fields)]}
    assert set(Options.model_fields) == set(told)
    for name, one in Options.model_fields.items():
        if one.default is not None:
            expected = f"{one.default:g}" if isinstance(one.default, float) else str(one.default)
            assert expected == told[name]


def test_all_figures_are_named():
    """Each that the scheduler's side counts."""
    counted = set(re.findall(r"counts\[\"(\w+)\"\]", (SOURCES / "scheduler.py").read_text()))
    at = next(i for i, row in enumerate(ROWS) if row[0] == "figure")
    told = {name for row in ROWS[at + 1 : at + 6] for name in re.findall(r"`(\w+)`", row[0])}
    assert counted == told


@pytest.mark.parametrize(
    "said", ["split over", "device type", "speculative decoding (speculative_config)", "give --no-async-scheduling",
             "set it to 'recompute'", "an encoder-decoder model", "is not served", "--disable-hybrid-kv-cache-manager",
             "expected one size for all"],
)  # fmt: skip
def test_a_refusal_is_worded_so(said):
    """In the page and in the source."""
    assert said in TEXT
    assert any(said in path.read_text() for path in SOURCES.glob("*.py"))


def test_the_audit_commands_work(tmp_path):
    """On a log that the connector's engine wrote."""
    log = tmp_path / "vllm.jsonl"
    with bench("gemma", audit_log=str(log)) as b:
        b.serve("cold", prompt(42))
        b.forget_local()
        b.serve("warm", prompt(42))
        b.check()
    commands = [shlex.split(line) for line in BLOCKS[1].splitlines()]
    assert ["verify", "explain"] == [words[2] for words in commands]
    for words in commands:
        given = {"runs/vllm.jsonl": str(log), "REQUEST": "warm"}
        told = CliRunner().invoke(app, [given.get(word, word) for word in words[1:]])
        assert 0 == told.exit_code, told.output
    assert "40" in told.output
