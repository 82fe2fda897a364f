"""K45: two layouts have pages of one shape and size, and the wrong one was guessed.

Here nothing is inferred from a shape. What decides the bytes is declared: in the namespace, which is part of every
key, and in the page header, which is compared field by field before a page counts as read.
"""

from __future__ import annotations

from stagehold import ComponentConfig, ComponentKind, RequestState
from stagehold.cache.components.full import FULL
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


def test_components_of_one_shape_are_never_taken_for_each_other(hand) -> None:
    """A window's page lies under the name of a page of full attention: it says what it is, and is no hit."""
    shape = {"parts": 1, "page_part_bytes": 8}
    window = {"name": "swa", "kind": ComponentKind.SLIDING_WINDOW, "window_tokens": 48}
    swa = ComponentConfig(**window, device_pages=40, staging_pages=12, **shape)
    h = hand(components=(swa,), chunk_tokens=64, prefetch_threshold_tokens=16, **shape)
    tokens, others = h.prompt(8), h.prompt(8, 2)
    for prompt in (tokens, others):
        h.put_all(prompt)
        assert set(h.names(prompt)).isdisjoint(h.names(prompt, component="swa"))
    (wrong,), (right,) = h.names(tokens, 6, 7, FULL), h.names(tokens, 6, 7, "swa")
    h.store.medium.write(wrong, h.store.medium.read(right))
    a, b = h.arrive("a", tokens), h.arrive("b", others)
    h.tick(3)
    assert 8 * 16 == h.admit(b).hit_tokens
    assert [h.stored_byte(FULL, page) for page in range(8)] == h.shown(others, 0, 8)
    assert [h.stored_byte("swa", page) for page in range(5, 8)] == h.shown(others, 5, 8, "swa")
    h.until_state(a, RequestState.STAGED)
    h.tick(2)
    assert 6 * 16 == h.admit(a).hit_tokens
    assert [h.stored_byte(FULL, page) for page in range(6)] == h.shown(tokens, 0, 6)
