"""A real S3 server for tests: versitygw over a folder, compiled once from its Go module.

    s3://<bucket>/a/b.json   <──►   <folder>/<bucket>/a/b.json

Objects are files, so a test may look at them, or spoil them, without asking the server.
"""

from __future__ import annotations

import os
import secrets
import signal
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.ports import free_port
from tests.waiting import until
from tidemark_devcluster.control_plane import processes
from tidemark_devcluster.programs.build import ensure_versitygw
from tidemark_devcluster.programs.progress import ProgressOutput
from tidemark_persist.storage.storage import Storage

BOUND_SECONDS = 60.0
STARTS_MOST = 10


@dataclass(frozen=True)
class S3Server:
    """One that runs, and how to reach it."""

    folder: Path
    port: int
    bucket: str
    access_key: str = field(default_factory=lambda: f"AK{secrets.token_hex(9).upper()}")
    secret_key: str = field(default_factory=lambda: secrets.token_hex(20))

    @property
    def environ(self) -> dict[str, str]:
        """The environment of a client."""
        return self.through(self.port)

    def through(self, port: int) -> dict[str, str]:
        """The same, by way of a proxy."""
        return {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def location(self, path: str) -> str:
        return f"s3://{self.bucket}/{path}"

    def on_disk(self, location: str) -> Path:
        """Where the server keeps what is at this location."""
        return self.folder / location.removeprefix("s3://")

    @contextmanager
    def hanging(self) -> Iterator[Callable[[], None]]:
        """Connections are taken, and nothing is said, until the call that it gives, or the end of the block."""
        identity = processes.recorded(self.folder.parent / f"s3-{self.port}.pid")
        assert identity is not None
        os.kill(identity.pid, signal.SIGSTOP)
        try:
            until(lambda: _stands_still(identity.pid))
            yield lambda: os.kill(identity.pid, signal.SIGCONT)
        finally:
            os.kill(identity.pid, signal.SIGCONT)


@contextmanager
def s3_server(home: Path) -> Iterator[S3Server]:
    """One on a port of its own, with one bucket. It ends with the block, also when this process is killed."""
    program = ensure_versitygw(os.environ, ProgressOutput(sys.__stderr__ or sys.stderr))
    for _ in range(STARTS_MOST):
        server = S3Server(home / "objects", free_port(), f"b-{secrets.token_hex(4)}")
        (server.folder / server.bucket).mkdir(parents=True)
        identity = _start(program, server, home)
        try:
            if _answers(server, identity):
                yield server
                return
        finally:
            processes.stop(identity, 5.0)
    raise AssertionError(f"versitygw does not start: see {home}")


@contextmanager
def server_beside(server: S3Server) -> Iterator[S3Server]:
    """Another server over the same objects, with other credentials."""
    program = ensure_versitygw(os.environ, ProgressOutput(sys.__stderr__ or sys.stderr))
    for _ in range(STARTS_MOST):
        other = S3Server(server.folder, free_port(), server.bucket)
        identity = _start(program, other, server.folder.parent)
        try:
            if _answers(other, identity):
                yield other
                return
        finally:
            processes.stop(identity, 5.0)
    raise AssertionError(f"versitygw does not start beside another: see {server.folder.parent}")


def _start(program: Path, server: S3Server, home: Path) -> processes.ProcessIdentity:
    command = [str(program), "--port", f"127.0.0.1:{server.port}", "--health", "/health", "posix"]
    if not _has_attributes(home):
        beside = home / "attributes"
        beside.mkdir(exist_ok=True)
        command += ["--sidecar", str(beside)]
    command.append(str(server.folder))
    environ = {"ROOT_ACCESS_KEY": server.access_key, "ROOT_SECRET_KEY": server.secret_key}
    log, pid_file = home / f"s3-{server.port}.log", home / f"s3-{server.port}.pid"
    return processes.start(command, environ, home, log, pid_file, die_with_starter=True)


def _stands_still(pid: int) -> bool:
    """All of its threads: one that is stopped a moment later than the others still answers."""
    stats = (thread.read_text() for thread in Path(f"/proc/{pid}/task").glob("*/stat"))
    return all(stat.rpartition(")")[2].split()[0] == "T" for stat in stats)


def _has_attributes(folder: Path) -> bool:
    """Whether the file system keeps attributes of files, in which the server has ETags; on some there are none."""
    try:
        os.setxattr(folder, "user.tidemark", b"1")
    except OSError:
        return False
    return True


def _answers(server: S3Server, identity: processes.ProcessIdentity) -> bool:
    """Whether it is this one: another program may have taken the port meanwhile, and then ours ends."""
    deadline = time.monotonic() + BOUND_SECONDS
    while identity.is_running() and time.monotonic() < deadline:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{server.port}/health", timeout=BOUND_SECONDS).close()
            break
        except (urllib.error.URLError, OSError):
            time.sleep(0.01)
    location = server.location("probe")
    try:
        Storage(location, server.environ).write("x", b"1")
    except Exception:
        return False
    return (server.on_disk(location) / "x").is_file()
