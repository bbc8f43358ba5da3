"""The reason why a DataSource takes no rows until somebody changes something.

what the operator failed at, as it is now ──► an obstacle, unless it waits for something that passes by itself
the condition Ready of this generation    ──► an obstacle, where its reason lasts
"""

from __future__ import annotations

from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.kube.cache import Cache, Key
from tidemark_operator.kube.client import INSTANCES, Body
from tidemark_operator.resources.conditions.data_source import IngestionFailure

_LASTING = ("InvalidSpec", "InstanceNotFound", "InstanceUnreadable", "InstanceSuspended", "Suspended")
"""Reasons of a DataSource that is not Ready until somebody changes something, beside what the operator failed at."""
_OF_INSTANCE = ("InstanceNotFound", "InstanceSuspended")


def obstacle(registry: Registry, cache: Cache, key: Key) -> IngestionFailure | None:
    """None: the DataSource takes rows, or will.

    A failure counts as the operator has it now: the condition that tells it may be an earlier one. While the source or
    its instance is suspended, a failure is one of before.
    """
    found, state = cache.get(key), registry.source(key)
    if found is not None and (lasting := _lasting(cache, key, found)) is not None:
        return lasting
    if state is None or (found is not None and state.uid != found["metadata"]["uid"]):
        return None
    failure = state.refused or state.failure
    return None if failure is None or failure.passes else failure


def _lasting(cache: Cache, key: Key, found: Body) -> IngestionFailure | None:
    """The obstacle that the condition tells, unless the instance is another one by now."""
    ready = conditions_of(found, found["metadata"]["generation"]).get("Ready", {})
    if ready.get("status") != "False" or ready["reason"] not in _LASTING:
        return None
    if ready["reason"] in _OF_INSTANCE:
        instance = cache.get(Key(INSTANCES, key.namespace, found["spec"]["instance"]))
        if instance is not None and not instance["spec"].get("suspend", False):
            return None
    return IngestionFailure(ready["reason"], ready.get("message", ""))


def conditions_of(body: Body, generation: int) -> dict[str, Body]:
    """The conditions of this generation or a later one, by type."""
    listed = (body.get("status") or {}).get("conditions") or ()
    return {each["type"]: each for each in listed if each.get("observedGeneration", 0) >= generation}
