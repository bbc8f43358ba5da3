"""Programs that know nothing of Tidemark read its published table all the time, each in a thread of its own: DuckDB,
delta-rs and Spark, and followers of the change data feed. Each checks that it has read a state that the view had."""

from __future__ import annotations

import json
import re
import threading
from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa
from deltalake import DeltaTable, QueryBuilder

from tests.published.outside.marked_view import MARK, MarkedView, NamedRow
from tests.reader_threads import ReaderThread
from tests.storage.delta.spark_writer import SparkWriter

PAUSE_SECONDS = 0.03
_GONE = re.compile(r"no such file|not[ _]found|no files found|does not exist|not_exist|cannot open file", re.IGNORECASE)
"""A file of the version that was opened has been cleaned away: a reader opens the newest one."""
Change = tuple[int, NamedRow, int]
"""The version, the row, and whether it came (1) or went (-1)."""


@cache
def _time_of_entry(entry: Path) -> int | None:
    for line in entry.read_text().splitlines():
        time = json.loads(line).get("commitInfo", {}).get("tidemark.time")
        if time is not None:
            return int(time)
    return None


def commit_time(table: str, version: int) -> int | None:
    """The time that the commit of this version says; None where it changes no rows, as a clean-up."""
    return _time_of_entry(Path(table) / "_delta_log" / f"{version:020}.json")


def time_at(table: str, version: int) -> int:
    """The time that the last commit up to this version says."""
    return next(time for each in range(version, -1, -1) if (time := commit_time(table, each)) is not None)


class PollingReader(ReaderThread):
    """`time`: of the last state that it read. `gone`: how often a file had been cleaned away."""

    def __init__(self, view: MarkedView, table: str) -> None:
        super().__init__(type(self).__name__)
        self.view, self.table = view, table
        self.time, self.reads, self.gone = -1, 0, 0

    def __repr__(self) -> str:
        found = f"{type(self).__name__}: {self.reads} reads, {self.gone} times gone, time {self.time}"
        return f"{found} of {self.view.upper - 1} {self.failures}"

    def read_until_the_end(self) -> None:
        while not self.end.wait(PAUSE_SECONDS):
            try:
                self.read()
            except AssertionError:
                raise
            except Exception as error:
                if not _GONE.search(str(error)):
                    raise
                self.gone += 1

    @abstractmethod
    def read(self) -> None:
        """Reads once, and checks it."""

    def check(self, rows: Iterable[NamedRow], said: int | None = None) -> None:
        """`said`: the time that the table says of them; without it, the commit is looked for."""
        found = Counter(rows)
        marks = [int(name) for k, name in found.elements() if k == MARK and name is not None]
        assert len(marks) == 1, f"rows of the times {marks}"
        [time] = marks
        assert said in (None, time), f"the commit says {said}, its rows {time}"
        had = self.view.at[time]
        assert found == had, f"time {time} has not {found - had}, but {had - found}"
        assert time >= self.time, f"time {time} after {self.time}"
        self.time, self.reads = time, self.reads + 1


class DeltaRsReader(PollingReader):
    def read(self) -> None:
        table = DeltaTable(self.table)
        found = pa.table(QueryBuilder().register("t", table).execute("SELECT k, name FROM t").read_all())
        rows = zip(found["k"].to_pylist(), found["name"].to_pylist(), strict=True)
        self.check(rows, time_at(self.table, int(table.version())))


class DuckReader(PollingReader):
    def read(self) -> None:
        table = DeltaTable(self.table)
        with duckdb.connect() as connection:
            rows = connection.execute("SELECT k, name FROM read_parquet(?)", [table.file_uris()]).fetchall()
        self.check(rows, time_at(self.table, int(table.version())))


class FeedFollower(PollingReader):
    """Folds a change data feed. Where its files are gone, it begins anew with the table."""

    def __init__(self, view: MarkedView, table: str) -> None:
        super().__init__(view, table)
        self._version, self._rows = -1, Counter[NamedRow]()
        self.folded = 0

    def read(self) -> None:
        newest = int(DeltaTable(self.table).version())
        if newest == self._version:
            return
        try:
            changes = list(self.changes(self._version + 1, newest))
        except AssertionError:
            raise
        except Exception as error:
            if not _GONE.search(str(error)):
                raise
            self.gone += 1
            self._begin_anew()
            return
        self._fold(changes, newest)

    def _fold(self, changes: list[Change], newest: int) -> None:
        for version in range(self._version + 1, newest + 1):
            for of, row, diff in changes:
                if of == version:
                    self._rows[row] += diff
            assert all(count >= 0 for count in self._rows.values()), f"version {version}: {self._rows}"
            said = commit_time(self.table, version)
            if said is not None:
                self.check(self._rows.elements(), said)
                self.folded += 1
        self._version, self._rows = newest, +self._rows

    def _begin_anew(self) -> None:
        table = DeltaTable(self.table)
        found = pa.table(QueryBuilder().register("t", table).execute("SELECT k, name FROM t").read_all())
        self._rows = Counter(zip(found["k"].to_pylist(), found["name"].to_pylist(), strict=True))
        self._version = int(table.version())
        self.check(self._rows.elements(), time_at(self.table, self._version))

    def changes(self, first: int, last: int) -> Iterator[Change]:
        """The changes of these versions."""
        found = DeltaTable(self.table).load_cdf(starting_version=first, ending_version=last).read_all()
        yield from _changes(pa.table(found))


def _changes(found: pa.Table) -> Iterator[Change]:
    for row in found.select(["k", "name", "_change_type", "_commit_version"]).to_pylist():
        assert row["_change_type"] in ("insert", "delete")
        yield row["_commit_version"], (row["k"], row["name"]), 1 if row["_change_type"] == "insert" else -1


class Spark:
    """A session of Spark with Delta, which several readers use in turn. It writes what it reads, as Parquet."""

    def __init__(self, writer: SparkWriter, folder: Path) -> None:
        self._writer, self._folder, self._lock = writer, folder, threading.Lock()

    def rows(self, query: str) -> pa.Table:
        """Raises OSError with Spark's words."""
        with self._lock:
            try:
                self._writer.sql(f"INSERT OVERWRITE DIRECTORY '{self._folder}' USING parquet {query}")
            except AssertionError as error:
                raise OSError(str(error)) from error
            return duckdb.sql(f"SELECT * FROM read_parquet('{self._folder}/*.parquet')").to_arrow_table()


class SparkReader(PollingReader):
    """Reads the table by its place alone. The rows say their time, which a commit has said."""

    def __init__(self, view: MarkedView, table: str, spark: Spark) -> None:
        super().__init__(view, table)
        self._spark = spark

    def read(self) -> None:
        found = self._spark.rows(f"SELECT k, name FROM delta.`{self.table}`")
        self.check(zip(found["k"].to_pylist(), found["name"].to_pylist(), strict=True))
        newest = int(DeltaTable(self.table).version())
        assert self.time in {commit_time(self.table, version) for version in range(newest + 1)}


class SparkFeedFollower(FeedFollower):
    def __init__(self, view: MarkedView, table: str, spark: Spark) -> None:
        super().__init__(view, table)
        self._spark = spark

    def changes(self, first: int, last: int) -> Iterator[Change]:
        columns = "k, name, _change_type, _commit_version"
        feed = f"table_changes_by_path('{self.table}', {first}, {last})"
        yield from _changes(self._spark.rows(f"SELECT {columns} FROM {feed}"))
