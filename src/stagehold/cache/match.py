"""The index of resident pages and the search in it.

Owns one dict, key -> the node that holds the page which the key ends with. Its keys are the block ends of
every node and each node's first page. Never splits, never touches recency.

The resident pages of a path are prefix-closed: pages are published directly behind the live match, and only
tails of leaves leave. Hence "block end j is resident" falls once and for all along a chain, and binary
search is exact. A hint only narrows the interval. Below one block the tokens of at most a few nodes are
compared. None of this holds for other components, for stores, or for two tiers in one index.
"""

from __future__ import annotations

from stagehold.cache.keys import Chain
from stagehold.cache.node import NIL, Node


class Index:
    """Resident pages by key, and the roots by namespace digest."""

    __slots__ = ("block_pages", "page_bytes", "pages", "roots")

    def __init__(self, page_size: int, pages_per_block: int) -> None:
        self.page_bytes = 4 * page_size
        self.block_pages = pages_per_block
        self.pages: dict[bytes, Node] = {}
        self.roots: dict[bytes, Node] = {}

    def locate(self, chain: Chain, limit: int) -> tuple[Node, int]:
        """Deepest node and live pages of the chain, at most `limit`; the root (or NIL) for 0.

        The match ends inside the node or at its end. A complete hit costs one look-up, a right hint two.
        """
        size = self.block_pages
        blocks = limit // size
        node = self.pages.get(chain.keys[blocks - 1]) if blocks else None
        if node is None:
            node, blocks = self._search(chain, blocks)
        elif blocks > chain.hint:
            chain.hint = blocks
        at = blocks * size
        return (node, at) if at == limit or size == 1 else self._walk(chain, node, at, limit)

    def _search(self, chain: Chain, high: int) -> tuple[Node, int]:
        """Greatest number of resident whole blocks below `high`, which is known to be absent (or 0)."""
        keys, get = chain.keys, self.pages.get
        low, best = 0, None
        hint = chain.hint
        if 0 < hint < high:
            best = get(keys[hint - 1])
            if best is None:
                high = hint
            elif get(keys[hint]) is None:
                return best, hint
            else:
                low = hint
        while high - low > 1:
            middle = (low + high) >> 1
            node = get(keys[middle - 1])
            if node is None:
                high = middle
            else:
                low, best = middle, node
        if high:
            chain.hint = low
        return (self.roots.get(chain.root_key, NIL), 0) if best is None else (best, low)

    def _walk(self, chain: Chain, node: Node, at: int, limit: int) -> tuple[Node, int]:
        """Go on from the block end `at` in `node` through the tokens of the block that is not whole."""
        stop = min(limit, (at // self.block_pages + 1) * self.block_pages)
        while at < stop:
            if at == node.end:
                child = self.pages.get(chain.page_key(at))
                if child is None:
                    break
                node, at = child, at + 1
                continue
            upto = min(node.end, stop)
            found = self._common(chain.page_bytes(at, upto), node.tokens, at - node.start)
            at += found
            if at < upto:
                break
        return node, at

    def _common(self, wanted: bytes, tokens: bytes, page: int) -> int:
        """How many whole pages `wanted` and `tokens` from `page` on have in common."""
        size = self.page_bytes
        base = page * size
        if tokens.startswith(wanted, base):
            return len(wanted) // size
        low, high = 0, len(wanted) // size
        while high - low > 1:
            middle = (low + high) >> 1
            if tokens.startswith(wanted[: middle * size], base):
                low = middle
            else:
                high = middle
        return low

    # -- how many of a node's keys lie before a page -------------------------------------------------------

    def keys_before(self, start: int, end: int) -> int:
        """Number of keys of a node [start, end): block ends, and its first page unless that is one."""
        size = self.block_pages
        return end // size - start // size + (1 if (start + 1) % size else 0)

    def publish(self, node: Node, chain: Chain) -> None:
        """Give a new node [start, end) of the chain its keys and tokens, and enter it."""
        start, end, size = node.start, node.end, self.block_pages
        keys = chain.keys[start // size : end // size]
        if size > 1:
            node.tokens = chain.page_bytes(start, end)
            if (start + 1) % size:
                keys.insert(0, chain.page_key(start))
        node.keys = keys
        pages = self.pages
        for key in keys:
            pages[key] = node

    def divide(self, upper: Node, lower: Node, chain: Chain) -> None:
        """Give `upper` [start, k) its part of the keys of `lower`, now [k, end), both of the chain."""
        start, cut = upper.start, lower.start
        count = self.keys_before(start, cut)
        keys, pages = lower.keys, self.pages
        upper.keys, rest = keys[:count], keys[count:]
        for key in upper.keys:
            pages[key] = upper
        if self.block_pages > 1:
            bytes_before = (cut - start) * self.page_bytes
            end = (lower.end - start) * self.page_bytes
            upper.tokens, lower.tokens = lower.tokens[:bytes_before], lower.tokens[bytes_before:end]
            if (cut + 1) % self.block_pages:
                first = self._first_key(chain, lower)
                rest.insert(0, first)
                pages[first] = lower
        lower.keys = rest

    def _first_key(self, chain: Chain, node: Node) -> bytes:
        """Key of the node's first page, whose tokens the chain may not have: it leads up to it."""
        block = node.start // self.block_pages
        before = chain.page_bytes(block * self.block_pages, node.start)
        return chain.key_behind(block, before + node.tokens[: self.page_bytes])

    def shorten(self, node: Node, end: int) -> list[bytes]:
        """Take the pages from `end` on out of the index, move the node's end and return their keys."""
        count = self.keys_before(node.start, end)
        # In place: a long leaf that gives up one page after the other must not copy what stays each time.
        gone = node.keys[count:]
        del node.keys[count:]
        for key in gone:
            del self.pages[key]
        node.end = end
        need = (end - node.start) * self.page_bytes
        if len(node.tokens) > 2 * need:
            node.tokens = node.tokens[:need]
        return gone

    def withdraw(self, node: Node) -> None:
        """Take a whole node out of the index."""
        pages = self.pages
        for key in node.keys:
            del pages[key]
