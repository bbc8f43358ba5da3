"""The node of the plan that each operator is of: `explain --analyze` shows its measurements there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.oracle.harness import OBJECT
from tests.oracle.histories import History, Table
from tests.oracle.plans import GET_T, GET_U, counted, joined
from tests.oracle.tables import TU
from tests.oracle.variants.in_process import in_process
from tests.render.sharing.test_shared_arrangements import BOTH, FIRST, ands, join
from tests.render.test_operators import BY_HAND, lowered
from tidemark_planner.lir.shared_arrangements import share_arrangements
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.change_costs import STATELESS, upkeep_of
from tidemark_protocol.plan.dataflow import BuildDesc
from tidemark_protocol.plan.lir import DistinctReduce, Get, LetRec, MapFilterProject, Plan, Reduce, preorder, refs
from tidemark_replica.render.lowering import lower_dataflow
from tidemark_replica.render.telemetry.operator_costs import OperatorCosts

KINDS = ("Changes", "Get", "Join", "LetRec", "Mfp", "Reduce", "Threshold", "TopK", "Window")


def test_operators_have_the_numbers_of_the_plan(tmp_path: Path) -> None:
    """The part that keeps the index for readers is no operator of the plan."""
    plan = counted(joined(GET_T, GET_U))
    _, operators = lowered(tmp_path, plan)
    numbers = {type(node).__name__: (0, number) for number, node in enumerate(preorder(plan))}
    found = {o.name: o.node for o in operators.operators}
    gets = [(0, number) for number, node in enumerate(preorder(plan)) if node in (GET_T, GET_U)]
    assert [found.pop("read t"), found.pop("read u")] == gets
    assert found == {"join": numbers["Join"], "reduce": numbers["Reduce"], "index index": None}


def test_operators_of_several_objects_have_their_places(tmp_path: Path) -> None:
    """Also where one object is computed in another, its only reader."""
    first = counted(GET_T)
    inner = GlobalId("inner")
    second = distinct(Get(inner, first.schema))
    with in_process(tmp_path, TU, History(dict.fromkeys(TU, ()), 1, 1)) as made:
        described = made.describe(first)
        described = replace(described, objects=(BuildDesc(inner, first), BuildDesc(OBJECT, second)))
        fragments = lower_dataflow(described, {}, "token")
    operators = OperatorCosts(fragments, {a: id for id, a in fragments.indexes.items()}).operators
    number = [type(node) for node in preorder(first)].index(Reduce)
    assert [o.node for o in operators if o.kind == "Reduce"] == [(0, number), (1, 0)]


def distinct(plan: Plan) -> Plan:
    return Reduce(plan, refs(plan.schema), (), DistinctReduce(), MapFilterProject.identity(plan.schema))


def test_joins_that_keep_nothing_have_nodes_of_their_own(tmp_path: Path) -> None:
    alike = [join(BOTH, FIRST, [(0, 0)])] * 2
    plan = share_arrangements(ands(*alike, join(BOTH, FIRST, [(0, 0)], (0,))))
    _, operators = lowered(tmp_path, plan)
    nodes = list(preorder(plan))
    found = [o.node for o in operators.operators if o.kind == "Join"]
    assert [type(nodes[node[1]]).__name__ for node in found if node is not None] == ["Join"] * 3


@pytest.mark.parametrize("arrow", [True, False])
@pytest.mark.parametrize(("name", "plan", "tables"), BY_HAND, ids=[name for name, _, _ in BY_HAND])
def test_agree_operators_and_nodes(
    name: str, plan: Plan, tables: Mapping[str, Table], arrow: bool, tmp_path: Path
) -> None:
    """The test has every kind of plan: an operator has the word of its node, and each node that keeps state has an
    operator."""
    _, operators = lowered(tmp_path, plan, tables, arrow=arrow)
    nodes = list(preorder(plan))
    found = {o.node[1]: o.kind for o in operators.operators if o.node is not None}
    assert [o for o in operators.operators if o.node is None and o.kind != "ArrangeBy"] == []
    others = {(kind, type(nodes[at]).__name__) for at, kind in found.items() if kind != "ArrangeBy"}
    assert others - {(kind,) * 2 for kind in KINDS} <= {("Join", "Reduce")}  # the join of aggregates of two kinds
    loops = [node for node in nodes if isinstance(node, LetRec)]
    inside = {id(each) for loop in loops for bound in loop.bindings for each in preorder(bound.value)}
    keeping = [
        at
        for at, node in enumerate(nodes)
        if id(node) not in inside and (upkeep := upkeep_of(node, lambda _: None)) and upkeep.how != STATELESS
    ]
    assert [nodes[at] for at in keeping if at not in found] == []
