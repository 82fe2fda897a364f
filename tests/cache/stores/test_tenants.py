"""A store that keeps tenants apart: each has its part, whatever the others write, and nobody takes a part too many."""

import ast
import copy
import hashlib
import re
import threading
from pathlib import Path

import pytest

from stagehold.cache.stores.delayed import DelayedStore
from stagehold.cache.stores.inspect import collect, list_pages, verify_pages
from stagehold.cache.stores.medium import Medium, TenantMedium
from stagehold.cache.stores.open import StoreUrlError, open_store
from stagehold.cache.stores.protocol import TenantStore, Verdict, assign_tenant
from stagehold.cache.stores.simulated import SimulatedStore
from stagehold.lifecycle.ranks.one_copy import OneCopy
from stagehold.testing.conformance import Status, check_store
from stagehold.testing.faults import FaultAdapter, FaultPlan
from stagehold.testing.store_checks import CHECKS, Driver, Skipped
from stagehold.testing.store_tenants import TENANT_CHECKS

SIZE = 8192
A, B, C = (hashlib.sha256(name).digest() for name in (b"a", b"b", b"c"))
FORMS = ("pages", "packed")


def url(root, *, tenants=2, capacity="2MiB", form="pages"):
    return f"file://{root}?floor=0&form={form}&capacity={capacity}&tenants={tenants}"


def folder(root, tenant):
    return root / "tenants" / tenant[:16].hex()


class Users:
    """One open store, and operations on it for any tenant."""

    def __init__(self, store):
        self.store = store
        self.driver = Driver("", SIZE)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.store.close()

    def run(self, tenant, call, names, *buffers):
        self.driver.namespace = tenant
        return self.driver.run(self.store, call, names, *buffers)

    def put(self, tenant, count):
        """New pages of a tenant; their names, and the verdicts."""
        names = self.driver.names(count)
        return names, self.run(tenant, "put", names, self.driver.pages(names)).verdicts

    def whole(self, tenant, names):
        """How many of the leading pages come back, with the right bytes."""
        out = self.driver.blanks(len(names))
        good = self.run(tenant, "get_into", names, out).good
        assert out[:good] == self.driver.pages(names)[:good]
        return good


def opened(text):
    return Users(open_store(text, SIZE))


@pytest.mark.parametrize("form", FORMS)
def test_the_kit_passes_for_no_tenant_and_for_one(tmp_path, form):
    """All that every store has to do, in the part of nobody and in a tenant's; and what this one does besides."""
    result = check_store(url(tmp_path / "kit", tenants=3, capacity="4MiB", form=form), page_bytes=SIZE)
    assert result.named(Status.SKIPPED) == []
    assert result.as_dict()["failed"] == {}
    for check in CHECKS:
        check(Driver(url(tmp_path / "one", tenants=3, capacity="8MiB", form=form), SIZE, namespace=A))
    assert verify_pages(folder(tmp_path / "one", A))[Verdict.HIT] > 64


@pytest.mark.parametrize("address", ["file://{}?floor=0&form=pages", "file://{}?floor=0&form=packed", "sim:?seed=1"])
def test_a_greedy_tenant_evicts_only_its_own_pages(tmp_path, address):
    """Ten times the capacity of one tenant: each page of the other is there; where all share, none is."""
    for option, kept in (("&tenants=2", 12), ("", 0)):
        with opened(address.format(tmp_path / f"kv{option}") + "&capacity=1MiB" + option) as users:
            names, verdicts = users.put(A, 12)
            assert verdicts == (Verdict.STORED,) * 12
            more = [users.put(B, 64) for _ in range(20)]
            assert {verdict for _, told in more for verdict in told} == {Verdict.STORED}
            assert users.whole(A, names) == kept
            assert users.whole(B, more[-1][0][-12:]) == 12


@pytest.mark.parametrize("form", FORMS)
def test_the_parts_are_no_more_than_the_capacity(tmp_path, form):
    """On the disk, with each part full: that of no tenant, too."""
    with opened(url(tmp_path, capacity="3MiB", form=form)) as users:
        for tenant in (A, B, b""):
            for _ in range(8):
                users.put(tenant, 64)
    sizes = [path.stat().st_blocks * 512 for path in tmp_path.rglob("*") if path.is_file() and path.stat().st_size > 99]
    assert 2 << 20 < sum(sizes) <= 3 << 20


@pytest.mark.parametrize("form", FORMS)
def test_a_restart_finds_everybody(tmp_path, form):
    """Pages and places; one who comes later gets what was left."""
    with opened(url(tmp_path, form=form)) as users:
        mine, theirs = users.put(A, 5)[0], users.put(B, 7)[0]
    with opened(url(tmp_path, form=form)) as users:
        assert (users.whole(A, mine), users.whole(B, theirs)) == (5, 7)
        assert users.put(C, 1)[1] == (Verdict.REFUSED,)
    with opened(url(tmp_path, form=form, tenants=3)) as users:
        assert (users.whole(A, mine), users.whole(B, theirs)) == (5, 7)
        assert users.put(C, 1)[1] == (Verdict.STORED,)


@pytest.mark.parametrize("form", FORMS)
def test_a_tenant_too_many_keeps_nothing_and_hurts_nobody(tmp_path, caplog, form):
    """Refused and not found, which is no fault; counted, and told once."""
    with opened(url(tmp_path, form=form)) as users:
        names = {tenant: users.put(tenant, 4)[0] for tenant in (A, B)}
        for _ in range(3):
            late, verdicts = users.put(C, 40)
            assert verdicts == (Verdict.REFUSED,) * 40
            assert users.run(C, "exists", late).verdicts == (Verdict.MISS,) * 40
            assert users.whole(C, late) == 0
        assert [users.whole(tenant, names[tenant]) for tenant in (A, B)] == [4, 4]
        assert not any(verdict.is_fault for verdict in verdicts)
        assert users.store.blocking.turned_away_pages == 120
        assert not folder(tmp_path, C).exists()
    told = [record.getMessage() for record in caplog.records if "no place" in record.getMessage()]
    assert len(told) == 1
    assert "more than 2 tenants" in told[0]


def test_a_simulated_store_has_as_many_places_as_it_says():
    """One tenant too many is refused and finds nothing; to ask takes no place; the part of no tenant goes on."""
    with opened("sim:?capacity=2MiB&tenants=2") as users:
        assert users.run(C, "exists", users.driver.names(1)).verdicts == (Verdict.MISS,)
        names = {tenant: users.put(tenant, 4)[0] for tenant in (A, B)}
        late, verdicts = users.put(C, 4)
        assert verdicts == (Verdict.REFUSED,) * 4
        assert users.whole(C, late) == 0
        assert [users.whole(tenant, names[tenant]) for tenant in (A, B)] == [4, 4]
        assert users.put(b"", 4)[1] == (Verdict.STORED,) * 4


def test_reading_takes_no_place(tmp_path):
    """Who only asks has no folder made; what another process has made for it meanwhile is found."""
    with opened(url(tmp_path, tenants=1)) as users, opened(url(tmp_path, tenants=1)) as others:
        names = users.driver.names(2)
        assert users.run(A, "exists", names).verdicts == (Verdict.MISS,) * 2
        assert users.whole(B, names) == 0
        assert not folder(tmp_path, A).exists()
        stored, _ = others.put(B, 3)
        assert users.whole(B, stored) == 3
        assert users.put(A, 1)[1] == (Verdict.REFUSED,)


def test_one_place_goes_to_one_of_many(tmp_path):
    """Eight handles, a tenant each, that write at the same moment: two have places."""
    barrier, stored = threading.Barrier(8), []

    def write(number):
        with opened(url(tmp_path)) as users:
            barrier.wait()
            stored.append(users.put(bytes([number]) * 32, 1)[1] == (Verdict.STORED,))

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(stored) == [False] * 6 + [True] * 2
    assert len([path for path in (tmp_path / "tenants").iterdir() if re.fullmatch("[0-9a-f]{32}", path.name)]) == 2


@pytest.mark.parametrize("form", FORMS)
def test_what_is_no_tenants_folder_is_passed_over(tmp_path, form):
    """Names of other forms, files and links take no place; nothing is read or written through a link."""
    away, inside = tmp_path / "away", tmp_path / "kv" / "tenants"
    inside.mkdir(parents=True)
    away.mkdir()
    (inside / ("0" * 32)).symlink_to(away)
    (inside / ("1" * 32)).write_text("no folder")
    for name in ("letters", "F" * 32, "0" * 31, "0" * 34):
        (inside / name).mkdir()
    with opened(url(tmp_path / "kv", form=form)) as users:
        forged = bytes(32)
        assert users.put(forged, 2)[1] == (Verdict.REFUSED,) * 2
        assert users.put(b"\x11" * 32, 2)[1] == (Verdict.REFUSED,) * 2
        assert users.put(A, 2)[1] == users.put(B, 2)[1] == (Verdict.STORED,) * 2
        assert users.run(forged, "exists", users.driver.names(1)).verdicts == (Verdict.MISS,)
    assert list(away.iterdir()) == []
    assert len(list(list_pages(tmp_path / "kv"))) == 4


@pytest.mark.parametrize("place", ["tenants", "tenants/nobody"])
def test_a_link_in_place_of_the_folder_is_refused(tmp_path, place):
    """The folders that the store makes for itself are folders."""
    (tmp_path / "away").mkdir()
    (tmp_path / "kv" / place).parent.mkdir(parents=True)
    (tmp_path / "kv" / place).symlink_to(tmp_path / "away")
    with pytest.raises(ValueError, match="is a link: expected a folder"):
        open_store(url(tmp_path / "kv"), SIZE)
    assert list((tmp_path / "away").iterdir()) == []


@pytest.mark.parametrize("form", FORMS)
def test_a_folder_is_for_tenants_or_not(tmp_path, form):
    """Opened the other way it is refused, in a sentence, and nothing of it changes."""
    for name, first, then, said in (
        ("apart", url(tmp_path / "apart", form=form), url(tmp_path / "apart", form=form).partition("&tenants")[0],
         "holds a folder for each tenant: open it with the option tenants"),
        ("together", url(tmp_path / "together", form=form).partition("&tenants")[0], url(tmp_path / "together"),
         r"of all tenants together: open it without the option tenants"),
    ):  # fmt: skip
        with opened(first) as users:
            users.put(A, 1)
        before = sorted((tmp_path / name).rglob("*"))
        with pytest.raises(ValueError, match=said):
            open_store(then, SIZE)
        assert sorted((tmp_path / name).rglob("*")) == before
    with pytest.raises(ValueError, match="holds"):
        open_store(url(tmp_path / "apart", form=FORMS[form == "pages"]), SIZE)


def test_fewer_places_than_tenants_are_refused(tmp_path):
    """Their parts together would be more than the capacity."""
    with opened(url(tmp_path, tenants=3)) as users:
        for tenant in (A, B, C):
            users.put(tenant, 1)
    with pytest.raises(ValueError, match="folders of 3 tenants: expected tenants=3 or more"):
        open_store(url(tmp_path), SIZE)


def test_a_disk_without_room_for_all_parts_is_refused(tmp_path):
    """Or a tenant's pages would have to make room for another's."""
    with pytest.raises(ValueError, match="are more than the disk of"):
        open_store(url(tmp_path, capacity="900TiB"), SIZE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("form", ["pages", "packed"])
def test_parts_that_hold_no_page_are_refused_before_anything_is_made(tmp_path, form):
    """The directory can still be opened otherwise."""
    with pytest.raises(ValueError, match="for 4 tenants: a part of 4096 holds no page, which takes 73728"):
        open_store(f"file://{tmp_path}?form={form}&capacity=20KiB&tenants=4", 65_536)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file:///srv/kv?tenants=2", "tenants=2 without a capacity: expected one to be divided"),
        ("file:///srv/kv?capacity=0&tenants=2", "without a capacity"),
        ("file:///srv/kv?capacity=1GiB&tenants=0", "tenants='0': expected a whole number from 1 to 256"),
        ("file:///srv/kv?capacity=1GiB&tenants=many", "expected a whole number from 1 to 256"),
        ("sim:?tenants=2", "without a capacity"),
        ("valkey://localhost?tenants=2", "unknown option 'tenants'; valkey takes"),
        ("s3://bucket?tenants=2", "unknown option 'tenants'; s3 takes"),
        ("mooncake://localhost:1?tenants=2", "unknown option 'tenants'; mooncake takes"),
    ],
)
def test_a_url_that_divides_nothing_is_refused(text, message):
    """By name, where no part can be kept: a quota that is none must not look like one."""
    with pytest.raises(StoreUrlError, match=message):
        open_store(text, SIZE)


def test_a_part_is_a_directory_of_pages_to_the_tools(tmp_path):
    """All parts are listed and verified; only one of them is brought down to a size."""
    with opened(url(tmp_path)) as users:
        for tenant in (A, B, b""):
            users.put(tenant, 6)
    assert verify_pages(tmp_path) == {Verdict.HIT: 18}
    with pytest.raises(ValueError, match="holds a folder for each tenant: give one of those in"):
        collect(tmp_path, 4096)
    assert collect(folder(tmp_path, A), 4096) == 6
    assert verify_pages(tmp_path) == {Verdict.HIT: 12}


def test_every_wrapper_says_whom_an_operation_is_for(tmp_path):
    """In the code, wherever a store passes on that an operation is to be cut; and in truth."""
    package = Path(__file__).resolve().parents[3] / "src" / "stagehold"
    wrappers = {}
    sources = [path.read_text() for path in sorted(package.rglob("*.py"))]
    for source in [source for source in sources if "cut_short(self" in source]:
        for node in ast.walk(ast.parse(source)):
            if (
                isinstance(node, ast.ClassDef)
                and "cut_short(self" in ast.unparse(node)
                and "def poll" in ast.unparse(node)
            ):
                wrappers[node.name] = "assign_tenant(self" in ast.unparse(node)
    assert len(wrappers) >= 4
    assert [name for name, passes in wrappers.items() if not passes] == []
    for name, wrap in {
        "delayed": lambda store: DelayedStore(store, 3),
        "copy": lambda store: OneCopy(store, 0, 1),
        "faults": lambda store: FaultAdapter(store, 5, FaultPlan()),
    }.items():
        store = wrap(open_store(url(tmp_path / name), SIZE))
        assert isinstance(store, TenantStore)
        with Users(store) as users:
            assert users.put(A, 2)[1] == (Verdict.STORED,) * 2
        assert verify_pages(folder(tmp_path / name, A)) == {Verdict.HIT: 2}


def test_only_the_next_operation_is_a_tenants(tmp_path):
    """One that is not said to be anybody's is nobody's, also where another one was said to be somebody's."""
    with opened(url(tmp_path)) as users:
        assign_tenant(users.store, 10**6, A)
        names, verdicts = users.put(b"", 2)
        assert verdicts == (Verdict.STORED,) * 2
        assert (users.whole(A, names), users.whole(b"", names)) == (0, 2)
        assert not folder(tmp_path, A).exists()
    assign_tenant(None, 1, A)


def test_a_copied_medium_has_all_parts():
    """As a snapshot of an engine wants it: what either writes then is its own."""
    medium = TenantMedium(30_000, 2, 100)
    users = Users(SimulatedStore(medium=medium))
    mine, theirs = users.put(A, 1)[0], users.put(b"", 1)[0]
    twin = copy.deepcopy(users.store)
    users.put(B, 1)
    other = Users(twin)
    other.driver.tick, other.driver.tickets = users.driver.tick, users.driver.tickets
    assert (other.whole(A, mine), other.whole(b"", theirs)) == (1, 1)
    assert [len(part.names()) for part in twin.medium.parts()] == [1, 1]
    assert [len(part.names()) for part in medium.parts()] == [1, 1, 1]
    assert sorted(twin.keys()) == sorted([*mine, *theirs])
    assert [twin.contains(mine[0]), twin.drop(mine[0]), twin.contains(mine[0])] == [True, True, False]
    twin.damage(theirs[0])
    assert other.whole(b"", theirs) == 0
    with pytest.raises(KeyError):
        twin.damage(mine[0])
    assert Medium().parts()[0].capacity_bytes is None


def test_the_kit_catches_a_bad_division(tmp_path, monkeypatch):
    """A store that takes the option fails where it keeps all pages together, and where parts are too large."""
    (check,) = TENANT_CHECKS
    divided = "sim:?capacity=1MiB&tenants=3"
    monkeypatch.setattr("stagehold.cache.stores.medium.divide", lambda capacity, *_: (capacity, capacity))
    with pytest.raises(AssertionError, match="124 pages of a tenant are there, with a part for 41"):
        check(Driver(divided, SIZE))
    monkeypatch.setattr(SimulatedStore, "assign", lambda *_: None)
    with pytest.raises(AssertionError, match="of the other tenant: MISS"):
        check(Driver(divided, SIZE))
    for other in (f"file://{tmp_path}", url(tmp_path)):
        with pytest.raises(Skipped):
            check(Driver(other, SIZE))
    assert list(tmp_path.iterdir()) == []
