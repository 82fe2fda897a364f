"""K106: a store without a limit filled the node, and pods were evicted.

Here nobody has to remember to set one: without options a store takes at most half of its disk and keeps free what
its floor says, whoever else fills the disk.
"""

from __future__ import annotations

import os

import pytest

from stagehold.cache.stores import files
from stagehold.cache.stores.open import open_store
from stagehold.cache.stores.protocol import Verdict

BLOCK = 4096
DISK_BLOCKS = 1000
PAGE = 16 << 10


class Disk:
    """A disk of 1,000 blocks that holds what lies under `root`, and what others take."""

    def __init__(self, root) -> None:
        self.root, self.others = root, 0

    def used(self) -> int:
        """Blocks of page files; the two small files beside them are no pages."""
        files = [path for path in self.root.glob("*/**/*") if path.is_file()]
        return sum(512 * path.stat().st_blocks for path in files) // BLOCK

    def statvfs(self, _path):
        free = max(0, DISK_BLOCKS - self.used() - self.others)
        return os.statvfs_result((BLOCK, BLOCK, DISK_BLOCKS, free, free, 0, 0, 0, 0, 255))


@pytest.fixture
def disk(tmp_path, monkeypatch):
    made = Disk(tmp_path / "kv")
    made.root.mkdir()
    monkeypatch.setattr(os, "statvfs", made.statvfs)
    return made


def fill(disk, form, count):
    """Put `count` pages into a store without any limit of its own; return the last verdict."""
    store = open_store(f"file://{disk.root}?form={form}", PAGE)
    verdict = None
    for index in range(count):
        store.put(index, [b"%032d" % index], [memoryview(bytes(PAGE))], 0)
        store.wait(20)
        (report,) = store.poll(0)
        verdict = report.verdicts[0]
        assert disk.used() <= DISK_BLOCKS / 2
    store.close()
    return verdict


@pytest.mark.parametrize("form", ["pages", "packed"])
def test_a_store_without_options_stays_within_half_of_its_disk(disk, form):
    """Twice as many pages as fit: the oldest go, at every moment."""
    assert fill(disk, form, 250) is Verdict.STORED
    assert disk.used() > 0.35 * DISK_BLOCKS


@pytest.mark.parametrize("form", ["pages", "packed"])
def test_a_store_without_options_leaves_room_for_others(disk, form):
    """When others fill the disk it takes nothing below its floor, however large its budget."""
    floor = files.default_floor(disk.root)
    disk.others = DISK_BLOCKS - floor // BLOCK - 2
    assert floor > 0
    assert fill(disk, form, 8) is Verdict.REFUSED
    assert disk.used() <= 2
