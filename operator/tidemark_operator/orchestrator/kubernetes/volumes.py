"""The volumes of a driver, and those that its executors share.

/tmp       temporary files     /scratch   arrangements: an emptyDir, or a claim with a folder per replica and shape
/local     Spark's own files   <path>     the claims of spec.volumes

The Secrets of the object store and of sources are mounted, not in the environment: a change in them takes effect
without a restart. The driver alone has those of sources: it ingests.
"""

from __future__ import annotations

from typing import Any

from tidemark_operator.certificates.names import MOUNT_PATH, replica_secret
from tidemark_operator.orchestrator.interface import ICEBERG, SOURCE_SECRETS, STORE_SETTINGS
from tidemark_operator.orchestrator.kubernetes.names import ReplicaShape
from tidemark_operator.orchestrator.kubernetes.security import TMP_BYTES, claim, ephemeral, mount, secret

TMP, LOCAL, SCRATCH = "/tmp", "/local", "/scratch"
AUTHENTICATION, TEMPLATES, STORE = "/etc/tidemark/spark", "/etc/tidemark/executor", "/etc/tidemark/store"
SOURCES = "/etc/tidemark/source-secrets"
TEMPLATE_FILE, SECRET_FILE = "pod.yaml", "secret"
# Spark uses volumes of this name for its files, instead of an emptyDir without a size limit
SPARK_LOCAL = "spark-local-dir-1"
Volumes = list[dict[str, Any]]


def shared_volumes(member: ReplicaShape) -> tuple[Volumes, Volumes]:
    """Volumes and mounts of every pod of a replica."""
    pod = member.spec.pod
    volumes = [ephemeral("tmp", TMP_BYTES), ephemeral(SPARK_LOCAL, pod.scratch.bytes)]
    mounts = [mount("tmp", TMP), mount(SPARK_LOCAL, LOCAL)]
    if pod.scratch.claim:
        volumes.append(claim("scratch", pod.scratch.claim))
        mounts.append(mount("scratch", SCRATCH))
    for number, volume in enumerate(pod.volumes):
        volumes.append(claim(f"volume-{number}", volume.claim, volume.read_only))
        mounts.append(mount(f"volume-{number}", volume.path, volume.read_only))
    if pod.credentials:
        volumes.append(secret("store", pod.credentials, optional=True))
        mounts.append(mount("store", STORE, read_only=True))
    if pod.executors.instances:
        volumes.append(secret("spark", member.name))
        mounts.append(mount("spark", AUTHENTICATION, read_only=True))
    return volumes, mounts


def store_settings(member: ReplicaShape) -> Volumes:
    """The environment of every process that reads or writes shards: where the entries of the Secret are."""
    return [{"name": STORE_SETTINGS, "value": STORE}] if member.spec.pod.credentials else []


def source_secrets(member: ReplicaShape) -> Volumes:
    """The environment of the driver: where the folders of the Secrets of sources are."""
    return [{"name": SOURCE_SECRETS, "value": SOURCES}] if member.spec.pod.source_secrets else []


def iceberg(member: ReplicaShape) -> Volumes:
    """The environment of the driver: the Iceberg catalogue."""
    text = member.spec.pod.iceberg
    return [{"name": ICEBERG, "value": text}] if text else []


def driver_volumes(member: ReplicaShape, template: str) -> tuple[Volumes, Volumes]:
    """Volumes and mounts of the driver. `template`: the ConfigMap with the pod template of its executors."""
    volumes, mounts = shared_volumes(member)
    volumes.append(secret("tls", replica_secret(member.spec.name)))
    mounts.append(mount("tls", MOUNT_PATH, read_only=True))
    pod = member.spec.pod
    for number, name in enumerate(pod.source_secrets):
        volumes.append(secret(f"source-secret-{number}", name, optional=True))
        mounts.append(mount(f"source-secret-{number}", f"{SOURCES}/{name}", read_only=True))
    if not pod.scratch.claim:
        volumes.append(ephemeral("scratch", pod.scratch.bytes))
        mounts.append(mount("scratch", SCRATCH))
    if pod.executors.instances:
        volumes.append({"name": "executor", "configMap": {"name": template}})
        mounts.append(mount("executor", TEMPLATES, read_only=True))
    return volumes, mounts
