"""What callers give, looked at before anything is done with it: whole numbers, prompts, facts, stores.

Owns the sentences that say which argument of which call was wrong. It keeps nothing and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stagehold.cache.components.shares import Share
from stagehold.cache.errors import CacheRefused
from stagehold.cache.keys import Chain, Namespace, RankCoordinates
from stagehold.cache.stores.protocol import Store
from stagehold.lifecycle.errors import Misuse
from stagehold.lifecycle.policy import Machines
from stagehold.lifecycle.ranks.solo import Facts
from stagehold.specs.config import EngineConfig


def engine(config: Any, at: Any, group: Any, copies: Any, machines: Any, **calls: Any) -> None:
    """What an engine is built from; None is left to its default."""
    of = (("config", config, EngineConfig), ("at", at, RankCoordinates), ("machines", machines, Machines))
    for name, given, kind in of:
        if not isinstance(given, kind):
            raise Misuse(f"Engine: expected {name} to be of {kind.__name__}, got {given!r}")
    for name, given, has in (("group", group, ("size", "exchange")), ("copies", copies, ("sent", "poll"))):
        if given is not None and not all(hasattr(given, each) for each in has):
            raise Misuse(f"Engine: expected {name} with {' and '.join(has)}, got {given!r}")
    for name, given in calls.items():
        can_be_called("Engine", name, given)


def can_be_called(call: str, name: str, given: Any) -> None:
    """A function, or nothing."""
    if given is not None and not callable(given):
        raise Misuse(f"{call}: expected {name} to be a function, got {given!r}")


def whole(call: str, name: str, value: Any) -> int:
    """A whole number as an `int`, whatever type of integer it came in; Misuse for anything else."""
    try:
        return index(value)
    except TypeError:
        raise Misuse(f"{call}: expected {name} to be a whole number, got {value!r}") from None


def prompt(rid: str, tokens: ArrayLike, namespace: Namespace, page_size: int) -> Chain:
    """The keys of a request's prompt. The audit writes `rid` as UTF-8, so it must be text that UTF-8 has."""
    try:
        rid.encode()
    except (AttributeError, UnicodeEncodeError):
        raise Misuse(f"arrive: expected a request id that is text, got {rid!r}") from None
    if not isinstance(namespace, Namespace):
        raise Misuse(f"arrive {rid!r}: expected a Namespace, got {namespace!r}")
    try:
        return Chain(namespace, np.asarray(tokens), page_size)
    except (CacheRefused, ValueError) as error:
        raise Misuse(f"arrive {rid!r}: {error}") from error


def admissible(rid: str, chain: Chain, max_new_tokens: int, most: int) -> None:
    """Something to compute, something to answer, and no more than `most` tokens of both."""
    if chain.n_tokens == 0 or max_new_tokens < 1:
        raise Misuse(f"arrive {rid!r}: expected at least one prompt token and max_new_tokens >= 1, "
                     f"got {chain.n_tokens} and {max_new_tokens}")  # fmt: skip
    total = chain.n_tokens + max_new_tokens
    if total > most:
        raise Misuse(f"arrive {rid!r}: {chain.n_tokens} + {max_new_tokens} tokens are {total}, more than "
                     f"largest_request_tokens={most}")  # fmt: skip


def ids(call: str, tokens: ArrayLike | None) -> NDArray[Any]:
    """Token ids as one row. Whether each can be one is said by the chain that they extend."""
    try:
        row = np.empty(0, dtype=np.uint32) if tokens is None else np.asarray(tokens)
    except ValueError as error:
        raise Misuse(f"{call}: expected one row of token ids: {error}") from error
    if row.ndim != 1:
        raise Misuse(f"{call}: expected one row of token ids, got shape {row.shape}")
    return row


def agreed(call: str, facts: Any, length: int) -> Facts:
    """Facts as a group gives them back: int64, as long as they were."""
    if not isinstance(facts, np.ndarray) or facts.dtype != np.int64 or facts.shape != (length,):
        got = f"{facts.dtype} of shape {facts.shape}" if isinstance(facts, np.ndarray) else repr(facts)
        raise Misuse(f"{call}: expected the agreed facts, int64 of shape ({length},), got {got}")
    return facts


def usable(call: str, store: Any) -> Store:
    """Something with a store's calls; whether it is any good is for its self-test to say."""
    if not isinstance(store, Store):
        raise Misuse(f"{call}: expected a store with a name, exists, get_into, put, poll and close, got {store!r}")
    return store


def component(call: str, name: str, config: EngineConfig) -> str:
    """The name of a component that was configured."""
    names = [one.name for one in config.components]
    if name not in names:
        raise Misuse(f"{call}: no component {name!r}; there are {names}")
    return name


def share(shares: Mapping[str, Share], name: str) -> Share:
    """What a request has of a component."""
    if not isinstance(name, str) or name not in shares:
        raise Misuse(f"page_slots: no component {name!r}; there are {list(shares)}")
    return shares[name]
