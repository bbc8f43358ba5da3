"""An S3 server in the cluster: versitygw over an emptyDir, in an image of that one program."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster import pods
from tidemark_devcluster.node import archive
from tidemark_devcluster.node.cluster import OneNode

IMAGE = "tidemark.local/versitygw:1"
NAMESPACE = "object-store"
PORT = 7070
BUCKET = "tidemark"


@dataclass(frozen=True)
class ObjectStore:
    """The object store, as pods reach it."""

    access_key: str = field(default_factory=lambda: f"AK{secrets.token_hex(9).upper()}")
    secret_key: str = field(default_factory=lambda: secrets.token_hex(20))

    @property
    def environ(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": f"http://s3.{NAMESPACE}.svc:{PORT}",
            "AWS_ACCESS_KEY_ID": self.access_key,
            "AWS_SECRET_ACCESS_KEY": self.secret_key,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }

    def location(self, path: str) -> str:
        return f"s3://{BUCKET}/{path}"

    def secret(self, name: str) -> dict[str, Any]:
        """For pods that are to reach it."""
        return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": self.environ}


def install(node: OneNode, program: Path, make_folder: str, packed: Path) -> ObjectStore:
    """Start it, with one bucket, which is a folder; `make_folder` is an image with Python."""
    archive.write(program, IMAGE, packed)
    node.load(packed)
    store = ObjectStore()
    node.kubectl("apply", "--filename=-", stdin=pods.restricted_namespace(NAMESPACE))
    node.kubectl("delete", "-n", NAMESPACE, "pod/s3", "--ignore-not-found")  # an earlier run's, on a node that stays
    pods.apply(node, NAMESPACE, _service(), _pod(store, make_folder))
    node.kubectl("wait", "-n", NAMESPACE, "pod/s3", "--for=condition=Ready", "--timeout=110s")
    return store


def _service() -> dict[str, Any]:
    spec = {"selector": {"app": "s3"}, "ports": [{"port": PORT, "targetPort": PORT}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s3"}, "spec": spec}


def _pod(store: ObjectStore, make_folder: str) -> dict[str, Any]:
    keys = {"ROOT_ACCESS_KEY": store.access_key, "ROOT_SECRET_KEY": store.secret_key}
    made = pods.pod(
        "s3",
        IMAGE,
        ["--port", f":{PORT}", "--health", "/health", "posix", "/tmp"],
        env=[{"name": name, "value": value} for name, value in keys.items()],
        readinessProbe={"httpGet": {"path": "/health", "port": PORT}, "periodSeconds": 1, "timeoutSeconds": 10},
    )
    first = pods.pod("bucket", make_folder, [], command=["mkdir", f"/tmp/{BUCKET}"])
    (making,) = first["spec"]["containers"]
    made["spec"]["initContainers"] = [{**making, "name": "bucket"}]
    return made
