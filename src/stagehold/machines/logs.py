"""The one place that configures structlog: blocks, tick summaries, refusals and violations as JSON lines.

Owns the file handle of a log. It configures a logger of its own and leaves structlog's global configuration
alone, and it is called once a tick or on trouble, never for a transition.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterator, MutableMapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, Self

import structlog

from stagehold.machines.audit_lines import BLOCK, REFUSAL, SUMMARY, VIOLATION, refusals, rendered, sealed
from stagehold.machines.declared import MACHINES
from stagehold.machines.records import Block, encode
from stagehold.specs.declare import MachineSpec


def _rendered(_logger: object, _method: str, event: MutableMapping[str, Any]) -> bytes:
    """The last processor."""
    return rendered(event.pop("event"), event)


def _logger(file: BinaryIO) -> Any:
    """A bound logger on `file` alone: one processor, no filter by level, cached after its first use."""
    return structlog.wrap_logger(
        structlog.BytesLogger(file),
        processors=[_rendered],
        wrapper_class=structlog.BoundLogger,
        context_class=dict,
        cache_logger_on_first_use=True,
    ).bind()


def _claimed(path: Path) -> BinaryIO:
    """The file at `path`, emptied, for one writer alone: two would write over each other's lines."""
    file = path.open("ab")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise BlockingIOError(error.errno, "somebody else is writing this log", str(path)) from error
    except OSError:
        pass  # a file system that knows no locks
    file.truncate(0)
    return file


class AuditLog:
    """A log file of JSON lines, each named by `event`: block, refusal, summary or violation.

    Its `block` is a sink for the journal: `Journal(sink=log.block)`. Each line is flushed, so that a log ends
    with the last tick that was closed, whatever happened then. What cannot be written raises OSError, which names the
    log, and is tried again with the next line. A log that somebody else is writing is refused by BlockingIOError.
    """

    def __init__(self, path: Path | str, machines: tuple[MachineSpec, ...] = MACHINES) -> None:
        self.path = Path(path)
        self._machines = machines
        self._file = _claimed(self.path)
        self._log = _logger(self._file)

    def block(self, block: Block) -> None:
        """Write a closed block, and a line for each refusal in it."""
        with self._named():
            self._log.info(BLOCK, **encode(block))
            for refused in refusals(block, self._machines):
                self._log.warning(REFUSAL, **refused)

    def summary(self, tick: int, **figures: Any) -> None:
        """Write what a tick amounted to: any figures that JSON can hold."""
        self._log.info(SUMMARY, **sealed(SUMMARY, {"tick": tick, **figures}))

    def violation(self, tick: int, what: str, **facts: Any) -> None:
        """Write a broken invariant; raising is the caller's business."""
        self._log.error(VIOLATION, **sealed(VIOLATION, {"tick": tick, "what": what, **facts}))

    def close(self) -> None:
        """Close the file. Idempotent; writing afterwards raises ValueError."""
        with self._named():
            self._file.close()

    @contextmanager
    def _named(self) -> Iterator[None]:
        """An error of the operating system in here names the log."""
        try:
            yield
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self.path)) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
