"""K94: in containers the budget for pinned memory was 0, and a server made a fifth of a token a second.

Here the limits that hold are read before the start, those of the cgroups of both versions among them, and printed
beside what the configuration needs by rank and pool; what does not fit is refused with the figures.
"""

from __future__ import annotations

import orjson
import pytest
from typer.testing import CliRunner

from stagehold.cli.main import app
from stagehold.operate.doctor.examine import Patient, examine

NEEDS = {"device_pages": 64, "largest_request_tokens": 1024, "parts": 2, "page_part_bytes": 1 << 20,
         "kv_device": "cuda"}  # fmt: skip
LIMITS = {
    2: {"proc/self/cgroup": "0::/box\n", "sys/fs/cgroup/box/memory.max": "{}\n",
        "sys/fs/cgroup/box/memory.current": "0\n"},
    1: {"proc/self/cgroup": "3:memory:/box\n", "sys/fs/cgroup/memory/box/memory.limit_in_bytes": "{}\n",
        "sys/fs/cgroup/memory/box/memory.usage_in_bytes": "0\n"},
}  # fmt: skip


def budget(root, version, limit, ranks=1):
    files = {"proc/meminfo": "MemAvailable: 99999999 kB\n", **LIMITS[version]}
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text.format(limit))
    patient = Patient(arguments=NEEDS, root=root, ranks=ranks)
    return next(check for check in examine(patient) if check.name == "memory budget")


@pytest.mark.parametrize("version", [1, 2])
def test_the_limit_that_holds_is_the_smallest(tmp_path, version):
    """128 pages of 2 MiB need 256 MiB: more than the container has, whatever the machine has."""
    refused = budget(tmp_path, version, 200 << 20)
    assert not refused.ok
    assert "each 256 MiB of 200 MiB (cgroup /box" in refused.detail
    assert "full: staging 128 x 2 MiB = 256 MiB" in refused.detail
    assert "raise the limit of cgroup /box" in refused.fix
    assert budget(tmp_path, version, 300 << 20).ok


def test_ranks_share_it(tmp_path):
    """Two of them have half each."""
    assert not budget(tmp_path, 2, 300 << 20, ranks=2).ok
    assert budget(tmp_path, 2, 600 << 20, ranks=2).ok


def test_a_machine_that_knows_no_cgroups_would_be_seen(tmp_path):
    """Planted: the file that names the cgroup is gone, and the machine's memory is taken for the container's."""
    budget(tmp_path, 2, 200 << 20)
    (tmp_path / "proc/self/cgroup").unlink()
    patient = Patient(arguments=NEEDS, root=tmp_path)
    assert next(check for check in examine(patient) if check.name == "memory budget").ok


def test_effective_limits_are_printed():
    """All that follow from the configuration, with their arithmetic."""
    words = [word for name, value in NEEDS.items() for word in ("--set", f"{name}={value}")]
    told = orjson.loads(CliRunner().invoke(app, ["config", "show", *words, "--json"]).stdout)
    names = {one["name"] for one in told["derived"]}
    assert {"pin_cap", "staging_pages", "host_bytes", "load_limit_pages", "write_share_pages", "backlog_pages"} <= names
    assert all(one["arithmetic"] and one["formula"] for one in told["derived"])
