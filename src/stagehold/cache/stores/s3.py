"""Pages in an S3 bucket, through `obstore` (which speaks to other clouds the same way).

No retries: the engine's own deadline and breaker decide. Credentials and region come from where `obstore`
looks for them. It keeps no capacity; that is the bucket's lifecycle rule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from typing import Any

from stagehold.cache.stores.objects import ObjectStore
from stagehold.cache.stores.open import RUNNING, StoreUrl, StoreUrlError, need, run_on_workers, text, yes_or_no
from stagehold.cache.stores.protocol import Store, Verdict

DEADLINE_SECONDS = 20.0


class CloudObjects:
    """`RawObjects` in a bucket, each call one batch of concurrent requests."""

    name = "s3"

    def __init__(self, module: Any, bucket: Any) -> None:
        self._obstore = module
        self._bucket = bucket
        self._absent = (module.exceptions.NotFoundError, FileNotFoundError)

    def present(self, names: Sequence[bytes]) -> list[bool]:
        """See `RawObjects.present`."""
        return [found is not None for found in self._all(self._obstore.head_async, ((name,) for name in names))]

    def fetch(self, names: Sequence[bytes], lengths: Sequence[int]) -> Sequence[memoryview | None]:
        """See `RawObjects.fetch`; never more of an object than it should have."""
        return self._all(self._get, zip(names, lengths, strict=True))

    def send(self, names: Sequence[bytes], objects: Sequence[bytes]) -> list[Verdict]:
        """See `RawObjects.send`."""
        self._all(self._obstore.put_async, zip(names, objects, strict=True))
        return [Verdict.STORED] * len(names)

    def remove(self, name: bytes) -> None:
        """See `RawObjects.remove`."""
        self._all(self._obstore.delete_async, [(name,)])

    def close(self) -> None:
        """See `RawObjects.close`; the connections go with the last reference."""
        self._bucket = None

    async def _get(self, bucket: Any, path: str, length: int) -> memoryview:
        found = await self._obstore.get_async(bucket, path)
        if found.meta["size"] > length:
            return memoryview(await self._obstore.get_range_async(bucket, path, start=0, length=length))
        return memoryview(await found.bytes_async())

    def _all(self, call: Callable[..., Awaitable[Any]], arguments: Iterable[tuple[Any, ...]]) -> list[Any]:
        """Await `call` for all arguments at once: its result, or None where the object is absent."""

        async def one(name: bytes, *rest: Any) -> Any:
            try:
                return await call(self._bucket, name.hex(), *rest)
            except self._absent:
                return None

        async def every() -> list[Any]:
            return list(await asyncio.gather(*(one(*each) for each in arguments)))

        return asyncio.run(every())


def open_s3(url: StoreUrl) -> Store:
    """Open `s3://bucket/prefix`.

    Options: `endpoint` (its URL, for a server other than AWS), `region`, `anonymous=yes`, `workers`,
    `deadline` (20 seconds). Nothing is connected yet.
    """
    options = url.read(endpoint=text, region=text, anonymous=yes_or_no, **RUNNING)
    obstore = need("obstore", url, extra="s3")
    need("obstore.store", url, extra="s3")
    options.setdefault("deadline", DEADLINE_SECONDS)
    if not url.host:
        raise StoreUrlError(f"{url.text}: expected a bucket, as in s3://bucket/prefix")
    timeout = timedelta(seconds=options["deadline"] / 2)
    endpoint = options.get("endpoint")
    settings = {"endpoint": endpoint, "region": options.get("region"), "skip_signature": options.get("anonymous")}
    bucket = obstore.store.S3Store(
        url.host,
        prefix=url.path.strip("/") or None,
        client_options={"timeout": timeout, "connect_timeout": timeout, "allow_http": True},
        retry_config={"max_retries": 0, "retry_timeout": timeout},
        **{name: value for name, value in settings.items() if value is not None},
    )
    return run_on_workers(ObjectStore(CloudObjects(obstore, bucket), layout=url.layout), options)
