"""Security settings and volumes of every pod: PodSecurity `restricted`, a read-only root, writable folders."""

from __future__ import annotations

from typing import Any

TMP_BYTES = 1 << 30
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def pod_security(user: int | None) -> dict[str, Any]:
    """The security context of a pod. `user` None: the cluster chooses the user (OpenShift assigns one per
    namespace)."""
    ids = {} if user is None else {"runAsUser": user, "runAsGroup": user, "fsGroup": user}
    return {"runAsNonRoot": True, **ids, "seccompProfile": {"type": "RuntimeDefault"}}


def ephemeral(name: str, bytes: int) -> dict[str, Any]:
    """An emptyDir with a size limit in bytes."""
    return {"name": name, "emptyDir": {"sizeLimit": str(bytes)}}


def secret(name: str, secret_name: str, optional: bool = False) -> dict[str, Any]:
    """A Secret as a volume. `optional`: pods start without the Secret, and see it once it exists."""
    source = {"secretName": secret_name, "defaultMode": 0o440}
    return {"name": name, "secret": {**source, "optional": True} if optional else source}


def claim(name: str, claim_name: str, read_only: bool = False) -> dict[str, Any]:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim_name, "readOnly": read_only}}


def mount(name: str, path: str, read_only: bool = False) -> dict[str, Any]:
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}
