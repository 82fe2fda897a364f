from __future__ import annotations

from pathlib import Path

import pytest

from stagehold import AuditLog
from stagehold.testing.hand import Hand


@pytest.fixture(name="run_log", scope="session")
def _run_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The audit log of an engine that served two requests, one of them from the store."""
    path = tmp_path_factory.mktemp("engine") / "run.jsonl"
    with AuditLog(path) as log, Hand(engine_options={"sink": log.block}) as h:
        h.put(h.prompt(4, 2))
        for family in (1, 2):
            handle = h.arrive(f"r{family}", h.prompt(4, family))
            h.tick(4)
            h.serve(handle)
    return path
