"""Why a DataSource takes no rows until somebody changes something.

what the operator failed at, as it is now ──► an obstacle, unless it waits for something that passes by itself
the condition Ready of this generation    ──► an obstacle, where its reason lasts
"""

from __future__ import annotations

from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import Body
from tidemark_operator.resources.conditions.data_source import IngestionFailure

_LASTING = ("InvalidSpec", "InstanceNotFound", "InstanceUnreadable", "InstanceSuspended", "Suspended")
"""Reasons of a DataSource that is not Ready until somebody changes something, beside what the operator failed at."""


def obstacle(registry: Registry, key: Key, found: Body | None) -> IngestionFailure | None:
    """None: the DataSource takes rows, or will. `found`: its body in the operator's cache.

    A failure counts as the operator has it now: the condition that tells it may be an earlier one.
    """
    state = registry.source(key)
    if state is not None and (found is None or state.uid == found["metadata"]["uid"]):
        failure = state.refused or state.failure
        if failure is not None:
            return None if failure.passes else failure
    ready = conditions_of(found, found["metadata"]["generation"]).get("Ready", {}) if found is not None else {}
    if ready.get("status") != "False" or ready["reason"] not in _LASTING:
        return None
    return IngestionFailure(ready["reason"], ready.get("message", ""))


def conditions_of(body: Body, generation: int) -> dict[str, Body]:
    """Those of this generation or a later one, by type."""
    listed = (body.get("status") or {}).get("conditions") or ()
    return {each["type"]: each for each in listed if each.get("observedGeneration", 0) >= generation}
