"""The checksum sees every byte of both parts, in order."""

from stagehold.kernels.checksum import CHECKSUM_BYTES, checksum, spread


def test_it_covers_the_prefix_and_the_body():
    """A change in either changes it; the border between them is not part of it."""
    base = checksum(b"head", b"body")
    assert len(base) == CHECKSUM_BYTES
    assert len({base, checksum(b"Head", b"body"), checksum(b"head", b"bodY"), checksum(b"", b"")}) == 4
    assert checksum(b"headb", b"ody") == base


def test_it_takes_views_at_any_alignment():
    """A view into the middle of a buffer gives what its bytes give."""
    raw = bytearray(range(200))
    assert checksum(b"x", memoryview(raw)[3:150]) == checksum(b"x", bytes(range(3, 150)))


def test_names_with_equal_beginnings_are_spread_evenly():
    """Sixteen shards of 4096 counted names are all near 256."""
    counts = [0] * 16
    for index in range(4096):
        counts[spread(b"prefix-%d" % index) & 15] += 1
    assert 180 < min(counts) <= max(counts) < 340
