"""Plans in which nothing is shared: what the plans that share are compared with."""

from __future__ import annotations

from dataclasses import replace

from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_protocol.plan.lir import Get, Join, Let, LetRec, Plan, Union


def kept_apart(description: DataflowDescription) -> DataflowDescription:
    """The dataflow, in which each reader keeps an arrangement of its own."""
    return replace(description, objects=tuple(replace(o, plan=unshared(o.plan)) for o in description.objects))


def unshared(plan: Plan) -> Plan:
    """The plan as a replica that knows no arrangement of a binding reads it: Gets of bindings have no keys."""
    match plan:
        case Get():
            return replace(plan, key=None)
        case Let():
            return replace(plan, value=unshared(plan.value), body=unshared(plan.body))
        case LetRec():
            return replace(plan, body=unshared(plan.body))
        case Join() | Union():
            return replace(plan, inputs=tuple(map(unshared, plan.inputs)))
        case _ if hasattr(plan, "input"):
            return replace(plan, input=unshared(plan.input))
        case _:
            return plan
