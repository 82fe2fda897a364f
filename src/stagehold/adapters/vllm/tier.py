"""The engine behind the connector, with its store, its audit log and its memory: made, paced and ended here."""

from __future__ import annotations

import logging
import time
from contextlib import ExitStack
from typing import Any

from stagehold import AttachmentState, AuditLog, Engine, EngineConfig
from stagehold.adapters.vllm.layout import FULL
from stagehold.adapters.vllm.memory import forget_names, make, move_to
from stagehold.adapters.vllm.options import ConnectorRefused, Options
from stagehold.adapters.vllm.orders import Pool
from stagehold.cache.stores.open import open_store
from stagehold.cache.stores.protocol import Store, WaitableStore

LOG = logging.getLogger("stagehold")

WRITING = ("write.queued", "write.copying", "write.storing")
"""Where a write stands that can still end well."""


class Tier:
    """One engine. Its clock is vLLM's step; a step in which nothing is computed rests while the store works."""

    def __init__(self, config: EngineConfig, options: Options, engine_id: str, *, store: Store | None = None) -> None:
        self.config = config
        self._options = options
        self._ended = ExitStack()
        if store is None and options.store is not None:
            store = _opened(options.store, config)
        self._store = store
        log = None if options.audit_log is None else self._ended.enter_context(AuditLog(options.audit_log))
        self.engine = Engine(config, store=store, sink=log.block if log else None)
        sizes = {FULL: (config.device_pages, config.page_bytes)}
        sizes |= {one.name: (one.device_pages, one.parts * one.page_part_bytes) for one in config.components}
        self.pools = make(options.pool_folder, engine_id, sizes)
        self._named = True
        self._mute = False
        for pool in self.pools:
            move_to(self._tensor(pool), pool)

    def _tensor(self, pool: Pool) -> Any:
        engine = self.engine
        found = engine.device_bytes if pool.component == FULL else engine.component_bytes(pool.component)
        assert found is not None, "the configuration attaches tensors to every component"
        return found.tensor

    def ready(self) -> None:
        """Tick until the store has passed its self-test, or has failed it: then the host memory is used alone."""
        while self.engine.attachment is AttachmentState.ATTACHING:
            self.tick()
            self.rest()

    def tick(self) -> None:
        """One tick. A log that cannot be written stops no server: it is told once, and is tried again."""
        try:
            self.engine.tick()
        except OSError:
            if not self._mute:
                LOG.exception("the audit log cannot be written")
            self._mute = True

    def rest(self) -> None:
        """Wait until the store has news, at most `pause_seconds`; without a store there is nothing to wait for."""
        if isinstance(self._store, WaitableStore):
            self._store.wait(self._options.pause_seconds)

    def mapped(self) -> None:
        """The worker has the memory: its name can go."""
        if self._named:
            self._named = False
            forget_names(self.pools)

    @property
    def writing(self) -> bool:
        """Whether pages are still on their way to the store."""
        if self._store is None:
            return False
        states = self.engine.stats().states
        return any(states[state] for state in WRITING)

    def close(self) -> None:
        """Store what is still to be stored, within `drain_seconds`, and end everything."""
        until = time.monotonic() + self._options.drain_seconds
        while self.writing and time.monotonic() < until:
            self.tick()
            self.rest()
        try:
            with self._ended:
                self.engine.close()
        except OSError:
            LOG.exception("the end of the audit log was not written")
        finally:
            self.mapped()


def _opened(url: str, config: EngineConfig) -> Store:
    try:
        return open_store(url, config.largest_page_bytes)
    except (ValueError, OSError) as error:
        raise ConnectorRefused(f"store: {error}") from error
