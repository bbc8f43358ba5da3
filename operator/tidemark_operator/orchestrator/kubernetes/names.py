"""Names and labels of the objects of a replica, and its shape.

    ComputeReplica r1 ─┬─ shape 3f9c0a12 ─► StatefulSet, Service, Secret r1-3f9c0a12, pod r1-3f9c0a12-0
                       │                    ConfigMap r1-3f9c0a12-DIGEST (of its contents)
                       └─ shape b17e44d0 ─► ...

The shape is a hash of the spec, not of the generated manifests. A later version of the operator, whose templates may
differ, therefore adopts the pods that it finds.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tidemark_operator.orchestrator.interface import PodSpec, ReplicaSpec
from tidemark_operator.orchestrator.kubernetes.settings import KubernetesSettings
from tidemark_operator.resources.manifest.meta import GROUP
from tidemark_operator.resources.manifest.pods import Requests

SHAPE_FORMAT = 1
"""Raise this number when pods of an earlier operator must be replaced."""
SHAPE_DIGITS = 8

REPLICA = f"{GROUP}/replica"
REPLICA_UID = f"{GROUP}/replica-uid"
INSTANCE = f"{GROUP}/instance"
INSTANCE_UID = f"{GROUP}/instance-uid"
SHAPE = f"{GROUP}/shape"
ROLE = f"{GROUP}/role"
DRIVER, EXECUTOR = "driver", "executor"
MANAGED = {"app.kubernetes.io/name": "tidemark", "app.kubernetes.io/managed-by": "tidemark-operator"}
GRPC_PORT = 7443


@dataclass(frozen=True)
class ReplicaShape:
    """A replica in one shape."""

    spec: ReplicaSpec
    shape: str

    @property
    def name(self) -> str:
        return f"{self.spec.name}-{self.shape}"

    @property
    def address(self) -> str:
        return address(self.name, self.spec.namespace)

    @property
    def selector(self) -> dict[str, str]:
        """Labels that select its driver, and no other pod."""
        return {REPLICA_UID: self.spec.key, SHAPE: self.shape, ROLE: DRIVER}

    @property
    def executors(self) -> dict[str, str]:
        """Labels that select all of its executors, and no other pod."""
        return {REPLICA_UID: self.spec.key, SHAPE: self.shape, ROLE: EXECUTOR}

    def labels(self, role: str) -> dict[str, str]:
        return {
            **MANAGED,
            "app.kubernetes.io/component": role,
            REPLICA: self.spec.name,
            REPLICA_UID: self.spec.key,
            INSTANCE: self.spec.instance.name,
            INSTANCE_UID: self.spec.instance.uid,
            SHAPE: self.shape,
            ROLE: role,
        }


def member(spec: ReplicaSpec, settings: KubernetesSettings) -> ReplicaShape:
    return ReplicaShape(spec, shape_of(spec, settings))


def shape_of(spec: ReplicaSpec, settings: KubernetesSettings) -> str:
    """The shape of a replica, in hexadecimal; a new shape needs a new process. Owner, update strategy and image pull
    settings are not part of it."""
    shape: dict[str, Any] = {
        "format": SHAPE_FORMAT,
        "cores": spec.cores,
        "memory": spec.memory_bytes,
        "image": settings.image,
        "pod": _pod(spec.pod),
    }
    if spec.pod.executors.instances:
        shape["accounts"] = [settings.driver_account, settings.executor_account]
    if spec.engine:
        shape["engine"] = spec.engine
    if settings.tracing:
        shape["tracing"] = settings.tracing
    text = json.dumps(shape, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:SHAPE_DIGITS]


def address(name: str, namespace: str) -> str:
    """The host and port at which a member of that name listens."""
    return f"{name}.{namespace}.svc:{GRPC_PORT}"


def shape_label(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """The replica's uid and the shape that the labels name; None: a label is missing."""
    uid, shape = labels.get(REPLICA_UID), labels.get(SHAPE)
    return (uid, shape) if uid and shape else None


def _pod(pod: PodSpec) -> dict[str, Any]:
    """The hashed part of a PodSpec. Do not rename its keys, and leave a new one out where it is empty: otherwise every
    replica restarts with the operator's next version."""
    return {
        "requests": _requests(pod.requests),
        "executors": {
            "instances": pod.executors.instances,
            "cores": pod.executors.cores,
            "memory_bytes": pod.executors.memory_bytes,
            "requests": _requests(pod.executors.requests),
        },
        "scratch": {"bytes": pod.scratch.bytes, "claim": pod.scratch.claim},
        "volumes": [{"claim": v.claim, "path": v.path, "read_only": v.read_only} for v in pod.volumes],
        "credentials": pod.credentials,
        **({"source_secrets": list(pod.source_secrets)} if pod.source_secrets else {}),
        **({"iceberg": pod.iceberg} if pod.iceberg else {}),
    }


def _requests(requests: Requests) -> dict[str, str]:
    return {"cpu": requests.cpu, "memory": requests.memory}
