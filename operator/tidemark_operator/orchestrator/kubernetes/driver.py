"""The pod template of the driver: the replica program, with Spark inside it or with executors in pods of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tidemark_operator.certificates.names import MOUNT_PATH
from tidemark_operator.orchestrator.kubernetes.executors import (
    BLOCK_PORT,
    DRIVER_PORT,
    MASTER,
    resources,
    spark_conf,
    template_name,
)
from tidemark_operator.orchestrator.kubernetes.names import DRIVER, GRPC_PORT, INSTANCE_UID, ROLE, ReplicaShape
from tidemark_operator.orchestrator.kubernetes.security import CONTAINER_SECURITY, pod_security
from tidemark_operator.orchestrator.kubernetes.settings import KubernetesSettings
from tidemark_operator.orchestrator.kubernetes.volumes import (
    LOCAL,
    SCRATCH,
    driver_volumes,
    iceberg,
    source_secrets,
    store_settings,
)

METRICS_PORT = 9090
GRACE_SECONDS = 30
CONTAINER = "replica"
FIELDS = {"POD_NAME": "metadata.name", "POD_NAMESPACE": "metadata.namespace", "POD_IP": "status.podIP"}


def pod_template(member: ReplicaShape, settings: KubernetesSettings) -> dict[str, Any]:
    """The pod template of a replica's StatefulSet."""
    with_executors = bool(member.spec.pod.executors.instances)
    volumes, mounts = driver_volumes(member, template_name(member, settings))
    spec: dict[str, Any] = {
        # the driver needs rights for one purpose: to make executors
        "automountServiceAccountToken": with_executors,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": GRACE_SECONDS,
        "securityContext": pod_security(settings.user),
        "affinity": _anti_affinity(member),
        "containers": [_container(member, settings, mounts)],
        "volumes": volumes,
    }
    if with_executors:
        spec["serviceAccountName"] = settings.driver_account
    if settings.pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in settings.pull_secrets]
    return {"metadata": {"labels": member.labels(DRIVER)}, "spec": spec}


def _container(member: ReplicaShape, settings: KubernetesSettings, mounts: list[dict[str, Any]]) -> dict[str, Any]:
    spec = member.spec
    alive = {"tcpSocket": {"port": "grpc"}}
    fields = [{"name": n, "valueFrom": {"fieldRef": {"fieldPath": path}}} for n, path in FIELDS.items()]
    traced = [{"name": name, "value": value} for name, value in settings.tracing]
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": settings.image,
        "imagePullPolicy": settings.pull_policy,
        "args": ["tidemark_replica", *_arguments(member, settings)],
        "env": [*fields, *store_settings(member), *source_secrets(member), *iceberg(member), *traced],
        "ports": _ports(bool(spec.pod.executors.instances)),
        # the replica listens within seconds, whatever Spark does, until it ends; the operator checks that it answers
        "startupProbe": {**alive, "periodSeconds": 2, "failureThreshold": 60},
        "readinessProbe": {**alive, "periodSeconds": 5},
        "livenessProbe": {**alive, "periodSeconds": 20, "failureThreshold": 6, "timeoutSeconds": 5},
        "resources": resources(spec.cores, spec.memory_bytes, spec.pod.requests),
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": mounts,
    }
    return container


def _arguments(member: ReplicaShape, settings: KubernetesSettings) -> list[str]:
    spec = member.spec
    arguments = [
        f"--listen=0.0.0.0:{GRPC_PORT}",
        f"--tls-dir={MOUNT_PATH}",
        f"--scratch={SCRATCH}/{member.name}",
        f"--spark-files={LOCAL}",
        f"--name={spec.namespace}/{member.name}",
        f"--cores={spec.cores}",
        f"--memory={spec.memory_bytes}",
        f"--metrics-port={METRICS_PORT}",
        "--metrics-host=0.0.0.0",
        *spec.engine,
    ]
    if not spec.pod.scratch.claim:  # a claim is bounded by its disk
        arguments.append(f"--scratch-size={spec.pod.scratch.bytes}")
    conf = spark_conf(member, settings)
    if conf:
        arguments += [f"--master={MASTER}", f"--executor-labels={_selector(member.executors)}"]
    return [*arguments, *(f"--spark-conf={name}={value}" for name, value in sorted(conf.items()))]


def _selector(labels: Mapping[str, str]) -> str:
    return ",".join(f"{name}={value}" for name, value in labels.items())


def _ports(with_executors: bool) -> list[dict[str, Any]]:
    ports = {"grpc": GRPC_PORT, "metrics": METRICS_PORT}
    if with_executors:
        ports |= {"driver-rpc": DRIVER_PORT, "blockmanager": BLOCK_PORT}
    return [{"name": name, "containerPort": port, "protocol": "TCP"} for name, port in ports.items()]


def _anti_affinity(member: ReplicaShape) -> dict[str, Any]:
    """Prefer different nodes for the replicas of an instance: they are copies of each other."""
    others = {INSTANCE_UID: member.spec.instance.uid, ROLE: DRIVER}
    term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": others}}
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    return {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}
