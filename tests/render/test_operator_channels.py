"""The channels of a dataflow: each operator's rows reach the export, along the way that the listing follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracle.histories import Table
from tests.oracle.plans import GET_T, GET_U, counted, joined
from tests.oracle.tables import TU
from tests.render.test_operators import BY_HAND, lowered
from tidemark_protocol.plan.lir import Plan
from tidemark_replica.render.telemetry.operator_costs import OperatorCosts


def named(operators: OperatorCosts) -> set[tuple[str, str]]:
    names = [o.name for o in operators.operators]
    return {(names[a], names[b]) for a, b in operators.channels}


def test_rows_of_both_inputs_reach_the_index_through_join_and_reduce(tmp_path: Path) -> None:
    _, operators = lowered(tmp_path, counted(joined(GET_T, GET_U)))
    assert named(operators) == {
        ("read t", "join"),
        ("read u", "join"),
        ("join", "reduce"),
        ("reduce", "index index"),
    }


@pytest.mark.parametrize(("name", "plan", "tables"), BY_HAND, ids=[name for name, *_ in BY_HAND])
def test_each_operator_is_on_a_way_from_an_input_to_the_export(
    tmp_path: Path, name: str, plan: Plan, tables: dict[str, Table]
) -> None:
    """None leads back: operators are listed in the order in which rows pass through them."""
    _, operators = lowered(tmp_path, plan, tables or TU)
    listed = operators.operators
    assert all(0 <= begin < end < len(listed) for begin, end in operators.channels)
    begins, ends = {begin for begin, _ in operators.channels}, {end for _, end in operators.channels}
    last = len(listed) - 1
    assert begins | {last} == set(range(len(listed))), [o.name for o in listed]
    without = [o.name for place, o in enumerate(listed) if place not in ends]
    assert all(each.startswith("read ") for each in without) or len(listed) == 1, without
