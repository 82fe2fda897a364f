"""A configuration from file, environment and arguments: which comes first, and what is refused with which sentence."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from stagehold import EngineConfig, Limits
from stagehold.operate import settings
from stagehold.operate.settings import ConfigurationError, load, shown
from stagehold.testing.hand import Hand

LEAST = 'device_pages = 64\nlargest_request_tokens = 1024\nstore = "sim:"\n'
WINDOW = {"name": "swa", "kind": "sliding_window", "device_pages": 40, "window_tokens": 128}


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch):
    """No variable of whoever runs the tests."""
    for name in list(os.environ):
        if name.startswith(settings.PREFIX):
            monkeypatch.delenv(name)


@pytest.fixture
def file(tmp_path):
    def write(text: str = "") -> Path:
        path = tmp_path / "stagehold.toml"
        path.write_text(LEAST + text)
        return path

    return write


def refusal(path: Path, arguments=None) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(path, arguments)
    return str(caught.value)


def test_arguments_come_before_the_environment_that_before_the_file_that_before_the_default(file, monkeypatch):
    """In the limits, too, which all four share."""
    path = file("[limits]\nfetch_limit = 1\npark_limit = 1\ntries = 1\n")
    monkeypatch.setenv("STAGEHOLD_LIMITS__PARK_LIMIT", "2")
    monkeypatch.setenv("STAGEHOLD_LIMITS__TRIES", "2")
    found = load(path, {"limits": {"tries": 4}})
    limits = found.engine.limits
    assert (1, 2, 4) == (limits.fetch_limit, limits.park_limit, limits.tries)
    assert Limits().ready_limit == limits.ready_limit
    origins = {name: found.origins.get(f"limits.{name}") for name in ("fetch_limit", "park_limit", "tries")}
    assert {"fetch_limit": str(path), "park_limit": "environment", "tries": "arguments"} == origins


def test_every_option_of_the_engine_can_be_set(file, monkeypatch):
    """None is written down twice: those of the model are those of `EngineConfig` and `Limits`."""
    known = set(settings.names())
    assert set(EngineConfig.model_fields) - {"limits", "components"} <= known
    assert {f"limits.{name}" for name in Limits.model_fields} <= known
    monkeypatch.setenv("STAGEHOLD_PAGE_SIZE", "32")
    monkeypatch.setenv("STAGEHOLD_PIN_FRACTION", "")
    engine = load(file(), {"write_policy": "write_through_selective"}).engine
    assert (32, 0.5, "write_through_selective") == (engine.page_size, engine.pin_fraction, engine.write_policy)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"pin_fracton": 1}, "arguments: unknown option 'pin_fracton'; did you mean 'pin_fraction'?"),
        ({"limits": {"fetchlimit": 1}}, "unknown option 'limits.fetchlimit'; did you mean 'limits.fetch_limit'?"),
        ({"fetch_limit": 1}, "unknown option 'fetch_limit'; did you mean 'limits.fetch_limit'?"),
        ({"xyzzy": 1}, "unknown option 'xyzzy'; `stagehold config reference` lists all options"),
        ({"components": [{**WINDOW, "windw_tokens": 1}]}, "'components.windw_tokens'; did you mean 'components.window"),
        ({"page_size": "x"}, "arguments: page_size = 'x': Input should be a valid integer"),
        ({"limits": {"tries": 0}}, "arguments: limits.tries = 0: Input should be greater than or equal to 1"),
        ({"limits": 3}, "arguments: limits = 3: "),
        ({"host_memory_mode": "buffer"}, "host_memory_mode = 'buffer': Input should be 'cache' or 'buffer_only'"),
        ({"device_pages": 3}, "no such request could ever run"),
        ({"device_pages": 16}, "the pin cap derives to zero: min(0.5 x 16, 16 - 16) = 0 pages; enlarge device_pages"),
        ({"staging_ratio": 1.5, "staging_pages": 9}, "staging_pages and staging_ratio are set"),
        ({"staging_bytes": 9}, "set parts and page_part_bytes"),
        ({"staging_ratio": float("inf")}, "staging_ratio=inf: expected a finite number"),
        ({"staging_pages": 0}, "store is set, and needs staging"),
        ({"page_cache_fraction": 0.1}, 'page_cache_fraction is set, and needs host_memory_mode = "buffer_only"'),
        ({"kv_device": "cuda"}, "kv_device is set, and needs attached tensors: set parts and page_part_bytes"),
        ({"parts": 2}, "set both to attach tensors, or neither"),
        ({"prefetch_policy": "best_effort", "limits": {"wait_cap_ticks": 99}}, 'needs prefetch_policy = "timeout"'),
        ({"limits": {"retry_max_reissues": 0, "retry_interval_ticks": 3}}, "needs limits.retry_max_reissues above 0"),
        ({"components": [WINDOW], "staging_pages": 99}, "component 'swa': staging_pages is not set; set it"),
        ({"components": [WINDOW], "staging_ratio": 0.05}, "component 'swa': staging_pages=2, but two holds need 4"),
        (
            {"components": WINDOW},
            "arguments: components = {'device_pages': 40, 'kind': 'sliding_window', 'name': 'swa'",
        ),
        ({"components": WINDOW}, ": expected a list of tables, each headed [[components]] in a file"),
        ({"components": [{**WINDOW, "kind": "sliding"}]}, "arguments: components.0.kind = 'sliding': Input should be"),
        ({"components": [{"name": "a"}]}, "arguments: components.0.kind is not set, and has no default\n"),
        ({"device_pages": 10**400}, "the host buffer is too large to compute"),
        ({"staging_ratio": 1e300}, "default: staging_pages = "),
        ({"limits": {"tries": 1 << 63}}, "arguments: limits.tries = 9223372036854775808: expected at most 9,223,372,"),
    ],
)
def test_what_cannot_be_used_is_refused_with_what_to_write_instead(file, arguments, sentence):
    """By name, and by the place where it stands."""
    assert sentence in refusal(file(), arguments)


def test_an_unknown_variable_is_refused_like_an_unknown_key(file, monkeypatch):
    """With the nearest one, in capitals; both mistakes are told at once."""
    monkeypatch.setenv("STAGEHOLD_LIMITS__PRK_LIMIT", "1")
    told = refusal(file('stor = "x"\n'))
    assert "environment: unknown option STAGEHOLD_LIMITS__PRK_LIMIT; did you mean STAGEHOLD_LIMITS__PARK_LIMIT?" in told
    assert "stagehold.toml: unknown option 'stor'; did you mean 'store'?" in told


def test_a_buffer_without_a_store_and_options_of_a_store_without_one_are_refused(tmp_path):
    """Neither would do anything."""
    path = tmp_path / "x.toml"
    path.write_text("device_pages = 64\nlargest_request_tokens = 1024\nquery_limit = 3\n")
    assert "query_limit is set, and needs a store: set store to its URL" == refusal(path)
    assert "host_memory_mode=buffer_only needs a store" in refusal(path, {"host_memory_mode": "buffer_only"})


def test_an_option_without_a_default_must_be_set(tmp_path):
    """The sentence names all three ways."""
    path = tmp_path / "x.toml"
    path.write_text("device_pages = 64\n")
    assert "largest_request_tokens is not set, and has no default: set it in the file, as STAGEHOLD_LARGEST" in refusal(
        path
    )


def test_a_table_in_the_environment_is_json_and_its_options_have_their_place(file, monkeypatch):
    """Like those that are set one by one; what is no JSON, or no option, is told by its name."""
    monkeypatch.setenv("STAGEHOLD_LIMITS", '{"fetch_limit": 3}')
    found = load(file())
    assert (3, "environment") == (found.engine.limits.fetch_limit, found.origins["limits.fetch_limit"])
    monkeypatch.setenv("STAGEHOLD_LIMITS", '{"fetchlimit": 3}')
    assert "environment: unknown option STAGEHOLD_LIMITS__FETCHLIMIT; did you mean" in refusal(file())
    monkeypatch.setenv("STAGEHOLD_COMPONENTS", "[{")
    assert "environment: STAGEHOLD_COMPONENTS: expected JSON, found '[{' (" in refusal(file())


def test_the_token_of_a_live_view_is_no_option(file, monkeypatch):
    """A server may have both in its environment."""
    monkeypatch.setenv("STAGEHOLD_TOKEN", "0123456789abcdef")
    assert 64 == load(file()).engine.device_pages


@pytest.mark.parametrize(
    "rest", ["u:sec/ret@h:1/0", "u:sec#ret@h", "u:sec@ret@h", ":secret@h", "[u:secret@h", "u:sec?ret@h"]
)
def test_a_password_is_not_shown_however_it_is_written(rest):
    """Nor does a URL that is none end the command."""
    assert f"redis://{rest.partition(':')[0]}:***@{rest.rpartition('@')[2]}" == shown(f"redis://{rest}")
    assert "file:///a:b/c?capacity=1GiB" == shown("file:///a:b/c?capacity=1GiB")


def test_a_store_that_is_no_text_is_refused_without_telling_it(file):
    """It may hold a password."""
    told = refusal(file(), {"store": ["redis://u:secret@h"]})
    assert "arguments: store: Input should be a valid string" in told
    assert "secret" not in told


def test_a_pipe_is_read_and_one_that_nobody_writes_to_is_not_waited_for(tmp_path):
    """A shell gives the output of another command like that."""
    path = tmp_path / "x.toml"
    os.mkfifo(path)
    assert "device_pages is not set" in refusal(path)
    reading, writing = os.pipe()
    with os.fdopen(writing, "w") as file:
        file.write(LEAST)
    assert 64 == load(Path(f"/dev/fd/{reading}")).engine.device_pages
    os.close(reading)


@pytest.mark.parametrize(("text", "sentence"), [("=", "expected TOML"), (None, "expected a TOML file of options")])
def test_a_file_that_cannot_be_read_is_named(tmp_path, text, sentence):
    """Missing, or not TOML."""
    path = tmp_path / "x.toml"
    if text is not None:
        path.write_text(text)
    told = refusal(path)
    assert told.startswith(f"{path}: ")
    assert sentence in told


# The host buffer


@pytest.mark.parametrize(
    ("arguments", "pages", "arithmetic"),
    [
        ({}, 128, "floor(2.0 * 64) = 128"),
        ({"host_memory_mode": "buffer_only"}, 76, "floor(1.2 * 64) = 76"),
        ({"staging_ratio": 0.5}, 32, "floor(0.5 * 64) = 32"),
        ({"staging_pages": 7}, 7, "as set"),
        ({"staging_bytes": 40_000, "parts": 2, "page_part_bytes": 500}, 40, "floor(40000 / (64 * 1000) * 64) = 40"),
    ],
)
def test_the_host_buffer_is_sized_in_one_of_three_ways(file, arguments, pages, arithmetic):
    """And shows how."""
    found = load(file(), arguments)
    assert (pages, arithmetic) == (found.engine.staging_pages, found.staging.arithmetic)


def test_a_component_gets_its_share_by_the_same_ratio(file):
    """Unless it says itself how much it wants."""
    own = {**WINDOW, "name": "other", "staging_pages": 5}
    found = load(file(), {"components": [WINDOW, own], "staging_ratio": 0.5})
    assert [20, 5] == [one.staging_pages for one in found.engine.components]


def test_a_configuration_opens_an_engine_with_its_store(file):
    """It serves, and closing it closes the store."""
    engine = load(file(), {"page_size": 16, "largest_request_tokens": 512}).open(strict=True)
    h = Hand.__new__(Hand)
    h.config, h.engine, h.core, h.store = engine.config, engine, engine._parts.core, engine._parts.core.store
    h.tick(30)
    h.run("a", h.prompt(4))
    h.tick(30)
    assert 4 == engine.stats().stored_pages
    engine.close()
    assert engine.attachment.name == "CLOSED"
