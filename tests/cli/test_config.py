"""`stagehold config`, and the page that it writes: what that tells people to type is typed here."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from stagehold.cli.main import app

PAGE = Path(__file__).resolve().parents[2] / "docs" / "configuration.md"
LEAST = ["--set", "device_pages=64", "--set", "largest_request_tokens=1024"]


def run(*words: str):
    return CliRunner().invoke(app, ["config", *words])


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_page_is_what_the_models_say() -> None:
    """Else `stagehold config reference` writes it anew."""
    done = run("reference", str(PAGE), "--check")
    assert 0 == done.exit_code, done.output


def test_a_stale_page_and_a_missing_one_are_found(tmp_path: Path) -> None:
    """With the command that mends it."""
    page = tmp_path / "x.md"
    assert 1 == run("reference", str(page), "--check").exit_code
    assert 0 == run("reference", str(page)).exit_code
    assert 0 == run("reference", str(page), "--check").exit_code
    page.write_text(page.read_text().replace("`64`", "`65`", 1))
    done = run("reference", str(page), "--check")
    assert 1 == done.exit_code
    assert "run `stagehold config reference`" in done.output


def test_the_commands_of_the_page_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the file of the page."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "stagehold.toml").write_text(blocks("toml")[0])
    (commands,) = blocks("sh")
    for line in commands.splitlines():
        program, *words = shlex.split(line)
        assert "stagehold" == program
        done = CliRunner().invoke(app, words)
        assert 0 == done.exit_code, f"{line}: {done.output}"
    assert "stagehold.toml: 6 options set, nothing wrong\n" == done.stdout


def test_show_tells_values_sources_and_arithmetic() -> None:
    """One line each."""
    done = run("show", *LEAST, "--set", "host_memory_mode=buffer_only", "--set", "store=sim:?seed=3")
    assert 0 == done.exit_code, done.output
    lines = done.stdout.splitlines()
    assert "device_pages = 64  (arguments)" in lines
    assert "limits.fetch_limit = 512  (default)" in lines
    assert "store = sim:?seed=3  (arguments)" in lines
    assert any(line.startswith("staging_pages = floor(1.2 * 64) = 76 pages") for line in lines)


def test_show_tells_by_which_name_staging_was_sized() -> None:
    """It is not the default, and `staging_pages` was not set."""
    assert "staging_pages = 96  (arguments: staging_ratio)" in run("show", *LEAST, "--set", "staging_ratio=1.5").stdout
    assert "staging_pages = 128  (default)" in run("show", *LEAST).stdout
    assert "staging_pages = 9  (arguments)" in run("show", *LEAST, "--set", "staging_pages=9").stdout


def test_show_gives_json() -> None:
    """Options, where they come from, and what follows."""
    found = orjson.loads(run("show", *LEAST, "--set", "limits.ready_limit=9", "--json").stdout)
    assert (9, "arguments") == (found["options"]["limits.ready_limit"], found["origins"]["limits.ready_limit"])
    (cap,) = (one for one in found["derived"] if one["name"] == "pin_cap")
    assert (32, "max(0, min(floor(0.5 * 64), 64 - 16))") == (cap["value"], cap["arithmetic"])


@pytest.mark.parametrize(
    ("sets", "sentence"),
    [
        (["device_pages"], "--set device_pages: expected NAME=VALUE"),
        (["store:redis://u:secret@h"], "--set store:redis://u:***@h: expected NAME=VALUE"),
        (["limits=3", "limits.tries=2"], "--set limits.tries=2: limits was set to a value before"),
        (["pin_fracton=1"], "arguments: unknown option 'pin_fracton'; did you mean 'pin_fraction'?"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(sets: list[str], sentence: str) -> None:
    """And ends with 2."""
    done = run("check", *(word for one in sets for word in ("--set", one)))
    assert 2 == done.exit_code
    assert f"stagehold: {sentence}" in done.output
