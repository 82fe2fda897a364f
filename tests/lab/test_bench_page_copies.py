"""The copy bench: its rows, its bars, and that it would see a form that is slow or wrong."""

from __future__ import annotations

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from stagehold.cli.main import app
from stagehold.kernels.transfers import Transfers
from stagehold.lab.bench import page_copies as bench

MIB = 1 << 20


def test_both_layouts_have_their_row():
    """Rates are positive, and the shares are those of the rates."""
    figures = bench.bench_copy(4096, 8, pages=4, rounds=2)
    assert [("like", 1), ("across", 8)] == [(row["layout"], row["parts"]) for row in figures["rows"]]
    assert (4096, 4, 2) == (figures["page_bytes"], figures["pages"], figures["rounds"])
    for row in figures["rows"]:
        assert min(row["copy_out"], row["copy_in"], row["gather"], row["scatter"]) > 0
        assert row["gather_of_copy"] == pytest.approx(row["gather"] / row["copy_out"])
        assert row["scatter_of_copy"] == pytest.approx(row["scatter"] / row["copy_in"])
    assert len(list(bench.ratios(figures))) == 2


def test_copies_reach_their_bars():
    """Pages of 1 MiB: 0.7 of a plain copy for like layouts, 0.5 across."""
    like, across = bench.bench_copy(MIB, 32, pages=16, rounds=12)["rows"]
    assert min(like["gather_of_copy"], like["scatter_of_copy"]) >= 0.7
    assert min(across["gather_of_copy"], across["scatter_of_copy"]) >= 0.5


def test_a_slow_form_misses_its_bar(monkeypatch):
    """Planted: the obvious way to write it, one expression over all axes."""

    class Slow(Transfers):
        def save(self, slots, pages) -> None:
            self.staging.paged[list(pages)] = self.device.tensor[:, slots].transpose(0, 1)

    pools = bench._pools

    def slow_in_parts(parts, *sizes):
        made = pools(parts, *sizes)
        return Slow(made.device, made.staging) if parts > 1 else made

    monkeypatch.setattr(bench, "_pools", slow_in_parts)
    like, across = bench.bench_copy(MIB, 32, pages=16, rounds=4)["rows"]
    assert across["gather_of_copy"] < 0.5 < like["gather_of_copy"]


def test_a_wrong_form_has_no_rate(monkeypatch):
    """Planted: parts in the wrong order."""

    def backwards(self, pages, slots) -> None:
        self.device.array()[:, slots] = np.flip(self.staging.array()[pages], axis=1).swapaxes(0, 1)

    monkeypatch.setattr(Transfers, "load", backwards)
    with pytest.raises(bench.CopyFailed, match="pages of 4 parts did not come back"):
        bench.bench_copy(4096, 4, pages=4, rounds=1)


def run(*arguments: str):
    return CliRunner().invoke(app, ["bench", "copy", *arguments])


def test_the_command_prints_one_object_or_a_line_for_each_row():
    """With the sizes that it is given."""
    small = ("--page-bytes", "4096", "--parts", "4", "--pages", "2")
    assert 4096 == json.loads(run(*small, "--json").stdout)["page_bytes"]
    lines = run(*small).stdout.splitlines()
    assert ["like layouts, 1 parts", "across layouts, 4 parts"] == [line.split(":")[0] for line in lines]


def test_what_cannot_be_measured_is_refused():
    """One line, exit status 2."""
    done = run("--parts", "3")
    assert (2, "stagehold: --parts 3: expected a divisor of --page-bytes 1048576\n") == (done.exit_code, done.stderr)
    done = run("--device", "tpu")
    assert 2 == done.exit_code
    assert done.stderr.startswith("stagehold: --device: device 'tpu': expected 'auto', 'cpu'")
    with pytest.raises(ValueError, match="3 parts in a page of 10 bytes: expected a divisor"):
        bench.bench_copy(10, 3)
