"""One release with the SQL port for all tests of this folder: each leaves two pods that serve."""

from __future__ import annotations

import secrets
from collections.abc import Iterator

import pytest

from tests.cluster import pods
from tests.cluster.helm import Helm
from tests.cluster.object_store import ObjectStore
from tests.cluster.pgwire.sql_port import HOME, STATUSES, SqlPort, blocks_of_start
from tests.cluster.waiting import wait_for
from tests.cluster.whole.system import CREDENTIALS, SMALL, System
from tests.runbooks.guides import Shell
from tidemark_devcluster.node.cluster import OneNode

ROLES = {"reader": ("tidemark-read-data", "tidemark-write-data", "edit"), "watcher": ("tidemark-read-data", "view")}


@pytest.fixture(scope="package")
def served(
    node: OneNode, helm: Helm, object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SqlPort]:
    """A release, a small replica, and the SQL port as the guide enables it; then a table and a view, by SQL."""
    team = f"team-{secrets.token_hex(3)}"
    system = System(node, helm, object_store, HOME, team)
    for namespace in (HOME, team):
        node.kubectl("apply", "--filename=-", stdin=pods.restricted_namespace(namespace))
    pods.apply(node, team, object_store.secret(CREDENTIALS))
    helm.install(HOME, f"replicaNamespaces={{{team}}}")
    folder = tmp_path_factory.mktemp("guide")
    environ = {f"HELM_{name}_HOME": str(helm.home / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
    shell = Shell(node.layout.kubectl, node.layout.kubeconfig, team, folder, environ, helm.program)
    shell.prepare()
    made = SqlPort(system, shell)
    storage = {"location": system.location, "secretName": CREDENTIALS}
    system.apply("ComputeInstance", "default", {"storage": storage})
    system.apply("ComputeReplica", "r1", {"instance": "default", "resources": SMALL})
    for account, roles in ROLES.items():
        system.kubectl("create", "serviceaccount", account)
        for role in roles:
            binding = ("create", "rolebinding", f"{account}-{role}", f"--clusterrole={role}")
            system.kubectl(*binding, f"--serviceaccount={team}:{account}")
    shell.run(blocks_of_start()[0])
    made.wait_for_pods(2)
    system.wait_condition("computereplica", "r1", "Online")
    with made.connected() as connection:
        connection.execute("SET tidemark.wait = on")
        options = "WITH (tick = '200ms', deletion_policy = delete)"
        columns = "(id bigint, status text, PRIMARY KEY (id))"
        connection.execute(f"CREATE TABLE orders {columns} {options}".encode())
        connection.execute("INSERT INTO orders VALUES (1, 'open'), (2, 'open'), (3, 'paid')")
        count = "SELECT status, count(*) AS orders FROM orders GROUP BY status"
        connection.execute(f"CREATE MATERIALIZED VIEW statuses WITH (deletion_policy = delete) AS {count}".encode())
        wait_for("the view", lambda: connection.execute(STATUSES).fetchall() == [("open", 2), ("paid", 1)])
    yield made
    system.kubectl("delete", "dataflows,datasources,computereplicas,computeinstances", "--all")
    helm.uninstall(HOME)
    node.kubectl("delete", "namespace", team, HOME)
