"""K45: two layouts have pages of one shape and size, and the wrong one was guessed.

Here nothing is inferred from a shape. What decides the bytes is declared: in the namespace, which is part of every
key, and in the page header, which is compared field by field before a page counts as read.
"""

from __future__ import annotations

from stagehold.cache.keys import Namespace
from stagehold.cache.stores.page import Layout, encode_header, read_identity, verify
from stagehold.cache.stores.protocol import Verdict
from stagehold.cache.stores.simulated import Medium, SimulatedStore
from stagehold.testing.service import Service

NAME = b"n" * 32
LAYERS_FIRST = Namespace("model, rev 1, bf16, layers first, page 16")
PAGES_FIRST = Namespace("model, rev 1, bf16, pages first, page 16")


def test_a_page_of_the_right_size_and_another_layout_is_no_hit() -> None:
    """The same name, the same length, an intact checksum."""
    body = memoryview(bytes(range(256)))
    header = encode_header(NAME, body, Layout(component=0))
    assert verify(header, body, NAME, 256, Layout(component=0)) is Verdict.HIT
    assert verify(header, body, NAME, 256, Layout(component=1)) is Verdict.FOREIGN


def test_a_header_says_what_its_page_is() -> None:
    """A tool that finds a page needs no guess."""
    layout = Layout(component=3, tensor_rank=1, tensor_size=2)
    identity = read_identity(encode_header(NAME, bytes(64), layout))
    assert identity is not None
    assert (identity.layout, identity.body_bytes) == (layout, 64)


def test_engines_of_two_layouts_share_a_store_and_no_page() -> None:
    """Pages of one size for the same tokens: the second engine finds nothing of the first's, and finds its own."""
    medium = Medium()
    for namespace, hits in ((LAYERS_FIRST, 0), (PAGES_FIRST, 0), (LAYERS_FIRST, 512), (PAGES_FIRST, 512)):
        with Service(SimulatedStore(medium=medium), page_bytes=1024) as service:
            service.attach()
            service.serve(range(4), namespace)
            service.drain()
            assert service.breaches() == []
            assert service.served.store_hit_tokens == hits
