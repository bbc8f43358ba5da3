"""Ready of a ComputeInstance, and InstanceFound, the first condition of the three kinds that name an instance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_operator.resources.conditions.condition import Verdict, no, unknown, yes
from tidemark_operator.resources.manifest.errors import ResourceError
from tidemark_operator.resources.manifest.meta import API_VERSION, InstanceName, Namespace

INSTANCE_FOUND = "InstanceFound"
READY = "Ready"
IMAGE_TOO_OLD = "ImageTooOld"
"""Reason of a replica whose image cannot run some Dataflow, and of a Dataflow that no replica's image can run."""


@dataclass(frozen=True, slots=True)
class SecretProblem:
    """The reason why a Secret cannot be used; `reason` is CamelCase."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class ReplicaProblem:
    """A problem that a replica reports, of the object store or of its executors; `reason` is CamelCase."""

    replica: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class InstanceFacts:
    """The state of an instance, whether it exists or not. `replicas`, `online`: numbers of ComputeReplicas."""

    namespace: Namespace
    name: InstanceName
    found: bool
    unreadable: str = ""
    """The reason why this version cannot read its spec; the other fields are from the last readable spec."""
    suspended: bool = False
    replicas: int = 0
    online: int = 0
    secret: SecretProblem | None = None
    """The problem of the Secret of spec.storage.secretName."""
    store: tuple[ReplicaProblem, ...] = ()
    """Problems of the object store, from replicas that are online."""


def instance_conditions(facts: InstanceFacts) -> list[Verdict]:
    """The conditions of a ComputeInstance."""
    if facts.suspended:
        return [
            no(
                READY,
                "Suspended",
                "spec.suspend stops all replicas of this instance. Set spec.suspend: false to resume",
            )
        ]
    if facts.replicas == 0:
        return [no(READY, "NoReplicas", "no ComputeReplica names this instance, so nothing is computed: create one")]
    if facts.secret is not None:
        return [no(READY, facts.secret.reason, facts.secret.message)]
    if facts.online == 0:
        return [
            no(
                READY,
                "NoReplicaOnline",
                f"none of {facts.replicas} replicas answers: see the condition Online of each ComputeReplica",
            )
        ]
    online = f"{facts.online} of {facts.replicas} replicas online"
    if not facts.store:
        return [yes(READY, "ReplicasOnline", online)]
    first, others = facts.store[0], len(facts.store) - 1
    problem = f"replica {first.replica}: {first.message}" + (f" (and {others} more replicas)" if others else "")
    if len(facts.store) < facts.online:
        return [yes(READY, "ReplicasOnline", f"{online}; {problem}")]
    return [no(READY, f"Storage{first.reason}", problem)]


def instance_found(facts: InstanceFacts) -> Verdict:
    """The condition InstanceFound."""
    if facts.unreadable:
        return no(
            INSTANCE_FOUND,
            "InstanceUnreadable",
            f"this version of the operator cannot read ComputeInstance {facts.name} ({facts.unreadable}). Running "
            "replicas continue with its last readable spec; no replica is started. Correct it, or upgrade the operator",
        )
    if facts.found:
        return yes(INSTANCE_FOUND, "Found")
    return no(
        INSTANCE_FOUND,
        "InstanceNotFound",
        f"ComputeInstance {facts.name} does not exist in namespace {facts.namespace}. Apply this, with a location that "
        f"every replica can write:\n{manifest(facts)}",
    )


def manifest(facts: InstanceFacts) -> str:
    """A manifest that creates the instance."""
    return (
        f"apiVersion: {API_VERSION}\n"
        "kind: ComputeInstance\n"
        f"metadata: {{name: {facts.name}, namespace: {facts.namespace}}}\n"
        "spec: {storage: {location: /var/lib/tidemark/shards}}\n"
    )


def runs_nothing(type: str, facts: InstanceFacts) -> Verdict | None:
    """The reason why the instance runs nothing, in the same words for every kind; None: some replica answers."""
    if not facts.found:
        return no(
            type,
            "InstanceNotFound",
            f"ComputeInstance {facts.name} does not exist: create it, or correct spec.instance",
        )
    if facts.suspended:
        return no(type, "InstanceSuspended", f"ComputeInstance {facts.name} is suspended: set its spec.suspend: false")
    if facts.online == 0:
        message = (
            f"none of {facts.replicas} replicas of ComputeInstance {facts.name} answers: see their condition Online"
        )
        return no(type, "NoReplicaOnline", message)
    return None


def invalid_spec(types: Sequence[str], error: ResourceError) -> list[Verdict]:
    """The conditions of an object with an invalid spec: Ready is False and names the field, the others are Unknown."""
    return [
        no(type, "InvalidSpec", str(error)) if type == READY else unknown(type, "InvalidSpec", str(error))
        for type in types
    ]
