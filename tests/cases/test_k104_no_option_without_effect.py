"""K104: a rule of thumb for memory stood in a ticket only, and an environment variable had no effect.

Here `stagehold config show` prints what holds and where it was set, `doctor` what it needs; every variable that is read
changes what holds, one by one, and a variable that would change nothing is refused.
"""

from __future__ import annotations

import os

import orjson
import pytest
from typer.testing import CliRunner

from stagehold.cli.main import app
from stagehold.operate.settings import DELIMITER, PREFIX, ConfigurationError, load, names

LEAST = {"device_pages": 64, "largest_request_tokens": 1024}
OTHER = {
    "host_memory_mode": "buffer_only",
    "write_policy": "write_through_selective",
    "prefetch_policy": "best_effort",
    "divergence_policy": "quarantine",
    "store": "sim:?seed=4",
    "kv_device": "cpu",
    "staging_bytes": "5000",
    "parts": "2",
    "page_part_bytes": "64",
    "limits.open_limit": "100",
}
"""Values that differ from the defaults, where the next number would not do."""
BESIDE = {
    "host_memory_mode": {"store": "sim:"},
    "page_cache_fraction": {"store": "sim:", "host_memory_mode": "buffer_only"},
    "kv_device": {"parts": 2, "page_part_bytes": 64},
    "parts": {"parts": 3, "page_part_bytes": 64},
    "page_part_bytes": {"parts": 2, "page_part_bytes": 32},
    "prefill_tokens_per_tick": {"fetch_gate": "auto"},
    "staging_bytes": {"parts": 2, "page_part_bytes": 64},
}
"""What an option needs beside it."""
OPTIONS = [name for name in names() if not name.startswith("components.") and name not in LEAST]


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch):
    for name in [name for name in os.environ if name.startswith(PREFIX)]:
        monkeypatch.delenv(name)


def variable(name: str) -> str:
    return PREFIX + name.upper().replace(".", DELIMITER)


def beside(name: str) -> dict[str, object]:
    return {**LEAST, "store": "sim:", **BESIDE.get(name, {})}


def other(name: str, now: object) -> str:
    """A value that is not the one that holds."""
    if name in OTHER:
        return OTHER[name]
    if isinstance(now, float) or name in ("load_limit_fraction", "staging_ratio"):
        return "0.75"
    members = type(now)
    if hasattr(members, "__members__"):
        return next(str(one.value) for one in members if one is not now)
    return str(int(now or 99) + 1) if name != "staging_pages" else "33"


def value(found, name: str) -> object:
    if name == "store":
        return found.store
    if name in ("staging_ratio", "staging_bytes", "staging_pages"):
        return found.engine.staging_pages
    place = found.engine
    for part in name.split("."):
        place = getattr(place, part)
    return place


@pytest.mark.parametrize("name", OPTIONS)
def test_every_variable_has_an_effect(monkeypatch, tmp_path, name):
    """What holds is another value, and it says where it comes from."""
    file = tmp_path / "stagehold.toml"  # which comes after the environment
    file.write_text("".join(f"{key} = {one!r}\n" for key, one in beside(name).items()))
    before = load(file)
    monkeypatch.setenv(variable(name), other(name, value(before, name)))
    after = load(file)
    assert "environment" == after.origins[name]
    if name != "kv_device":  # there is one device here
        assert value(before, name) != value(after, name)


def test_a_variable_that_would_change_nothing_is_refused(monkeypatch):
    """A misspelt one, and one whose partner is not there."""
    monkeypatch.setenv("STAGEHOLD_PAGESIZE", "32")
    with pytest.raises(ConfigurationError, match=r"STAGEHOLD_PAGESIZE; did you mean STAGEHOLD_PAGE_SIZE\?"):
        load(None, LEAST)
    monkeypatch.delenv("STAGEHOLD_PAGESIZE")
    monkeypatch.setenv("STAGEHOLD_QUERY_LIMIT", "3")
    with pytest.raises(ConfigurationError, match="query_limit is set, and needs a store"):
        load(None, LEAST)


def test_what_is_needed_is_printed(tmp_path):
    """Memory by rank and pool, from the configuration that holds."""
    file = tmp_path / "stagehold.toml"
    file.write_text("device_pages = 64\nlargest_request_tokens = 1024\nparts = 2\npage_part_bytes = 32768\n")
    told = orjson.loads(CliRunner().invoke(app, ["doctor", "--config", str(file), "--ranks", "2", "--json"]).stdout)
    (memory,) = (check for check in told["checks"] if check["name"] == "memory budget")
    assert memory["detail"].startswith("2 on this machine, each 12 MiB of ")
    assert "full: staging 128 x 64 KiB = 8 MiB, device pool on the CPU 4 MiB" in memory["detail"]
