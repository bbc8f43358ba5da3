"""One system for all tests of this folder: each leaves it as it found it, ready."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.cluster import pods
from tests.cluster.helm import Helm
from tests.cluster.object_store import ObjectStore
from tests.cluster.whole.gateway import READER, let_read
from tests.cluster.whole.system import CREDENTIALS, REPLICA, System, shared_folder
from tidemark_devcluster.node.cluster import OneNode

EXAMPLES = ("20-tpch", "40-revenue", "41-regions", "42-pricing", "43-hourly", "50-order-log")


@pytest.fixture(scope="package")
def system(node: OneNode, helm: Helm, object_store: ObjectStore) -> Iterator[System]:
    """Installed, with a replica whose two executors are pods, a source and what reads it of examples/."""
    run = secrets.token_hex(3)
    made = System(node, helm, object_store, f"tidemark-{run}", f"team-{run}")
    for namespace in (made.home, made.team):
        node.kubectl("apply", "--filename=-", stdin=pods.restricted_namespace(namespace))
    pods.apply(node, made.team, *shared_folder(node, made.team), object_store.secret(CREDENTIALS))
    helm.install(made.home, f"replicaNamespaces={{{made.team}}}")
    storage = {"location": made.location, "secretName": CREDENTIALS}
    made.apply("ComputeInstance", "default", {"storage": storage, "readPolicy": {"lag": "10m"}})
    made.apply("ComputeReplica", "r1", REPLICA)
    for example in EXAMPLES:
        made.example(f"{example}.yaml")
    made.kubectl("create", "serviceaccount", READER)
    let_read(made, READER)
    yield made
    made.kubectl("delete", "dataflows,datasources,computereplicas,computeinstances", "--all")
    helm.uninstall(made.home)
    node.kubectl("delete", "namespace", made.team, made.home)
    node.kubectl("delete", "persistentvolume", f"scratch-{made.team}")


@pytest.fixture
def ready(system: System) -> Iterator[System]:
    """Before a test and after it, all is well."""
    system.wait_ready()
    for dataflow in ("revenue", "regions", "pricing", "hourly", "orderlog"):
        system.wait_condition("dataflow", dataflow, "Hydrated")
    yield system
    system.wait_ready()
