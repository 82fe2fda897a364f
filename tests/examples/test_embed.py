"""The small scheduler of the examples, and the page that explains the calls it makes."""

from __future__ import annotations

import re
import subprocess
import sys
from enum import StrEnum
from pathlib import Path
from runpy import run_path
from typing import Any

import numpy as np

from stagehold import AttachmentState, Engine, EngineConfig, Extension, Namespace, NoRoom, Plan, Skip, SkipReason
from stagehold.cache.stores.simulated import SimulatedStore

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "embed.py"
PAGE = ROOT / "docs" / "embedding.md"
INSIDE = {"page_slots", "component_bytes", "device_bytes"}


def run(folder: Path) -> list[str]:
    """What the example says, as a reader runs it."""
    done = subprocess.run([sys.executable, EXAMPLE, folder], check=True, capture_output=True, text=True, timeout=60)
    return done.stdout.splitlines()


def test_the_second_run_finds_what_the_first_one_stored(tmp_path: Path) -> None:
    """All whole pages but the one that must be computed."""
    first, second = run(tmp_path / "pages"), sorted(run(tmp_path / "pages"))
    assert any(line.endswith(": 0 of 1040 tokens were reused") for line in first)  # whichever came first
    assert [f"request {n}: 1024 of 1040 tokens were reused" for n in range(4)] == second


class Short(Engine):
    """Has no room for one token of an answer, once."""

    refused = 0

    def extend(self, *arguments: Any) -> Extension | NoRoom:
        """As the engine does, but for the third token of the answer."""
        if arguments[2] == [102] and not self.refused:
            self.refused += 1
            return NoRoom(1, 0)
        return super().extend(*arguments)


def test_a_request_that_is_sent_back_goes_on_with_its_answer() -> None:
    """The next attempt knows the two tokens that were there, and is told the others."""
    engine = Short(EngineConfig(page_size=16, device_pages=64, staging_pages=64, largest_request_tokens=512))
    serve = run_path(str(EXAMPLE))["serve"]
    assert {"one": 96} == serve(engine, {"one": np.arange(100)}, 8)
    engine.close()
    assert 1 == engine.refused
    assert {
        "request.committed": 2,
        "request.retracted": 1,
        "request.finished": 1,
    }.items() <= engine.stats().state_entries.items()


def test_it_is_as_short_as_it_says() -> None:
    """Forty lines of code in the function that schedules, comments and docstring aside."""
    body = EXAMPLE.read_text().split("def serve")[1].split("if __name__")[0]
    code = [line for line in body.splitlines() if line.strip() and not line.strip().startswith(("#", '"""'))]
    assert len(code) <= 40


def test_the_page_names_every_call_and_no_other() -> None:
    """A call that is added to the face is explained here, or this fails."""
    face = {name for name in dir(Engine) if not name.startswith("_")} - {"attachment", "state_of"}
    table = re.findall(r"^\| (.*?) \| ", PAGE.read_text(), re.MULTILINE)
    told = set(re.findall(r"`(\w+)\(", " ".join(table)))
    assert face - INSIDE - {"page_slots"} == told - {"page_slots"}
    assert [] == [name for name in INSIDE if name not in PAGE.read_text()]


def test_its_configuration_is_accepted() -> None:
    """The piece of Python in it, as it stands there."""
    (piece,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    names: dict[str, object] = {}
    exec(piece, names)
    assert ("window", "state", "config") == tuple(name for name in ("window", "state", "config") if name in names)


def test_every_option_is_explained() -> None:
    """In the model itself; and each policy on the page, with all its choices."""
    fields = EngineConfig.model_fields
    assert [] == [name for name, field in fields.items() if not field.description]
    page = PAGE.read_text()
    told = dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page[page.index("## Options") :], re.MULTILINE))
    choices = {name: type(field.default) for name, field in fields.items() if isinstance(field.default, StrEnum)}
    del choices["divergence_policy"]  # the page on ranks has it
    assert [] == [f"{name}={one}" for name, kind in choices.items() for one in kind if f"`{one}`" not in told[name]]


def test_who_is_selected_before_the_first_tick_is_admitted_without_the_store() -> None:
    """As the page warns."""
    engine = Engine(
        EngineConfig(page_size=16, device_pages=64, staging_pages=64, largest_request_tokens=512),
        store=SimulatedStore(),
    )
    while engine.attachment is not AttachmentState.ATTACHED:
        engine.tick()
    early = engine.arrive("early", np.arange(400), Namespace("m"), 8)
    assert isinstance(engine.select(early, 512), Plan)
    engine.abort(early)
    late = engine.arrive("late", np.arange(400), Namespace("m"), 8)
    engine.tick()
    assert Skip(late, SkipReason.WAITING_LOOKUP) == engine.select(late, 512)
    engine.close()
