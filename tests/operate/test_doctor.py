"""The doctor finds what is planted, and says what to do about it."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import orjson
import pytest
from typer.testing import CliRunner

from stagehold.cache.stores import open as opening
from stagehold.cache.stores.open import run_on_workers
from stagehold.cache.stores.protocol import Verdict
from stagehold.cli.main import app
from stagehold.operate.doctor import stores
from stagehold.operate.doctor.check import Check, guarded, size
from stagehold.operate.doctor.examine import Patient, examine
from stagehold.operate.doctor.machine import has_cuda, least, processors, rooms
from stagehold.operate.doctor.traps import filesystem
from stagehold.operate.settings import PREFIX, shown

LEAST = {"device_pages": 64, "largest_request_tokens": 1024}
BYTES = {**LEAST, "parts": 2, "page_part_bytes": 4096}
WINDOW = {"name": "swa", "kind": "sliding_window", "device_pages": 40, "staging_pages": 3, "window_tokens": 128}
MINUTE = 60


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch):
    for name in list(os.environ):
        if name.startswith(PREFIX):
            monkeypatch.delenv(name)


def found(name: str, patient: Patient) -> Check:
    """The check of that name; those after it are not made."""
    seen = []
    for check in examine(patient):
        seen.append(check.line())
        if check.name == name:
            return check
    raise AssertionError(f"no check {name!r} among {seen}")


def fails(name: str, patient: Patient, detail: str, fix: str) -> None:
    check = found(name, patient)
    assert not check.ok
    assert detail in check.detail
    assert fix in check.fix


# The configuration


def test_a_cap_of_pins_that_derives_to_zero():
    """With the arithmetic."""
    patient = Patient(arguments={"device_pages": 16, "largest_request_tokens": 1024})
    fails("configuration", patient, "min(0.5 x 16, 16 - 16) = 0 pages; enlarge device_pages", "correct it")


def test_staging_below_two_windows():
    """Two holds would not fit."""
    patient = Patient(arguments={**LEAST, "staging_pages": 9, "components": [WINDOW]})
    fails("configuration", patient, "staging_pages=3, but two holds need 4 (2 x 2)", "correct it")


def test_an_option_that_nobody_knows():
    """With the nearest that is known."""
    patient = Patient(arguments={**LEAST, "pin_fracton": 0.2})
    fails("configuration", patient, "did you mean 'pin_fraction'?", "`stagehold config reference` lists all options")


def test_options_from_the_environment_alone(monkeypatch):
    """They are what an engine here would start with."""
    assert not [check for check in examine(Patient()) if check.name == "configuration"]
    monkeypatch.setenv("STAGEHOLD_DEVICE_PAGES", "-4")
    fails("configuration", Patient(), "environment: device_pages = '-4': Input should be greater", "config check")


def test_other_ranks_need_one_to_be_held_against(tmp_path):
    """Nothing is compared with nothing, and that must not pass."""
    fails("configuration", Patient(others=(tmp_path / "b.toml",)), "device_pages is not set", "correct it")


def test_ranks_with_different_options(tmp_path):
    """By name, with both values; a rank's device is its own."""
    ours, theirs = tmp_path / "0.toml", tmp_path / "1.toml"
    ours.write_text("device_pages = 64\nlargest_request_tokens = 1024\n")
    theirs.write_text(ours.read_text() + "page_size = 32\n[limits]\nready_limit = 9\n")
    patient = Patient(file=ours, others=[theirs, ours])
    told = "page_size is 64 here and 32 there; limits.ready_limit is 1024 here and 9 there"
    fails(f"rank {theirs}", patient, told, "give every rank the same file")
    assert found(f"rank {ours}", patient).ok


# Memory


def test_sizes_that_no_machine_has():
    """What would have ended in a bare MemoryError."""
    patient = Patient(arguments={"device_pages": 10**12, "largest_request_tokens": 1024, "staging_ratio": 1.0})
    fails("pool sizes", patient, "2,000,000,000,000 pages of all pools", "lower device_pages and staging_pages")


def test_staging_that_does_not_fit_into_memory():
    """By pool, and how much would."""
    patient = Patient(arguments={**BYTES, "page_part_bytes": 1 << 20, "staging_ratio": 20_000.0})
    fails("memory budget", patient, "full: staging 1,280,000 x 2 MiB = 2.441 TiB", "set staging_bytes to ")


def kernel(root: Path, files: dict[str, str]) -> Path:
    """A machine's files as its kernel writes them."""
    files = {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:   8388608 kB\n", **files}
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


VERSION_2 = {
    "proc/self/cgroup": "0::/pod/box\n",
    "sys/fs/cgroup/pod/box/memory.max": "max\n",
    "sys/fs/cgroup/pod/memory.max": "1048576\n",
    "sys/fs/cgroup/pod/memory.current": "700000\n",
    "sys/fs/cgroup/pod/memory.stat": "anon 1\ninactive_file 100000\n",
}
VERSION_1 = {
    "proc/self/cgroup": "12:cpu,cpuacct:/x\n4:memory:/somewhere/else\n",
    "sys/fs/cgroup/memory/memory.limit_in_bytes": "1048576\n",
    "sys/fs/cgroup/memory/memory.usage_in_bytes": "700000\n",
    "sys/fs/cgroup/memory/memory.stat": "total_inactive_file 100000\n",
}


@pytest.mark.parametrize(("files", "group"), [(VERSION_2, "/pod (memory.max"), (VERSION_1, "/ (memory.limit_in_bytes")])
def test_a_limit_of_a_cgroup(tmp_path, files, group):
    """Of either version, also of one above, also where the path lies outside what a container sees."""
    root = kernel(tmp_path, files)
    room = least(root)
    assert 1048576 - 700000 + 100000 == room.available
    assert group in room.said_by
    patient = Patient(arguments=BYTES, root=root)
    fails("memory budget", patient, "each 1.5 MiB of 438.1 KiB (cgroup ", f"raise the limit of {room.said_by}")


def test_a_cgroup_without_a_limit_is_none(tmp_path):
    """Both ways of saying so."""
    unlimited = {"sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n"}
    root = kernel(tmp_path, {**VERSION_1, **unlimited})
    assert [8 << 30] == [room.available for room in rooms(root)]
    assert 0 == least(tmp_path / "nothing").available


def test_a_pool_that_finds_its_device_is_counted_where_it_will_lie(tmp_path):
    """On this machine as long as it has no CUDA; a device node says so."""
    assert not has_cuda(tmp_path)
    check = found("memory budget", Patient(arguments={**BYTES, "kv_device": "auto"}))
    assert has_cuda() != ("device pool on the CPU" in check.detail)
    assert has_cuda(kernel(tmp_path, {"dev/nvidia0": ""}))


def test_a_quota_of_processors_is_read(tmp_path):
    """Of either version."""
    assert (0.5, "cgroup quota (cpu.max)") == processors(kernel(tmp_path, {"sys/fs/cgroup/cpu.max": "50000 100000\n"}))
    old = {"sys/fs/cgroup/cpu/cpu.cfs_quota_us": "25000\n", "sys/fs/cgroup/cpu/cpu.cfs_period_us": "100000\n"}
    assert 0.25 == processors(kernel(tmp_path / "old", old))[0]


# The process


def run(program: str, **environment: str) -> str:
    """The failed checks that a process of its own finds."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        timeout=MINUTE,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


FAILED = "print([c.line() for c in {} if not c.ok])"


def test_too_few_open_files():
    """A limit of 64, really set."""
    program = "import resource as r; r.setrlimit(r.RLIMIT_NOFILE, (64, 64))\n"
    program += "from stagehold.operate.doctor import machine\n" + FAILED.format("machine.look()")
    told = run(program)
    assert "FAIL file limit: 64 open files" in told
    assert "do this: raise the limit of open files to 256 or more (ulimit -n 4096" in told


def test_keys_that_depend_on_the_hash_seed(tmp_path):
    """Something on the path replaces the hash by Python's own."""
    (tmp_path / "sitecustomize.py").write_text(
        "import stagehold.cache.keys as keys\n"
        "plain = keys.Namespace.digest\n"
        "def seeded(self, size):\n"
        "    return plain(self, size)[:24] + hash(self.model).to_bytes(8, 'big', signed=True)\n"
        "keys.Namespace.digest = seeded\n"
    )
    program = "from stagehold.operate.doctor import keys\n" + FAILED.format("keys.look()")
    told = run(program, PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert "FAIL page keys: schema 1: key self-test at page size 1" in told
    assert "do this: something replaces the keys (a sitecustomize" in told


def test_keys_that_differ_in_other_processes_only(tmp_path):
    """This one has loaded the right ones; those that start now do not."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os\nif os.environ.get('PYTHONHASHSEED') == '1':\n"
        "    import stagehold.cache.keys as keys\n    keys.KEY_SCHEMA = 2\n"
    )
    program = "from stagehold.operate.doctor import keys\n" + FAILED.format("keys.look()")
    told = run(program, PYTHONPATH=f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    assert "FAIL hash seed: with PYTHONHASHSEED=1: " in told


# The store


def test_a_store_that_cannot_be_written(tmp_path):
    """Its directory would lie in a file."""
    (tmp_path / "file").write_text("")
    patient = Patient(store=f"file://{tmp_path}/file/kv")
    fails("store opens", patient, "Not a directory", "let this user write to")


def test_a_disk_that_is_too_small(tmp_path):
    """For the capacity, and for the floor."""
    patient = Patient(store=f"file://{tmp_path}/kv?capacity=4000TiB")
    fails("store disk", patient, "capacity 3.906 PiB", "set capacity in the URL to ")
    patient = Patient(store=f"file://{tmp_path}/kv?floor=4000TiB")
    fails("store disk", patient, "floor 3.906 PiB", "lower floor in the URL")


def test_a_directory_of_pages_of_another_size(tmp_path):
    """A store keeps one size."""
    url = f"file://{tmp_path}/kv"
    assert found("store bytes", Patient(store=url)).ok
    fails("store opens", Patient(store=url, page_bytes=1 << 20), "holds ", "--page-bytes")


def test_pages_of_another_schema(tmp_path, monkeypatch):
    """A version with another header has written them: to this one they are foreign."""
    real = opening._OPENERS["sim"]

    class Foreign:
        def __init__(self, inner):
            self._inner = inner

        def __getattr__(self, name):
            return getattr(self._inner, name)

        def get_into(self, ticket, keys, buffers, tick):
            for name in self._inner.medium.names():
                self._inner.medium.write(name, b"OLDSCHEM" + self._inner.medium.read(name)[8:])
            self._inner.get_into(ticket, keys, buffers, tick)

    monkeypatch.setitem(opening._OPENERS, "sim", lambda url: Foreign(real(url)))
    fails(
        "store reads",
        Patient(store="sim:"),
        "FOREIGN: the page has another key, layout or schema",
        "verify",
    )


@pytest.mark.parametrize(
    ("url", "name", "detail", "fix"),
    [
        ("sim:?corrupt=1", "store reads", "CORRUPT: the checksum does not match", "does not give back what it took"),
        ("sim:?fail=1", "store writes", "FAILED: the store reports an error", "check permissions, room"),
        ("sim:?lose=1", "store finds", "MISS: the page is not there", "raise its capacity"),
        ("sim:?capacity=1KiB", "store writes", "REFUSED: the store has no room", "check permissions, room"),
        ("sim:?get=x", "store opens", "expected ticks such as 3 or 1-4", "see docs/stores.md"),
        ("nowhere:", "store opens", "unknown scheme 'nowhere'", "correct the URL"),
        ("kv", "store URL", "expected a URL with a scheme", "see docs/stores.md"),
        ("file:///x?capacity=much", "store disk", "expected a size such as 4096", "write a size as 10GiB"),
    ],
)
def test_a_store_that_is_broken_in_a_way_of_its_own(url, name, detail, fix):
    """The first thing that is wrong is told."""
    fails(name, Patient(store=url), detail, fix)


def test_a_store_that_never_answers(monkeypatch):
    """Within a bounded time."""
    monkeypatch.setattr(stores, "SECONDS", 0.2)
    fails("store writes", Patient(store="sim:?stall=1"), "no answer in 0.2 s", "look at the server")


class Shelf:
    """A service of this test's own, that keeps pages in memory, and lies or dawdles as it is told."""

    name = "shelf"

    def __init__(self, *, lies: bool = False, finds_all: bool = False, seconds: float = 0.0) -> None:
        self._pages: dict[bytes, bytes] = {}
        self._lies, self._finds_all, self._seconds = lies, finds_all, seconds

    def exists(self, keys, on_page):
        for place, key in enumerate(keys):
            on_page(place, Verdict.HIT if self._finds_all or key in self._pages else Verdict.MISS)

    def get_into(self, keys, buffers, on_page):
        for place, (key, buffer) in enumerate(zip(keys, buffers, strict=True)):
            time.sleep(self._seconds)
            buffer[:] = self._pages[key]
            buffer[0] ^= self._lies
            on_page(place, Verdict.HIT)

    def put(self, keys, buffers, on_page):
        for place, (key, buffer) in enumerate(zip(keys, buffers, strict=True)):
            self._pages[key] = bytes(buffer)
            on_page(place, Verdict.STORED)

    def close(self):
        pass


@pytest.fixture
def shelf(monkeypatch):
    def install(**manners) -> str:
        monkeypatch.setitem(opening._OPENERS, "shelf", lambda _url: run_on_workers(Shelf(**manners), {}))
        return "shelf:"

    return install


def test_a_store_that_calls_other_bytes_right(shelf):
    """No checksum of its own, and a bit that flips."""
    fails("store bytes", Patient(store=shelf(lies=True)), "16 of 16 pages came back with other bytes", "do not use")
    assert found("store bytes", Patient(store=shelf())).ok


def test_a_store_that_finds_what_nobody_put(shelf):
    """Every request would fetch in vain."""
    fails(
        "store knows what it has not", Patient(store=shelf(finds_all=True)), "said to be there", "do not use this store"
    )


def test_a_store_that_is_too_slow(shelf):
    """The largest fetch would be cut before it ends."""
    arguments = {**BYTES, "store": shelf(seconds=0.01), "limits": {"fetch_limit": 2}}
    fails("store bandwidth", Patient(arguments=arguments), "16 pages, takes 0.", "raise limits.fetch_limit to ")
    arguments["limits"] = {"fetch_limit": 512}
    assert found("store bandwidth", Patient(arguments=arguments)).ok


def test_large_pages_are_tried_with_fewer_of_them():
    """Or the doctor alone would take the memory that it looks at."""
    tried = [stores.Wanted(page_bytes).tried for page_bytes in (1, 1 << 20, 16 << 20, 64 << 20, 1 << 30)]
    assert [16, 16, 16, 4, 1] == tried


def test_a_store_that_is_named_by_nothing():
    """As by a variable that was not set."""
    fails("store URL", Patient(store=""), "expected", "docs/stores.md")


def test_a_server_that_does_not_listen():
    """The cause by its name, and how to look for oneself."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    for url in (f"valkey://127.0.0.1:{port}/0", f"s3://bucket/x?endpoint=http://127.0.0.1:{port}"):
        fails("store server", Patient(store=url), f"127.0.0.1:{port}: Connection refused", f"nc -z 127.0.0.1 {port}")


def test_no_password_is_told():
    """Neither by a check nor by the command that shows the options."""
    url = "valkey://user:secret-word@127.0.0.1:1/0?capacity=1GiB"
    told = [check.detail for check in stores.look(url.replace("valkey", "nowhere"), stores.Wanted())]
    assert "nowhere://user:***@127.0.0.1:1/0" in told[-1]
    assert "secret-word" not in " ".join(told)
    words = [word for name, value in {**LEAST, "store": url}.items() for word in ("--set", f"{name}={value}")]
    for more in ([], ["--json"]):
        done = CliRunner().invoke(app, ["config", "show", *words, *more])
        assert "user:***@127.0.0.1:1" in done.stdout
        assert "secret-word" not in done.stdout
    assert "valkey://127.0.0.1:1" == shown("valkey://127.0.0.1:1")
    assert shown(None) is None


@pytest.mark.parametrize(
    "url", ["redis://u:sec/ret@h:1/0", "redis://h:99999", "redis://[h", "s3://b/x?endpoint=http://h:x"]
)
def test_a_server_that_cannot_be_named(url):
    """One failure, and what a password may not hold; the password itself is not told."""
    failed = [check for check in examine(Patient(store=url)) if not check.ok]
    assert ["store URL"] == [check.name for check in failed]
    assert "ret@" not in failed[0].detail


def test_a_server_whose_name_nobody_knows():
    """That, too, is said."""
    check = found("store server", Patient(store="valkey://no-such-host.invalid:6379/0"))
    assert not check.ok
    assert check.detail.startswith("no-such-host.invalid:6379: ")
    assert len(check.detail) > len("no-such-host.invalid:6379: ")


# Traps


def test_known_traps_are_notes(tmp_path):
    """They do not fail anything."""
    root = kernel(tmp_path, {"proc/self/mounts": "none / ext4 rw\nnone /dev/shm tmpfs rw\nnas /mnt/kv nfs4 rw\n"})
    assert ("tmpfs", "nfs4", "ext4") == tuple(filesystem(Path(at), root) for at in ("/dev/shm/x", "/mnt/kv/a", "/srv"))
    arguments = {**LEAST, "staging_ratio": 0.5, "pin_fraction": 0.0}
    from stagehold.operate.doctor import traps
    from stagehold.operate.settings import load

    notes = {check.name: check for check in traps.look(load(None, arguments), "file:///dev/shm/kv", root)}
    assert {"trap: a store in memory", "trap: a host tier smaller than the device", "trap: no pins"} <= set(notes)
    assert all(check.ok and check.fix for check in notes.values())


@pytest.mark.parametrize(
    ("share", "query", "note"),
    [
        (0.5, "", "quotas in the engine alone"),
        (0.0, "?capacity=1GiB&tenants=2", "quotas in the store alone"),
        (0.5, "?capacity=1GiB&tenants=2", None),
        (0.0, "?capacity=1GiB", None),
    ],
)
def test_quotas_in_one_place_only_are_a_trap(tmp_path, share, query, note):
    """The other place lets tenants push each other out."""
    from stagehold.operate.doctor import traps
    from stagehold.operate.settings import load

    found = load(None, {**LEAST, "tenant_share": share})
    notes = [check.name for check in traps.look(found, f"file:///srv/kv{query}", kernel(tmp_path, {}))]
    assert ([] if note is None else [f"trap: {note}"]) == [name for name in notes if "quotas" in name]


# The command


def doctor(*words: str):
    return CliRunner().invoke(app, ["doctor", *words])


def test_a_sound_machine_passes(tmp_path):
    """Every check, in JSON, with its four fields."""
    file = tmp_path / "stagehold.toml"
    file.write_text(f"device_pages = 64\nlargest_request_tokens = 1024\nstore = 'file://{tmp_path}/kv?capacity=1GiB'\n")
    done = doctor("--config", str(file), "--json")
    told = orjson.loads(done.stdout)
    assert [] == [check for check in told["checks"] if not check["ok"]]
    assert 0 == done.exit_code
    assert {"name", "ok", "detail", "fix"} == set(told["checks"][0])
    names = {check["name"] for check in told["checks"]}
    assert {"memory limits", "memory budget", "file limit", "clock", "versions", "page keys", "hash seed",
            "host memory", "staging bandwidth", "store disk", "store writes", "store bytes",
            "store bandwidth"} <= names  # fmt: skip


def test_a_failure_ends_with_1_and_says_what_to_do(tmp_path):
    """On stderr, last."""
    done = doctor(
        "--set", "device_pages=16", "--set", "largest_request_tokens=1024", "--store", f"file://{tmp_path}/kv"
    )
    assert 1 == done.exit_code
    assert "\nFAIL configuration: the pin cap derives to zero" in done.stdout
    assert "stagehold: the pin cap derives to zero" in done.stderr
    assert "; correct it; `stagehold config reference` lists all options" in done.stderr


def test_a_check_that_fails_itself_is_one_failure():
    """The others are made."""

    def look():
        yield Check("one", ok=True, detail="")
        raise KeyError("x")

    checks = list(guarded("all", look))
    assert [True, False] == [check.ok for check in checks]
    assert "KeyError: 'x'" == checks[1].detail
    assert "1.5 KiB" == size(1536)
