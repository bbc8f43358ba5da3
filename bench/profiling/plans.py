"""The queries whose steps are profiled, over all of TPC-H with its real types, and deltas of lineitem.

Every delta takes lines of the data away, and puts back as many in the same orders: so that joins and filters let them
through, and every part of the plan has work to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bench.harness.cache import cache_folder
from bench.harness.workload.deltas import SEED, Delta
from bench.harness.workload.tpch import Table
from tidemark_replica.storage.tpch.initial import InitialData
from tidemark_replica.storage.tpch.tables import TABLES
from tidemark_replica.values.arrow_types import arrow_schema


@dataclass(frozen=True)
class Query:
    """A view, and the tables it reads."""

    sql: str
    tables: tuple[str, ...]


QUERIES: Mapping[str, Query] = {
    "aggregation": Query(
        """
        SELECT l_returnflag, l_linestatus, sum(l_quantity) AS quantity, sum(l_extendedprice) AS price,
               sum(l_extendedprice * (1 - l_discount)) AS revenue, avg(l_discount) AS discount, count(*) AS lines
        FROM {lineitem} WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus
        """,
        ("lineitem",),
    ),
    "join3": Query(
        """
        SELECT l_orderkey, o_orderdate, o_shippriority, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM {customer} JOIN {orders} ON c_custkey = o_custkey JOIN {lineitem} ON l_orderkey = o_orderkey
        WHERE c_mktsegment IN ('BUILDING', 'MACHINERY') AND l_linenumber > 1
        GROUP BY l_orderkey, o_orderdate, o_shippriority
        """,
        ("customer", "orders", "lineitem"),
    ),
    "join6": Query(
        """
        SELECT c_custkey, c_name, n_name, sum(l_extendedprice * (1 - l_discount)) AS revenue
        FROM {customer} JOIN {orders} ON c_custkey = o_custkey JOIN {lineitem} ON l_orderkey = o_orderkey
             JOIN {supplier} ON l_suppkey = s_suppkey JOIN {nation} ON c_nationkey = n_nationkey
             JOIN {region} ON n_regionkey = r_regionkey
        WHERE r_name IN ('ASIA', 'EUROPE') AND s_acctbal > 0
        GROUP BY c_custkey, c_name, n_name ORDER BY revenue DESC LIMIT 20
        """,
        ("customer", "orders", "lineitem", "supplier", "nation", "region"),
    ),
}


def tables(query: Query, scale_factor: str) -> dict[str, Table]:
    """The data, made the first time they are asked for."""
    data = InitialData(cache_folder(), scale_factor)
    return {name: Table(data.path(name), arrow_schema(TABLES[name].columns)) for name in query.tables}


def lines_changed(lineitem: Table, count: int, rows: int) -> list[Delta]:
    """`count` deltas of `rows` lines, half of them retractions; the same for the same data."""
    rng, half = np.random.default_rng(SEED), rows // 2
    going = np.sort(rng.choice(lineitem.rows, count * half, replace=False))
    found, begin = [], 0
    for batch in lineitem.batches():
        first, last = np.searchsorted(going, [begin, begin + batch.num_rows])
        found.append(batch.take(pa.array(going[first:last] - begin)))
        begin += batch.num_rows
    retracted = pa.Table.from_batches(found).take(pa.array(rng.permutation(count * half))).combine_chunks()
    inserted = _amended(retracted)
    return [Delta(retracted.slice(i * half, half), inserted.slice(i * half, half)) for i in range(count)]


def _amended(lines: pa.Table) -> pa.Table:
    """Other lines of the same orders, twice as dear."""
    position = lines.schema.get_field_index("l_linenumber")
    numbers = pc.cast(pc.add(lines.column(position), pa.scalar(10, pa.int32())), pa.int32())
    lines = lines.set_column(position, "l_linenumber", numbers)
    position, price = lines.schema.get_field_index("l_extendedprice"), lines.column("l_extendedprice")
    return lines.set_column(position, "l_extendedprice", pc.cast(pc.add(price, price), price.type))
