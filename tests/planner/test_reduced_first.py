"""Aggregates are taken before joins where row counts and unique keys say that it saves rows, and only where it may."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tests.planner.catalogue import CATALOGUE, one_view
from tests.planner.test_row_counts import TPCH, planned
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.explain import explain_planned
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue, Planned, SharedIndex
from tidemark_protocol.plan.lir import Join, LinearJoin, Plan, Reduce, inputs_of

pytestmark = pytest.mark.spark

SUPPLIERS = "tpch.lineitem JOIN tpch.supplier ON l_suppkey = s_suppkey"
OF_NATIONS = f"SELECT s_nationkey, sum(l_quantity) AS q, count(*) AS n FROM {SUPPLIERS} GROUP BY s_nationkey"

OF_BRANDS = "SELECT p_brand, count(*) AS n FROM tpch.lineitem JOIN tpch.part ON l_partkey = p_partkey GROUP BY p_brand"


def joins(node: Plan) -> list[Join]:
    return [*([node] if isinstance(node, Join) else []), *(j for below in inputs_of(node) for j in joins(below))]


def reduced_first(node: Plan) -> bool:
    """Whether a join of the plan has an aggregate as its input."""
    return any(isinstance(each, Reduce) for join in joins(node) for each in join.inputs)


def is_reduced(catalyst: Catalyst, sql: str, rows: Mapping[str, int] = TPCH) -> bool:
    return any(reduced_first(built.plan) for built in planned(catalyst, sql, rows).objects)


@pytest.mark.parametrize(
    "sql",
    [
        OF_NATIONS,
        f"SELECT s_nationkey, max(l_shipdate) AS d FROM {SUPPLIERS} WHERE l_quantity > 1 GROUP BY s_nationkey",
        f"SELECT count(l_comment) AS n FROM {SUPPLIERS} WHERE s_acctbal > 0",
        f"SELECT DISTINCT s_nationkey FROM {SUPPLIERS}",
        f"SELECT n_name, sum(l_quantity) AS q FROM {SUPPLIERS} JOIN tpch.nation ON s_nationkey = n_nationkey "
        "GROUP BY n_name",
        f"SELECT s_name, sum(l_quantity) AS q FROM {SUPPLIERS} GROUP BY s_name, l_suppkey HAVING count(*) > 3",
        OF_BRANDS,
    ],
)
def test_aggregates_of_few_groups_go_first(catalyst: Catalyst, sql: str) -> None:
    """Eight rows for each group at least, as the unique keys of the other inputs say."""
    assert is_reduced(catalyst, sql)


@pytest.mark.parametrize(
    ("sql", "why"),
    [
        (
            "SELECT o_orderpriority, sum(l_quantity) AS q FROM tpch.lineitem JOIN tpch.orders "
            "ON l_orderkey = o_orderkey GROUP BY o_orderpriority",
            "four rows of each group",
        ),
        (
            f"SELECT s_nationkey, l_shipmode, sum(l_quantity) AS q FROM {SUPPLIERS} GROUP BY s_nationkey, l_shipmode",
            "how many ship modes there are is unknown",
        ),
        (f"SELECT s_nationkey, l_partkey, count(*) AS n FROM {SUPPLIERS} GROUP BY s_nationkey, l_partkey", "no key"),
        (
            "SELECT s_name, sum(l_quantity) AS q FROM tpch.lineitem JOIN tpch.supplier ON l_shipmode = s_phone "
            "GROUP BY s_name",
            "phones are not unique",
        ),
        (
            f"SELECT s_nationkey, sum(l_quantity * s_acctbal) AS q FROM {SUPPLIERS} GROUP BY s_nationkey",
            "of both",
        ),
        (f"SELECT s_nationkey, sum(s_acctbal) AS q FROM {SUPPLIERS} GROUP BY s_nationkey", "of the other"),
        (f"SELECT s_nationkey, sum(1 div l_linenumber) AS q FROM {SUPPLIERS} GROUP BY s_nationkey", "may fail"),
        (f"SELECT s_nationkey, sum(CAST(l_tax AS double)) AS q FROM {SUPPLIERS} GROUP BY s_nationkey", "of doubles"),
        (f"SELECT s_nationkey, avg(l_quantity) AS q FROM {SUPPLIERS} GROUP BY s_nationkey", "an average"),
        (f"SELECT s_nationkey, count(DISTINCT l_partkey) AS n FROM {SUPPLIERS} GROUP BY s_nationkey", "distinct"),
        (f"SELECT s_nationkey, array_agg(l_tax) AS x FROM {SUPPLIERS} GROUP BY s_nationkey", "all values"),
        (
            f"SELECT s_nationkey, sum(CAST(l_tax AS decimal(38,2))) AS q FROM {SUPPLIERS} GROUP BY s_nationkey",
            "a part may overflow",
        ),
        (
            f"SELECT s_nationkey, sum(CAST(l_linenumber AS bigint)) AS q FROM {SUPPLIERS} GROUP BY s_nationkey "
            "HAVING count(*) > 1",
            "the whole may overflow, and HAVING may drop it",
        ),
        (
            "SELECT s_nationkey, count(l_tax) AS n FROM tpch.supplier LEFT JOIN tpch.lineitem ON l_suppkey = s_suppkey "
            "GROUP BY s_nationkey",
            "an outer join",
        ),
        (
            f"SELECT s_nationkey, count(*) AS n FROM {SUPPLIERS} WHERE l_shipdate = DATE '1998-01-01' AND l_tax = 0 "
            "AND l_discount = 0 GROUP BY s_nationkey",
            "few rows pass the filters",
        ),
    ],
    ids=lambda text: None if text.startswith("SELECT") else text,
)
def test_others_stay_after_the_join(catalyst: Catalyst, sql: str, why: str) -> None:
    assert not is_reduced(catalyst, sql), why


@pytest.mark.parametrize("unknown", ["tpch.lineitem", "tpch.supplier"])
def test_without_a_row_count_nothing_goes_first(catalyst: Catalyst, unknown: str) -> None:
    rows = {name: count for name, count in TPCH.items() if name != unknown}

    assert not is_reduced(catalyst, OF_NATIONS, rows)


@pytest.mark.parametrize(("column", "stays"), [(2, True), (1, False)])
def test_what_an_index_keeps_is_joined_as_it_is(catalyst: Catalyst, column: int, stays: bool) -> None:
    """By the column of the join; an index by another column serves no lookup."""
    index = SharedIndex(GlobalId("of-lineitem"), GlobalId("of-lineitem/object"), (column,))
    relations = tuple(
        replace(r, rows=TPCH.get(r.id), indexes=(index,) if r.id == "tpch.lineitem" else r.indexes)
        for r in CATALOGUE.relations
    )
    answer = plan(catalyst, replace(one_view(OF_NATIONS), catalogue=Catalogue(relations)))
    assert isinstance(answer, Planned), answer

    assert reduced_first(answer.objects[-1].plan) is not stays


def test_the_join_above_keeps_what_is_read(catalyst: Catalyst) -> None:
    """It keeps the count of each group and the brand of each part, and neither its key again as a value."""
    (join,) = joins(planned(catalyst, OF_BRANDS, TPCH).objects[-1].plan)
    assert isinstance(join.plan, LinearJoin)
    (stage,) = join.plan.stages

    assert (len(stage.stream_thinning), len(stage.lookup_thinning)) == (1, 1)


def test_the_plan_says_what_goes_first_and_why(catalyst: Catalyst) -> None:
    answer = planned(catalyst, OF_NATIONS, TPCH)
    rows = {r.id: TPCH[r.id] for r in CATALOGUE.relations if r.id in TPCH}
    text = explain_planned(answer, rows=rows).text()

    assert "before the join, which keeps a row per group in place of about 4,194,304" in text, text
