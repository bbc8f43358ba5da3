"""A planner's answer fits into a description for replicas and into a stored revision."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from tests.protocol.samples import ROW, dataflow
from tidemark_operator.planning.revision import DataflowRevision
from tidemark_planner.errors import Refusal
from tidemark_planner.planning.assemble import fits_wire
from tidemark_protocol.ids import Digest
from tidemark_protocol.messages.planning import Planned
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.codec import MAX_PLAN_DEPTH
from tidemark_protocol.plan.dataflow import BuildDesc
from tidemark_protocol.plan.lir import Constant, Negate, Plan


def test_the_deepest_allowed_expression_can_be_stored() -> None:
    """It was planned and could not be stored: retried for ever, and the status never said why."""
    description = dataflow("d", 300)
    plan: Plan = Constant((), ROW)
    deepest = 0
    for depth in range(MAX_PLAN_DEPTH):
        plan = Negate(plan)
        objects = (BuildDesc(description.objects[0].id, plan),)
        with suppress(Refusal):
            fits_wire(Planned(description.source_imports, objects, (), (), ""))
            deepest = depth
            revision = DataflowRevision(replace(description, objects=objects), (), (), Digest("1"), 1, "s")
            assert codec.decode(codec.encode(revision), DataflowRevision) == revision

    assert MAX_PLAN_DEPTH / 2 < deepest < MAX_PLAN_DEPTH - 1
