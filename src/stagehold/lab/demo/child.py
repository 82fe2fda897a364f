"""One process of the demo, started as a module with the path of its spec. Ends at once when its parent does.

It prints a JSON line for each thing that it begins, for the parent to tell, and leaves what it found in files.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from stagehold import EngineConfig
from stagehold.lab.demo.plan import estimate_seconds, fitting
from stagehold.lab.demo.prompts import Kind, Prompt, distinct_pages, prompts_of, shipped_sessions
from stagehold.lab.demo.spec import PAGE, Spec, config_of
from stagehold.lab.demo.stage import PassFound, Stage, drop_page_cache, serving
from stagehold.lab.expand import Unbounded
from stagehold.serving.model.layouts import layout_of
from stagehold.serving.model.ready import Pace, calibrate, load_model
from stagehold.serving.model.smollm import Loaded

DROPPED = "dropped"
"""The pass that is made over openings alone, on a fresh engine, once the page cache was dropped."""


def main(arguments: Sequence[str]) -> None:
    """Do what the spec says."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    spec = Spec.read(Path(arguments[0]))
    loaded = load_model(random=spec.random)
    _say("model", name=loaded.name, real=loaded.real)
    prompts, pace = _chosen(spec, loaded)
    layout = layout_of(loaded.model.config, PAGE, loaded.model.dtype)
    config = config_of(prompts, spec.answer_tokens, layout)
    pages = distinct_pages(prompts, PAGE)
    _say(
        "plan",
        sessions=list(dict.fromkeys(prompt.session for prompt in prompts)),
        requests=len(prompts),
        prompt_tokens=sum(len(prompt.tokens) for prompt in prompts),
        threads=pace.threads,
        estimate_seconds=estimate_seconds(prompts, pace, spec.answer_tokens),
        pages=pages,
        device_pages=config.device_pages,
        store_bytes=pages * sum(page.page_bytes for page in layout.components.values()),
    )
    digests = _read(spec.digests)
    known = Unbounded(PAGE)
    for prompt in prompts if digests else ():  # an earlier process has served them all
        known.hit(prompt.tokens)
    made: list[PassFound] = []
    engines: list[dict[str, Any]] = []
    for names in ([name for name in spec.passes if name != DROPPED], [name for name in spec.passes if name == DROPPED]):
        if names:
            made += _life(spec, names, prompts, Served(loaded, config, digests, known, engines))
    logits: dict[str, Any] = {f"{one.name}|{r.rid}": np.stack(r.logits) for one in made for r in one.records}
    np.savez(f"{spec.result}.npz", **logits)
    Path(spec.digests).write_bytes(orjson.dumps(digests))
    found = {"passes": {one.name: _as_json(one, loaded) for one in made}, "engines": engines}
    Path(spec.result).write_bytes(orjson.dumps(found))


def _say(event: str, **facts: Any) -> None:
    """One line for the parent: what begins now."""
    print(orjson.dumps({"event": event, **facts}).decode(), flush=True)


@dataclass(frozen=True, slots=True)
class Served:
    """What all engines of one process have in common, and what is counted of each."""

    loaded: Loaded
    config: EngineConfig
    digests: dict[str, list[int]]
    known: Unbounded
    engines: list[dict[str, Any]]


def _life(spec: Spec, names: Sequence[str], prompts: Sequence[Prompt], served: Served) -> list[PassFound]:
    """One engine, from its start on an empty device pool to its end."""
    audit = Path(spec.audit)
    if names == [DROPPED]:
        drop_page_cache(Path(spec.store))
        audit = audit.with_suffix(f".dropped{audit.suffix}")
    url = f"file://{spec.store}{spec.store_options}"
    with serving(
        served.loaded,
        served.config,
        store_url=url,
        audit=audit,
        digests=served.digests,
        known=served.known,
        clock=time.perf_counter,
    ) as stage:
        made = _passes(stage, names, prompts, spec)
    served.engines.append({**asdict(stage.counts), "violations": stage.engine.stats().violations})
    return made


def _passes(stage: Stage, names: Sequence[str], prompts: Sequence[Prompt], spec: Spec) -> list[PassFound]:
    made = []
    for name in names:
        _say("pass", name=name)
        made.append(stage.serve(name, _in_order(name, prompts), spec.answer_tokens))
    return made


def _in_order(name: str, prompts: Sequence[Prompt]) -> list[Prompt]:
    """Warm: the session that was used last comes first, so that most of it is still there. Dropped: openings alone."""
    if name == "warm":
        sessions = list(dict.fromkeys(prompt.session for prompt in prompts))[::-1]
        return sorted(prompts, key=lambda prompt: sessions.index(prompt.session))
    if name == DROPPED:
        return [prompt for prompt in prompts if prompt.kind is not Kind.TURN]
    return list(prompts)


def _chosen(spec: Spec, loaded: Loaded) -> tuple[list[Prompt], Pace]:
    """The prompts to serve, and the pace of the thread count that is used."""
    counts = (spec.threads,) if spec.threads else tuple(sorted({1, len(os.sched_getaffinity(0))}))
    pace = calibrate(loaded, counts, time.perf_counter)
    prompts = prompts_of(shipped_sessions(), loaded, share=spec.share)
    if spec.sessions:
        return [prompt for prompt in prompts if prompt.session in spec.sessions], pace
    return fitting(prompts, pace, spec.answer_tokens, spec.seconds), pace


def _as_json(found: PassFound, loaded: Loaded) -> dict[str, Any]:
    return {
        "records": [{**record.as_json(), "text": loaded.chat.text(record.answer)} for record in found.records],
        "host_hit_tokens": found.host_hit_tokens,
        "retractions": found.retractions,
    }


def _read(path: str) -> dict[str, list[int]]:
    """Digests that an earlier process left, if one did."""
    file = Path(path)
    found: dict[str, list[int]] = orjson.loads(file.read_bytes()) if file.exists() else {}
    return found


def _end_with_parent() -> None:
    """Standard input is a pipe that the parent holds: it ends when the parent does, however that ended."""
    while os.read(0, 1):
        pass
    os._exit(3)


if __name__ == "__main__":
    main(sys.argv[1:])
