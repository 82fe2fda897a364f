"""Calls into a client library that may hang, made so that the caller need not.

Each calling thread has a helper that makes its calls. A call that is not back in time is left to its helper,
which ends when the call does; the caller goes on with another one. It owns the helpers; it never stops a call,
and what a call was given stays in use until it comes back.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, TypeVar

STUCK_MOST = 8
"""Calls that may be left hanging at a time: what they hold stays held. More are refused until one is back."""

Answer = TypeVar("Answer")
_Job = tuple[Callable[[], Any], Future[Any]]


class StuckError(OSError):
    """So many calls are hanging that no more are made."""


class _Helper:
    """A daemon thread that makes one call after another."""

    def __init__(self, name: str) -> None:
        self.jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self.thread.start()

    def _serve(self) -> None:
        while (job := self.jobs.get()) is not None:
            call, future = job
            try:
                future.set_result(call())
            except BaseException as error:  # noqa: BLE001 - it is raised again where the call was wanted
                future.set_exception(error)
            del job, call, future  # they hold buffers


class Impatient:
    """Makes calls with a time limit, from any number of threads."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._mine = threading.local()
        self._lock = threading.Lock()
        self._helpers: set[_Helper] = set()
        self._stuck: set[Future[Any]] = set()

    @property
    def stuck(self) -> int:
        """How many calls have not come back in time and are still under way."""
        return len(self._stuck)

    def call(self, action: Callable[[], Answer], seconds: float) -> Answer:
        """Return what `action` returns, or raise what it raises.

        Raises TimeoutError where that takes longer than `seconds`, and StuckError where too many calls hang.
        """
        if self.stuck >= STUCK_MOST:
            raise StuckError(
                f"{self.stuck} calls into {self._name} have not come back; no more are made until one does"
            )
        helper, future = self._helper(), Future[Answer]()
        helper.jobs.put((action, future))
        try:
            return future.result(timeout=max(0.0, seconds))
        except TimeoutError:
            if future.done():
                raise
            self._forsake(helper, future)
            raise TimeoutError(f"{self._name} did not answer in {seconds:.1f} s") from None

    def close(self) -> bool:
        """End the helpers; False where a call is still under way, and what it uses cannot be given back."""
        with self._lock:
            helpers, self._helpers = self._helpers, set()
        for helper in helpers:
            helper.jobs.put(None)
        for helper in helpers:
            helper.thread.join()
        return not self._stuck

    def _helper(self) -> _Helper:
        helper: _Helper | None = getattr(self._mine, "helper", None)
        if helper is None:
            helper = self._mine.helper = _Helper(f"call-{self._name}")
            with self._lock:
                self._helpers.add(helper)
        return helper

    def _forsake(self, helper: _Helper, future: Future[Any]) -> None:
        self._mine.helper = None
        with self._lock:
            self._helpers.discard(helper)
            self._stuck.add(future)
        helper.jobs.put(None)
        future.add_done_callback(self._stuck.discard)
