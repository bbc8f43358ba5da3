"""Estimates of rows are bounded, and those of a name are the ones of its own object."""

from __future__ import annotations

from tests.protocol.samples import ROW
from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.lir import Get, Join, JoinStage, Let, LinearJoin, Plan
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_protocol.plan.row_estimates import MOST, RowEstimates, rows_of

COUNTED, OTHER, SHARED = GlobalId("counted"), GlobalId("other"), LocalId("shared0")


def squared(of: Plan) -> Plan:
    """The cross join with itself."""
    stage = JoinStage(1, (), (), (0,), (), MapFilterProject(ROW))
    return Join((of, of), LinearJoin(0, (stage,)))


def test_cross_joins_of_views_have_a_largest_estimate() -> None:
    """Each view of thirty squares the rows of the one before it."""
    estimates, last = RowEstimates({COUNTED: 1024}), COUNTED
    for number in range(30):
        view = GlobalId(f"v{number}")
        estimates.bind(view, squared(Get(last, ROW)))
        last = view
    assert estimates.of(Get(last, ROW)) == 1 << MOST


def test_a_name_of_another_object_is_not_known() -> None:
    """Local names are unique within one object alone."""
    estimates = RowEstimates({COUNTED: 1024})
    estimates.bind(SHARED, Get(COUNTED, ROW))
    assert estimates.of(Get(SHARED, ROW)) == 1024
    assert rows_of(Let(SHARED, Get(OTHER, ROW), Get(SHARED, ROW)), {SHARED: 10}) is None
    estimates.bind(SHARED, Get(OTHER, ROW))
    assert estimates.of(Get(SHARED, ROW)) is None
    estimates.bind(SHARED, Get(COUNTED, ROW))
    estimates.forget([SHARED])
    assert estimates.of(Get(SHARED, ROW)) is None
