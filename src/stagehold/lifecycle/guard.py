"""One thread, one call at a time: what every mutating call of the face is wrapped in."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from stagehold.lifecycle.errors import Reentered, WrongThread

P = ParamSpec("P")
T = TypeVar("T")


class Owned(Protocol):
    """What a guarded object remembers: its thread, and the call that is running."""

    _thread: threading.Thread
    _running: str | None
    _cut: str | None


S = TypeVar("S", bound=Owned)


def exclusive(method: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], T]:
    """Refuse a call from another thread, or from inside another call (a sink, a store, a signal handler).

    A call that is interrupted (Ctrl-C) is remembered: nobody knows how far it had come.
    """
    name = method.__name__

    @wraps(method)
    def guarded(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if threading.get_ident() != self._thread.ident:
            raise WrongThread(
                f"{name}() was called from thread {threading.current_thread().name!r}, but this engine belongs to "
                f"thread {self._thread.name!r}; only store workers and copy streams have threads of their own"
            )
        if self._running is not None:
            raise Reentered(f"{name}() was called from inside {self._running}(); call it after that has returned")
        self._running = name
        try:
            return method(self, *args, **kwargs)
        except Exception:
            raise
        except BaseException:
            self._cut = name
            raise
        finally:
            self._running = None

    return guarded
