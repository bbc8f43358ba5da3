"""The object store in the cluster, which instances keep their shards in."""

from __future__ import annotations

from pathlib import Path

from tests.cluster import pods
from tests.cluster.object_store import ObjectStore
from tidemark_devcluster.images.build import Image
from tidemark_devcluster.node.cluster import OneNode

JOB = Path(__file__).with_name("jobs") / "objects.py"


def test_a_pod_keeps_a_table_in_the_object_store(
    node: OneNode, namespace: str, images: dict[str, Image], object_store: ObjectStore
) -> None:
    """Found by its service's name, with credentials of a Secret."""
    location = {"name": "LOCATION", "value": object_store.location(namespace)}
    made = pods.pod(
        "writer",
        images["replica"].name,
        ["objects_job"],
        env=[location],
        envFrom=[{"secretRef": {"name": "credentials"}}],
    )
    files = pods.config_map("job", {"objects_job.py": JOB.read_text()})
    pods.apply(node, namespace, files, object_store.secret("credentials"))
    assert pods.run(node, namespace, pods.with_files(made, "job")).strip() == "1 20 content"
