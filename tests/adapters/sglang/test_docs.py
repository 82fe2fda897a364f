"""What docs/sglang.md says is so: the command starts the backend, options and defaults are those there are."""

from __future__ import annotations

import importlib
import re
import shlex
from pathlib import Path

import orjson
import pytest

from stagehold import ComponentConfig, EngineConfig
from stagehold.adapters.sglang import options
from stagehold.specs.limits import Limits

TEXT = (Path(__file__).resolve().parents[3] / "docs" / "sglang.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in TEXT.splitlines() if line.startswith("| ")]


def test_the_command_is_what_the_backend_takes() -> None:
    """Its extra config names a module that is there, and reads well."""
    (block,) = re.findall(r"^```sh\n(.*?)^```", TEXT, re.DOTALL | re.MULTILINE)
    words = shlex.split(block.replace("\\\n", " "))
    extra = orjson.loads(words[words.index("--hicache-storage-backend-extra-config") + 1])
    assert importlib.util.find_spec(extra["module_path"]).origin.endswith("plugin.py")
    assert f"class {extra['class_name']}(" in Path(importlib.util.find_spec(extra["module_path"]).origin).read_text()
    read = options.read(extra)
    assert ("file:///var/cache/kv?capacity=200GiB&form=pages", True) == (read.store, read.direct)


def test_all_keys_are_named() -> None:
    """With their defaults."""
    told = {row[0].strip("`"): row[1] for row in ROWS}
    assert {*options.OURS, "interface_v1"} <= set(told)
    assert str(options.OPERATION_PAGES) == told["operation_pages"]


def default_of(name: str) -> object:
    if name.startswith("limits."):
        return Limits.model_fields[name.removeprefix("limits.")].default
    if name.startswith("ComponentConfig."):
        return ComponentConfig.model_fields[name.removeprefix("ComponentConfig.")].default
    return EngineConfig.model_fields[name].default


COMPARED = [row for row in ROWS if len(row) == 5 and row[2].startswith("`") and row[2] != "`store`"]


@pytest.mark.parametrize("row", COMPARED, ids=lambda row: row[2].strip("`"))
def test_an_option_beside_hicache_s_is_there_with_that_default(row) -> None:
    """As the engine has it."""
    name, _, value = row[2].strip("`").partition("=")
    default = default_of(name)
    if value or not row[3] or row[3] == "none":
        return
    said = row[3].strip("`").split(" ")[0].rstrip(",")
    if name == "load_limit_fraction":
        config = EngineConfig(
            device_pages=8, staging_pages=100, largest_request_tokens=64, host_memory_mode="buffer_only"
        )
        assert int(float(said) * 100) == config.load_limit_pages
        return
    plain = default.value if hasattr(default, "value") else default
    assert said == str(plain), (name, default)


def test_every_anchor_lock_variable_and_retry_flag_is_there() -> None:
    """The table is whole."""
    assert len(COMPARED) >= 12
    for name in ("ANCHOR_LOCK_CAP", "ENABLE_HICACHE_BUFFER_ANCHOR_LOCK", "retry-poll-interval", "retry-max-attempts"):
        assert name in TEXT


def test_what_is_run_against_the_released_engines_is_no_file() -> None:
    """make runs these targets whether or not something lies there under their names."""
    makefile = (Path(__file__).resolve().parents[3] / "Makefile").read_text(encoding="utf-8")
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    targets = re.findall(r"^([a-z][a-z-]*):", makefile, re.MULTILINE)
    assert {"test-sglang", "test-vllm"} <= set(targets)
    assert sorted(targets) == sorted(phony.split())
