"""Whose an object is: by its owner, with whom it goes anyway. Labels only find it, for anybody may put them on. Pure.

StatefulSet   controlled by a ComputeReplica, whose uid its labels name, and its name the name and shape
driver        a pod, controlled by such a StatefulSet
executor      a pod, controlled by such a driver
budget        controlled by the ComputeInstance whose uid its label names
"""

from __future__ import annotations

from typing import Any

from tidemark_operator.kube.client import INSTANCES, REPLICAS, Body, Resource
from tidemark_operator.orchestrator.kubernetes.names import INSTANCE_UID, shape_label


def controller(body: Body, resource: Resource) -> dict[str, Any] | None:
    """The one that controls the object, if it is of that kind, of whichever version."""
    for owner in body["metadata"].get("ownerReferences") or ():
        group = owner["apiVersion"].rpartition("/")[0]
        if owner.get("controller") and (group, owner["kind"]) == (resource.group, resource.kind):
            found: dict[str, Any] = owner
            return found
    return None


def shape_of_set(stateful_set: Body) -> tuple[str, str] | None:
    """The replica's uid and the shape that a StatefulSet is of; None: of none."""
    owner, named = controller(stateful_set, REPLICAS), shape_label(stateful_set["metadata"].get("labels") or {})
    if owner is None or named is None:
        return None
    uid, shape = named
    return named if (owner["uid"], f"{owner['name']}-{shape}") == (uid, stateful_set["metadata"]["name"]) else None


def instance_of_budget(budget: Body) -> str | None:
    """The uid of the instance whose drivers a budget bounds; None: of none."""
    owner, named = controller(budget, INSTANCES), (budget["metadata"].get("labels") or {}).get(INSTANCE_UID)
    return named if owner is not None and named == owner["uid"] else None
