"""What every pod of ours has: PodSecurity `restricted`, a root file system that is only read, folders to write to."""

from __future__ import annotations

from typing import Any

TMP_BYTES = 1 << 30
CONTAINER_SECURITY = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}


def pod_security(user: int | None) -> dict[str, Any]:
    """None: whom the cluster chooses, as one does that gives each namespace users of its own."""
    who = {} if user is None else {"runAsUser": user, "runAsGroup": user, "fsGroup": user}
    return {"runAsNonRoot": True, **who, "seccompProfile": {"type": "RuntimeDefault"}}


def ephemeral(name: str, bytes: int) -> dict[str, Any]:
    """A volume that goes with the pod, and has an end."""
    return {"name": name, "emptyDir": {"sizeLimit": str(bytes)}}


def secret(name: str, secret_name: str, optional: bool = False) -> dict[str, Any]:
    """`optional`: pods start without it, and have it once it is there."""
    of = {"secretName": secret_name, "defaultMode": 0o440}
    return {"name": name, "secret": {**of, "optional": True} if optional else of}


def claim(name: str, claim_name: str, read_only: bool = False) -> dict[str, Any]:
    return {"name": name, "persistentVolumeClaim": {"claimName": claim_name, "readOnly": read_only}}


def mount(name: str, path: str, read_only: bool = False) -> dict[str, Any]:
    return {"name": name, "mountPath": path, **({"readOnly": True} if read_only else {})}
