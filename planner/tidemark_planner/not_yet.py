"""What LIR can say and replicas do not render yet: refused at planning, by name.

An entry goes when its operator is there.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_planner.errors import unsupported
from tidemark_protocol.lir import (
    BasicReduce,
    CollationReduce,
    Plan,
    Reduce,
    ReducePlan,
    inputs_of,
)


def check_rendered(plan: Plan) -> None:
    """Raise Refusal for the first operator that no replica has."""
    for construct in _not_rendered(plan):
        unsupported(construct)


def _not_rendered(plan: Plan) -> Iterator[str]:
    if isinstance(plan, Reduce):
        yield from _not_reduced(plan.plan)
    for below in inputs_of(plan):
        yield from _not_rendered(below)


def _not_reduced(plan: ReducePlan) -> Iterator[str]:
    if isinstance(plan, CollationReduce):
        for part in plan.parts:
            yield from _not_reduced(part)
    if isinstance(plan, BasicReduce):
        yield from ("the aggregate array_agg" for a in plan.aggregates if a.function == "array_agg")
