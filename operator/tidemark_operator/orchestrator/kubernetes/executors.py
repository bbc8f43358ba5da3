"""Executors: their Spark configuration and their pod template.

Executors have no rights and no token. Spark makes their pods with the driver's rights. The driver's pod owns them, so
Kubernetes deletes them with it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tidemark_operator.orchestrator.kubernetes.names import EXECUTOR, ReplicaShape
from tidemark_operator.orchestrator.kubernetes.security import CONTAINER_SECURITY, pod_security
from tidemark_operator.orchestrator.kubernetes.settings import KubernetesSettings
from tidemark_operator.orchestrator.kubernetes.volumes import (
    AUTHENTICATION,
    SECRET_FILE,
    TEMPLATE_FILE,
    TEMPLATES,
    shared_volumes,
    store_settings,
)
from tidemark_operator.resources.manifest.pods import Requests

MASTER = "k8s://https://kubernetes.default.svc"
DRIVER_PORT, BLOCK_PORT = 7078, 7079
STARTS_SECONDS = 600
"""Time that an executor has to register; Spark gives up an executor after the same time."""
MIB = 1 << 20
TEMPLATE_DIGITS = 8
# The driver ends after so many losses within ten minutes, and Kubernetes restarts it with a back-off: this bounds the
# pods that Spark makes for executors that cannot start. The driver notices refused pods sooner
# (tidemark_replica/command_loop/executors.py).
LEAST_FAILURES, FAILURES_PER_EXECUTOR = 64, 24

# Settings of every replica; each was measured, or proved necessary, on a cluster.
ALWAYS = {
    "spark.submit.deployMode": "client",
    # the driver has rights on pods alone: Spark must not make or remove config maps, claims or services
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
    "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    "spark.kubernetes.driver.service.deleteOnTermination": "false",
    "spark.driver.port": str(DRIVER_PORT),
    "spark.driver.blockManager.port": str(BLOCK_PORT),
    "spark.blockManager.port": str(BLOCK_PORT),
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.failuresValidityInterval": "10m",
    # the time until a lost executor is noticed, and another one made
    "spark.kubernetes.executor.apiPollingInterval": "5s",
    "spark.kubernetes.executor.eventProcessingInterval": "200ms",
    # until this time has passed Spark keeps its request; each refused pod counts as a loss, one a second
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "10s",
    # by default a fetch from the address of a deleted pod waits for two minutes
    "spark.shuffle.io.connectionCreationTimeout": "3s",
    "spark.shuffle.io.retryWait": "1s",
    "spark.shuffle.io.maxRetries": "2",
    # in a file: Spark would otherwise write the secret into the spec of each executor's pod
    "spark.authenticate": "true",
    "spark.authenticate.secret.file": f"{AUTHENTICATION}/{SECRET_FILE}",
    "spark.network.crypto.enabled": "true",
}
# Kubernetes substitutes these from the driver's environment
POD_SETTINGS = {
    "spark.kubernetes.namespace": "$(POD_NAMESPACE)",
    "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
    # Spark gives executors the bound address
    "spark.driver.bindAddress": "$(POD_IP)",
    "spark.driver.host": "$(POD_IP)",
}


def spark_conf(member: ReplicaShape, settings: KubernetesSettings) -> dict[str, str]:
    """The Spark settings of a driver with executors; empty where Spark runs inside the driver."""
    executors = member.spec.pod.executors
    if not executors.instances:
        return {}
    heap = executors.memory_bytes // 2 // MIB
    cores = str(executors.cores)
    conf = {
        **ALWAYS,
        **POD_SETTINGS,
        "spark.kubernetes.container.image": settings.image,
        "spark.kubernetes.container.image.pullPolicy": settings.pull_policy,
        "spark.kubernetes.executor.podTemplateFile": f"{TEMPLATES}/{TEMPLATE_FILE}",
        "spark.executor.instances": str(executors.instances),
        "spark.executor.cores": cores,
        # Spark would otherwise count registered executors only, and plan too few partitions before they register
        "spark.default.parallelism": str(executors.instances * executors.cores),
        "spark.kubernetes.executor.request.cores": executors.requests.cpu or cores,
        "spark.kubernetes.executor.limit.cores": cores,
        # half for the JVM, half for the Python workers; the sum is the memory limit of the pod
        "spark.executor.memory": f"{heap}m",
        "spark.executor.memoryOverhead": f"{executors.memory_bytes // MIB - heap}m",
        "spark.executor.maxNumFailures": str(max(LEAST_FAILURES, FAILURES_PER_EXECUTOR * executors.instances)),
    }
    if settings.pull_secrets:
        conf["spark.kubernetes.container.image.pullSecrets"] = ",".join(settings.pull_secrets)
    return conf


def pod_template(member: ReplicaShape, settings: KubernetesSettings) -> dict[str, Any]:
    """The pod template of an executor. Spark adds program and name, and overrides image and resources. The template
    names these all the same, so that the driver can test with a dry run whether such a pod is admitted."""
    volumes, mounts = shared_volumes(member)
    wanted = member.spec.pod.executors
    memory = f"{wanted.memory_bytes // MIB}Mi"
    container: dict[str, Any] = {
        "name": "executor",
        "image": settings.image,
        "resources": {
            "limits": {"cpu": str(wanted.cores), "memory": memory},
            "requests": {"cpu": wanted.requests.cpu or str(wanted.cores), "memory": memory},
        },
        "securityContext": CONTAINER_SECURITY,
        "volumeMounts": mounts,
        # the executor opens this port once it has registered with its driver; before, it can compute nothing
        "startupProbe": {"tcpSocket": {"port": BLOCK_PORT}, "periodSeconds": 1, "failureThreshold": STARTS_SECONDS},
        **({"env": settings_of_store} if (settings_of_store := store_settings(member)) else {}),
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"labels": member.labels(EXECUTOR)},
        "spec": {
            "serviceAccountName": settings.executor_account,
            "automountServiceAccountToken": False,
            "enableServiceLinks": False,
            "securityContext": pod_security(settings.user),
            "containers": [container],
            "volumes": volumes,
        },
    }


def template_text(member: ReplicaShape, settings: KubernetesSettings) -> str:
    """The template as JSON text."""
    return json.dumps(pod_template(member, settings), indent=1, sort_keys=True)


def template_name(member: ReplicaShape, settings: KubernetesSettings) -> str:
    """The name of the template's ConfigMap. The name holds a digest of the text, so a later version of the operator
    does not change the template of a running driver."""
    digest = hashlib.sha256(template_text(member, settings).encode()).hexdigest()
    return f"{member.name}-{digest[:TEMPLATE_DIGITS]}"


def resources(cores: int, memory_bytes: int, requests: Requests) -> dict[str, Any]:
    """Limits and requests of a container."""
    limits = {"cpu": str(cores), "memory": str(memory_bytes)}
    return {
        "limits": limits,
        "requests": {"cpu": requests.cpu or limits["cpu"], "memory": requests.memory or limits["memory"]},
    }
