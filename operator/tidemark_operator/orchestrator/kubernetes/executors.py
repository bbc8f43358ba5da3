"""Executors: what Spark is told of them, and the template of their pods.

They have no rights and no token. Spark makes the pods, with the driver's rights, and owns them by the driver's pod, so
that they go with it.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from tidemark_operator.orchestrator.interface import Requests
from tidemark_operator.orchestrator.kubernetes.names import EXECUTOR, Member
from tidemark_operator.orchestrator.kubernetes.security import CONTAINER_SECURITY, pod_security
from tidemark_operator.orchestrator.kubernetes.settings import Settings
from tidemark_operator.orchestrator.kubernetes.volumes import (
    AUTHENTICATION,
    SECRET_FILE,
    TEMPLATE_FILE,
    TEMPLATES,
    shared_volumes,
    store_settings,
)

MASTER = "k8s://https://kubernetes.default.svc"
DRIVER_PORT, BLOCK_PORT = 7078, 7079
STARTS_SECONDS = 600
"""So long an executor may take until it has registered; Spark gives one up after as long."""
MIB = 1 << 20
TEMPLATE_DIGITS = 8
# losses within ten minutes after which the driver gives up, and Kubernetes starts it again ever more rarely: executors
# that cannot come up are not made without end. Of pods that are refused the driver notices sooner (its executors.py).
LEAST_FAILURES, FAILURES_PER_EXECUTOR = 64, 24

# What was measured, or needed, on a cluster; the same for all replicas.
ALWAYS = {
    "spark.submit.deployMode": "client",
    # rights on pods alone: no config maps, claims or services are made or removed
    "spark.kubernetes.executor.disableConfigMap": "true",
    "spark.kubernetes.driver.ownPersistentVolumeClaim": "false",
    "spark.kubernetes.driver.reusePersistentVolumeClaim": "false",
    "spark.kubernetes.driver.service.deleteOnTermination": "false",
    "spark.driver.port": str(DRIVER_PORT),
    "spark.driver.blockManager.port": str(BLOCK_PORT),
    "spark.blockManager.port": str(BLOCK_PORT),
    "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.executor.failuresValidityInterval": "10m",
    # how soon a lost executor is noticed, and another one made
    "spark.kubernetes.executor.apiPollingInterval": "5s",
    "spark.kubernetes.executor.eventProcessingInterval": "200ms",
    # until then nobody can tell Spark to ask for fewer, each refusal counts as a loss, and there is one a second
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "10s",
    # a fetch from the address of a pod that is gone would wait for two minutes
    "spark.shuffle.io.connectionCreationTimeout": "3s",
    "spark.shuffle.io.retryWait": "1s",
    "spark.shuffle.io.maxRetries": "2",
    # by a file: otherwise the secret stands in the spec of each executor's pod
    "spark.authenticate": "true",
    "spark.authenticate.secret.file": f"{AUTHENTICATION}/{SECRET_FILE}",
    "spark.network.crypto.enabled": "true",
}
# filled in by Kubernetes, from the driver's environment
OF_THE_POD = {
    "spark.kubernetes.namespace": "$(POD_NAMESPACE)",
    "spark.kubernetes.driver.pod.name": "$(POD_NAME)",
    # executors are given the address that is bound
    "spark.driver.bindAddress": "$(POD_IP)",
    "spark.driver.host": "$(POD_IP)",
}


def spark_conf(member: Member, settings: Settings) -> dict[str, str]:
    """Without executors there is nothing to tell: Spark runs in the driver."""
    executors = member.spec.pod.executors
    if not executors.instances:
        return {}
    heap = executors.memory_bytes // 2 // MIB
    cores = str(executors.cores)
    conf = {
        **ALWAYS,
        **OF_THE_POD,
        "spark.kubernetes.container.image": settings.image,
        "spark.kubernetes.container.image.pullPolicy": settings.pull_policy,
        "spark.kubernetes.executor.podTemplateFile": f"{TEMPLATES}/{TEMPLATE_FILE}",
        "spark.executor.instances": str(executors.instances),
        "spark.executor.cores": cores,
        # also of what is rendered before they have registered
        "spark.default.parallelism": str(executors.instances * executors.cores),
        "spark.kubernetes.executor.request.cores": executors.requests.cpu or cores,
        "spark.kubernetes.executor.limit.cores": cores,
        # half for the JVM, half for Python workers: the limit of the pod is the sum
        "spark.executor.memory": f"{heap}m",
        "spark.executor.memoryOverhead": f"{executors.memory_bytes // MIB - heap}m",
        "spark.executor.maxNumFailures": str(max(LEAST_FAILURES, FAILURES_PER_EXECUTOR * executors.instances)),
    }
    if settings.pull_secrets:
        conf["spark.kubernetes.container.image.pullSecrets"] = ",".join(settings.pull_secrets)
    return conf


def pod_template(member: Member, settings: Settings) -> dict[str, Any]:
    """Of an executor. Spark adds the program and its name, and says image and resources itself; they are here so that
    the driver can try whether such a pod would be admitted."""
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
        # it listens there once its driver has taken it in: before, it can compute nothing
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


def template_text(member: Member, settings: Settings) -> str:
    """The template as a file."""
    return json.dumps(pod_template(member, settings), indent=1, sort_keys=True)


def template_name(member: Member, settings: Settings) -> str:
    """Of the ConfigMap. Another text is another one: what a running driver makes executors from does not change with a
    later version of the operator."""
    digest = hashlib.sha256(template_text(member, settings).encode()).hexdigest()
    return f"{member.name}-{digest[:TEMPLATE_DIGITS]}"


def resources(cores: int, memory_bytes: int, requests: Requests) -> dict[str, Any]:
    """Of a container."""
    limits = {"cpu": str(cores), "memory": str(memory_bytes)}
    return {
        "limits": limits,
        "requests": {"cpu": requests.cpu or limits["cpu"], "memory": requests.memory or limits["memory"]},
    }
