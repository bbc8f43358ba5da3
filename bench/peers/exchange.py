"""The exchange with engines outside this process: CSV files of integers.

    lineitem.csv, orders.csv, ...   the tables; lines that some round retracts are in going.csv instead
    going.csv, coming.csv           lines by round: 0, 1, 2, ...
    sizes.csv                       rows of each round
    ──► hydrated.csv, final.csv     the query's rows, before the first round and after the last

Money is in cents, dates are days, texts are numbers; so peers are spared decimals and strings, which we are not.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv

from bench.harness.answers import WrongAnswer
from bench.harness.clock import Cost
from bench.harness.workload.deltas import Delta
from bench.harness.workload.queries import Q1, Q3, Q5, Q18, Query
from bench.harness.workload.tpch import SCHEMAS
from bench.harness.workload.tpch_history import TpchHistory

_DAYS = "({} - DATE '1970-01-01')::BIGINT"
_CENTS = "({} * 100)::BIGINT"
_FLAGS = "ascii(l_returnflag) * 256 + ascii(l_linestatus)"
_AMOUNTS = {"l_quantity": "quantity", "l_extendedprice": "price", "l_discount": "discount", "l_tax": "tax"}
_LINES = ", ".join(
    [
        "l_orderkey AS ok, l_suppkey AS sk",
        *(f"{_CENTS.format(column)} AS {name}" for column, name in _AMOUNTS.items()),
        f"{_FLAGS} AS flags, {_DAYS.format('l_shipdate')} AS shipdate",
    ]
)
_TABLES = {
    "lineitem": f"SELECT {_LINES} FROM lineitem ANTI JOIN going USING (l_orderkey, l_linenumber)",
    "orders": f"SELECT o_orderkey AS ok, o_custkey AS ck, {_DAYS.format('o_orderdate')} AS orderdate, "
    f"o_shippriority AS priority, {_CENTS.format('o_totalprice')} AS total FROM orders",
    "customer": "SELECT c_custkey AS ck, c_nationkey AS nk, (c_mktsegment = 'BUILDING')::INT AS building FROM customer",
    "supplier": "SELECT s_suppkey AS sk, s_nationkey AS nk FROM supplier",
    "nation": "SELECT n_nationkey AS nk, n_regionkey AS rk FROM nation",
}
# The queries' rows in the form that peers write.
_ANSWERS = {
    Q1.name: f"SELECT {_FLAGS}, (sum_qty * 100)::BIGINT, (sum_base_price * 100)::BIGINT, "
    "(sum_disc_price * 10000)::BIGINT, (sum_charge * 1000000)::BIGINT, count_order FROM answer",
    Q3.name: f"SELECT l_orderkey, {_DAYS.format('o_orderdate')}, o_shippriority, (revenue * 10000)::BIGINT FROM answer",
    Q5.name: "SELECT n_nationkey, (revenue * 10000)::BIGINT FROM answer JOIN nation USING (n_name)",
    Q18.name: f"SELECT c_custkey, o_orderkey, {_DAYS.format('o_orderdate')}, (o_totalprice * 100)::BIGINT, "
    "(quantity * 100)::BIGINT FROM answer",
}
Rows = list[tuple[int, ...]]


@dataclass(frozen=True)
class Handed:
    """The input of a peer for one query: a folder of files, and the expected rows."""

    query: Query
    folder: Path
    before: Rows
    after: Rows


@dataclass
class PeerRun:
    """The times of a peer's hydration and of its rounds by size, in milliseconds."""

    hydration: Cost
    rounds: dict[int, list[Cost]] = field(default_factory=dict)


def hand_over(history: TpchHistory, folder: Path, rounds: Sequence[Delta]) -> Path:
    """The history's tables now, and its later rounds; the history holds all tables that `HYDRATED` reads."""
    folder.mkdir()
    going = _numbered([delta.retracted for delta in rounds])
    coming = _numbered([delta.inserted for delta in rounds])
    for name, sql in _TABLES.items():
        history.duckdb.export(sql, folder / f"{name}.csv", going=going)
    for name, table in (("going", going), ("coming", coming)):
        history.duckdb.export(f"SELECT round, {_LINES} FROM lines ORDER BY round", folder / f"{name}.csv", lines=table)
    pa.csv.write_csv(pa.table({"rows": [delta.rows for delta in rounds]}), folder / "sizes.csv")
    return folder


def expected(history: TpchHistory, query: Query) -> Rows:
    """The query's rows now, as peers are to give them."""
    return _sorted(history.duckdb.select(_ANSWERS[query.name], answer=history.duckdb.answer(query)))


def taken_back(what: str, handed: Handed, printed: bytes) -> PeerRun:
    """A peer's times, unless its rows are wrong: it printed a line of JSON for its hydration, and one per round."""
    for name, wanted in (("hydrated", handed.before), ("final", handed.after)):
        rows = _sorted(pa.csv.read_csv(handed.folder / f"{name}.csv", _NO_HEADER) if wanted else pa.table({}))
        if rows != wanted:
            differ = next((pair for pair in zip(rows, wanted, strict=False) if pair[0] != pair[1]), None)
            raise WrongAnswer(f"{what}, {name}: {len(rows)} rows for {len(wanted)}; (its, ours) differ in {differ}")
    lines: list[dict[str, Any]] = [json.loads(line) for line in printed.splitlines() if line.startswith(b"{")]
    run = PeerRun(Cost(lines[0]["wall"], lines[0]["cpu"]))
    for line in lines[1:]:
        run.rounds.setdefault(line["rows"], []).append(Cost(line["wall"], line["cpu"]))
    return run


_NO_HEADER = pyarrow.csv.ReadOptions(autogenerate_column_names=True)


def _numbered(tables: Sequence[pa.Table]) -> pa.Table:
    numbers = np.repeat(np.arange(len(tables)), [table.num_rows for table in tables])
    return pa.concat_tables([SCHEMAS["lineitem"].empty_table(), *tables]).append_column("round", pa.array(numbers))


def _sorted(table: pa.Table) -> Rows:
    return sorted(zip(*(column.to_pylist() for column in table.columns), strict=True))
