"""Row counts of relations, where they are known, choose the order of a join's inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.planner.catalogue import CATALOGUE, one_view
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.messages.planning import Catalogue, Planned
from tidemark_protocol.plan.codec import encode
from tidemark_protocol.plan.lir import DeltaJoin, Get, Join, Plan, inputs_of

pytestmark = pytest.mark.spark

TPCH = {
    "tpch.lineitem": 6_000_000,
    "tpch.orders": 1_500_000,
    "tpch.customer": 150_000,
    "tpch.part": 200_000,
    "tpch.partsupp": 800_000,
    "tpch.supplier": 10_000,
    "tpch.nation": 1024,
    "tpch.region": 1024,
}
# Q5, its tables from the largest to the smallest.
REVENUE = """
    SELECT n_name, sum(l_extendedprice) AS revenue
    FROM tpch.lineitem, tpch.orders, tpch.customer, tpch.supplier, tpch.nation, tpch.region
    WHERE c_custkey = o_custkey AND l_orderkey = o_orderkey AND l_suppkey = s_suppkey AND c_nationkey = s_nationkey
      AND s_nationkey = n_nationkey AND n_regionkey = r_regionkey AND r_name = 'ASIA'
      AND o_orderdate >= DATE '1994-01-01' AND o_orderdate < DATE '1995-01-01' GROUP BY n_name
"""
# Nothing but row counts tells the last two tables apart.
MANY = """
    SELECT o_comment, l_comment, s_comment FROM tpch.orders, tpch.lineitem, tpch.supplier
    WHERE o_clerk = l_shipmode AND o_clerk = s_phone
"""

# The one row of the maximum can be looked up, but nothing can be looked up from it alone.
LARGEST = """
    SELECT l_quantity, o_totalprice FROM tpch.lineitem, tpch.orders, (SELECT max(c_acctbal) AS m FROM tpch.customer) x
    WHERE l_orderkey = o_orderkey AND x.m = greatest(l_extendedprice, o_totalprice)
"""


def planned(catalyst: Catalyst, sql: str, rows: Mapping[str, int]) -> Planned:
    relations = tuple(replace(r, rows=rows.get(r.id)) for r in CATALOGUE.relations)
    answer = plan(catalyst, replace(one_view(sql), catalogue=Catalogue(relations)))
    assert isinstance(answer, Planned), answer
    return answer


def hydration(answer: Planned) -> list[str]:
    """The tables in the order in which the one join meets them at the hydration."""
    (join,) = (node for node in _nodes(answer.objects[-1].plan) if isinstance(node, Join))
    path = join.plan.paths[0] if isinstance(join.plan, DeltaJoin) else join.plan
    return [_table(join.inputs[at]) for at in (path.source, *(stage.lookup for stage in path.stages))]


def _nodes(node: Plan) -> list[Plan]:
    return [node, *(below for each in inputs_of(node) for below in _nodes(each))]


def _table(node: Plan) -> str:
    (get,) = (below for below in _nodes(node) if isinstance(below, Get))
    return get.id.removeprefix("tpch.")


def test_a_join_begins_where_the_fewest_rows_are(catalyst: Catalyst) -> None:
    """The region first, the items last; without row counts from the query's first table on."""
    assert hydration(planned(catalyst, REVENUE, TPCH))[:3] == ["region", "nation", "supplier"]
    assert hydration(planned(catalyst, REVENUE, {}))[0] == "lineitem"


def test_fewer_rows_go_first(catalyst: Catalyst) -> None:
    assert hydration(planned(catalyst, MANY, TPCH)) == ["supplier", "orders", "lineitem"]
    assert hydration(planned(catalyst, MANY, {})) == ["orders", "lineitem", "supplier"]


def test_a_row_that_would_make_a_cross_join_is_not_the_first(catalyst: Catalyst) -> None:
    """However few rows it has: a cross join arranges the other table by no key."""
    assert hydration(planned(catalyst, LARGEST, TPCH))[-1] == "customer"
    assert hydration(planned(catalyst, LARGEST, {}))[-1] == "customer"


def test_tables_without_row_counts_are_met_as_without_any(catalyst: Catalyst) -> None:
    """One unknown table is enough: the first input is the query's."""
    some = {name: rows for name, rows in TPCH.items() if name != "tpch.orders"}

    assert hydration(planned(catalyst, REVENUE, some))[0] == "lineitem"


def test_row_counts_change_nothing_but_the_order(catalyst: Catalyst) -> None:
    """The result has the same columns, reads the same columns of the same tables, and equal requests give equal
    bytes."""
    counted, plain = planned(catalyst, REVENUE, TPCH), planned(catalyst, REVENUE, {})

    assert counted != plain
    assert (counted.source_imports, counted.exports) == (plain.source_imports, plain.exports)
    assert counted.objects[-1].plan.schema == plain.objects[-1].plan.schema
    assert encode(counted) == encode(planned(catalyst, REVENUE, TPCH))


def test_views_have_estimates(catalyst: Catalyst) -> None:
    """A view of the same Dataflow is as large as its plan says."""
    big = "SELECT l_shipmode AS a FROM tpch.lineitem"
    reading = MANY.replace("tpch.supplier", "big").replace("s_comment", "a").replace("s_phone", "a")
    one = one_view(reading.replace("tpch.orders, tpch.lineitem, big", "big, tpch.lineitem, tpch.orders"))
    relations = tuple(replace(r, rows=TPCH.get(r.id)) for r in CATALOGUE.relations)
    request = replace(
        one, views=(replace(one.views[0], name="big", sql=big), *one.views), catalogue=Catalogue(relations)
    )
    answer = plan(catalyst, request)
    assert isinstance(answer, Planned), answer

    assert hydration(answer)[0] == "orders"  # with nothing known of the view, its own first table would be
