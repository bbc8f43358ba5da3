"""Pods as the chart makes them: no privilege, read-only root, a user that the image does not know."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from tests.waiting import BOUND
from tidemark_devcluster.node.cluster import OneNode

# in no image's /etc/passwd
STRANGER = 12345
SECURITY: dict[str, Any] = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "capabilities": {"drop": ["ALL"]},
}
POD_SECURITY: dict[str, Any] = {
    "runAsNonRoot": True,
    "runAsUser": STRANGER,
    "runAsGroup": STRANGER,
    "fsGroup": STRANGER,
    "seccompProfile": {"type": "RuntimeDefault"},
}
POLL_SECONDS = 0.5
JOB_FOLDER = "/etc/job"


def restricted_namespace(name: str) -> str:
    label = "pod-security.kubernetes.io/enforce"
    metadata = {"name": name, "labels": {label: "restricted", f"{label}-version": "latest"}}
    return json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def pod(name: str, image: str, arguments: Sequence[str], **container: Any) -> dict[str, Any]:
    """One that runs once, with a /tmp of its own."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never",
            "enableServiceLinks": False,
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 5,
            "securityContext": POD_SECURITY,
            "containers": [
                {
                    "name": "main",
                    "image": image,
                    "imagePullPolicy": "Never",
                    "args": list(arguments),
                    "securityContext": SECURITY,
                    # whoever asks for no processor has none on a busy machine
                    "resources": {"requests": {"cpu": "100m"}},
                    "volumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
                    **container,
                }
            ],
            "volumes": [{"name": "tmp", "emptyDir": {}}],
        },
    }


def with_files(made: dict[str, Any], config_map: str) -> dict[str, Any]:
    """The same with the files of a ConfigMap, from which Python imports."""
    spec = made["spec"]
    spec["volumes"].append({"name": "job", "configMap": {"name": config_map}})
    main = spec["containers"][0]
    main["volumeMounts"] = [*main["volumeMounts"], {"name": "job", "mountPath": JOB_FOLDER}]
    main["env"] = [*main.get("env", []), {"name": "PYTHONPATH", "value": JOB_FOLDER}]
    return made


def config_map(name: str, files: Mapping[str, str]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": dict(files)}


def apply(node: OneNode, namespace: str, *objects: dict[str, Any]) -> None:
    listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
    node.kubectl("apply", "-n", namespace, "--filename=-", stdin=json.dumps(listed))


def get(node: OneNode, namespace: str, *which: str) -> Any:
    return json.loads(node.kubectl("get", "-n", namespace, *which, "--output=json"))


def logs(node: OneNode, namespace: str, name: str) -> str:
    return node.kubectl("logs", "-n", namespace, name)


def run(node: OneNode, namespace: str, made: dict[str, Any], seconds: float = BOUND) -> str:
    """Run a pod to its end, which must be a good one; what it said."""
    apply(node, namespace, made)
    name = made["metadata"]["name"]
    deadline = time.monotonic() + seconds
    while phase(node, namespace, name) not in ("Succeeded", "Failed"):
        assert time.monotonic() < deadline, node.kubectl("describe", "-n", namespace, "pod", name)
        time.sleep(POLL_SECONDS)
    output = logs(node, namespace, name)
    assert phase(node, namespace, name) == "Succeeded", output
    return output


def phase(node: OneNode, namespace: str, name: str) -> str:
    return str(get(node, namespace, "pod", name)["status"]["phase"])
