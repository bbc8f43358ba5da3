"""Views that are computed anew where that costs less: `python -m bench.refresh [--json] [--rows 300000]`.

    rates    sales joined with themselves and with a table of ten rates, by shop; a tick changes all rates
    reload   sales joined with themselves, by shop; a tick gives all sales other amounts
    few      as rates, but a tick adds ten sales: a step is cheap

Each view has two replica processes, one with `refreshPolicy: incremental` and one with `auto`, over the same ticks. A
tick's time is that from its commit to that of the view's table.

    auto_ratio_VIEW        the median tick of incremental over that of auto, after `--warm-up` ticks, in which auto
                           measures
    recomputations_VIEW    how many of those ticks auto has computed anew

At the end both tables are what DuckDB computes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa

from bench.harness.answers import check
from bench.harness.context import bench_parser, context, load, progress, report
from bench.harness.query import Planner, describe, planner
from bench.harness.ratios import Figures, rounded
from bench.harness.replica import Driven
from tidemark_persist import DIFF, ERROR, TIME, Shard, create_or_open, open_shard
from tidemark_protocol.ids import ShardId, WriterTerm
from tidemark_protocol.messages.commands import AllowWrites
from tidemark_protocol.messages.responses import Response, Status
from tidemark_protocol.plan.dataflow import DataflowDescription, MaterializedViewSink, ShardMetadata, SinkExport

RATES, SHOPS = 10, 50_000
SECONDS_MAX = 1800.0
_PAIRS = "{sales} a JOIN {sales} b ON a.shop = b.shop AND a.currency = b.currency"
RELOADED = f"""SELECT a.shop, count(*) AS pairs, sum(a.amount * b.amount) AS amount, max(a.amount) AS largest
    FROM {_PAIRS} GROUP BY a.shop"""
RATED = f"""SELECT a.shop, sum(a.amount * b.amount * r.rate) AS amount, max(a.amount * b.amount * r.rate) AS largest
    FROM {_PAIRS} JOIN {{rates}} r ON a.currency = r.currency GROUP BY a.shop"""


@dataclass
class Input:
    """A table of the workload: its shard, and its rows for DuckDB."""

    name: str
    folder: Path
    rows: pa.Table
    shard: Shard = field(init=False)

    def __post_init__(self) -> None:
        self.shard = create_or_open(str(self.folder / self.name), self.rows.schema, shard_id=self.name)
        self.change(None, self.rows, first=True)

    def change(self, removed: pa.Table | None, added: pa.Table | None, *, first: bool = False) -> None:
        """One tick."""
        at = self.shard.refresh().upper
        pieces = [_updates(rows, at, diff) for rows, diff in ((removed, -1), (added, 1)) if rows is not None]
        changes = pa.concat_tables(pieces) if pieces else None
        self.shard.compare_and_append(changes, expected_upper=at, new_upper=at + 1, term=1)
        if removed is not None:
            self.rows = self.rows.slice(0, 0)
        if added is not None and not first:
            self.rows = pa.concat_tables([self.rows, added])

    def maintain(self) -> None:
        """The replica has read the last tick."""
        self.shard.downgrade_since(max(self.shard.refresh().upper - 2, 0))
        for work in self.shard.maintenance_due():
            self.shard.run_maintenance(work)


def _updates(rows: pa.Table, at: int, diff: int) -> pa.Table:
    count = rows.num_rows
    return rows.append_column(TIME, pa.array(np.full(count, at))).append_column(DIFF, pa.array(np.full(count, diff)))


def sales(first: int, count: int, tick: int = 0) -> pa.Table:
    """With other amounts at each tick."""
    ids = np.arange(first, first + count)
    amounts = (ids + 13 * tick) * 7919 % 1009
    return pa.table({"sale": ids, "shop": ids * 17 % SHOPS, "currency": ids * 31 % RATES, "amount": amounts})


def rates(tick: int = 0) -> pa.Table:
    return pa.table({"currency": np.arange(RATES), "rate": np.arange(RATES) + tick + 1})


@dataclass(frozen=True)
class Case:
    """A view, and what a tick changes: `all sales`, `rates`, or `new sales`."""

    name: str
    sql: str
    tick: str


CASES = (Case("rates", RATED, "rates"), Case("reload", RELOADED, "all sales"), Case("few", RATED, "new sales"))


class Watched(Driven):
    """A replica that counts recomputations."""

    recomputations = 0

    def keep(self, responses: Sequence[Response]) -> None:
        super().keep(responses)
        for response in responses:
            if isinstance(response, Status) and response.kind == "recomputed":
                self.recomputations = int(response.fields["recomputations"])
                progress(f"  computed anew: {dict(response.fields)}")


@dataclass(frozen=True)
class Measured:
    """The seconds of each tick, and how many of those after the warm-up were computed anew."""

    seconds: list[float]
    recomputations: int


def measured(folder: Path, plan: Planner, case: Case, policy: str, rows: int, ticks: int, warm_up: int) -> Measured:
    """One replica with one view."""
    inputs = {"sales": Input("sales", folder, sales(0, rows)), "rates": Input("rates", folder, rates())}
    used = {name: each for name, each in inputs.items() if f"{{{name}}}" in case.sql}
    shards = {name: (folder / name, each.rows.schema) for name, each in used.items()}
    dataflow = materialized(describe(plan, case.sql, shards, 0), folder, policy)
    (folder / "replica").mkdir()
    replica = Watched(folder / "replica", "--driver-memory", "1g")
    try:
        exports = replica.install([dataflow])
        replica.send(*(AllowWrites(id, WriterTerm(1)) for id in exports))
        began = time.perf_counter()
        progress(f"  hydrated after {replica.wait(exports, 1, SECONDS_MAX) - began:.2f} s")
        found, before = list[float](), 0
        for tick in range(1, ticks + warm_up + 1):
            if tick == warm_up + 1:
                before = replica.recomputations
            began = time.perf_counter()
            _change(case, used, tick)
            found.append(replica.wait(exports, tick + 1, SECONDS_MAX) - began)
            for each in used.values():
                each.maintain()
        anew = replica.recomputations - before
    finally:
        replica.close()
    database = duckdb.connect()
    for name, each in used.items():
        database.register(name, each.rows)
    answer = database.sql(case.sql.format(sales="sales", rates="rates")).to_arrow_table()
    stored = open_shard(str(folder / "view")).snapshot(ticks + warm_up)
    check(f"{case.name}, {policy}", stored.drop_columns([ERROR, DIFF]), answer)
    return Measured(found, anew)


def _change(case: Case, used: dict[str, Input], tick: int) -> None:
    for name, each in used.items():
        count = each.rows.num_rows
        match name, case.tick:
            case "rates", "rates":
                each.change(each.rows, rates(tick))
            case "sales", "all sales":
                each.change(each.rows, sales(0, count, tick))
            case "sales", "new sales":
                each.change(None, sales(count, 10))
            case _:
                each.change(None, None)


def materialized(dataflow: DataflowDescription, folder: Path, policy: str) -> DataflowDescription:
    """The same, exported as a materialized view of this policy."""
    (index,) = dataflow.index_exports
    shard = ShardMetadata(ShardId("view"), str(folder / "view"), index.columns)
    sink = MaterializedViewSink(shard, refresh_policy=policy)
    return replace(dataflow, index_exports=(), sink_exports=(SinkExport(index.id, index.on, sink),))


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure and print."""
    parser = bench_parser(__doc__, "small tables")
    parser.add_argument("--rows", type=int, default=300_000, help="sales (%(default)s)")
    parser.add_argument("--ticks", type=int, default=6, help="ticks that are measured (%(default)s)")
    parser.add_argument("--warm-up", type=int, default=3, help="ticks before (%(default)s)")
    parser.add_argument("--cases", default=",".join(case.name for case in CASES), help="(%(default)s)")
    given = parser.parse_args(arguments)
    if given.quick:
        vars(given).update(rows=10_000, ticks=1, warm_up=1)
    circumstances = context() | {"load_before": load(), **vars(given)}
    figures = Figures()
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch, planner(Path(scratch)) as plan:
        for case in (case for case in CASES if case.name in given.cases.split(",")):
            figures |= _of_case(Path(scratch), plan, case, given.rows, given.ticks, given.warm_up)
    report("refresh", rounded(figures), circumstances | {"load_after": load()}, given.json)


def _of_case(scratch: Path, plan: Planner, case: Case, rows: int, ticks: int, warm_up: int) -> Figures:
    medians, anew = {}, 0
    for policy in ("incremental", "auto"):
        with tempfile.TemporaryDirectory(dir=scratch) as home:
            progress(f"{case.name}: {policy}")
            found = measured(Path(home), plan, case, policy, rows, ticks, warm_up)
            progress("  " + ", ".join(f"{each:.2f} s" for each in found.seconds))
            medians[policy], anew = statistics.median(found.seconds[warm_up:]), found.recomputations
    return {
        f"auto_ratio_{case.name}": medians["incremental"] / medians["auto"],
        f"incremental_s_{case.name}": medians["incremental"],
        f"auto_s_{case.name}": medians["auto"],
        f"recomputations_{case.name}": anew,
    }


if __name__ == "__main__":
    main()
