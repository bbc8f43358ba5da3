"""A release that was used is uninstalled, and the cluster is as it was before.

Objects that users made go by the commands of docs/guides/uninstall.md; its tables are on `deletionPolicy: Delete`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster import pods
from tests.cluster.helm import Helm
from tests.cluster.object_store import ObjectStore
from tests.cluster.waiting import wait_for
from tests.cluster.whole.system import CREDENTIALS, SMALL, System
from tests.cluster.whole.test_restore import files
from tests.runbooks.guides import Shell
from tidemark_devcluster.node.cluster import OneNode

# Kubernetes' own, which come and go by themselves; namespaces of other tests go when they like
PASSING = {"events", "endpoints", "namespaces"}
IN_EVERY_NAMESPACE = {"configmaps/kube-root-ca.crt", "serviceaccounts/default"}
KINDS = ("dataflows", "datasources", "computereplicas", "computeinstances")
DEFINITIONS = {f"{kind}.compute.tidemark.dev" for kind in KINDS}


@pytest.fixture
def before(node: OneNode, object_store: ObjectStore) -> set[str]:
    """The objects outside of namespaces, with those of the object store. Definitions that an earlier release left do
    not count."""
    return {name for name in objects(node) if name.partition("/")[2] not in DEFINITIONS}


@pytest.fixture
def used(before: set[str], node: OneNode, helm: Helm, object_store: ObjectStore, namespace: str) -> Iterator[System]:
    """A release, and a namespace in which a view of examples/ is up to date. Its tables are to go with it."""
    team = f"{namespace}-team"
    made = System(node, helm, object_store, namespace, team)
    node.kubectl("apply", "--filename=-", stdin=pods.restricted_namespace(team))
    pods.apply(node, team, object_store.secret(CREDENTIALS))
    helm.install(namespace, f"replicaNamespaces={{{team}}}")
    storage = {"location": object_store.location(team), "secretName": CREDENTIALS}
    made.apply("ComputeInstance", "default", {"storage": storage})
    made.apply("ComputeReplica", "r1", {"instance": "default", "resources": SMALL})
    made.example("20-tpch.yaml")
    made.example("40-revenue.yaml")
    for of in ("datasource/tpch", "dataflow/revenue"):
        made.kubectl("patch", of, "--type=merge", '--patch={"spec": {"deletionPolicy": "Delete"}}')
    made.wait_condition("dataflow", "revenue", "Ready")
    yield made
    node.kubectl("delete", "namespace", team, "--wait=false")


def test_uninstalling_leaves_no_object_behind(before: set[str], used: System, tmp_path: Path) -> None:
    """In the order of the guide: what users made, with its tables; the release, with what it made in the namespace of
    the replicas; the definitions. A tombstone would be an object that is left."""
    node, kept = used.node, {f"secrets/{CREDENTIALS}"} | IN_EVERY_NAMESPACE
    tables = f"{used.location}/{used.team}"
    with used.bucket() as settings:
        assert files(tables, settings)
    shell = Shell(node.layout.kubectl, node.layout.kubeconfig, used.team, tmp_path)
    shell.prepare()

    shell.follow("uninstall", "Uninstalling")

    with used.bucket() as settings:
        assert files(tables, settings) == []
    used.helm.uninstall(used.home)
    wait_for("all of the team to go", lambda: objects(node, used.team) == kept, lambda: str(objects(node, used.team)))

    def left() -> set[str]:
        return objects(node, used.home) - IN_EVERY_NAMESPACE

    wait_for("all of the release to go", lambda: not left(), lambda: str(left()))
    node.kubectl("delete", "customresourcedefinitions", *sorted(DEFINITIONS))
    # what the API server keeps of definitions goes after them
    wait_for("the cluster as it was", lambda: objects(node) <= before, lambda: str(objects(node) - before))


def objects(node: OneNode, namespace: str = "") -> set[str]:
    """All objects of all kinds in a namespace, or of those that are in none, as kind/name."""
    of = f"--namespaced={'true' if namespace else 'false'}"
    kinds = node.kubectl("api-resources", of, "--verbs=list", "--output=name").split()
    asked = ",".join(kind for kind in kinds if kind.partition(".")[0] not in PASSING)
    where = ("-n", namespace) if namespace else ()
    items = json.loads(node.kubectl("get", asked, *where, "--output=json"))["items"]
    return {f"{item['kind'].lower()}s/{item['metadata']['name']}" for item in items}
