"""Whatever is done to the bytes of a log is told, each kind of damage by its own name and with its place."""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stagehold.machines import HandleKey, Journal, SpanKey, audit, bind
from stagehold.machines.audit import BadLogError, Damage, Fault
from stagehold.machines.logs import AuditLog
from stagehold.specs.hold import HOLD
from stagehold.specs.outcomes import Answer, Fetched, IoCommit, Launch, Loss
from stagehold.specs.request import REQUEST

Lines = list[bytes]


class Pair:
    """Decisions (place 0) and effects (place 1) answer from the pair that the step is given."""

    def __init__(self, place: int) -> None:
        self.place = place

    def __getattr__(self, name: str) -> Callable[..., object]:
        return lambda _m, pair=(None, 0): pair[self.place]


def write(path: Path) -> bytes:
    """A log with everything that a log can hold: all kinds of lines and keys, odd names, refusals, a loss."""
    with AuditLog(path) as log:
        journal = Journal(sink=log.block)
        bound = {"decisions": Pair(0), "effects": Pair(1), "journal": journal, "arm": None, "strict": False}
        request, hold = bind(REQUEST, **bound), bind(HOLD, **bound)
        for tick, rid in enumerate(("plain", 'q"uo\\te', "né\x1f\n", "")):
            asker = request.birth(None, HandleKey(rid, tick, b"\xab\xcd"))
            held = hold.birth(None, SpanKey(b"ns", bytes([0xAB, tick]) * 8, 0, 7))
            request.issue(asker, (Launch.LOOKUP, 0))
            request.finish(asker)  # refused
            request.answer(asker, (Answer.HIT, 100 | held.number << 32))
            hold.io_commit(held, (IoCommit.PINNED, 0))
            hold.plan(held)  # refused
            journal.close_block(3 * tick)
            hold.fetched(held, (Fetched.NOTHING, 0))
            request.abort(asker, (None, 100 | Loss.ABORTED << 32))
            journal.close_block(3 * tick + 1)
            journal.close_block(3 * tick + 2)
            log.summary(tick, waiting=2.5, names=["a", None])
            log.violation(tick, "slots do not add up", owned=3)
    return journal.digest


@pytest.fixture
def log(tmp_path: Path) -> Path:
    write(tmp_path / "log")
    assert audit.verify(tmp_path / "log").sound
    return tmp_path / "log"


def lines_of(path: Path) -> Lines:
    return path.read_bytes().splitlines(keepends=True)


def block_lines(path: Path) -> list[int]:
    """Places of the blocks among the lines, from 0."""
    return [at for at, line in enumerate(lines_of(path)) if line.startswith(b'{"event":"block"')]


def fault_of(path: Path, head: bytes | None = None) -> Fault:
    fault = audit.verify(path, head=head).fault
    assert fault is not None
    return fault


# Each kind by its name


def swap(lines: Lines, one: int, other: int) -> None:
    lines[one], lines[other] = lines[other], lines[one]


def rerecorded(lines: Lines, at: int, change: Callable[[bytes], bytes]) -> None:
    """Other records in a block, everything else as it was."""
    data = orjson.loads(lines[at])
    data["records"] = b64encode(change(b64decode(data["records"]))).decode()
    lines[at] = orjson.dumps(data) + b"\n"


def sorted_keys(lines: Lines, at: int) -> None:
    """The same content, its fields in another order."""
    lines[at] = orjson.dumps(orjson.loads(lines[at]), option=orjson.OPT_SORT_KEYS) + b"\n"


KINDS: dict[str, tuple[Callable[[Lines, list[int]], object], Damage, Callable[[list[int]], int]]] = {
    "a tail that was not written out": (
        lambda lines, _: lines.__setitem__(-1, lines[-1][:-7]), Damage.TRUNCATED, lambda _: 28,
    ),
    "a last line without its end": (
        lambda lines, _: lines.__setitem__(-1, lines[-1][:-1]), Damage.TRUNCATED, lambda _: 28,
    ),
    "a missing block": (lambda lines, at: lines.pop(at[1]), Damage.MISSING_BLOCK, lambda at: at[1] + 1),
    "two blocks that changed places": (
        lambda lines, at: swap(lines, at[1], at[2]), Damage.SWAPPED, lambda at: at[1] + 1,
    ),
    "a block moved to the end": (
        lambda lines, at: lines.append(lines.pop(at[2])), Damage.SWAPPED, lambda at: at[2] + 2 + 1,
    ),
    "a block twice": (
        lambda lines, at: lines.insert(at[1], lines[at[1]]), Damage.REPEATED_BLOCK, lambda at: at[1] + 2,
    ),
    "an altered record": (
        lambda lines, at: rerecorded(lines, at[1], lambda raw: raw[:8] + bytes([raw[8] ^ 1]) + raw[9:]),
        Damage.ALTERED, lambda at: at[1] + 1,
    ),
    "garbage between two lines": (
        lambda lines, at: lines.insert(at[1], b"\x00\xff\xfe garbage \x80\n"), Damage.UNREADABLE, lambda at: at[1] + 1,
    ),
    "an event of no log": (
        lambda lines, at: lines.insert(at[1], b'{"event":"blocks"}\n'), Damage.UNREADABLE, lambda at: at[1] + 1,
    ),
    "records of half a length": (
        lambda lines, at: lines.__setitem__(at[1], lines[at[1]].replace(b'"records":"', b'"records":"AAAA')),
        Damage.UNREADABLE, lambda at: at[1] + 1,
    ),
    "as many records again": (
        lambda lines, at: rerecorded(lines, at[1], lambda raw: raw * 2), Damage.ALTERED, lambda at: at[1] + 1,
    ),
    "a tick beyond all numbers": (
        lambda lines, at: lines.__setitem__(at[1], lines[at[1]].replace(b'"tick":1,', b'"tick":18446744073709551616,')),
        Damage.UNREADABLE, lambda at: at[1] + 1,
    ),
    "brackets without end": (
        lambda lines, at: lines.insert(at[1], b"[" * 100_000 + b"\n"), Damage.UNREADABLE, lambda at: at[1] + 1,
    ),
    "a refusal left out": (lambda lines, _: lines.pop(1), Damage.ALTERED_NOTE, lambda _: 2),
    "a refusal that was none": (
        lambda lines, _: lines.insert(1, lines[1]), Damage.ALTERED_NOTE, lambda _: 3,
    ),
    "a refusal somewhere else": (
        lambda lines, _: lines.append(lines[1]), Damage.ALTERED_NOTE, lambda _: 29,
    ),
    "a violation with another fact": (
        lambda lines, _: lines.__setitem__(-1, lines[-1].replace(b'"owned":3', b'"owned":4')),
        Damage.ALTERED_NOTE, lambda _: 28,
    ),
    "the same content, written otherwise": (
        lambda lines, at: sorted_keys(lines, at[1]), Damage.ALTERED, lambda at: at[1] + 1,
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_damage_has_its_name_and_place(log: Path, kind: str) -> None:
    """Line and member; the sentence begins with the file and the line."""
    deed, damage, place = KINDS[kind]
    lines, at = lines_of(log), block_lines(log)
    deed(lines, at)
    log.write_bytes(b"".join(lines))
    fault = fault_of(log)

    assert (damage, place(at)) == (fault.damage, fault.line)
    assert str(fault).startswith(f"{log}:{fault.line}: ")
    assert damage.value in str(fault)


def test_a_log_cut_between_two_blocks_is_told_by_its_head(log: Path) -> None:
    """Which it should end in is known from elsewhere."""
    head = audit.verify(log).digest
    at = block_lines(log)
    log.write_bytes(b"".join(lines_of(log)[: at[-1]]))

    assert audit.verify(log).sound
    assert Damage.CUT is fault_of(log, head).damage
    assert f"expected last digest {head.hex()}" in str(fault_of(log, head))


def test_a_log_that_goes_on_after_its_head_is_told_too(log: Path) -> None:
    """Blocks that nobody knows of are as wrong as those that are missing."""
    lines = lines_of(log)
    digest = bytes.fromhex(orjson.loads(lines[block_lines(log)[-2]])["digest"])

    assert Damage.CUT is fault_of(log, digest).damage


def test_a_swapped_block_is_said_to_be_elsewhere(log: Path) -> None:
    """With the line on which it stands."""
    lines, at = lines_of(log), block_lines(log)
    swap(lines, at[1], at[2])
    log.write_bytes(b"".join(lines))

    assert f"expected block 1, found block 2; block 1 is on line {at[2] + 1}" in str(fault_of(log))


def test_foreign_declarations_are_told_before_anything_else(log: Path) -> None:
    """Rows of others are not judged."""
    fault = audit.verify(log, machines=(REQUEST, HOLD)).fault

    assert fault is not None
    assert (Damage.FOREIGN, 1) == (fault.damage, fault.line)


def test_a_line_longer_than_any_is_not_read_to_its_end(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What has no end of line for too long is refused as it comes, whatever the file's size."""
    monkeypatch.setattr("stagehold.machines.audit_read.LINE_BYTES", 4_096)
    lines = lines_of(log)
    log.write_bytes(lines[0] + b"x" * 1_000_000)
    fault = fault_of(log)

    assert (Damage.TOO_LONG, 2) == (fault.damage, fault.line)
    assert "expected at most 4,096 bytes" in str(fault)


def test_readers_refuse_what_verify_cannot_read(log: Path) -> None:
    """The others judge no chain, but never go on from a line that is none."""
    log.write_bytes(b"".join(lines_of(log))[:-3])

    for reader in (audit.replay, audit.stats):
        with pytest.raises(BadLogError) as caught:
            reader(log)
        assert Damage.TRUNCATED is caught.value.fault.damage


# Any byte

LOG: dict[str, bytes] = {}


@pytest.fixture(scope="module", autouse=True)
def sound(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The bytes of a sound log, once."""
    path = tmp_path_factory.mktemp("sound") / "log"
    write(path)
    LOG["bytes"], LOG["path"] = path.read_bytes(), str(path).encode()


def flipped(at: int, mask: int) -> Path:
    """The log with one byte changed."""
    changed = bytearray(LOG["bytes"])
    changed[at] ^= mask
    path = Path(LOG["path"].decode())
    path.write_bytes(changed)
    return path


@settings(max_examples=400, deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_any_flipped_byte_is_told(where: float, mask: int) -> None:
    """Wherever it stands: in a block, a hash, a name, a refusal, a violation, an end of line."""
    at = int(where * len(LOG["bytes"]))

    assert not audit.verify(flipped(at, mask)).sound, f"byte {at} with mask {mask}"


@settings(max_examples=100, deadline=None)
@given(st.floats(0, 1, exclude_max=True), st.binary(min_size=1, max_size=40))
def test_any_run_of_other_bytes_is_told(where: float, garbage: bytes) -> None:
    """Bytes written over others, unless they are the same."""
    at = int(where * (len(LOG["bytes"]) - len(garbage)))
    path = Path(LOG["path"].decode())
    path.write_bytes(LOG["bytes"][:at] + garbage + LOG["bytes"][at + len(garbage) :])

    assert audit.verify(path).sound == (path.read_bytes() == LOG["bytes"])


@settings(max_examples=100, deadline=None)
@given(st.floats(0, 1, exclude_max=True))
def test_any_cut_is_told(where: float) -> None:
    """In the middle of a line by the line, between two lines by the head."""
    at = int(where * len(LOG["bytes"]))
    path = Path(LOG["path"].decode())
    path.write_bytes(LOG["bytes"])
    head = audit.verify(path).digest
    path.write_bytes(LOG["bytes"][:at])
    tail = LOG["bytes"][at:]

    assert audit.verify(path, head=head).sound == (
        b'"event":"block"' not in tail and LOG["bytes"][at - 1 : at] == b"\n"
    )


@pytest.mark.soak
def test_every_bit_of_every_byte_is_told() -> None:
    """No exception, one bit at a time."""
    for at in range(len(LOG["bytes"])):
        for bit in range(8):
            assert not audit.verify(flipped(at, 1 << bit)).sound, f"byte {at}, bit {bit}"
