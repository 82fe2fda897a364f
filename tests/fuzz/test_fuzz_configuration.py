"""Configuration files: whatever stands there, an engine's options come out or every line says what is wrong."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from stagehold import EngineConfig
from stagehold.operate.settings import ConfigurationError, load
from stagehold.testing.hostile import NUMBERS, attempt, corpus, damaged

HOSTILE = settings.get_profile("hostile")
CORPUS = corpus(Path(__file__).parent / "corpus" / "configuration")
SOUND = [
    b"""device_pages = 512
largest_request_tokens = 8192
host_memory_mode = "buffer_only"
staging_ratio = 1.2
store = "file:///var/cache/kv?capacity=10GiB"

[limits]
fetch_limit = 256

[[components]]
name = "swa"
kind = "sliding_window"
window_tokens = 512
device_pages = 400
"""
]
WORDS = [
    b"[limits]\n", b"[[components]]\n", b"limits = 3\n", b"components = [1]\n", b"[" * 2000, b"a." * 3000 + b"a = 1\n",
    b"a = " + b"[" * 5000, b"device_pages = " + b"9" * 6000 + b"\n", b"1e9999", b"nan", b"-inf", b"'''", b"\xff",
    b"x = {a = {b = 1}}\n", b"limits.limits.limits = 1\n", b"components = {}\n", b"1979-05-27T07:32:00Z",
]  # fmt: skip


def read(path: Path, raw: bytes) -> None:
    attempt(path, raw, load, refusals=ConfigurationError, most=(32 << 20) + 200 * len(raw))


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the file says is all that is said; the models are made before anything is measured."""
    monkeypatch.delenv("STAGEHOLD_PAGE_SIZE", raising=False)


@settings(HOSTILE)
@given(raw=damaged(SOUND, WORDS) | st.binary(max_size=200))
@example(raw=b"a = " + b"[" * 5000)
@example(raw=b"device_pages = " + b"9" * 6000)
@example(raw=b"a." * 3000 + b"a = 1\n")
@example(raw=b'"' + b"device_pagez" * 20_000 + b'" = 1\n')
@example(raw=b"device_pages = 1e400\n")
def test_any_file_is_read_or_refused(tmp_path: Path, raw: bytes) -> None:
    """Damage, depth, numbers without end, names without end."""
    read(tmp_path / "stagehold.toml", raw)


def test_a_file_that_is_none_is_not_read_to_its_end(tmp_path: Path) -> None:
    """A configuration is small; what is larger than any is refused by its size, in one line."""
    with pytest.raises(ConfigurationError, match="at most") as caught:
        attempt(tmp_path / "large", b"#" * (8 << 20), load, refusals=(), most=4 << 20)
    assert len(str(caught.value)) < 400


VALUES: st.SearchStrategy[Any] = (
    st.sampled_from([*NUMBERS, -1, 1.5, float("nan"), float("inf"), "auto", "", None, [], {}, True])
    | st.text(max_size=8)
    | st.lists(st.integers(0, 3), max_size=3)
)


@settings(HOSTILE)
@given(
    changed=st.dictionaries(
        st.sampled_from(sorted(EngineConfig.model_fields)) | st.text(max_size=9), VALUES, max_size=4
    )
)
def test_any_options_are_a_configuration_or_refused(changed: dict[str, Any]) -> None:
    """By pydantic's own error, whatever their types and sizes; the limits that follow can be computed."""
    told = {"device_pages": 64, "staging_pages": 64, "largest_request_tokens": 1024, **changed}
    try:
        config = EngineConfig(**told)
    except ValidationError:
        return
    for name in ("pin_cap", "threshold_pages", "chunk_pages", "load_limit_pages", "backlog_pages", "page_bytes"):
        assert getattr(config, name) >= 0
    assert not re.search(r"\bnan\b", repr(config.model_dump(mode="json")))


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_what_once_went_wrong_is_read_or_refused(tmp_path: Path, path: Path) -> None:
    """The inputs that were found."""
    read(tmp_path / "stagehold.toml", path.read_bytes())
