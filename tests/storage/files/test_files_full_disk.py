"""The disk of the tables is full while a folder of files is ingested."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.storage.files.directory import HEADER, Directory
from tests.storage.full_disk import ROOMS_AND_BEGIN, check_that_a_full_disk_is_told, numbers
from tests.storage.ingestion_samples import errors, oks
from tidemark_protocol.types import BIGINT, Column

COLUMNS = (Column("a", BIGINT),)

pytestmark = [pytest.mark.spark, pytest.mark.broad]


class OfFiles:
    """A folder with one file for each batch, of a kind: csv is opened by Spark, and csv.gz streamed by its tasks."""

    table, is_whole = "t", True

    def __init__(self, session: SparkSession, root: Path, disk: Path, kind: str) -> None:
        self.shards, self.kind, self.folder = disk, kind, root / "upstream"
        self.folder.mkdir()
        self.more(0)
        parquet = {"format": "parquet", "options": ()} if kind == "parquet" else {"options": HEADER}
        self.directory = Directory(session, disk, path=str(self.folder), columns=COLUMNS, **parquet)

    def more(self, batch: int) -> None:
        file = self.folder / f"{batch}.{self.kind}"
        text = "a\n" + "".join(f"{n}\n" for n in numbers(batch))
        if self.kind == "parquet":
            pq.write_table(pa.table({"a": numbers(batch)}), file)
        else:
            file.write_bytes(gzip.compress(text.encode()) if self.kind == "csv.gz" else text.encode())

    def tick(self) -> None:
        self.directory.ticks(2)

    def catch_up(self) -> None:
        self.tick()

    def begin_again(self) -> None:
        self.directory.restart()
        self.directory.now = max(self.directory.now, self.directory.ingester.shards()[0].state().upper)


@pytest.mark.parametrize("kind", ["csv", "csv.gz", "parquet"])
@ROOMS_AND_BEGIN
def test_a_full_disk_is_told_and_with_room_each_file_is_there_once(
    spark: SparkSession, tmp_path: Path, small_disk: Path, room: int, is_first: bool, kind: str
) -> None:
    """No file is refused, as it can be read."""
    of = OfFiles(spark, tmp_path, small_disk, kind)
    check_that_a_full_disk_is_told(of, room, is_first)
    assert len(oks(small_disk, "t")) == len(list(of.folder.iterdir())) * len(numbers(0))
    assert errors(small_disk, "t") == {}
