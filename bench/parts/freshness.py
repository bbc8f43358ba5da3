"""The age of a view over PostgreSQL: from the commit of a transaction to the frontier that says that the view has it.

    freshness_p50_s, freshness_p99_s    a tick of 1 s
    fast_freshness_p50_s, ..._p99_s     a tick of 200 ms

A replica, a process of its own with two cores, ingests the table and keeps the view's index. Transactions of EACH
changes, half of them inserts and half updates, come at CHANGES_PER_S for SECONDS, beside it on the same machine. At the
end the view is what PostgreSQL computes.
"""

from __future__ import annotations

import os
import tempfile
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.harness.answers import WrongAnswer
from bench.harness.context import progress
from bench.harness.query import Planner, describe, planner
from bench.harness.replica import Driven
from tests.dialects.postgres import Postgres
from tests.postgres.databases import CREDENTIALS, connect, create_database, server_with_replication, spec_of
from tests.storage.ingestion_samples import description
from tidemark_persist import TIME, open_shard, read_part
from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.messages.commands import RunIngestion
from tidemark_protocol.messages.responses import Frontiers, Response
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_protocol.plan.ingestion import IngestionDescription, PostgresTable, SourceTable
from tidemark_replica.storage.source_secrets import VARIABLE
from tidemark_replica.values.arrow_types import arrow_schema

CHANGES_PER_S, EACH = 2_000, 20
SECONDS, WARM_UP_SECONDS = 40.0, 10.0
CLOCK_AHEAD_MS = 3_600_000
NOT_YET = np.iinfo(np.int64).max
"""The time of a transaction that the table does not have."""
TABLE = """
create table t (number bigint not null, kind bigint not null, amount bigint not null);
create index on t (number);
alter table t replica identity full;
create publication everything for all tables;
"""
VIEW = "SELECT kind, count(*) AS n, sum(amount) AS amount FROM {t} GROUP BY kind"
UPSTREAM = "select kind, count(*), sum(amount) from t group by kind"


class _Watched(Driven):
    """Notes when each frontier came."""

    def __init__(self, home: Path) -> None:
        self.came: list[tuple[int, float]] = []
        super().__init__(home, "--driver-memory", "1g")

    def keep(self, responses: Sequence[Response]) -> None:
        super().keep(responses)
        for response in responses:
            if isinstance(response, Frontiers) and response.write is not None:
                self.came.append((response.write.encode(), time.time()))


def figures(seconds: float = SECONDS) -> dict[str, Any]:
    """The figures of both ticks. Raises WrongAnswer."""
    found = dict[str, Any]()
    for name, tick_ms in (("freshness", 1000), ("fast_freshness", 200)):
        progress(f"{CHANGES_PER_S} changes/s, a tick of {tick_ms} ms")
        with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder, server_with_replication() as server:
            ages, per_s = _ages(Path(folder), server, tick_ms, seconds)
        found |= {
            f"{name}_p50_s": round(float(np.percentile(ages, 50)), 2),
            f"{name}_p99_s": round(float(np.percentile(ages, 99)), 2),
            f"{name}_changes_per_s": round(per_s),
        }
    return found


def _ages(folder: Path, server: Postgres, tick_ms: int, seconds: float) -> tuple[list[float], float]:
    """The age of each transaction in seconds when the view had it, and how many changes came in a second."""
    create_database(server, "fresh", TABLE)
    ingestion = replace(_ingestion(folder, server), tick_ms=tick_ms)
    (table,) = ingestion.tables
    (folder / "replica").mkdir()
    with _secret(folder), planner(folder) as plan, closing(_Watched(folder / "replica")) as replica:
        replica.send(RunIngestion(ingestion, WriterTerm(1), Time(_now_ms()), CLOCK_AHEAD_MS))
        dataflow = _view(plan, table.shard.location, arrow_schema(table.table.columns))
        exports = replica.install([dataflow])
        replica.wait(exports, _now_ms())
        committed = _load(server, replica, exports, WARM_UP_SECONDS + seconds)
        while (ticks := _ticks(table.shard.location, len(committed)))[-1] == NOT_YET:
            replica.wait(exports, _now_ms())
        replica.wait(exports, ticks[-1] + 1)
        _check(server, replica.rows(dataflow, ticks[-1]))
    came = sorted(replica.came)
    uppers = [upper for upper, _ in came]
    counted = [n for n, at in enumerate(committed) if at >= committed[0] + WARM_UP_SECONDS]
    ages = [came[bisect_right(uppers, ticks[n])][1] - committed[n] for n in counted]
    return ages, EACH * (len(counted) - 1) / (committed[counted[-1]] - committed[counted[0]])


def _ingestion(folder: Path, server: Postgres) -> IngestionDescription:
    spec = spec_of(server, "fresh", PostgresTable("t", "public", "t"))
    return description(folder / "data", spec, tuple(SourceTable(t.name, t.columns or ()) for t in spec.tables))


@contextmanager
def _secret(folder: Path) -> Iterator[None]:
    """The source's credentials, as a replica finds them."""
    secrets = folder / "secrets" / "db"
    secrets.mkdir(parents=True)
    for name, value in CREDENTIALS.items():
        (secrets / name).write_text(value)
    os.environ[VARIABLE] = str(secrets.parent)
    try:
        yield
    finally:
        del os.environ[VARIABLE]


def _view(plan: Planner, location: str, schema: pa.Schema) -> DataflowDescription:
    """A view of the table, once that is there."""
    while not (Path(location) / "_delta_log").exists() or (upper := open_shard(location).state().upper) == 0:
        time.sleep(0.1)
    return describe(plan, VIEW, {"t": (Path(location), schema)}, upper - 1)


def _load(server: Postgres, replica: Driven, exports: Sequence[GlobalId], seconds: float) -> list[float]:
    """When each transaction was about to be committed."""
    committed = list[float]()
    begin = time.time()
    with connect(server, "fresh") as connection:
        while (now := time.time()) < begin + seconds:
            number = len(committed)
            if (early := begin + number * EACH / CHANGES_PER_S - now) > 0:
                time.sleep(early)
            insert = "insert into t select %s, g, g from generate_series(1, %s) g"
            connection.execute(insert, (number, EACH // 2 if number else EACH))
            connection.execute(
                "update t set amount = amount + 1 where number = %s and kind <= %s", (number - 1, EACH // 2)
            )
            committed.append(time.time())
            connection.commit()
            if number % (CHANGES_PER_S // EACH) == 0:  # as the controller does: nobody reads older times
                replica.compact(exports, min(replica.uppers(exports)) - 1)
    return committed


def _check(server: Postgres, found: pa.Table) -> None:
    with connect(server, "fresh") as connection:
        expected = {kind: (n, int(amount)) for kind, n, amount in connection.execute(UPSTREAM).fetchall()}
    rows = {row["kind"]: (row["n"], row["amount"]) for row in found.to_pylist()}
    if rows != expected:
        raise WrongAnswer(f"the view has {rows}; PostgreSQL has {expected}")


def _ticks(location: str, count: int) -> list[int]:
    """The time of each transaction's rows, or NOT_YET: the first one of those with its number, which a later one
    updates."""
    shard = open_shard(location)
    ticks = np.full(count, NOT_YET)
    state = shard.state()
    for part in shard.listen(state.since + 1, state.upper):
        for batch in read_part(part, columns=["number", TIME]):
            np.minimum.at(ticks, np.asarray(batch.column("number")), np.asarray(batch.column(TIME)))
    found: list[int] = ticks.tolist()
    return found


def _now_ms() -> int:
    return int(time.time() * 1000)
