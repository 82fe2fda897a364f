"""Pages in Valkey or Redis, through the `valkey` client (cluster and TLS are its).

No retries: the engine's own deadline and breaker decide. The client closes a connection after any error or
time-out; should it ever not, the page header tells the answer to an older question from the right one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from stagehold.cache.stores.objects import ObjectStore
from stagehold.cache.stores.open import RUNNING, StoreUrl, need, run_on_workers, text, yes_or_no
from stagehold.cache.stores.protocol import Buffer, Store, Verdict

DEADLINE_SECONDS = 10.0
PREFIX = "stagehold:"


class ValkeyObjects:
    """`RawObjects` as plain keys with a prefix; one pipeline for each call."""

    name = "valkey"

    def __init__(self, client: Any, prefix: bytes, errors: Any) -> None:
        self._client = client
        self._prefix = prefix
        self._errors = errors

    def present(self, names: Sequence[bytes]) -> list[bool]:
        """See `RawObjects.present`; EXISTS does not renew."""
        pipe = self._client.pipeline(transaction=False)
        for name in names:
            pipe.exists(self._prefix + name)
        return [bool(found) for found in pipe.execute()]

    def fetch(self, names: Sequence[bytes], lengths: Sequence[int]) -> Sequence[bytes | None]:  # noqa: ARG002
        """See `RawObjects.fetch`."""
        pipe = self._client.pipeline(transaction=False)
        for name in names:
            pipe.get(self._prefix + name)
        found: list[bytes | None] = pipe.execute()
        return found

    def send(self, names: Sequence[bytes], headers: Sequence[bytes], bodies: Sequence[Buffer]) -> list[Verdict]:
        """See `RawObjects.send`; REFUSED where the server is out of memory and may not evict."""
        pipe = self._client.pipeline(transaction=False)
        for name, header, body in zip(names, headers, bodies, strict=True):
            pipe.set(self._prefix + name, b"".join((header, body)))
        return [self._stored(answer) for answer in pipe.execute(raise_on_error=False)]

    def remove(self, name: bytes) -> None:
        """See `RawObjects.remove`."""
        self._client.delete(self._prefix + name)

    def close(self) -> None:
        """See `RawObjects.close`."""
        self._client.close()

    def _stored(self, answer: Any) -> Verdict:
        if isinstance(answer, self._errors.OutOfMemoryError):
            return Verdict.REFUSED
        if isinstance(answer, Exception):
            raise answer
        return Verdict.STORED


def open_valkey(url: StoreUrl) -> Store:
    """Open `valkey://[user:password@]host:port/db`; `valkeys` for TLS, `redis`, `rediss` and `unix` too.

    Options: `prefix` of the keys (`stagehold:`), `cluster=yes`, `workers`, `deadline` (10 seconds). Nothing
    is connected yet: a server that is down makes misses, not a start that fails.
    """
    valkey = need("valkey", url, extra="valkey")
    options = url.read(prefix=text, cluster=yes_or_no, **RUNNING)
    options.setdefault("deadline", DEADLINE_SECONDS)
    target = f"{url.scheme}://{url.host}{url.path}"
    maker = valkey.cluster.ValkeyCluster if options.get("cluster") else valkey.Valkey
    client = maker.from_url(
        target,
        # Half the deadline each, so that connecting and answering together stay inside it.
        socket_timeout=options["deadline"] / 2,
        socket_connect_timeout=options["deadline"] / 2,
        retry=valkey.retry.Retry(valkey.backoff.NoBackoff(), 0),
    )
    prefix = options.get("prefix", PREFIX).encode()
    raw = ValkeyObjects(client, prefix, valkey.exceptions)
    return run_on_workers(ObjectStore(raw, layout=url.layout), options)
