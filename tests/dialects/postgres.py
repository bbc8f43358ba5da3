"""A PostgreSQL of the test's own: a server on a socket in a folder, without a network, ended with the block."""

from __future__ import annotations

import csv
import io
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

Row = tuple[str | None, ...]
NULL = "<null>"


class Failed(Exception):
    """The server refused the statement, or it failed."""


class Postgres:
    """A running server."""

    def __init__(self, programs: Path, folder: Path) -> None:
        self._psql = programs / "psql"
        self._folder = folder

    def rows(self, sql: str) -> list[Row]:
        """The answer, each value as its text."""
        command = [self._psql, "-X", "-q", "--csv", "-t", "-P", f"null={NULL}", "-v", "ON_ERROR_STOP=1"]
        done = subprocess.run(
            [*command, "-h", self._folder, "-U", "test", "-d", "postgres", "-c", sql],
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
def running() -> Iterator[Postgres]:
    """A server with an empty database, in UTC. Its folder is short, as the name of a socket must be."""
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        yield from _running(Path(folder))


def _running(folder: Path) -> Iterator[Postgres]:
    bin = programs()
    assert bin is not None, "PostgreSQL is not installed: make postgres-packages"
    data = folder / "data"
    as_user: list[str] = []
    if os.getuid() == 0:  # the server does not run as root
        as_user = ["runuser", "-u", "postgres", "--"]
        shutil.chown(folder, "postgres")
    subprocess.run(
        [*as_user, bin / "initdb", "-D", data, "-U", "test", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"],
        check=True,
        capture_output=True,
        cwd=folder,
    )
    options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c timezone=UTC -c fsync=off"
    control = [*as_user, bin / "pg_ctl", "-D", data, "-w", "-l", folder / "log"]
    subprocess.run([*control, "-o", options, "start"], check=True, capture_output=True, cwd=folder)
    try:
        yield Postgres(bin, folder)
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], check=True, capture_output=True, cwd=folder)
