"""`stagehold diagram` writes the pages, and `--check` tells the stale ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from stagehold.cli.main import app

ROOT = Path(__file__).resolve().parents[2]


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["diagram", *map(str, arguments)])


def test_the_committed_pages_are_fresh() -> None:
    """What stands under docs is what the rows say."""
    assert 0 == run("--check", "--folder", ROOT / "docs" / "machines").exit_code


def test_what_was_written_is_fresh(tmp_path: Path) -> None:
    """A fresh folder is filled, and the paths are printed."""
    written = run("--folder", tmp_path / "new")

    assert 0 == written.exit_code
    assert str(tmp_path / "new" / "hold.mmd") in written.stdout
    assert 0 == run("--check", "--folder", tmp_path / "new").exit_code


def test_a_stale_page_is_named(tmp_path: Path) -> None:
    """A changed page makes the check fail, and says which one and what to run."""
    run("--folder", tmp_path)
    (tmp_path / "hold.mmd").write_text("old")

    checked = run("--check", "--folder", tmp_path)

    assert 1 == checked.exit_code
    assert "hold.mmd; run `stagehold diagram" in checked.stderr
    assert "old" == (tmp_path / "hold.mmd").read_text()


def test_the_page_for_a_browser_is_written(tmp_path: Path) -> None:
    """`--html` writes the one page and prints its path."""
    written = run("--html", tmp_path / "machines.html")

    assert 0 == written.exit_code
    assert (tmp_path / "machines.html").read_text().startswith("<!doctype html>")


def test_a_log_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    """File, line and what was expected stand in one line, the exit status is 2, and nothing is written."""
    (tmp_path / "log").write_text("junk\n")
    refused = run("--html", tmp_path / "machines.html", "--log", tmp_path / "log")

    assert 2 == refused.exit_code
    assert f"{tmp_path / 'log'}:1: not a line of an audit log; expected one whole JSON object" in refused.stderr
    assert not (tmp_path / "machines.html").exists()


def test_pictures_without_graphviz_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no `dot`, `--svg` says so."""
    monkeypatch.setenv("PATH", str(tmp_path))
    refused = run("--svg", tmp_path / "pictures")

    assert 2 == refused.exit_code
    assert "no program `dot` was found" in refused.stderr


def test_a_log_shows_its_heat_on_the_page_for_a_browser(tmp_path: Path, run_log: Path) -> None:
    """Rows that this run never took are marked there."""
    written = run("--html", tmp_path / "machines.html", "--log", run_log)

    assert 0 == written.exit_code
    assert run_log.name in (tmp_path / "machines.html").read_text()


def test_a_log_without_a_page_to_show_it_is_refused(run_log: Path) -> None:
    """The committed pages depend on declarations alone."""
    refused = run("--log", run_log)

    assert 2 == refused.exit_code
    assert "stagehold: --log: expected --html or --svg beside it, which show its heat\n" == refused.stderr


def test_a_page_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """One line, exit status 2."""
    refused = run("--html", tmp_path / "nowhere" / "machines.html")

    assert 2 == refused.exit_code
    assert "nowhere" in refused.stderr
    assert 1 == len(refused.stderr.splitlines())


def test_two_things_at_once_are_refused(tmp_path: Path) -> None:
    """Each of them does nothing else, so the other would be left undone in silence."""
    refused = run("--check", "--html", tmp_path / "machines.html")

    assert 2 == refused.exit_code
    assert "expected one of --check, --html and --svg" in refused.stderr
    assert not (tmp_path / "machines.html").exists()


def test_the_remedy_names_the_folder(tmp_path: Path) -> None:
    """Run as it is printed, it renews the pages that were checked."""
    checked = run("--check", "--folder", tmp_path)

    assert f"run `stagehold diagram --folder {tmp_path}`" in checked.stderr
