"""All checks in their order: machine, configuration and what it needs, store, keys, speed, traps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stagehold.operate.derived import host_bytes
from stagehold.operate.doctor import budget, keys, machine, speed, stores, traps
from stagehold.operate.doctor.check import Check, guarded
from stagehold.operate.doctor.machine import ROOT
from stagehold.operate.given import ConfigurationError, sets_anything
from stagehold.operate.settings import Configuration, load


@dataclass(frozen=True, slots=True)
class Patient:
    """What is examined: a configuration (file and arguments), a store, ranks on this machine, files of other ranks."""

    file: Path | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    store: str | None = None
    page_bytes: int = 1 << 16
    ranks: int = 1
    others: Sequence[Path] = ()
    root: Path = ROOT

    @property
    def configured(self) -> bool:
        """Whether there is a configuration to look at; other ranks are held against one."""
        return self.file is not None or bool(self.arguments) or bool(self.others) or sets_anything()


def examine(patient: Patient) -> Iterator[Check]:
    """One check after the other, as they are made."""
    yield from guarded("machine", lambda: machine.look(patient.root))
    found: Configuration | None = None
    if patient.configured:
        try:
            found = load(patient.file, patient.arguments)
            told = f"{len(found.origins)} options set, {found.engine.staging_pages:,} pages of staging"
            yield Check("configuration", ok=True, detail=told)
        except ConfigurationError as error:
            fix = "correct it; `stagehold config reference` lists all options, `config check` looks again"
            yield from (Check("configuration", ok=False, detail=line, fix=fix) for line in str(error).splitlines())
    if found is not None:
        yield from _configured(found, patient)
    url = patient.store if patient.store is not None or found is None else found.store
    if url is not None:
        yield from guarded("store", lambda: stores.look(url, _wanted(found, patient.page_bytes)))
    yield from guarded("keys", keys.look)
    yield from guarded("speed", lambda: speed.look(0 if found is None else host_bytes(found.engine)))
    yield from guarded("traps", lambda: traps.look(found, url, patient.root))


def _configured(found: Configuration, patient: Patient) -> Iterator[Check]:
    yield from guarded("budget", lambda: budget.look(found, patient.ranks, patient.root))
    yield from guarded("ranks", lambda: budget.ranks_alike(found, patient.others))


def _wanted(found: Configuration | None, page_bytes: int) -> stores.Wanted:
    """The largest fetch of this configuration: what one request can miss, as far as holds may be launched for it."""
    if found is None or not found.engine.largest_page_bytes:
        return stores.Wanted(page_bytes)
    config = found.engine
    pages = min(config.load_limit_pages, config.largest_request_pages)
    return stores.Wanted(config.largest_page_bytes, pages, config.limits.fetch_limit)
