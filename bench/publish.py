"""The cost of a published table: the bytes written for changes, beside Spark's MERGE of the same changes.

    python -m bench.publish [--rows 10000000] [--every 10] [--json] [--quick]

A view of `--rows` rows with a unique key gets 1,000 random updates a second, and is published after one minute and
after ten. `write_amplification_1m`, `_10m`: bytes written over the bytes of the changes, as Parquet. `merge_ratio_...`:
CPU over that of Spark's MERGE INTO of the same changes, into a Delta table of the same rows. `scan_ratio`: the
CPU of DuckDB's scan of the published files over that of the rows written once. `first_s`: the first publication.
`written_anew_...`: true where the changes are so many for the view that it was written anew, as it is to be.

`lag_s`: the greatest time by which the table was behind the view's frontier, while the view changed so for COMMITS
commits, one each `--every` seconds, by a replica's publisher.
"""

from __future__ import annotations

import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable, write_deltalake

from bench.harness.answers import WrongAnswer
from bench.harness.clock import Cost, measured, p50
from bench.harness.context import bench_parser, context, load, progress, report
from tests.storage.delta.spark_writer import SparkWriter
from tidemark_persist import DIFF, TIME, Shard, create_or_open, write_staged
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.responses import Response, Status
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.sinks.publish import PublishedView
from tidemark_protocol.types import BIGINT, DOUBLE, STRING, Column
from tidemark_replica.events.jobs import Jobs
from tidemark_replica.events.mailbox import LoopCall, Mailbox
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.destinations.publisher import Publisher
from tidemark_replica.sinks.published.publication import FEW_ROWS, Published, TablePublication
from tidemark_replica.sinks.published.published_table import TableOptions
from tidemark_replica.sinks.published.table_destination import TableDestination
from tidemark_replica.storage.source_secrets import SourceSecrets

PER_SECOND = 1_000
MINUTES = (1, 10)
SCANS = 5
PIECE = 1_000_000
COMMITS = 4
OWNER = "b.p.v"
COLUMNS = (Column("id", BIGINT), Column("customer", BIGINT), Column("price", DOUBLE), Column("comment", STRING))


def rows_of(ids: np.ndarray, price: float) -> pa.Table:
    texts = pa.array(ids * 7919 % 1_000_003).cast(pa.string())
    return pa.table({"id": ids, "customer": ids % 9973, "price": np.full(len(ids), price), "comment": texts})


class View:
    """A shard with the rows; each key's price is that of its last update."""

    def __init__(self, folder: Path, rows: int) -> None:
        self.folder, self.prices = folder, np.full(rows, 1.0)
        self.shard: Shard = create_or_open(str(folder / "shard"), rows_of(np.arange(1), 1.0).schema, shard_id="v")
        self.random = np.random.default_rng(7)
        pieces = np.array_split(np.arange(rows), max(1, rows // PIECE))
        self._append([(rows_of(ids, 1.0), 1) for ids in pieces], self.upper)

    @property
    def upper(self) -> int:
        return self.shard.refresh().upper

    def _append(self, rows: list[tuple[pa.Table, int]], at: int) -> None:
        """Rows and their diffs, at the time `at`."""
        tables = []
        for table, diff in rows:
            times, diffs = (pa.array(np.full(table.num_rows, value)) for value in (at, diff))
            tables.append(table.append_column(TIME, times).append_column(DIFF, diffs))
        files = [write_staged(self.shard.location, table, schema=self.shard.schema) for table in tables]
        staged = [file for file in files if file is not None]
        self.shard.compare_and_append(staged, expected_upper=self.upper, new_upper=at + 1, term=1)

    def change(self, count: int, price: float, at: int | None = None) -> pa.Table:
        """Gives random keys a new price, at the next time or at `at`; returns their new rows."""
        ids = np.unique(self.random.integers(0, len(self.prices), count))
        old = rows_of(ids, 0.0)
        old = old.set_column(2, "price", pa.array(self.prices[ids]))
        self.prices[ids] = price
        new = rows_of(ids, price)
        self._append([(old, -1), (new, 1)], self.upper if at is None else at)
        return new

    def publish(self) -> Published:
        publication = TablePublication(self.shard, TableOptions(str(self.folder / "published"), OWNER, uid="u", term=1))
        return publication.publish(Time(self.upper - 1))

    def check(self) -> None:
        """Raises WrongAnswer where the published table does not have the view's rows."""
        files = DeltaTable(self.folder / "published").file_uris()
        [found] = duckdb.sql(f"SELECT count(*), count(DISTINCT id), sum(price) FROM read_parquet({files})").fetchall()
        expected = (len(self.prices), len(self.prices), self.prices.sum())
        if found[:2] != expected[:2] or abs(found[2] - expected[2]) > 1e-3:
            raise WrongAnswer(f"the published table has {found}; the view {expected}")


def lag(view: View, every_s: int) -> float:
    """The greatest seconds by which the published time was behind the view's frontier, from the first commit on."""
    mailbox, times, lags = Mailbox(), list[int](), list[float]()
    jobs = Jobs(mailbox, "publications", 1)

    def heard(response: Response) -> None:
        if not isinstance(response, Status) or "problem" in response.fields:
            raise WrongAnswer(f"the view is not published: {response}")
        times.append(int(response.fields["time"]))

    every_ms, metadata = every_s * 1000, ShardMetadata(ShardId("v"), view.shard.location, COLUMNS)
    options, handles = PublishedView(str(view.folder / "published"), OWNER, every_ms, 24), ShardHandles()
    table = TableDestination(GlobalId("u/v/1"), metadata, options, handles, SourceSecrets(None))
    publisher = Publisher(GlobalId("u/v/1"), metadata, every_ms, table, handles, jobs, heard)
    base, began, seconds = -(-view.upper // every_ms) * every_ms, time.monotonic(), 0
    while len(set(times)) <= COMMITS:
        if time.monotonic() >= began + seconds:
            view.change(PER_SECOND, 10.0 + seconds, at=base + int((time.monotonic() - began) * 1000))
            seconds += 1
            publisher.appended(view.upper)
        publisher.advance(view.upper, WriterTerm(1))
        lags += [(view.upper - 1 - times[-1]) / 1000] if times else []
        turn(mailbox)
    publisher.stop()
    ended = threading.Event()
    jobs.submit("nothing", lambda: None, lambda _: ended.set())
    while not ended.is_set():  # behind a publication that runs
        turn(mailbox)
    jobs.shutdown()
    return max(lags)


def turn(mailbox: Mailbox) -> None:
    """Run the end of a job, as the command loop does, if one comes soon."""
    event = mailbox.take(time.monotonic() + 0.05)
    if isinstance(event, LoopCall):
        event.run()


def merged(spark: SparkWriter, folder: Path, new: pa.Table) -> Cost:
    """The cost of Spark's MERGE of the new rows into the peer's table."""
    pq.write_table(new, folder / "changes.parquet")
    statement = (
        f"MERGE INTO delta.`{folder}/peer` t USING parquet.`{folder}/changes.parquet` s ON t.id = s.id "
        "WHEN MATCHED THEN UPDATE SET *"
    )
    return measured(lambda: spark.sql(statement))[0]


def scans(view: View) -> float:
    """The processor time of a scan of the published files over that of the rows written once. It reads
    every value: what statistics answer would compare how files are opened."""
    files = DeltaTable(view.folder / "published").file_uris()
    once = view.folder / "once.parquet"
    duckdb.sql(f"COPY (SELECT * FROM read_parquet({files})) TO '{once}' (FORMAT parquet, COMPRESSION zstd)")
    both = []
    for source in (str(files), f"'{once}'"):
        query = f"SELECT sum(hash(id, customer, price, comment) % 97) FROM read_parquet({source})"  # every value
        both.append(p50([measured(lambda sql=query: duckdb.sql(sql).fetchall())[0].cpu for _ in range(SCANS)]))
    return both[0] / both[1]


def figures(rows: int, every_s: int, folder: Path) -> dict[str, Any]:
    progress(f"{rows:,} rows")
    view = View(folder, rows)
    began = time.perf_counter()
    first = view.publish()
    results: dict[str, Any] = {"first_s": round(time.perf_counter() - began, 1), "files": first.added}
    for ids in np.array_split(np.arange(rows), max(1, rows // PIECE)):
        write_deltalake(folder / "peer", rows_of(ids, 1.0), mode="append")
    with SparkWriter(folder / "spark.log") as spark:
        merged(spark, folder, rows_of(np.arange(10), 1.0))  # a turn that does not count
        for number, minutes in enumerate(MINUTES):
            progress(f"{minutes} min of changes")
            new = view.change(minutes * 60 * PER_SECOND, 2.0 + number)
            own, published = measured(view.publish)
            view.check()
            is_much = 2 * new.num_rows > max(FEW_ROWS, rows // 4)
            if bool(published.anew_because) != is_much:
                raise WrongAnswer(f"{new.num_rows:,} changes, and written anew: {published.anew_because or 'no'}")
            results |= {f"written_anew_{minutes}m": True} if is_much else {}
            theirs = merged(spark, folder, new)
            size = (folder / "changes.parquet").stat().st_size
            results |= {
                f"write_amplification_{minutes}m": round(published.written_bytes / size, 1),
                f"merge_ratio_{minutes}m": round(own.cpu / theirs.cpu, 2),
                f"publish_{minutes}m_s": round(own.wall / 1e3, 1),
            }
    results["scan_ratio"] = round(scans(view), 2)
    progress(f"{COMMITS} commits, one each {every_s} s")
    results["lag_s"] = round(lag(view, every_s), 1)
    view.publish()
    view.check()
    return results


def main() -> None:
    """Measures and prints."""
    parser = bench_parser(__doc__, "100,000 rows")
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--every", type=int, default=10, help="seconds between commits while the lag is measured")
    arguments = parser.parse_args()
    rows = 100_000 if arguments.quick else arguments.rows
    before = load()
    with tempfile.TemporaryDirectory() as folder:
        results = figures(rows, arguments.every, Path(folder))
    report("publish", results, {**context(), "rows": rows, "every_s": arguments.every, "load": before}, arguments.json)


if __name__ == "__main__":
    main()
