"""A PostgreSQL of the test's own: a server on a socket in a folder, without a network, ended with the block."""

from __future__ import annotations

import contextlib
import csv
import io
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.replica.process import wait_until

PREFIX = "pg-"
Row = tuple[str | None, ...]
NULL = "<null>"


class Failed(Exception):
    """The server refused the statement, or it failed."""


class Postgres:
    """A running server."""

    def __init__(self, programs: Path, folder: Path, port: int, command: Sequence[str | Path]) -> None:
        self._programs, self._psql = programs, programs / "psql"
        self.folder, self.port = folder, port
        self._command = command
        self.start()

    def start(self) -> None:
        """Starts it, and waits until it answers."""
        self.launch()
        self.wait()

    def launch(self) -> None:
        """Starts it. It ends with the calling thread."""
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(self._command, cwd=self.folder, stdout=log, stderr=log)

    def wait(self) -> None:
        """Waits until it answers."""
        wait_until(self._accepts, pause=0.2)

    def stop(self) -> None:
        """Ends it as a crash would: its next start recovers."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait()

    def promote(self) -> None:
        """Makes a standby a server of its own, on a timeline of its own, and waits until it is."""
        _run("pg_ctl", "promote", "-w", "-D", self.folder / "data", cwd=self.folder)

    def kill(self) -> None:
        """Kills its first process, which runs, and waits until the others have noticed."""
        assert self._process.poll() is None, f"PostgreSQL ended: {(self.folder / 'log').read_text()}"
        self._process.kill()
        self._process.wait()
        wait_until(lambda: not self._processes(), pause=0.05)

    def _processes(self) -> list[Path]:
        """The processes whose folder is the server's."""
        data = str(self.folder / "data")
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                if str((process / "cwd").readlink()) == data:
                    found.append(process)
        return found

    def _accepts(self) -> bool:
        assert self._process.poll() is None, f"PostgreSQL ended: {(self.folder / 'log').read_text()}"
        return (
            subprocess.run(
                [self._programs / "pg_isready", "-q", "-h", self.folder, "-p", str(self.port)], check=False
            ).returncode
            == 0
        )

    def rows(self, sql: str) -> list[Row]:
        """The answer, each value as its text."""
        command = [self._psql, "-X", "-q", "--csv", "-t", "-P", f"null={NULL}", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run(
            [*command, "-h", self.folder, "-p", str(self.port), "-U", "test", "-d", "postgres", "-c", sql],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise Failed(done.stderr)
        return [tuple(None if v == NULL else v for v in row) for row in csv.reader(io.StringIO(done.stdout))]


def programs() -> Path | None:
    """The folder of PostgreSQL's programs, as Debian's package `postgresql` installs them."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else None


@contextmanager
def running(*settings: str, port: int = 5432) -> Iterator[Postgres]:
    """A server with an empty database, in UTC. Its folder is short, as the name of a socket must be. `settings`: more
    of its configuration, `name=value`.

    The kernel ends the server with the calling thread, as SIGQUIT: also when the tests are killed. Their folder then
    stays until the next call, which removes the folders whose tests are gone."""
    with _folder() as folder:
        _run("initdb", "-D", folder / "data", "-U", "test", "-A", "trust", "-E", "UTF8", "--locale=C", "-N", cwd=folder)
        yield from _serving(folder, port, settings)


@contextmanager
def standby(primary: Postgres, *settings: str) -> Iterator[Postgres]:
    """A server that streams from the primary, as `running` makes one; it has the primary's port, on another socket."""
    with _folder() as folder:
        source = ["-h", primary.folder, "-p", str(primary.port), "-U", "test"]
        _run("pg_basebackup", "-D", folder / "data", "-R", "-X", "stream", "-c", "fast", "-N", *source, cwd=folder)
        yield from _serving(folder, primary.port, settings)


@contextmanager
def _folder() -> Iterator[Path]:
    remove_left_folders()
    folder = Path(tempfile.mkdtemp(prefix=f"{PREFIX}{os.getpid()}-"))
    if os.getuid() == 0:  # the server does not run as root
        shutil.chown(folder, "postgres")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def remove_left_folders() -> None:
    """Removes the folders of tests that were killed."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*-*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        if not owner.isdigit() or Path(f"/proc/{owner}").exists():
            continue
        shutil.rmtree(folder, ignore_errors=True)


def _command(program: str) -> list[str | Path]:
    """The program of PostgreSQL, as a user that may run it; the kernel ends it with the calling thread."""
    bin = programs()
    assert bin is not None, "PostgreSQL is not installed: make test-packages"
    as_user = ["--reuid=postgres", "--regid=postgres", "--init-groups"] if os.getuid() == 0 else []
    return ["setpriv", "--pdeathsig", "QUIT", *as_user, "--", bin / program]


def _run(program: str, *arguments: str | Path, cwd: Path) -> None:
    done = subprocess.run([*_command(program), *arguments], check=False, capture_output=True, cwd=cwd)
    assert done.returncode == 0, done.stderr.decode()


def _serving(folder: Path, port: int, more: Sequence[str]) -> Iterator[Postgres]:
    settings = ("listen_addresses=", f"unix_socket_directories={folder}", "timezone=UTC", "fsync=off", *more)
    settings = (*settings, f"port={port}")
    options = [argument for setting in settings for argument in ("-c", setting)]
    command = _command("postgres")
    server = Postgres(Path(command[-1]).parent, folder, port, [*command, "-D", folder / "data", *options])
    try:
        yield server
    finally:
        server.stop()
