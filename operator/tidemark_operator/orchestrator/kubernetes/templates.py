"""The manifests of a replica. Pure: a spec in, objects to apply out.

    ComputeReplica ─owns─► StatefulSet ─owns─► Service, ConfigMap, Secret, the pod ─owns─► executors' pods
    ComputeInstance ─owns─► PodDisruptionBudget over the drivers of all its replicas

The operator applies the StatefulSet first. The StatefulSet owns the rest, so its deletion removes everything, even if
the operator died in between.
"""

from __future__ import annotations

from typing import Any

from tidemark_operator.kube.client import INSTANCES, OURS, REPLICAS, Body, Resource
from tidemark_operator.kube.objects import STATEFUL_SETS
from tidemark_operator.orchestrator.interface import Owner
from tidemark_operator.orchestrator.kubernetes import driver, executors
from tidemark_operator.orchestrator.kubernetes.names import (
    DRIVER,
    GRPC_PORT,
    INSTANCE,
    INSTANCE_UID,
    MANAGED,
    ROLE,
    ReplicaShape,
)
from tidemark_operator.orchestrator.kubernetes.settings import KubernetesSettings
from tidemark_operator.orchestrator.kubernetes.volumes import SECRET_FILE, TEMPLATE_FILE


def stateful_set(member: ReplicaShape, settings: KubernetesSettings) -> Body:
    """A StatefulSet of one pod. `OnDelete`: a template that a later operator changes applies to the next pod only."""
    spec = {
        "replicas": 1,
        "serviceName": member.name,
        "selector": {"matchLabels": member.selector},
        "updateStrategy": {"type": "OnDelete"},
        "podManagementPolicy": "Parallel",
        "template": driver.pod_template(member, settings),
    }
    owner = _owned_by(REPLICAS, Owner(member.spec.name, member.spec.key))
    return {**_object("apps/v1", "StatefulSet", member, owner), "spec": spec}


def belongings(member: ReplicaShape, settings: KubernetesSettings, set_uid: str) -> list[Body]:
    """The objects that the StatefulSet owns, except its Secret."""
    owner = _owned_by(STATEFUL_SETS, Owner(member.name, set_uid))
    found = [{**_object("v1", "Service", member, owner), "spec": _service(member)}]
    if member.spec.pod.executors.instances:
        template = _object("v1", "ConfigMap", member, owner, executors.template_name(member, settings))
        found.append({**template, "data": {TEMPLATE_FILE: executors.template_text(member, settings)}})
    return found


def spark_secret(member: ReplicaShape, set_uid: str, value: str) -> Body | None:
    """The Secret by which driver and executors authenticate to each other; the operator creates it once."""
    if not member.spec.pod.executors.instances:
        return None
    owner = _owned_by(STATEFUL_SETS, Owner(member.name, set_uid))
    return {**_object("v1", "Secret", member, owner), "type": "Opaque", "stringData": {SECRET_FILE: value}}


def disruption_budget(namespace: str, instance: Owner) -> Body:
    """A budget that lets at most one driver of an instance be evicted at a time. Executors are not in it."""
    labels = {**MANAGED, INSTANCE: instance.name, INSTANCE_UID: instance.uid}
    metadata = {
        "name": f"tidemark-instance-{instance.name}",
        "namespace": namespace,
        "labels": labels,
        "ownerReferences": [_owned_by(INSTANCES, instance)],
    }
    selector = {"matchLabels": {INSTANCE_UID: instance.uid, ROLE: DRIVER}}
    spec = {"maxUnavailable": 1, "selector": selector, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": metadata, "spec": spec}


def _service(member: ReplicaShape) -> dict[str, Any]:
    """A DNS name for the pod. It resolves before the pod is ready, so that the operator can ask why it is not."""
    return {
        "clusterIP": "None",
        "publishNotReadyAddresses": True,
        "selector": member.selector,
        "ports": [{"name": "grpc", "port": GRPC_PORT, "targetPort": "grpc", "protocol": "TCP"}],
    }


def _object(api_version: str, kind: str, member: ReplicaShape, owner: dict[str, Any], name: str = "") -> Body:
    metadata = {
        "name": name or member.name,
        "namespace": member.spec.namespace,
        "labels": member.labels(DRIVER),
        "ownerReferences": [owner],
    }
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata}


def _owned_by(resource: Resource, owner: Owner) -> dict[str, Any]:
    """An owner reference. It blocks the owner's deletion only for Tidemark's kinds: others need a right that the
    operator lacks."""
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "name": owner.name,
        "uid": owner.uid,
        "controller": True,
        "blockOwnerDeletion": resource in OURS,
    }
