"""Rollups of lines by what a table with a primary key says of them: the plan takes the aggregate before the join, too.

Plans have what planning knows in a cluster: primary keys of the tables that do not change, and row counts of all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.harness.query import Facts, Shards, planned_together
from bench.harness.workload.queries import Query
from bench.sharing.orders import planning
from tests.oracle.variants.reduced_first import never, reduced_first
from tidemark_protocol.messages.planning import Planned

_OF_LINES = "sum(l_extendedprice) AS price, sum(l_quantity) AS quantity, count(*) AS lines FROM {lineitem}"
ROLLUPS = (
    Query("by_part", f"SELECT p_brand, {_OF_LINES} JOIN {{part}} ON l_partkey = p_partkey GROUP BY p_brand"),
    Query(
        "by_supplier",
        f"SELECT s_nationkey, {_OF_LINES} JOIN {{supplier}} ON l_suppkey = s_suppkey GROUP BY s_nationkey",
    ),
    Query(
        "by_region",
        f"""SELECT r_name, n_name, {_OF_LINES} JOIN {{supplier}} ON l_suppkey = s_suppkey
        JOIN {{nation}} ON s_nationkey = n_nationkey JOIN {{region}} ON n_regionkey = r_regionkey
        GROUP BY r_name, n_name""",
    ),
)


def planned_after_joins(session: Any, views: Mapping[str, str], shards: Shards, known: Facts) -> Planned:
    """The plan with every aggregate after its join alone, made in this process."""
    with reduced_first(never):
        return planned_together(planning(session), views, shards, known=known)
