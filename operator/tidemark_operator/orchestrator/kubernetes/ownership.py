"""The replica or instance that owns an object, by its owner reference. Labels only select: anybody can set them. Pure.

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
    """The controlling owner reference of an object, if it names that kind, in any version; else None."""
    for owner in body["metadata"].get("ownerReferences") or ():
        group = owner["apiVersion"].rpartition("/")[0]
        if owner.get("controller") and (group, owner["kind"]) == (resource.group, resource.kind):
            found: dict[str, Any] = owner
            return found
    return None


def shape_of_set(stateful_set: Body) -> tuple[str, str] | None:
    """The replica's uid and the shape of a StatefulSet; None: it belongs to no replica."""
    owner, named = controller(stateful_set, REPLICAS), shape_label(stateful_set["metadata"].get("labels") or {})
    if owner is None or named is None:
        return None
    uid, shape = named
    return named if (owner["uid"], f"{owner['name']}-{shape}") == (uid, stateful_set["metadata"]["name"]) else None


def instance_of_budget(budget: Body) -> str | None:
    """The uid of the instance whose drivers a budget protects; None: it belongs to no instance."""
    owner, named = controller(budget, INSTANCES), (budget["metadata"].get("labels") or {}).get(INSTANCE_UID)
    return named if owner is not None and named == owner["uid"] else None
