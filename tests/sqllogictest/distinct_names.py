"""Plans of several queries in one dataflow: no two may use one name for different things.

Get t0            ->    Get q7/t0
Let l1 = ...      ->    Let q7/l1 = ...
Get q7/result     ->    the same: objects have names of their own already
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import fields, replace
from typing import Any

from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.lir import Get, Let, Plan, RecursiveBinding


def renamed(plan: Plan, prefix: str, kept: Collection[GlobalId]) -> Plan:
    """The plan with imports and bindings under names that begin with `prefix`; `kept` are left as they are."""
    changed: Plan = _renamed(plan, prefix, kept)
    return changed


def _renamed(node: Any, prefix: str, kept: Collection[GlobalId]) -> Any:
    fresh = {}
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Plan | RecursiveBinding):
            fresh[field.name] = _renamed(value, prefix, kept)
        elif isinstance(value, tuple) and value and isinstance(value[0], Plan | RecursiveBinding):
            fresh[field.name] = tuple(_renamed(v, prefix, kept) for v in value)
    if isinstance(node, Get | Let | RecursiveBinding) and node.id not in kept:
        fresh["id"] = LocalId(prefix + node.id)
    return replace(node, **fresh) if fresh else node
