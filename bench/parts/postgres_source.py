"""A `postgres` source beside a PostgreSQL server of its own: what a snapshot costs beside COPY alone, and how many
changes it ingests in a second.

`postgres_snapshot_ratio`: TPC-H's lineitem, as its generator makes it, from slot to appended files, as a share of the
speed of `COPY TO STDOUT` into nowhere. `postgres_changes_per_s`: updates (REPLICA IDENTITY FULL) and deletes of it, in
transactions of about CHANGES_EACH, from the WAL to appended files; they were all committed before the clock starts.
"""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from bench.harness.answers import WrongAnswer
from bench.harness.context import progress
from bench.harness.workload.tpch import tables
from tests.dialects.postgres import Postgres, programs
from tests.postgres.databases import connect, create_database, ingester, server_with_replication, source_of, spec_of
from tests.storage.ingestion_samples import contents
from tidemark_persist import DIFF
from tidemark_protocol.ids import Time
from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.postgres.pgoutput import parse_lsn

TURNS = 3
CHANGES_EACH = 500
LINEITEM = """
create table lineitem (l_orderkey bigint, l_partkey bigint, l_suppkey bigint, l_linenumber int,
    l_quantity numeric(15,2), l_extendedprice numeric(15,2), l_discount numeric(15,2), l_tax numeric(15,2),
    l_returnflag char(1), l_linestatus char(1), l_shipdate date, l_commitdate date, l_receiptdate date,
    l_shipinstruct char(25), l_shipmode char(10), l_comment varchar(44));
create index on lineitem (l_orderkey);
alter table lineitem replica identity full;
create publication everything for all tables;
"""


def figures(lines: int, changes: int) -> dict[str, Any]:
    """`lines`: rows of lineitem, about. `changes`: about so many, half of them update a row, half delete one."""
    with server_with_replication() as server, tempfile.TemporaryDirectory() as folder:
        progress(f"lineitem of {lines} rows in PostgreSQL")
        create_database(server, "bench", LINEITEM)
        rows = _load(server, tables(lines)["lineitem"].file)
        spec = spec_of(server, "bench", PostgresTable("lineitem", "public", "lineitem"))
        own, peer = [], []
        for turn in range(TURNS):
            peer.append(_seconds(lambda: _copy(server)))
            one = _recovered(Path(folder) / str(turn), spec)
            own.append(_seconds(lambda one=one: one.tick(Time(1000))))  # type: ignore[misc]
            if turn < TURNS - 1:
                source_of(one).close()
        last, updated, deleted = _change(server, changes)
        seconds = _seconds(lambda: _follow(one, last))
        source_of(one).close()
        found = sum(contents(Path(folder) / str(TURNS - 1), "lineitem").column(DIFF).to_pylist())
        if found != rows - deleted:
            raise WrongAnswer(f"the table has {found} rows; {rows - deleted} are left upstream")
    return {
        "postgres_snapshot_ratio": round(min(peer) / min(own), 2),
        "postgres_snapshot_s": round(min(own), 2),
        "postgres_changes_per_s": round((updated + deleted) / seconds),
    }


def _recovered(root: Path, spec: PostgresSource) -> Ingester:
    one = ingester(root, spec)
    one.recover()
    return one


def _copy(server: Postgres) -> None:
    bin = programs()
    assert bin is not None
    command = [bin / "psql", "-h", server.folder, "-U", "test", "-d", "bench", "-c", "copy lineitem to stdout"]
    subprocess.run(command, stdout=subprocess.DEVNULL, check=True)


def _load(server: Postgres, file: Path) -> int:
    """The number of rows."""
    data = pq.ParquetFile(file)
    types = {field.name: field.type for field in data.schema_arrow}
    views = {name: pa.string() for name, type in types.items() if pa.types.is_string_view(type)}
    schema = pa.schema(types | views)  # Arrow writes no CSV of string views
    with connect(server, "bench") as connection, connection.cursor().copy("copy lineitem from stdin csv") as copy:
        for batch in data.iter_batches():
            text = pa.BufferOutputStream()
            csv.write_csv(batch.cast(schema), text, csv.WriteOptions(include_header=False))
            copy.write(text.getvalue().to_pybytes())
    return int(data.metadata.num_rows)


def _change(server: Postgres, changes: int) -> tuple[int, int, int]:
    """A position within the last transaction, and the numbers of updates and deletes. Of the numbers that orders may
    have a quarter is used, and an order has four lines."""
    updated = deleted = 0
    with connect(server, "bench") as connection:
        for first in range(0, changes, CHANGES_EACH):
            end = min(first + CHANGES_EACH, changes)
            span = (first, (first + end) // 2, end)
            update = "update lineitem set l_tax = l_tax + 1 where l_orderkey >= %s and l_orderkey < %s"
            updated += connection.execute(update, span[:2]).rowcount
            delete = "delete from lineitem where l_orderkey >= %s and l_orderkey < %s"
            deleted += connection.execute(delete, span[1:]).rowcount
            (lsn,) = connection.execute("select pg_current_wal_insert_lsn()::text").fetchone() or ("0/0",)
            connection.commit()
    return parse_lsn(lsn), updated, deleted


def _follow(one: Ingester, last: int) -> None:
    time = 2000
    while source_of(one).counters()["lsn"] <= last:
        one.tick(Time(time))
        time += 1000


def _seconds(work: Callable[[], object]) -> float:
    begin = perf_counter()
    work()
    return perf_counter() - begin
