"""A folder for each tenant: file stores side by side under one root, each with a capacity that nobody else uses.

A tenant is a namespace. Its folder is made at its first write, while there are places, and named after the digest;
it keeps its place until somebody removes it while no store is open. A tenant without a place is refused writes and
finds nothing. Pages of no tenant (an engine's test pages, those of tools) have a small folder of their own. It owns
the folders and the stores in them; it never touches a page.
"""

from __future__ import annotations

import logging
import os
import stat
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from stagehold.cache.stores.files import FULL, FileStore, default_floor
from stagehold.cache.stores.folder import BLOCK_BYTES, FORMS, NOBODY, TENANTS, disk_bytes, tenant_folders
from stagehold.cache.stores.ledger import SizeLedger
from stagehold.cache.stores.medium import divide
from stagehold.cache.stores.packed import SEGMENTS_IN_CAPACITY, PackedStore
from stagehold.cache.stores.page import HEADER_BYTES
from stagehold.cache.stores.protocol import Buffer, OnPage, Verdict

LOG = logging.getLogger("stagehold")

NAME_BYTES = 16
"""How much of a digest names its folder: two namespaces that share so much are not to be found."""
NOBODYS_SEGMENTS = 32
"""So many processes can have a segment of their own there, and a test page in it."""

Part = FileStore | PackedStore
Make = Callable[[Path, int, int], Part]
"""Opens the part in a folder, with a capacity (bytes) that is cut into so many segments at least, if into any."""


class TenantFolders:
    """A `BlockingStore` under `root` whose parts are opened by `make`; as it stands, it is the part of no tenant.

    `capacity_bytes` is for all parts together: `tenants` equal ones, beside room for a few pages of `page_bytes`
    bytes that belong to none. Raises ValueError for a root that keeps tenants together, or has more of them already;
    OSError where a folder cannot be made.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        make: Make,
        *,
        capacity_bytes: int,
        tenants: int,
        page_bytes: int,
        floor_bytes: int | None = None,
    ) -> None:
        self.root = Path(root).absolute()
        self.turned_away_pages = 0
        self._make = make
        self._tenants = tenants
        _refuse_other_use(self.root, tenants)
        _refuse_small_disk(self.root, capacity_bytes, floor_bytes)
        page_takes = disk_bytes(page_bytes + HEADER_BYTES) + BLOCK_BYTES  # with its part of a segment's table
        nobodys, self._part_bytes = divide(capacity_bytes, tenants, page_takes)
        if min(nobodys, self._part_bytes) < page_takes:
            raise ValueError(
                f"capacity of {capacity_bytes} bytes for {tenants} tenants: a part of {self._part_bytes} holds no "
                f"page, which takes {page_takes}: expected more capacity, or fewer tenants"
            )
        self._folder = self.root / TENANTS
        self._folder.mkdir(parents=True, exist_ok=True)
        self._nobody = make(self._folder / NOBODY, nobodys, NOBODYS_SEGMENTS)
        self.name = self._nobody.name
        self._ledger = SizeLedger(self._folder / "ledger")  # its lock alone is of use: one place is taken at a time
        self._lock = threading.Lock()
        self._open: dict[str, Part] = {}
        self._open_all()

    def of(self, namespace: bytes) -> TenantPart:
        """See `BlockingTenants.of`."""
        return TenantPart(self, namespace[:NAME_BYTES].hex())

    def exists(self, keys: Sequence[bytes], on_page: OnPage) -> None:
        """See `BlockingStore.exists`; for no tenant."""
        self._nobody.exists(keys, on_page)

    def get_into(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        """See `BlockingStore.get_into`; for no tenant."""
        self._nobody.get_into(keys, buffers, on_page)

    def put(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        """See `BlockingStore.put`; for no tenant."""
        self._nobody.put(keys, buffers, on_page)

    def damage(self, name: bytes, length: int) -> None:
        """Flip a bit of a stored page, whosever it is, for tests. Raises KeyError where it is not stored."""
        for part in (self._nobody, *self._open.values()):
            with suppress(KeyError, FileNotFoundError):
                part.damage(name, length)
                return
        raise KeyError(name)

    def close(self) -> None:
        """See `BlockingStore.close`; with all parts."""
        for part in (self._nobody, *self._open.values()):
            part.close()
        self._ledger.close()

    def reach(self, name: str, *, take_place: bool) -> Part | None:
        """Return the part in the folder `name`, None where it has none (and can get none)."""
        with self._lock:
            part = self._open.get(name)
            if part is None:
                folder = self._folder / name
                if _is_folder(folder) or (take_place and self._take_place(folder)):
                    part = self._open[name] = self._part(folder)
            return part

    def turn_away(self, pages: int) -> None:
        """Count pages that are not kept, since their tenant has no place; say so once."""
        with self._lock:
            if not self.turned_away_pages:
                LOG.warning(
                    "%s: no place for more than %d tenants: pages of others are not kept; allow more, or remove the "
                    "folders of those that are gone while no store is open",
                    self._folder, self._tenants,
                )  # fmt: skip
            self.turned_away_pages += pages

    def _open_all(self) -> None:
        """Open the parts that are there: what cannot be opened is told now, and what has become too much goes now."""
        try:
            for folder in tenant_folders(self.root):
                self._open[folder.name] = self._part(folder)
        except BaseException:
            self.close()
            raise

    def _part(self, folder: Path) -> Part:
        return self._make(folder, self._part_bytes, SEGMENTS_IN_CAPACITY)

    def _take_place(self, folder: Path) -> bool:
        """Make a tenant's folder; False where no place is left for it, among all processes, or no room."""
        with self._ledger.locked():
            if len(tenant_folders(self.root)) >= self._tenants:
                return _is_folder(folder)  # which another process may just have made
            try:
                folder.mkdir()
            except FileExistsError:
                return _is_folder(folder)
            except OSError as error:
                if error.errno not in FULL:
                    raise
                return False
            return True


@dataclass(frozen=True, slots=True)
class TenantPart:
    """A `BlockingStore` that is one tenant's part of `whole`, if it has one: looked for anew at each call."""

    whole: TenantFolders
    folder_name: str

    @property
    def name(self) -> str:
        """See `BlockingStore`."""
        return self.whole.name

    def exists(self, keys: Sequence[bytes], on_page: OnPage) -> None:
        """See `BlockingStore.exists`."""
        part = self.whole.reach(self.folder_name, take_place=False)
        if part is None:
            _answer(keys, on_page, Verdict.MISS)
        else:
            part.exists(keys, on_page)

    def get_into(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        """See `BlockingStore.get_into`."""
        part = self.whole.reach(self.folder_name, take_place=False)
        if part is None:
            _answer(keys, on_page, Verdict.MISS)
        else:
            part.get_into(keys, buffers, on_page)

    def put(self, keys: Sequence[bytes], buffers: Sequence[Buffer], on_page: OnPage) -> None:
        """See `BlockingStore.put`; the first one takes a place."""
        part = self.whole.reach(self.folder_name, take_place=True)
        if part is None:
            self.whole.turn_away(len(keys))
            _answer(keys, on_page, Verdict.REFUSED)
        else:
            part.put(keys, buffers, on_page)

    def close(self) -> None:
        """Nothing: it is closed with the whole."""


def _answer(keys: Sequence[bytes], on_page: OnPage, verdict: Verdict) -> None:
    for index in range(len(keys)):
        if not on_page(index, verdict):
            return


def _is_folder(path: Path) -> bool:
    """Say whether a folder is there, and no link to one."""
    try:
        return stat.S_ISDIR(path.stat(follow_symlinks=False).st_mode)
    except FileNotFoundError:
        return False


def _refuse_other_use(root: Path, tenants: int) -> None:
    """Raise ValueError where quotas could not be kept under `root`, for what is there already."""
    for form, what in FORMS.items():
        if (root / form).is_dir():
            raise ValueError(
                f"{root} holds {what} of all tenants together: open it without the option tenants, "
                "or give a directory of its own"
            )
    for path in (root / TENANTS, root / TENANTS / NOBODY):
        if path.is_symlink():
            raise ValueError(f"{path} is a link: expected a folder, or nothing")
    there = len(tenant_folders(root))
    if there > tenants:
        raise ValueError(
            f"{root} holds folders of {there} tenants: expected tenants={there} or more, "
            "or that the folders of those that are gone are removed"
        )


def _refuse_small_disk(root: Path, capacity_bytes: int, floor_bytes: int | None) -> None:
    """Raise ValueError where the disk is so small that a tenant could be kept from its part by the others' pages."""
    there = next(place for place in (root, *root.parents) if place.exists())
    disk, floor = os.statvfs(there), default_floor(there) if floor_bytes is None else floor_bytes
    total = disk.f_blocks * disk.f_frsize
    if capacity_bytes + floor > total:
        raise ValueError(
            f"{root}: capacity of {capacity_bytes} bytes and floor of {floor} are more than the disk of {total}: "
            "expected so much that every tenant can have its part"
        )
