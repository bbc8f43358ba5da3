"""Ready of a ComputeInstance, and InstanceFound, which the three kinds that name an instance begin with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_operator.resources.conditions.condition import Verdict, no, unknown, yes
from tidemark_operator.resources.manifest.errors import ResourceError
from tidemark_operator.resources.manifest.meta import API_VERSION, InstanceName, Namespace

INSTANCE_FOUND = "InstanceFound"
READY = "Ready"
IMAGE_TOO_OLD = "ImageTooOld"
"""Of a replica that cannot be told of a Dataflow, and of a Dataflow that none can be told of."""


@dataclass(frozen=True, slots=True)
class SecretTrouble:
    """Why a Secret is of no use; `reason` is CamelCase."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ReplicaTrouble:
    """What a replica says keeps it from working: the object store, its executors; `reason` is CamelCase."""

    replica: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """What is known of an instance, there or not."""

    namespace: Namespace
    name: InstanceName
    found: bool
    unreadable: str = ""
    """Why this version cannot read it: what is known of it is from before."""
    suspended: bool = False
    replicas: int = 0
    online: int = 0
    secret: SecretTrouble | None = None
    """What is wrong with the Secret that it names."""
    store: tuple[ReplicaTrouble, ...] = ()
    """Of replicas that are online."""


def instance_conditions(facts: InstanceFacts) -> list[Verdict]:
    """The conditions of a ComputeInstance."""
    if facts.suspended:
        return [no(READY, "Suspended", "spec.suspend stops all replicas of this instance")]
    if facts.replicas == 0:
        return [no(READY, "NoReplicas", "no ComputeReplica names this instance: nothing is computed")]
    if facts.secret is not None:
        return [no(READY, facts.secret.reason, facts.secret.message)]
    if facts.online == 0:
        return [no(READY, "NoReplicaOnline", f"none of {facts.replicas} replicas answers")]
    online = f"{facts.online} of {facts.replicas} replicas online"
    if not facts.store:
        return [yes(READY, "ReplicasOnline", online)]
    first, others = facts.store[0], len(facts.store) - 1
    told = f"replica {first.replica}: {first.message}" + (f" (and {others} more replicas)" if others else "")
    if len(facts.store) < facts.online:
        return [yes(READY, "ReplicasOnline", f"{online}; {told}")]
    return [no(READY, f"Storage{first.reason}", told)]


def instance_found(facts: InstanceFacts) -> Verdict:
    if facts.unreadable:
        return no(
            INSTANCE_FOUND,
            "InstanceUnreadable",
            f"ComputeInstance {facts.name} cannot be read by this version of the operator ({facts.unreadable}). What "
            "runs goes on by what was read of it before; no replica is started. Correct it, or upgrade the operator",
        )
    if facts.found:
        return yes(INSTANCE_FOUND, "Found")
    return no(
        INSTANCE_FOUND,
        "InstanceNotFound",
        f"there is no ComputeInstance {facts.name} in namespace {facts.namespace}. Apply, with a location that "
        f"every replica can write:\n{manifest(facts)}",
    )


def manifest(facts: InstanceFacts) -> str:
    """What to apply to have the instance."""
    return (
        f"apiVersion: {API_VERSION}\n"
        "kind: ComputeInstance\n"
        f"metadata: {{name: {facts.name}, namespace: {facts.namespace}}}\n"
        "spec: {storage: {location: /var/lib/tidemark/shards}}\n"
    )


def runs_nothing(type: str, facts: InstanceFacts) -> Verdict | None:
    """Why the instance runs nothing at all, if so: the same words for every kind."""
    if not facts.found:
        return no(type, "InstanceNotFound", f"there is no ComputeInstance {facts.name}")
    if facts.suspended:
        return no(type, "InstanceSuspended", f"ComputeInstance {facts.name} is suspended")
    if facts.online == 0:
        return no(type, "NoReplicaOnline", f"none of {facts.replicas} replicas of ComputeInstance {facts.name} answers")
    return None


def invalid_spec(types: Sequence[str], error: ResourceError) -> list[Verdict]:
    """The conditions of an object that cannot be read: Ready says why, nothing else is known."""
    return [
        no(type, "InvalidSpec", str(error)) if type == READY else unknown(type, "InvalidSpec", str(error))
        for type in types
    ]
