"""`stagehold store`: the verbs around stores, as a person types them."""

import orjson
import pytest
from typer.testing import CliRunner

from stagehold.cache.stores.files import FileStore
from stagehold.cli.main import app

NAME = b"n" * 32


def run(*words):
    return CliRunner().invoke(app, ["store", *map(str, words)])


@pytest.fixture
def root(tmp_path):
    """A directory with one page."""
    store = FileStore(tmp_path, floor_bytes=0)
    store.put([NAME], [memoryview(bytes(100))], lambda *_: True)
    yield tmp_path
    store.close()


def test_check_prints_url_passed_failed_and_skipped():
    """As JSON, with exit status 0 where nothing failed."""
    done = run("check", "sim:", "--page-bytes", 512, "--json")
    found = orjson.loads(done.stdout)
    assert done.exit_code == 0
    assert list(found) == ["url", "passed", "failed", "skipped"]
    assert found["url"] == "sim:"
    assert len(found["passed"]) > 8
    assert found["failed"] == {}


def test_check_of_a_bad_store_exits_1():
    """A breach is a line that says what was wrong, and the exit status."""
    done = run("check", "sim:?lose=1", "--page-bytes", 512)
    assert done.exit_code == 1
    assert "failed  pages come back as they were put: batch of 1" in done.stdout


def test_a_wrong_url_is_one_line_and_exit_2():
    """Nothing is opened, and the known schemes are named."""
    done = run("check", "ftp://x")
    assert done.exit_code == 2
    assert "unknown scheme 'ftp'; known here: file" in done.stderr


def test_ls_and_verify_show_what_is_there(root):
    """A whole page, then the same page damaged."""
    assert run("ls", root).stdout.startswith(f"HIT 100 (0, 0, 1, 0, 1) {NAME.hex()} ")
    assert orjson.loads(run("verify", root, "--json").stdout) == {"HIT": 1}
    (path,) = (root / "pages").glob("*/*")
    path.write_bytes(path.read_bytes()[:-1])
    assert run("verify", root).exit_code == 1
    assert "TORN" in run("verify", root).stdout


def test_gc_evicts_down_to_a_capacity(root):
    """And says how many pages went."""
    assert run("gc", root, "--capacity", "1KiB").stdout == "1 pages evicted\n"
    assert run("verify", root).stdout == "no pages\n"


def test_gc_wants_a_size(root):
    """A capacity that is no size is refused with an example of one."""
    done = run("gc", root, "--capacity", "lots")
    assert done.exit_code == 2
    assert "expected a size such as 4096" in done.stderr


def test_gc_names_the_option(root):
    """Which option it was stands before what was expected."""
    assert "--capacity 'lots': expected a size" in run("gc", root, "--capacity", "lots").stderr


def test_a_directory_is_named_without_a_scheme(root):
    """A URL where a directory belongs is refused with the directory."""
    done = run("ls", f"file://{root}")
    assert done.exit_code == 2
    assert f"expected the directory alone: {root}\n" in done.stderr


def test_verify_says_counts_to_people(root):
    """And a dictionary to programs alone."""
    assert run("verify", root).stdout == "1 HIT\n"
