"""One S3 server per session (each worker of xdist has its own), and places for shards on it and on local disk."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.s3_server import S3Server, s3_server


@dataclass(frozen=True)
class Place:
    """Where a shard may be made: its location, and the folder where its files are then found on this machine."""

    location: str
    folder: Path

    def left(self) -> list[Path]:
        """The names that are left. A bucket has only objects: its folders are the server's own affair."""
        on_disk = self.location == str(self.folder)
        return [path for path in self.folder.rglob("*") if on_disk or path.is_file()]


@dataclass(frozen=True)
class Places:
    """Any number of them, side by side: in a folder, or below a prefix in a bucket."""

    root: str
    folder: Path

    def new(self) -> Place:
        name = uuid.uuid4().hex
        return Place(f"{self.root}/{name}", self.folder / name)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A real S3 server. Nothing in the environment speaks of it: see `S3Server.environ`."""
    with s3_server(tmp_path_factory.mktemp("s3")) as server:
        yield server


@pytest.fixture(scope="module", params=["disk", pytest.param("s3", marks=pytest.mark.broad)])
def places(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    """Everything that takes this runs twice: on local disk, and on S3 with the server in the environment (in a run of
    `make test` an eighth of the tests)."""
    if request.param == "disk":
        folder = tmp_path_factory.mktemp("places")
        yield Places(str(folder), folder)
        return
    server: S3Server = request.getfixturevalue("s3")
    prefix = server.location(uuid.uuid4().hex)
    with pytest.MonkeyPatch.context() as environ:
        for name, value in server.environ.items():
            environ.setenv(name, value)
        yield Places(prefix, server.on_disk(prefix))


@pytest.fixture
def place(places: Places) -> Place:
    """A new one."""
    return places.new()
