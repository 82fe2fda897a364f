"""Chained page keys: equal for equal prefixes of one namespace, and for nothing else."""

from __future__ import annotations

import subprocess
import sys
from hashlib import sha256

import numpy as np
import pytest

from stagehold.cache import keys
from stagehold.cache.errors import CacheRefused, InvariantBroken
from stagehold.cache.keys import Chain, Namespace, RankCoordinates, block_pages, object_name, self_test

SPACE = Namespace("model", "adapter", "salt")
PAGE_SIZES = [1, 16, 32, 64, 128]


def chain(tokens, page_size=64, space=SPACE):
    return Chain(space, tokens, page_size)


def page_keys(of):
    return [of.page_key(page) for page in range(of.n_pages)]


def little(tokens):
    return np.array(tokens, "<u4").tobytes()


def test_the_self_test_vector_holds():
    """The fixed vector gives the committed digests in this process."""
    self_test()


def test_the_self_test_sees_another_formula(monkeypatch):
    """A schema that hashes otherwise is refused at start."""
    monkeypatch.setattr(keys, "KEY_SCHEMA", 2)
    keys._namespace_digest.cache_clear()
    with pytest.raises(InvariantBroken, match="self-test"):
        self_test()
    monkeypatch.undo()
    keys._namespace_digest.cache_clear()


def test_keys_are_equal_in_another_process():
    """No hash seed, no address and no word size enters a key."""
    script = (
        "from stagehold.cache.keys import Chain, Namespace\n"
        "chain = Chain(Namespace('model', 'adapter', 'salt'), list(range(200)), 16)\n"
        "print(chain.page_key(9).hex())"
    )
    other = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, env={})
    assert chain(list(range(200)), 16).page_key(9).hex() == other.stdout.strip()


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_a_key_follows_the_declared_formula(page_size):
    """Block ends hash the parent and a block; a page between them hashes the last block end and the tokens since."""
    tokens = [token * 7 for token in range(300)]
    block = max(page_size, 64)
    parent, expected = SPACE.digest(page_size), []
    for start in range(0, 300, block):
        ends = range(start + page_size, min(start + block, 300) + 1, page_size)
        expected += [sha256(parent + little(tokens[start:end])).digest() for end in ends]
        parent = sha256(parent + little(tokens[start : start + block])).digest()
    assert expected == page_keys(chain(tokens, page_size))


@pytest.mark.parametrize("page_size", PAGE_SIZES)
def test_an_extended_chain_has_the_keys_of_one_made_at_once(page_size):
    """Extending in uneven steps, across reallocations, changes no key and no token."""
    tokens = np.arange(3_000)
    grown = chain(tokens[:5], page_size)
    for start, end in ((5, 6), (6, 100), (100, 1_500), (1_500, 3_000)):
        grown.extend(tokens[start:end])
    assert page_keys(chain(tokens, page_size)) == page_keys(grown)
    assert tokens.tolist() == grown.tokens.tolist()


def test_a_view_of_the_tokens_stays_as_it_was():
    """Later extensions neither grow nor move what was handed out."""
    of = chain(np.arange(100))
    before = of.tokens
    of.extend(np.arange(5_000))
    assert list(range(100)) == before.tolist()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Namespace("ab", "c"), Namespace("a", "bc")),
        (Namespace("a", "b", ""), Namespace("a", "", "b")),
        (Namespace("a"), Namespace("b")),
    ],
)
def test_namespaces_do_not_run_together(one, other):
    """Fields are length-prefixed, so that moving a letter between them gives another digest."""
    assert one.digest(64) != other.digest(64)


def test_page_sizes_do_not_meet():
    """The page size is part of the namespace digest."""
    assert SPACE.digest(64) != SPACE.digest(128)


@pytest.mark.parametrize("page_size", [0, -1, 3, 24, 63])
def test_a_page_size_that_does_not_fit_a_block_is_refused(page_size):
    """Below 64 tokens a page divides a block."""
    with pytest.raises(CacheRefused, match="page size"):
        block_pages(page_size)


@pytest.mark.parametrize(
    "tokens", [[-1], [1 << 32], np.array([1.5]), np.zeros((2, 2), int), np.array([-1], np.int32), np.array([1 << 40])]
)
def test_tokens_that_do_not_fit_are_refused(tokens):
    """Ids are whole numbers of 32 bits in one dimension."""
    with pytest.raises(CacheRefused, match="tokens"):
        chain(tokens)


@pytest.mark.parametrize("kind", [np.int64, np.uint32, np.int32, np.uint16, np.uint64, list])
def test_any_integers_give_the_same_keys(kind):
    """The type of the caller's array does not matter, nor does a stride."""
    tokens = list(range(0, 400, 2))
    given = tokens if kind is list else np.arange(400).astype(kind)[::2]
    assert page_keys(chain(tokens)) == page_keys(chain(given))


def test_a_page_that_is_not_whole_has_no_key():
    """Asking for it names the pages that there are."""
    with pytest.raises(CacheRefused, match="2 whole pages"):
        chain(np.arange(130)).page_key(2)


def test_an_object_name_carries_component_and_rank():
    """Every coordinate that changes the bytes changes the name; a name has 48 bytes and begins with the page key."""
    key = bytes(range(32))
    places = [
        RankCoordinates(*numbers) for numbers in ((0, 1, 0, 1), (0, 2, 0, 1), (1, 2, 0, 1), (0, 1, 0, 2), (0, 1, 1, 2))
    ]
    names = {object_name(key, component=name, at=at) for name in ("full", "swa") for at in places}
    assert 10 == len(names)
    assert {(48, key)} == {(len(name), name[:32]) for name in names}
