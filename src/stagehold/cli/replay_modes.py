"""`stagehold replay --modes`: one replay with host memory as a buffer and as a tier, at equal size, side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import typer

from stagehold.cli.errors import write_out
from stagehold.specs.outcomes import HostMode

if TYPE_CHECKING:
    from stagehold.lab.replay import OnProgress, ReplayOptions
    from stagehold.lab.report import ReplayReport

ROWS = {
    "prompt tokens": "prompt_tokens",
    "ideal hit tokens": "ideal_hit_tokens",
    "hit tokens": "hit_tokens",
    "  from the device": "device_hit_tokens",
    "  from host memory or the store": "store_hit_tokens",
    "found in host memory": "local_tokens",
    "fetched from the store": "fetched_tokens",
    "written to the store": "written_tokens",
    "  there already": "redundant_write_tokens",
    "recomputed tokens": "recomputed_tokens",
    "wrong bytes": "wrong_bytes",
    "violations": "violations",
}
"""Label and field of the report."""


def replay_both(options: ReplayOptions, progress: OnProgress | None) -> dict[HostMode, ReplayReport]:
    """The reports by mode; the host memory of both is what `buffer_only` would get."""
    from stagehold.lab.replay import Replay

    buffer = replace(options, mode=HostMode.BUFFER_ONLY)
    size = Replay(buffer).config.staging_pages
    reports = {}
    for mode in (HostMode.BUFFER_ONLY, HostMode.CACHE):
        audit = options.audit.with_name(f"{options.audit.stem}-{mode.value}{options.audit.suffix}")
        reports[mode] = Replay(replace(options, mode=mode, staging_pages=size, audit=audit), progress).run()
    return reports


def show_both(reports: dict[HostMode, ReplayReport], out: Path | None = None, *, as_json: bool) -> None:
    """Print one row for each figure, one column for each mode; or one JSON object, a report for each mode.

    The object is written to `out`, where there is one.
    """
    told = orjson.dumps(
        {mode.value: {**report.as_json(), "hit_tokens": report.hit_tokens} for mode, report in reports.items()}
    )
    if out is not None:
        write_out(out, told)
    if as_json:
        typer.echo(told.decode())
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title="stagehold replay: both modes at equal host memory", title_justify="left")
    table.add_column("tokens")
    for mode in reports:
        table.add_column(mode.value, justify="right")
    for label, name in ROWS.items():
        table.add_row(label, *(f"{getattr(report, name):,}" for report in reports.values()))
    Console(highlight=False, soft_wrap=True).print(table)
