"""A folder that two nodes share, whose files are objects of a bucket: JuiceFS over the tests' S3 server and an etcd.

    node a                         node b                a mount namespace each: the same path, another client
      <folder>/shared                <folder>/shared
        juicefs ─ its own cache        juicefs ─ its own cache
           │  └──────────── etcd ───────────┘ │          names, sizes, locks
           └────────────── versitygw ─────────┘          what is in files

All processes end with the one that started them, and mounts with their namespace: a test that is killed leaves nothing.
JuiceFS is not built for the tests, as their other programs are: who has it, in PATH or as TIDEMARK_JUICEFS, runs these.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.ports import free_port
from tests.s3_server import S3Server, s3_server
from tests.waiting import BOUND, until
from tidemark_devcluster.control_plane import processes
from tidemark_devcluster.programs.build import ensure_binaries
from tidemark_devcluster.programs.progress import ProgressOutput

CACHE_MIB = 256
SETTINGS = (
    *("--cache-size", str(CACHE_MIB)),
    *("--free-space-ratio", "0.01"),
    *("--backup-meta", "0"),
    *("--heartbeat", "3s"),
    "--no-usage-report",
    "--no-agent",
    "--no-syslog",
)


def program() -> str | None:
    return shutil.which(os.environ.get("TIDEMARK_JUICEFS", "juicefs"))


def missing() -> str:
    """The programs that this machine lacks; empty if it has all."""
    if program() is None:
        return "no juicefs: put it into PATH, or name it by TIDEMARK_JUICEFS"
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "no /dev/fuse"
    tried = subprocess.run(["unshare", "--mount", "true"], capture_output=True, check=False)
    return "" if tried.returncode == 0 else "no right to make namespaces and to mount"


@dataclass(frozen=True)
class Node:
    """Where the volume is mounted by a client of its own."""

    name: str
    meta: str
    home: Path
    folder: Path
    holder: processes.ProcessIdentity

    def inside(self, *command: str) -> list[str]:
        """The command, in this node and in the folder where it is begun; its process is that which it was given."""
        return ["nsenter", *self._entering, "sh", "-c", 'cd "$0" && exec "$@"', os.getcwd(), *command]

    def run(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(self.inside(*command), capture_output=True, text=True, check=False, timeout=BOUND)

    def mount(self) -> None:
        """Again, if need be: what is there of an earlier one goes first."""
        while self.run("umount", "--lazy", str(self.folder)).returncode == 0:
            pass
        juicefs = program()
        assert juicefs is not None
        where = ["--cache-dir", str(self.home / f"cache-{self.name}"), "--log", str(self._log)]
        command = ["nsenter", *self._entering, juicefs, "mount", *SETTINGS, *where, self.meta, str(self.folder)]
        environ = {**os.environ, "JFS_SUPERVISOR": "none"}  # one process, and nobody that starts it again
        processes.start(command, environ, self.home, self._log, self._pid_file, die_with_starter=True)
        try:
            until(lambda: self.run("mountpoint", "--quiet", str(self.folder)).returncode == 0)
        except AssertionError:
            raise AssertionError(f"juicefs does not mount: {self._log.read_text()[-4000:]}") from None

    def close(self) -> None:
        """Whoever still uses the folder is told that it is gone."""
        self.run("umount", "--lazy", str(self.folder))
        if (client := processes.running(self._pid_file)) is not None:
            processes.stop(client, 10.0)

    def kill(self) -> None:
        """The client dies, and nobody unmounts: who uses the folder is told ENOTCONN."""
        client = processes.recorded(self._pid_file)
        assert client is not None
        os.kill(client.pid, signal.SIGKILL)
        until(lambda: not client.is_running())

    @property
    def _entering(self) -> list[str]:
        return [f"--mount=/proc/{self.holder.pid}/ns/mnt", "--"]

    @property
    def _log(self) -> Path:
        return self.home / f"juicefs-{self.name}.log"

    @property
    def _pid_file(self) -> Path:
        return self.home / f"juicefs-{self.name}.pid"


@dataclass(frozen=True)
class Volume:
    """One, on two nodes."""

    home: Path
    folder: Path
    store: S3Server
    a: Node
    b: Node

    def objects(self) -> list[Path]:
        """The contents of the objects of files in the bucket."""
        return [
            path
            for path in (self.store.folder / self.store.bucket / "scratch" / "chunks").rglob("*_*")
            if path.is_file()
        ]

    @contextmanager
    def store_hangs(self) -> Iterator[None]:
        """The S3 server answers nothing for the time of the block, and everything after it."""
        server = processes.recorded(self.home / f"s3-{self.store.port}.pid")
        assert server is not None
        os.kill(server.pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(server.pid, signal.SIGCONT)


@contextmanager
def shared_volume(home: Path) -> Iterator[Volume]:
    """A new one, empty, mounted on two nodes."""
    folder = home / "shared"
    folder.mkdir()
    with ExitStack() as stack:
        store = stack.enter_context(s3_server(home))
        meta = stack.enter_context(_etcd(home))
        _format(meta, store, home)
        nodes = [stack.enter_context(_node(name, meta, home, folder)) for name in ("a", "b")]
        yield Volume(home, folder, store, *nodes)


@contextmanager
def _node(name: str, meta: str, home: Path, folder: Path) -> Iterator[Node]:
    command = ["unshare", "--mount", "--propagation", "private", "sleep", "infinity"]
    log, pid_file = home / f"node-{name}.log", home / f"node-{name}.pid"
    holder = processes.start(command, dict(os.environ), home, log, pid_file, die_with_starter=True)
    try:
        until(lambda: os.readlink(f"/proc/{holder.pid}/ns/mnt") != os.readlink("/proc/self/ns/mnt"))
        node = Node(name, meta, home, folder, holder)
        try:
            node.mount()
            yield node
        finally:
            node.close()
    finally:
        processes.stop(holder, 5.0)


def _format(meta: str, store: S3Server, home: Path) -> None:
    juicefs = program()
    assert juicefs is not None
    bucket = f"http://127.0.0.1:{store.port}/{store.bucket}"
    keys = ["--access-key", store.access_key, "--secret-key", store.secret_key]
    how = ["--storage", "s3", "--bucket", bucket, "--trash-days", "0", "--no-agent"]
    made = subprocess.run(
        [juicefs, "format", *how, *keys, meta, "scratch"],
        capture_output=True,
        text=True,
        check=False,
        timeout=BOUND,
        cwd=home,
        env={**os.environ, "HOME": str(home)},
    )
    assert made.returncode == 0, made.stdout + made.stderr


@contextmanager
def _etcd(home: Path) -> Iterator[str]:
    """A URL that JuiceFS takes for its metadata."""
    etcd = ensure_binaries(os.environ, ProgressOutput(sys.__stderr__ or sys.stderr)).etcd
    for _ in range(10):
        client, peer = f"http://127.0.0.1:{free_port()}", f"http://127.0.0.1:{free_port()}"
        named = ["--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer]
        alone = ["--initial-advertise-peer-urls", peer, "--initial-cluster", f"default={peer}"]
        command = [str(etcd), "--data-dir", str(home / f"etcd-{secrets.token_hex(4)}"), *named, *alone]
        pid_file = home / "etcd.pid"
        log = home / "etcd.log"
        server = processes.start(command, dict(os.environ), home, log, pid_file, die_with_starter=True)
        try:
            if _is_healthy(client, server):
                yield f"{client.replace('http', 'etcd')}/juicefs"
                return
        finally:
            processes.stop(server, 5.0)
    raise AssertionError(f"etcd does not start: see {home}/etcd.log")


def _is_healthy(client: str, server: processes.ProcessIdentity) -> bool:
    deadline = time.monotonic() + BOUND
    while server.is_running() and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"{client}/health", timeout=BOUND).close()
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
        else:
            return True
    return False
