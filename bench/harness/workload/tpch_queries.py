"""TPC-H's 22 queries (`tests/tpch/queries`), as SQL over tables in braces, and the columns of its tables that they
read."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import sqlglot
from sqlglot import exp

from bench.harness.workload.queries import Query
from bench.harness.workload.tpch import MONEY, SCHEMAS
from tests.tpch.maintained import QUERIES

_TEXT, _DATE = pa.string(), pa.date32()
_MORE: Mapping[str, Mapping[str, pa.DataType]] = {
    "lineitem": {"l_commitdate": _DATE, "l_receiptdate": _DATE, "l_shipinstruct": _TEXT, "l_shipmode": _TEXT},
    "orders": {"o_comment": _TEXT},
    "customer": {"c_address": _TEXT, "c_phone": _TEXT, "c_comment": _TEXT},
    "part": {"p_name": _TEXT},
    "supplier": {"s_address": _TEXT, "s_phone": _TEXT, "s_comment": _TEXT},
    "partsupp": {"ps_partkey": pa.int64(), "ps_suppkey": pa.int64(), "ps_availqty": pa.int32(), "ps_supplycost": MONEY},
}
ALL_SCHEMAS: Mapping[str, pa.Schema] = {
    name: pa.schema([*SCHEMAS.get(name, ()), *map(pa.field, _MORE.get(name, {}).keys(), _MORE.get(name, {}).values())])
    for name in dict.fromkeys([*SCHEMAS, *_MORE])
}


def _in_braces(sql: str) -> str:
    """The query with its tables in braces: a column may have the name of a table."""
    tables = (each.this for each in sqlglot.parse_one(sql, dialect="spark").find_all(exp.Table))
    ends = [(name.meta["start"], name.meta["end"] + 1) for name in tables if name.this in ALL_SCHEMAS]
    for start, end in sorted(ends, reverse=True):
        sql = f"{sql[:start]}{{{sql[start:end]}}}{sql[end:]}"
    return sql


TPCH: tuple[Query, ...] = tuple(Query(f"q{int(name[1:])}", _in_braces(sql)) for name, sql in QUERIES.items())
