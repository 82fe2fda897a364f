"""K31: a client died between reserving a key and writing it, and the key could never be used again.

Here a reservation is a file of its own, named after its owner, or a slot under a lock that ends with its process:
the next writer of the key neither waits for it nor fails, and what the dead one left is taken over or swept.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.packed import PackedStore
from stagehold.cache.stores.protocol import Verdict

NAME, SIZE = b"k" * 32, 8192

DIE = """
import os, signal, sys
from stagehold.cache.stores.files import FileStore
from stagehold.cache.stores.packed import PackedStore

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

root, form, call = sys.argv[1:]
store = FileStore(root, floor_bytes=0) if form == "pages" else PackedStore(root, 8192, floor_bytes=0)
put = lambda name: store.put([name], [memoryview(b"x" * 8192)], lambda *_: True)
put(b"before" * 5)
setattr(os, call, die)
put(b"k" * 32)
"""


def open_store(root: Path, form: str) -> FileStore | PackedStore:
    return FileStore(root, floor_bytes=0) if form == "pages" else PackedStore(root, SIZE, floor_bytes=0)


def verdicts(call, *arguments) -> list[Verdict]:
    seen: list[Verdict] = []
    call(*arguments, lambda _, verdict: seen.append(verdict) or True)
    return seen


@pytest.mark.parametrize(("form", "call"), [("pages", "pwritev"), ("pages", "rename"), ("packed", "pwritev")])
@pytest.mark.parametrize("neighbour", [False, True])
def test_the_key_of_a_dead_writer_is_written_by_the_next(tmp_path, form, call, neighbour):
    """By a store that was open all the while, and by one that is opened later; nothing is left of the dead one."""
    stores = [open_store(tmp_path, form)] if neighbour else []
    died = subprocess.run([sys.executable, "-c", DIE, tmp_path, form, call], check=False)
    assert died.returncode == -signal.SIGKILL
    stores.append(open_store(tmp_path, form))
    body, out = memoryview(bytearray(b"right" * SIZE)[:SIZE]), memoryview(bytearray(SIZE))
    store = stores[0]
    assert verdicts(store.get_into, [NAME], [out]) == [Verdict.MISS]
    assert verdicts(store.put, [NAME], [body]) == [Verdict.STORED]
    assert verdicts(store.get_into, [NAME], [out]) == [Verdict.HIT]
    assert out == body
    assert list(tmp_path.rglob(".new-*")) == []
    for opened in stores:
        opened.close()
