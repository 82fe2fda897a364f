"""Audit logs that others may have written: each reader answers or says which line is wrong, and shows no code."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from stagehold import AuditLog
from stagehold.machines import audit, audit_words
from stagehold.machines.audit import BadLogError
from stagehold.machines.audit_explain import explain
from stagehold.machines.audit_lines import rendered, sealed
from stagehold.machines.diagram import write_html
from stagehold.machines.records import RECORD, HandleKey, chain, decode
from stagehold.operate.live.sources import LogSource
from stagehold.testing.hand import Hand
from stagehold.testing.hostile import NUMBERS, attempt, corpus, damaged

HOSTILE = settings.get_profile("hostile")
CORPUS = corpus(Path(__file__).parent / "corpus" / "audit")
SCRIPT = '<script>alert("&")</script>'
SOUND: list[bytes] = []
WORDS = [b'"births":[', b'"event":"summary"', b'"seal":"', b"\n", b"{}", b"[[", b'"\\ud800"', b"1e999", b"null", b"-1"]


def story(path: Path, rid: str) -> bytes:
    """The log of an engine that served two requests, one of them from the store."""
    with AuditLog(path) as log, Hand(engine_options={"sink": log.block}) as h:
        h.put(h.prompt(4, 2))
        for family in (1, 2):
            handle = h.arrive(rid + str(family), h.prompt(4, family))
            h.tick(4)
            h.serve(handle)
        log.summary(9, waiting=2.5, names=["a", None])
        log.violation(9, "slots do not add up", owned=3)
    return path.read_bytes()


@pytest.fixture(scope="module", autouse=True)
def sound(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The bytes of sound logs, once."""
    if not SOUND:
        folder = tmp_path_factory.mktemp("sound")
        SOUND.extend(story(folder / name, rid) for name, rid in (("plain", "r"), ("odd", SCRIPT)))


def read_all(path: Path) -> None:
    """By every reader; verify never raises, the others refuse in words."""
    audit.verify(path)
    for reader in (audit.replay, audit.stats, lambda log: explain(log, "r1"), lambda log: audit.diff(log, log)):
        with suppress(BadLogError):
            reader(path)


def shown(path: Path) -> None:
    """As a page, in which no name is markup."""
    with suppress(BadLogError):
        write_html(path.with_suffix(".html"), path)
        assert b"<script>alert" not in path.with_suffix(".html").read_bytes()


def read(path: Path, raw: bytes) -> None:
    attempt(path, raw, read_all, refusals=(), most=(64 << 20) + 100 * len(raw))


@settings(HOSTILE)
@given(data=st.data())
def test_any_damage_is_read_or_refused(tmp_path: Path, data: st.DataObject) -> None:
    """Of logs that were sound."""
    read(tmp_path / "log", data.draw(damaged(SOUND, WORDS)))


INTS = st.sampled_from([*NUMBERS, -1, 3, 5, 7]) | st.integers(0, 8)
ODD = INTS | st.booleans() | st.none() | st.floats() | st.text(max_size=5) | st.lists(INTS, max_size=3)
HEX = st.binary(max_size=20).map(bytes.hex) | ODD
KEYS = st.fixed_dictionaries(
    {"namespace": HEX},
    optional={"rid": st.text(max_size=6) | ODD, "attempt": ODD, "last_key": HEX, "first": ODD, "last": ODD},
)
WELL = st.fixed_dictionaries({"namespace": st.just("ab"), "rid": st.text(max_size=6), "attempt": st.just(0)})
BIRTHS = st.tuples(INTS, INTS, INTS, KEYS | WELL).map(list) | st.lists(ODD, max_size=5)
ROWS = st.tuples(
    st.integers(0, 9) | st.sampled_from([(1 << 32) - 1]),
    st.integers(0, 0x9FF) | st.sampled_from([0xFF, 0x1FF, 0x3FF, 0xFFFF]),
    st.sampled_from([0, 1, 2, 0xFFFF]),
    st.integers(0, 0x1FFF) | st.sampled_from(NUMBERS),
)
RECORDS = st.lists(ROWS, max_size=6).map(lambda rows: b64encode(_packed(rows)).decode()) | ODD
FACTS = st.fixed_dictionaries(
    {}, optional={"births": st.lists(BIRTHS, max_size=4), "records": RECORDS, "tick": INTS, "index": INTS}
)


def _packed(rows: list[tuple[int, int, int, int]]) -> bytes:
    return np.array(rows, RECORD).tobytes()


def rechained(blocks: list[dict[str, Any]]) -> bytes:
    """A log of blocks with these facts in place of a real one's, chained as a careful forger would."""
    real = orjson.loads(SOUND[0].splitlines()[0])
    previous, lines = "00" * 16, []
    for index, facts in enumerate(blocks):
        data = {**real, "index": index, "births": [], "records": "", **facts, "previous": previous}
        try:
            digest = chain(decode(data)).hex()
        except Exception:  # noqa: BLE001 - what cannot be hashed is written as it is
            digest = previous
        data["digest"] = previous = digest
        lines.append(orjson.dumps(data) + b"\n")
    return b"".join(lines)


@settings(HOSTILE)
@given(blocks=st.lists(FACTS, min_size=1, max_size=4))
@example(blocks=[{"births": [[0, 99, 0, {"namespace": "ab", "rid": "r1", "attempt": 0}]]}])
@example(blocks=[{"records": "//////8AAAAAAAEAAAAAAP////8BAAAAAAABAAAAAAA="}])
@example(blocks=[{"births": [[0, 0, 250, {"namespace": "ab", "rid": "r1", "attempt": 0}]]}])
def test_any_forged_chain_is_read_or_refused(tmp_path: Path, blocks: list[dict[str, Any]]) -> None:
    """Blocks whose digests are right, with births and records that no engine writes."""
    read(tmp_path / "log", rechained(blocks))


@settings(HOSTILE, max_examples=max(5, HOSTILE.max_examples // 20))
@given(data=st.data(), blocks=st.lists(FACTS, min_size=1, max_size=4))
def test_any_log_is_shown_or_refused(tmp_path: Path, data: st.DataObject, blocks: list[dict[str, Any]]) -> None:
    """On the page of the machines: it costs more than all the others."""
    raw = data.draw(st.sampled_from([*SOUND, rechained(blocks)]))
    attempt(tmp_path / "log", raw, shown, refusals=(), most=(64 << 20) + 100 * len(raw))


def watched(path: Path) -> None:
    """As the live view follows it: trouble is told, and what it gives is JSON."""
    source = LogSource(path)
    for _ in range(2):
        orjson.dumps(source.view())


@settings(HOSTILE)
@given(data=st.data(), blocks=st.lists(FACTS, min_size=1, max_size=4), behind=st.booleans())
def test_any_log_is_followed_or_refused(
    tmp_path: Path, data: st.DataObject, blocks: list[dict[str, Any]], behind: bool
) -> None:
    """Damaged ones, and forged blocks alone or behind a sound log."""
    forged = (SOUND[0] if behind else b"") + rechained(blocks)
    raw = data.draw(st.just(forged) | damaged(SOUND, WORDS))
    attempt(tmp_path / "log", raw, watched, refusals=(), most=(64 << 20) + 100 * len(raw))


@settings(HOSTILE)
@given(rid=st.text(max_size=12))
@example(rid="\x1b]0;title\x07\x1b[2Jr1\r")
def test_no_name_of_a_log_reaches_the_terminal_as_it_is(rid: str) -> None:
    """A request's name cannot move a cursor or set a title, and a plain one is left alone."""
    told = audit_words.key(HandleKey(rid, 0, b""))

    assert told.isprintable()
    assert not rid.isprintable() or told == f"{rid} #0"


def nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


NOTES: dict[str, Callable[[], bytes]] = {
    "a summary that is nested deeply": lambda: orjson.dumps(
        {"event": "summary", "tick": 1, "x": nested(200), "seal": "00000000"}
    ).replace(b"[1]", b"[" * 300 + b"1" + b"]" * 300),
    "a summary with a seal that is none": lambda: rendered("summary", {"tick": 1, "seal": [1]}),
    "a number beyond all floats": lambda: b'{"event":"summary","tick":1e999,"seal":"0"}',
    "an event that is a list": lambda: b'{"event":["block"]}',
    "an event that is an object": lambda: b'{"event":{"block":1}}',
    "a sealed note with a mark-up": lambda: rendered("violation", sealed("violation", {"tick": 1, "what": SCRIPT})),
}


@pytest.mark.parametrize("name", NOTES)
def test_odd_notes_are_read_or_refused(tmp_path: Path, name: str) -> None:
    """Lines that are no blocks, after a block."""
    read(tmp_path / "log", SOUND[0] + NOTES[name]() + b"\n")


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.name)
def test_what_once_went_wrong_is_read_or_refused(tmp_path: Path, path: Path) -> None:
    """The inputs that were found."""
    read(tmp_path / "log", path.read_bytes())
