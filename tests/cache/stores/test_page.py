"""The page object tells the page that was asked for from everything else."""

import random

import pytest

from stagehold.cache.stores.page import HEADER_BYTES, Layout, encode_header, read_identity, verify
from stagehold.cache.stores.protocol import Verdict

NAME = bytes(range(32))


def page_object(name=NAME, size=512, seed=0, layout=None):
    body = random.Random(seed).randbytes(size)
    return bytearray(encode_header(name, body, layout or Layout()) + body)


def look(raw, name=NAME, size=512, layout=None):
    view = memoryview(raw)
    return verify(view[:HEADER_BYTES], view[HEADER_BYTES:], name, size, layout or Layout())


def test_a_page_comes_back_as_a_hit():
    """Header and body as written are the page."""
    assert look(page_object()) is Verdict.HIT


@pytest.mark.parametrize("size", [0, 1, 7, 255, 4096])
def test_any_body_length_is_a_hit_at_any_alignment(size):
    """Views at odd offsets verify like aligned ones."""
    raw = bytearray(3) + page_object(size=size)
    assert look(memoryview(raw)[3:], size=size) is Verdict.HIT


def test_one_hundred_thousand_faults_are_all_misses():
    """Single bit flips, truncations, swaps and zeroed ranges never come out as a hit."""
    rng = random.Random(20)
    good, other = page_object(), page_object(seed=1)
    view = bytearray(good)
    for index in range(60_000):
        bit = index % (len(view) * 8) if index < 8 * len(view) else rng.randrange(len(view) * 8)
        view[bit >> 3] ^= 1 << (bit & 7)
        assert look(view) is not Verdict.HIT, bit
        view[bit >> 3] ^= 1 << (bit & 7)
    for _ in range(10_000):
        assert look(good[: rng.randrange(len(good))]) is not Verdict.HIT
    for _ in range(15_000):
        cut = rng.randrange(HEADER_BYTES - 15, len(good))
        assert look(good[:cut] + other[cut:]) is not Verdict.HIT, cut
    for _ in range(15_000):
        start = rng.randrange(len(good) - 16)
        stop = start + 1 + rng.randrange(len(good) - start)
        zeroed = good[:start] + bytes(min(stop, len(good)) - start) + good[stop:]
        assert zeroed == good or look(zeroed) is not Verdict.HIT
    assert look(view) is Verdict.HIT


@pytest.mark.parametrize(
    ("damage", "verdict"),
    [
        (lambda raw: raw[:0], Verdict.TORN),
        (lambda raw: raw[:100], Verdict.TORN),
        (lambda raw: raw[:-1], Verdict.TORN),
        (lambda raw: bytearray(len(raw)), Verdict.TORN),
        (lambda raw: raw[:-1] + bytes([raw[-1] ^ 1]), Verdict.CORRUPT),
        (lambda raw: b"x" * len(raw), Verdict.FOREIGN),
        (lambda raw: page_object(name=b"another page name"), Verdict.FOREIGN),
        (lambda raw: page_object(size=256), Verdict.FOREIGN),
        (lambda raw: page_object(layout=Layout(component=1)), Verdict.FOREIGN),
        (lambda raw: page_object(layout=Layout(tensor_rank=1, tensor_size=2)), Verdict.FOREIGN),
    ],
)
def test_each_kind_of_damage_has_its_verdict(damage, verdict):
    """A miss says why it is one."""
    assert look(damage(page_object())) is verdict


def test_the_right_body_under_another_name_is_not_a_hit():
    """A header rewritten to claim another name fails the checksum, which covers the name."""
    raw, other = page_object(), page_object(name=b"n" * 32)
    assert look(other[: HEADER_BYTES - 16] + raw[HEADER_BYTES - 16 :], name=b"n" * 32) is Verdict.CORRUPT


@pytest.mark.parametrize("name", [b"", b"n" * 65])
def test_a_name_that_does_not_fit_is_refused(name):
    """Names have 1 to 64 bytes."""
    with pytest.raises(ValueError, match="expected 1 to 64"):
        encode_header(name, b"")


def test_tools_can_read_what_a_header_claims():
    """Name, length and layout come back as they were encoded."""
    layout = Layout(2, 1, 4, 0, 2)
    identity = read_identity(page_object(size=9, layout=layout))
    assert identity is not None
    assert (identity.name, identity.body_bytes, identity.layout) == (NAME, 9, layout)
