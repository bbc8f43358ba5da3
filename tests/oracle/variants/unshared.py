"""Plans in which nothing is shared: what the plans that share are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.dataflow import BuildDesc, DataflowDescription
from tidemark_protocol.plan.lir import Get, Join, Let, LetRec, Plan, Union

Parts = Mapping[GlobalId | LocalId, Plan]


def kept_apart(description: DataflowDescription) -> DataflowDescription:
    """The dataflow, in which each reader keeps an arrangement of its own, and computes parts that are shared itself."""
    return replace(description, objects=apart(description.objects))


def apart(shared: Iterable[BuildDesc]) -> tuple[BuildDesc, ...]:
    """The objects of `kept_apart`."""
    parts: dict[GlobalId | LocalId, Plan] = {}
    objects = list[BuildDesc]()
    for built in shared:
        plan = unshared(built.plan, parts)
        if "/shared/" in built.id:
            parts[built.id] = plan
        else:
            objects.append(replace(built, plan=plan))
    return tuple(objects)


def unshared(plan: Plan, parts: Parts | None = None) -> Plan:
    """The plan as a replica that knows no arrangement of a binding reads it: Gets of bindings have no keys.

    `parts`: plans instead of the Gets of these names.
    """
    match plan:
        case Get() if parts and plan.id in parts:
            return parts[plan.id]
        case Get():
            return replace(plan, key=None)
        case Let():
            return replace(plan, value=unshared(plan.value, parts), body=unshared(plan.body, parts))
        case LetRec():
            return replace(plan, body=unshared(plan.body, parts))
        case Join() | Union():
            return replace(plan, inputs=tuple(unshared(i, parts) for i in plan.inputs))
        case _ if hasattr(plan, "input"):
            return replace(plan, input=unshared(plan.input, parts))
        case _:
            return plan
