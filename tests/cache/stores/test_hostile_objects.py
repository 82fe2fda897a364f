"""What a server has is no reason to hold it: an object longer than its page comes as far as the page goes."""

import pytest

from stagehold.cache.stores.open import open_store
from stagehold.cache.stores.page import HEADER_BYTES, encode_header
from stagehold.cache.stores.protocol import Verdict

SIZE = 1000
NAME = b"long-%027d" % 1
LONG = 8 << 20


@pytest.fixture(params=["valkey_server", "s3_server"])
def raw(request):
    """The client of a running server, below headers and checks; and its store."""
    store = open_store(request.getfixturevalue(request.param).url, SIZE)
    yield store.blocking.raw, store.blocking
    store.close()


def test_an_object_is_fetched_as_far_as_its_page_goes(raw):
    """Eight mebibytes behind a page stay where they are; the page is good, or what stands there is no page."""
    client, store = raw
    body = bytes(range(250)) * 4
    verdicts = []
    for first in (encode_header(NAME, body) + body, b"no page"):
        client.remove(NAME)
        client.send([NAME], [first + bytes(LONG)])
        (found,) = client.fetch([NAME], [HEADER_BYTES + SIZE])
        assert len(found) == HEADER_BYTES + SIZE
        out = memoryview(bytearray(SIZE))
        store.get_into([NAME], [out], lambda _index, verdict: verdicts.append(verdict) is None)
    assert verdicts == [Verdict.HIT, Verdict.FOREIGN]
    assert client.fetch([NAME], [HEADER_BYTES + SIZE]) == [None]
