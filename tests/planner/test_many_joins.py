"""Joins of many tables, as in SQLite's select5: planned in time, whatever their shape."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.planner.catalogue import one_view
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.messages.planning import Planned
from tidemark_protocol.plan.lir import DeltaJoin, Join, LinearJoin, Plan, inputs_of

pytestmark = pytest.mark.spark
SECONDS = 20.0
"""The limit of this process' CPU time. 64 tables take half a second; with a delta join 40 tables took nine."""


def chain(tables: int) -> str:
    """Each table's key is the next one's column; the text has them in no helpful order."""
    order = sorted(range(tables), key=lambda at: at * 37 % tables)
    names = ", ".join(f"t{at}.n_name AS n{at}" for at in order)
    conditions = " AND ".join(f"t{at}.n_nationkey = t{at + 1}.n_regionkey" for at in range(tables - 1))
    return f"SELECT {names} FROM {', '.join(f'tpch.nation t{at}' for at in order)} WHERE {conditions}"


def star(tables: int) -> str:
    joins = (
        f"JOIN tpch.lineitem l{at} ON l{at}.l_orderkey = o.o_orderkey AND l{at}.l_linenumber = {at}"
        for at in range(tables - 1)
    )
    return f"SELECT o.o_custkey, count(*) AS n FROM tpch.orders o {' '.join(joins)} GROUP BY o.o_custkey"


@pytest.mark.parametrize("shape", [chain, star])
@pytest.mark.parametrize(("tables", "kind"), [(16, DeltaJoin), (20, LinearJoin), (64, LinearJoin)])
def test_a_join_of_many_tables_is_planned_in_time(
    catalyst: Catalyst, shape: Callable[[int], str], tables: int, kind: type
) -> None:
    began = time.process_time()
    planned = plan(catalyst, one_view(shape(tables)))
    assert time.process_time() - began < SECONDS

    assert isinstance(planned, Planned), planned
    (join,) = (node for node in _nodes(planned.objects[-1].plan) if isinstance(node, Join))
    assert len(join.inputs) == tables
    assert isinstance(join.plan, kind)


def _nodes(node: Plan) -> list[Plan]:
    return [node, *(below for each in inputs_of(node) for below in _nodes(each))]
