"""A real catalogue of Iceberg over REST for tests: the server of Apache Iceberg's own tests, in a JVM of 256 MB.

make iceberg-catalogue      installs the pinned version into the cache, once; checksums are in catalogue_jars.sha256
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

from tests.kafka.jars import installed, java
from tests.ports import free_port
from tidemark_devcluster.control_plane import processes
from tidemark_replica.sinks.published.iceberg_catalogue import CatalogueSettings

VERSION = "1.9.2"
SUMS = Path(__file__).parent / "catalogue_jars.sha256"
START_SECONDS = 120.0
_ARTIFACTS = (
    f"org.apache.iceberg:iceberg-open-api:{VERSION}:test-fixtures",
    f"org.apache.iceberg:iceberg-core:{VERSION}",
    f"org.apache.iceberg:iceberg-core:{VERSION}:tests",
    "org.eclipse.jetty:jetty-servlet:11.0.25",
    "org.xerial:sqlite-jdbc:3.50.3.0",
    "org.slf4j:slf4j-simple:2.0.17",
    "org.apache.hadoop:hadoop-client-api:3.4.1",
    "org.apache.hadoop:hadoop-client-runtime:3.4.1",
)


def install() -> Path:
    """The folder with the server's jars (82 MB)."""
    return installed("iceberg-catalogue", VERSION, _ARTIFACTS, SUMS)


@dataclass
class RestCatalogue:
    """A catalogue that can be stopped and started again on its port, with its data."""

    folder: Path
    port: int
    identity: processes.ProcessIdentity | None = None

    @property
    def settings(self) -> CatalogueSettings:
        return CatalogueSettings(f"http://127.0.0.1:{self.port}")

    def load(self, name: str) -> Table:
        """The table, as a program sees it that has nothing of ours."""
        return RestCatalog("tests", uri=self.settings.uri).load_table(name)

    def rows(self, name: str, snapshot: int | None = None) -> list[dict[str, Any]]:
        """The rows of the table, or of an earlier snapshot of it."""
        found: pa.Table = self.load(name).scan(snapshot_id=snapshot).to_arrow()
        return found.to_pylist()

    def start(self) -> None:
        """Starts it and waits until it answers."""
        given = {
            "CATALOG_WAREHOUSE": f"file://{self.folder}/warehouse",
            "CATALOG_URI": f"jdbc:sqlite:{self.folder}/catalogue.db",
            "CATALOG_REST_PORT": str(self.port),
        }
        command = [*java(install()), "org.apache.iceberg.rest.RESTCatalogServer"]
        pid_file = self.folder / "catalogue.pid"
        log = self.folder / "catalogue.log"
        self.identity = processes.start(command, os.environ | given, self.folder, log, pid_file, die_with_starter=True)
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            if not self.identity.is_running() or time.monotonic() > deadline:
                self.stop()
                raise AssertionError(f"the catalogue does not start: {log.read_text()[-2000:]}")
            time.sleep(0.1)

    def stop(self) -> None:
        """Kills it."""
        if self.identity is not None:
            processes.stop(self.identity, 0)
            self.identity = None

    def _answers(self) -> bool:
        try:
            with urlopen(f"{self.settings.uri}/v1/config", timeout=1):
                return True
        except OSError:
            return False


@contextmanager
def rest_catalogue(folder: Path) -> Iterator[RestCatalogue]:
    """A catalogue without tables, with its data in a new folder."""
    folder.mkdir(parents=True, exist_ok=True)
    one = RestCatalogue(folder, free_port())
    one.start()
    try:
        yield one
    finally:
        one.stop()


@pytest.fixture(scope="session")
def iceberg_catalogue(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestCatalogue]:
    """One catalogue for the session; tests make tables of their own."""
    with rest_catalogue(tmp_path_factory.mktemp("catalogue")) as one:
        yield one


def counted(rows: list[dict[str, Any]]) -> Counter[tuple[Any, ...]]:
    """Rows of the views of tests/published as a multiset."""
    return Counter(
        (row["k"], row["name"], row["price"], None if row["tags"] is None else tuple(row["tags"])) for row in rows
    )


if __name__ == "__main__":
    print(install())
