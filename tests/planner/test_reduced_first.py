"""Aggregates are taken before joins where row counts and unique keys say that it saves rows, and only where it may."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest

from tests.oracle.variants.reduced_first import never, wherever_possible
from tests.oracle.variants.reduced_first import reduced_first as before_joins
from tests.planner.catalogue import CATALOGUE, one_view
from tests.planner.test_row_counts import TPCH, planned
from tests.tpch.maintained import QUERIES
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.explain import explain_planned
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import (
    Catalogue,
    ExportRequest,
    Planned,
    PlanRequest,
    SharedIndex,
    ViewRequest,
)
from tidemark_protocol.plan.dataflow import BuildDesc
from tidemark_protocol.plan.lir import Get, Join, Let, LinearJoin, Plan, Reduce, inputs_of

pytestmark = pytest.mark.spark

SUPPLIERS = "tpch.lineitem JOIN tpch.supplier ON l_suppkey = s_suppkey"
OF_NATIONS = f"SELECT s_nationkey, sum(l_quantity) AS q, count(*) AS n FROM {SUPPLIERS} GROUP BY s_nationkey"

OF_BRANDS = "SELECT p_brand, count(*) AS n FROM tpch.lineitem JOIN tpch.part ON l_partkey = p_partkey GROUP BY p_brand"


def joins(node: Plan) -> list[Join]:
    return [*([node] if isinstance(node, Join) else []), *(j for below in inputs_of(node) for j in joins(below))]


def bound(node: Plan) -> dict[str, Plan]:
    """The names that the plan binds."""
    own = {str(node.id): node.value} if isinstance(node, Let) else {}
    return own | {name: value for below in inputs_of(node) for name, value in bound(below).items()}


def body(node: Plan) -> Plan:
    """The plan inside of its bindings."""
    return body(node.body) if isinstance(node, Let) else node


def reduced_first(node: Plan) -> bool:
    """Whether a join of the plan has an aggregate as its input, perhaps by a name."""
    named = bound(node)
    inputs = [each for join in joins(node) for each in join.inputs]
    return any(isinstance(named.get(i.id) if isinstance(i, Get) else i, Reduce) for i in inputs)


def is_reduced(catalyst: Catalyst, sql: str, rows: Mapping[str, int] = TPCH) -> bool:
    return any(reduced_first(built.plan) for built in planned(catalyst, sql, rows).objects)


def planned_objects(
    catalyst: Catalyst, views: Sequence[str], *, short: bool = False, rows: Mapping[str, int] = TPCH
) -> tuple[BuildDesc, ...]:
    """The objects of one Dataflow of these views. `short`: they name tables without their source."""
    relations = tuple(replace(r, rows=rows.get(r.id)) for r in CATALOGUE.relations)
    if short:
        relations = tuple(replace(r, parent=r.name, short=True) for r in relations if r.id in TPCH)
    names = [f"v{n}" for n in range(len(views))]
    requests = tuple(map(ViewRequest, names, views))
    exports = tuple(ExportRequest(name, "materializedView", name) for name in names)
    answer = plan(catalyst, PlanRequest("d", requests, exports, Catalogue(relations), "o/"))
    assert isinstance(answer, Planned), answer
    return answer.objects


def drawn(catalyst: Catalyst, sql: str) -> str:
    return explain_planned(planned(catalyst, sql, TPCH), rows=TPCH).text()


def count_of_reductions(node: Plan) -> int:
    return isinstance(node, Reduce) + sum(map(count_of_reductions, inputs_of(node)))


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
    assert "before the join, which meets a row per group in place of about 4,194,304" in drawn(catalyst, OF_NATIONS)
    assert "before the join" in drawn(catalyst, f"SELECT DISTINCT s_nationkey FROM {SUPPLIERS}")


def test_it_says_so_of_no_aggregate_that_the_query_has_there(catalyst: Catalyst) -> None:
    grouped = "(SELECT l_suppkey, sum(l_quantity) AS q FROM tpch.lineitem GROUP BY l_suppkey) x"
    for sql in (
        f"SELECT s_name, q FROM {grouped} JOIN tpch.supplier ON l_suppkey = s_suppkey",
        f"SELECT s_nationkey, count(*) AS n FROM {grouped} JOIN tpch.supplier ON l_suppkey = s_suppkey AND q > 1 "
        "GROUP BY s_nationkey",
        "SELECT s_nationkey, count(*) AS n FROM tpch.supplier LEFT SEMI JOIN tpch.lineitem ON l_suppkey = s_suppkey "
        "GROUP BY s_nationkey",
    ):
        assert "before the join" not in drawn(catalyst, sql), sql


def test_a_table_that_another_view_joins_anyway_is_joined_as_it_is(catalyst: Catalyst) -> None:
    """By the same key, and with all columns that the rollup needs; then no plan keeps less than the one arrangement."""
    beside = "SELECT p_name, l_quantity FROM tpch.lineitem JOIN tpch.part ON l_partkey = p_partkey"
    for view, is_reduced in (
        (beside, False),
        (beside.replace("l_quantity", "l_tax"), False),
        (f"{beside} WHERE l_quantity > 1", True),
        (beside.replace("l_partkey =", "l_suppkey ="), True),
    ):
        objects = planned_objects(catalyst, [view, OF_BRANDS])
        assert reduced_first(objects[-1].plan) is is_reduced, view
    summed = OF_BRANDS.replace("count(*)", "sum(l_tax)")
    assert reduced_first(planned_objects(catalyst, [beside, summed])[-1].plan), "the other view keeps no taxes"


def test_one_of_two_arrangements_is_not_enough(catalyst: Catalyst) -> None:
    """The other view keeps the lines by supplier alone: for the join with nations they would be kept once more."""
    few = {**TPCH, "tpch.nation": 4, "tpch.supplier": 1000}
    suppliers = "FROM tpch.lineitem JOIN tpch.supplier ON l_suppkey = s_suppkey"
    beside = f"SELECT s_name, l_partkey {suppliers}"
    rollup = (
        f"SELECT s_name, n_name, count(*) AS n {suppliers} JOIN tpch.nation ON l_partkey = n_nationkey GROUP BY 1, 2"
    )
    for views in ([rollup], [beside, rollup]):
        assert reduced_first(planned_objects(catalyst, views, rows=few)[-1].plan)


def test_both_halves_of_a_query_join_the_same_arrangement(catalyst: Catalyst) -> None:
    """The case is Q11: the total of all follows from the rows that are kept for the groups."""
    joined = "FROM tpch.partsupp JOIN tpch.supplier ON ps_suppkey = s_suppkey WHERE s_nationkey = 7"
    total = f"SELECT sum(ps_availqty) AS n {joined}"
    groups = f"SELECT ps_partkey, sum(ps_availqty) AS n {joined} GROUP BY ps_partkey"
    for sql, reductions in (
        (total, 2),
        (f"{groups} HAVING sum(ps_availqty) > ({total})", 2),
        (f"{groups} HAVING sum(ps_availqty) > ({total.replace('7', '8')})", 2),
        (f"{groups} HAVING sum(ps_availqty) > ({total} AND ps_supplycost > 1)", 3),
    ):
        assert count_of_reductions(planned(catalyst, sql, TPCH).objects[-1].plan) == reductions, sql


def test_rollups_that_would_share_an_arrangement_save_as_much_together(catalyst: Catalyst) -> None:
    """Thirty lines of each part: four views with groups of their own keep less than the one arrangement; not five.
    Equal groups are kept once.
    """
    of_parts = "FROM tpch.lineitem JOIN tpch.part ON l_partkey = p_partkey GROUP BY p_size"
    for views, is_reduced in ((4, True), (5, False)):
        rollups = [f"SELECT p_size, count(*) FILTER (WHERE l_partkey > {n}) AS n {of_parts}" for n in range(views)]
        objects = planned_objects(catalyst, rollups)[-views:]
        assert {reduced_first(built.plan) for built in objects} == {is_reduced}
    equal = [f"SELECT p_brand, count(*) + {n} AS n {of_parts.replace('p_size', 'p_brand')}" for n in range(9)]
    assert any(
        isinstance(body(built.plan), Reduce) and reduced_first(built.plan) for built in planned_objects(catalyst, equal)
    )


def test_the_queries_of_tpch_keep_no_more_than_without(catalyst: Catalyst) -> None:
    """None of the 22, as one Dataflow, gains: their sums have too many digits, and Q11 needs the rows in any case."""
    views = [*QUERIES.values()]
    chosen = planned_objects(catalyst, views, short=True)
    with before_joins(never):
        assert planned_objects(catalyst, views, short=True) == chosen


def test_aggregates_go_before_joins_inside_others(catalyst: Catalyst) -> None:
    """Inner ones first, whatever the outer ones read of them."""
    inner = f"SELECT DISTINCT l_partkey, s_name FROM {SUPPLIERS}"
    outer = (
        f"SELECT p_brand, max(s_name) AS m FROM ({inner}) x JOIN tpch.part ON l_partkey = p_partkey GROUP BY p_brand"
    )
    with before_joins(wherever_possible) as chosen:
        (built,) = planned_objects(catalyst, [outer])
    assert len(chosen) > 1
    assert count_of_reductions(built.plan) > 2
