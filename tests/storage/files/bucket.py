"""A `files` source of one table over a prefix of a real S3 server, with the ingester that follows it."""

from __future__ import annotations

from pathlib import Path

import obstore
import pytest
from pyspark.sql import SparkSession

from tests.s3_server import S3Server
from tests.storage.files.directory import Directory
from tidemark_persist import Storage
from tidemark_persist.storage.object_reader import open_store
from tidemark_replica.storage.files import bucket_arrivals


class BucketDirectory(Directory):
    """Objects in place of files. Each tick lists."""

    settling_ticks = 0

    def __init__(
        self, session: SparkSession, root: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch, **table: object
    ) -> None:
        monkeypatch.setattr(bucket_arrivals, "PAGE_SECONDS", 0.0)
        for name, value in s3.environ.items():
            monkeypatch.setenv(name, value)
            monkeypatch.setitem(session.sparkContext.environment, name, value)
        self.storage = Storage.at(s3.location(f"{root.name}/in"))
        self.store = open_store(self.storage.location, s3.environ)
        super().__init__(session, root, path=self.storage.location, **table)

    def put(self, name: str, content: str | bytes) -> Path:
        # Storage.write would compress it, by its name
        obstore.put(self.store, name, content if isinstance(content, bytes) else content.encode())
        return Path(name)

    def remove(self, name: str) -> None:
        obstore.delete(self.store, name)
