"""Random histories of files, columns that are added, requests and deaths, against a plain reading of the files.

Each record has a number, by which its file is known. So each time of a table tells which files it has, and that must be
all of their records, as Python reads them, in the table and in its successors.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.s3_server import S3Server
from tests.storage.dying_appends import die_around
from tests.storage.files.bucket import BucketDirectory
from tests.storage.files.directory import HEADER, Directory
from tests.storage.files.test_files_successors import FIRST, WITH_SCHEMA, csv, grown, lines, upper
from tests.storage.ingestion_samples import errors, oks
from tidemark_persist import open_shard
from tidemark_protocol.messages.commands import RELEASE, REREAD
from tidemark_protocol.types import STRING, Column
from tidemark_replica.storage.files import read_again

pytestmark = pytest.mark.spark
EACH_FILE = 100
ADDED = ("vip", "more")


class History:
    """`files`: the records of each file, by its number; `gone`: the numbers of files that were let go."""

    def __init__(self, draw: random.Random, d: Directory) -> None:
        self.draw, self.d, self.format = draw, d, d.spec.tables[0].format
        self.files: dict[int, list[dict[str, Any]]] = {}
        self.gone: set[int] = set()
        self.names: dict[int, str] = {}

    def run(self, steps: int) -> None:
        choices = (
            [self.put] * 5
            + [self.tick] * 4
            + [self.die] * 4
            + [self.grow] * 3
            + [self.request, self.drop, self.restart]
        )
        for _ in range(steps):
            self.draw.choice(choices)()
        self.grow()
        # a piece may be one file, and is read again where one of its files went; successors take turns
        self.d.ticks(2 * len(self.files) * len(ADDED) + 6)
        self.check()
        everything = self.files.keys() - self.gone
        assert {table.name: self.present(table.name) for table in self.d.spec.tables} == {
            table.name: everything for table in self.d.spec.tables
        }

    def put(self) -> None:
        number = len(self.files) + 1
        columns = ["a", "b"]
        for name in self.draw.sample([*ADDED, "nobodys"], self.draw.randint(0, 3)):
            columns.insert(self.draw.randint(0, len(columns)), name)
        records = [
            {"a": number * EACH_FILE + n, **{c: f"{c}{n}" for c in columns if c != "a" and self.draw.random() < 0.7}}
            for n in range(self.draw.randint(1, 4))
        ]
        if self.format in WITH_SCHEMA:
            name, data = f"{number}.{self.format}", WITH_SCHEMA[self.format](*records, columns=columns)
        else:
            text = lines(*records) if self.format == "json" else csv(*records, columns=columns)
            name, data = f"{number}.{self.format}", text.encode()
            if self.draw.random() < 0.3:
                name, data = f"{name}.gz", gzip.compress(data)
        self.files[number], self.names[number] = records, name
        self.d.put(name, data)

    def tick(self) -> None:
        self.d.ticks(self.draw.randint(1, 3))
        self.check()

    def restart(self) -> None:
        self.d.restart()
        self.check()

    def die(self) -> None:
        """The process dies in one of the next ticks, before or after any append; or it does not."""
        with pytest.MonkeyPatch.context() as moment:
            die_around(moment, self.draw.randint(1, 17))
            try:
                self.d.ticks(3)
            except KeyboardInterrupt:
                self.d.restart()
        self.check()

    def grow(self) -> None:
        last = self.d.spec.tables[-1]
        if len(last.added) < len(ADDED):
            grown(self.d, Column(ADDED[len(last.added)], STRING))

    def drop(self) -> None:
        """The first table goes, as soon as the next one has begun."""
        if len(self.d.spec.tables) > 1 and upper(self.d, self.d.spec.tables[1].name):
            self.d.spec = replace(self.d.spec, tables=self.d.spec.tables[1:])
            self.d.restart()

    def request(self) -> None:
        there = sorted(self.present(self.d.spec.tables[0].name))
        if not there:
            return
        file = self.draw.choice(there)
        action = self.draw.choice([RELEASE, REREAD])
        assert self.d.ask(action, self.names[file]) == ""
        if action == RELEASE:
            self.gone.add(file)
        self.check()

    def present(self, table: str) -> set[int]:
        return {int(row[0]) // EACH_FILE for row in oks(self.d.root, table)} if upper(self.d, table) else set()  # type: ignore[call-overload]

    def check(self) -> None:
        """Each table at each readable time, from the last times."""
        seen: dict[int, set[int]] = {}
        for table in self.d.spec.tables:
            state = open_shard(f"{self.d.root}/{table.name}").state()
            assert table.columns is not None
            names = [column.name for column in table.columns]
            for time in range(max(state.since, state.upper - 601), state.upper, 100):
                rows = oks(self.d.root, table.name, time)
                files = {int(row[0]) // EACH_FILE for row in rows}  # type: ignore[call-overload]
                said = [tuple(record.get(n) for n in names) for file in files for record in self.files[file]]
                assert rows == sorted(said, key=repr), (table.name, time)
                if time > 0:
                    assert seen.setdefault(time, files) == files, (table.name, time)
            assert not state.upper or errors(self.d.root, table.name) == {}


@pytest.fixture
def folder(spark: SparkSession, tmp_path: Path) -> Callable[..., Directory]:
    return lambda **table: Directory(spark, tmp_path, columns=FIRST, **options_of(table))


@pytest.fixture
def bucket(
    spark: SparkSession, tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Directory]:
    return lambda **table: BucketDirectory(spark, tmp_path, s3, monkeypatch, columns=FIRST, **options_of(table))


def options_of(table: dict[str, Any]) -> dict[str, Any]:
    return {**table, "options": HEADER if table["format"] == "csv" else ()}


def cases(*seeds: int) -> list[Any]:
    kinds = [(place, format) for place in ("folder", "bucket") for format in ("json", "parquet", "csv", "avro")]
    return [(*kinds[seed % 8], seed) for seed in seeds]


@pytest.mark.broad
@pytest.mark.parametrize(("place", "format", "seed"), cases(*range(8)))
def test_oracle_histories_of_files_and_columns(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, place: str, format: str, seed: int
) -> None:
    monkeypatch.setattr(read_again, "PIECE_BYTES", 200)
    History(random.Random(seed), request.getfixturevalue(place)(format=format)).run(steps=14)


@pytest.mark.slow
@pytest.mark.parametrize(("place", "format", "seed"), cases(*range(10, 34)))
def test_oracle_longer_histories_of_files_and_columns(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, place: str, format: str, seed: int
) -> None:
    monkeypatch.setattr(read_again, "PIECE_BYTES", 200)
    History(random.Random(seed), request.getfixturevalue(place)(format=format)).run(steps=40)
