"""The measured views, as SQL over tables in braces, the same for all engines.

The state of `STATE` has about a row per line of lineitem, so its size is given by the number of lines. `PLANS` are the
usual shapes of views; `HYDRATED` are TPC-H's Q1, Q3, Q5 and Q18 without their final order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from string import Formatter

REVENUE = "sum(l_extendedprice * (1 - l_discount)) AS revenue"


@dataclass(frozen=True)
class Query:
    """`exact`: the result is compared after every delta; a large result only when the view is new, and at the end."""

    name: str
    sql: str
    exact: bool = True

    @property
    def tables(self) -> tuple[str, ...]:
        """The tables whose columns it reads."""
        return tuple(dict.fromkeys(field for _, field, _, _ in Formatter().parse(self.sql) if field))

    @property
    def plain(self) -> str:
        """The query where tables have their own names."""
        return self.sql.format_map({table: table for table in self.tables})


def tables_of(queries: Iterable[Query]) -> tuple[str, ...]:
    """All tables that any of them reads."""
    return tuple(dict.fromkeys(table for query in queries for table in query.tables))


JOIN_AND_SUM = Query(
    "join_and_sum",
    """
    SELECT p_brand, l_returnflag, count(*) AS lines, sum(l_extendedprice * (1 - l_discount)) AS revenue,
           avg(l_quantity) AS quantity
    FROM {lineitem} JOIN {part} ON l_partkey = p_partkey
    GROUP BY p_brand, l_returnflag
    """,
)
STATE = (
    Query(
        "join",
        """
        SELECT l_orderkey, l_linenumber, l_partkey, l_quantity, p_brand, p_size
        FROM {lineitem} JOIN {part} ON l_partkey = p_partkey WHERE l_quantity * p_size >= 2000
        """,
        exact=False,
    ),
    Query(
        "reduce",
        """
        SELECT l_partkey, count(*) AS lines, sum(l_quantity) AS quantity, sum(l_extendedprice) AS price
        FROM {lineitem} GROUP BY l_partkey
        """,
        exact=False,
    ),
    Query(
        "topk",
        """
        SELECT l_suppkey, l_extendedprice, l_orderkey, l_linenumber FROM {lineitem}
        QUALIFY row_number() OVER (
            PARTITION BY l_suppkey ORDER BY l_extendedprice DESC, l_orderkey, l_linenumber, l_quantity
        ) <= 3
        """,
        exact=False,
    ),
    Query(
        "minmax",
        """
        SELECT l_suppkey, min(l_extendedprice) AS least, max(l_extendedprice) AS most
        FROM {lineitem} GROUP BY l_suppkey
        """,
        exact=False,
    ),
    Query("one_group", "SELECT min(l_extendedprice) AS least, max(l_extendedprice) AS most FROM {lineitem}"),
    Query("distinct", "SELECT DISTINCT l_partkey, l_suppkey FROM {lineitem}", exact=False),
)
Q1 = Query(
    "q1",
    """
    SELECT l_returnflag, l_linestatus, sum(l_quantity) AS sum_qty, sum(l_extendedprice) AS sum_base_price,
           sum(l_extendedprice * (1 - l_discount)) AS sum_disc_price,
           sum(l_extendedprice * (1 - l_discount) * (1 + l_tax)) AS sum_charge,
           avg(l_quantity) AS avg_qty, avg(l_extendedprice) AS avg_price, avg(l_discount) AS avg_disc,
           count(*) AS count_order
    FROM {lineitem} WHERE l_shipdate <= DATE '1998-09-02' GROUP BY l_returnflag, l_linestatus
    """,
)
Q3 = Query(
    "q3",
    f"""
    SELECT l_orderkey, o_orderdate, o_shippriority, {REVENUE}
    FROM {{customer}}, {{orders}}, {{lineitem}}
    WHERE c_mktsegment = 'BUILDING' AND c_custkey = o_custkey AND l_orderkey = o_orderkey
      AND o_orderdate < DATE '1995-03-15' AND l_shipdate > DATE '1995-03-15'
    GROUP BY l_orderkey, o_orderdate, o_shippriority
    """,
)
Q5 = Query(
    "q5",
    f"""
    SELECT n_name, {REVENUE}
    FROM {{customer}}, {{orders}}, {{lineitem}}, {{supplier}}, {{nation}}, {{region}}
    WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
      AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'
      AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01'
    GROUP BY n_name
    """,
)
Q18 = Query(
    "q18",
    """
    SELECT c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice, sum(l_quantity) AS quantity
    FROM {customer}, {orders}, {lineitem}
    WHERE o_orderkey IN (SELECT l_orderkey FROM {lineitem} GROUP BY l_orderkey HAVING sum(l_quantity) > 270)
      AND c_custkey = o_custkey AND o_orderkey = l_orderkey
    GROUP BY c_name, c_custkey, o_orderkey, o_orderdate, o_totalprice
    """,
)
SIX_WAY = Query(
    "six_way_top",
    f"""
    SELECT c_custkey, c_name, n_name, {REVENUE}
    FROM {{customer}} JOIN {{orders}} ON c_custkey = o_custkey JOIN {{lineitem}} ON l_orderkey = o_orderkey
         JOIN {{supplier}} ON l_suppkey = s_suppkey JOIN {{nation}} ON c_nationkey = n_nationkey
         JOIN {{region}} ON n_regionkey = r_regionkey
    WHERE r_name IN ('ASIA', 'EUROPE') AND s_acctbal > 0
    GROUP BY c_custkey, c_name, n_name ORDER BY revenue DESC, c_custkey LIMIT 20
    """,
)
PLANS: Mapping[str, Query] = {"aggregation": Q1, "three_way": Q3, "six_way": SIX_WAY}
HYDRATED = (Q1, Q3, Q5, Q18)
