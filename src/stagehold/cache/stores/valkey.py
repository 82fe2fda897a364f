"""Pages in Valkey or Redis, through the `valkey` client (cluster and TLS are its).

No retries: the engine's own deadline and breaker decide. The client closes a connection after any error or
time-out; should it ever not, the page header tells the answer to an older question from the right one.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from stagehold.cache.stores.objects import ObjectStore
from stagehold.cache.stores.open import RUNNING, StoreUrl, StoreUrlError, need, run_on_workers, text, yes_or_no
from stagehold.cache.stores.protocol import Store, Verdict

DEADLINE_SECONDS = 10.0
PREFIX = "stagehold:"
TLS_FILES = {"ca": "ssl_ca_certs", "cert": "ssl_certfile", "key": "ssl_keyfile"}
"""Options that name a file, and what the client calls it."""


class ValkeyObjects:
    """`RawObjects` as plain keys with a prefix; one pipeline for each call.

    `connect` makes the client at the first call, and again after one that failed: that of a cluster asks the
    servers at once.
    """

    name = "valkey"

    def __init__(self, connect: Callable[[], Any], prefix: bytes, errors: Any) -> None:
        self._connect = connect
        self._made: Any = None
        self._lock = threading.Lock()
        self._prefix = prefix
        self._errors = errors

    def present(self, names: Sequence[bytes]) -> list[bool]:
        """See `RawObjects.present`; EXISTS does not renew."""
        pipe = self._pipeline()
        for name in names:
            pipe.exists(self._prefix + name)
        return [bool(found) for found in pipe.execute()]

    def fetch(self, names: Sequence[bytes], lengths: Sequence[int]) -> Sequence[bytes | None]:
        """See `RawObjects.fetch`; never more of an object than it should have. One of no bytes counts as none."""
        pipe = self._pipeline()
        for name, length in zip(names, lengths, strict=True):
            pipe.getrange(self._prefix + name, 0, length - 1)
        return [found or None for found in pipe.execute()]

    def send(self, names: Sequence[bytes], objects: Sequence[bytes]) -> list[Verdict]:
        """See `RawObjects.send`; REFUSED where the server is out of memory and may not evict."""
        pipe = self._pipeline()
        for name, whole in zip(names, objects, strict=True):
            pipe.set(self._prefix + name, whole)
        return [self._stored(answer) for answer in pipe.execute(raise_on_error=False)]

    def remove(self, name: bytes) -> None:
        """See `RawObjects.remove`."""
        self._client().delete(self._prefix + name)

    def close(self) -> None:
        """See `RawObjects.close`. The client of a cluster leaves the connections to its nodes open."""
        if self._made is None:
            return
        nodes = self._made.get_nodes() if hasattr(self._made, "get_nodes") else []
        self._made.close()
        for node in nodes:
            if node.valkey_connection is not None:
                node.valkey_connection.connection_pool.disconnect()

    def _client(self) -> Any:
        with self._lock:
            if self._made is None:
                self._made = self._connect()
            return self._made

    def _pipeline(self) -> Any:
        client = self._client()
        # Only that of a single server has transactions, and has to be told that none is wanted.
        return client.pipeline() if hasattr(client, "get_nodes") else client.pipeline(transaction=False)

    def _stored(self, answer: Any) -> Verdict:
        if isinstance(answer, self._errors.OutOfMemoryError):
            return Verdict.REFUSED
        if isinstance(answer, Exception):
            raise answer
        return Verdict.STORED


def open_valkey(url: StoreUrl) -> Store:
    """Open `valkey://[user:password@]host:port/db`; `valkeys` for TLS, `redis`, `rediss` and `unix` too.

    Options: `prefix` of the keys (`stagehold:`), `cluster=yes`, for TLS the files `ca`, `cert` and `key`,
    `workers`, `deadline` (10 seconds). Nothing is connected yet: a server that is down makes misses, not a start
    that fails.
    """
    options = url.read(prefix=text, cluster=yes_or_no, ca=text, cert=text, key=text, **RUNNING)
    valkey = need("valkey", url, extra="valkey")
    options.setdefault("deadline", DEADLINE_SECONDS)
    settings = {
        # Half the deadline each, so that connecting and answering together stay inside it.
        "socket_timeout": options["deadline"] / 2,
        "socket_connect_timeout": options["deadline"] / 2,
        "retry": valkey.retry.Retry(valkey.backoff.NoBackoff(), 0),
        **{TLS_FILES[name]: options[name] for name in TLS_FILES if name in options},
    }
    if set(TLS_FILES.values()) & set(settings) and url.scheme not in ("valkeys", "rediss"):
        raise StoreUrlError(f"{url.text}: certificates are for valkeys:// and rediss://, which speak TLS")
    maker = valkey.Valkey
    if options.get("cluster"):
        maker, settings["cluster_error_retry_attempts"] = valkey.cluster.ValkeyCluster, 0
    target = f"{url.scheme}://{url.host}{url.path}"
    prefix = options.get("prefix", PREFIX).encode()
    raw = ValkeyObjects(lambda: maker.from_url(target, **settings), prefix, valkey.exceptions)
    return run_on_workers(ObjectStore(raw, layout=url.layout), options)
