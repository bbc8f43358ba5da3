"""The PostgreSQL wire server as the chart makes it: two pods behind a Service.

It is enabled by the commands of docs/guides/psql.md, with a certificate that clients check by the Service's name.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.authorities import Authority
from tests.cluster import pods
from tests.cluster.forward import forwarded
from tests.cluster.helm import Helm
from tests.cluster.object_store import ObjectStore
from tests.cluster.waiting import wait_for
from tests.cluster.whole.system import CREDENTIALS, SMALL, System
from tests.runbooks.guides import Shell, blocks
from tidemark_devcluster.node.cluster import OneNode

HOME = "tidemark-system"
HOST = f"tidemark-pgwire.{HOME}.svc"
SELECTOR = "--selector=app.kubernetes.io/component=pgwire"
STATUSES = "SELECT status, orders FROM statuses ORDER BY status"
ROLES = ("tidemark-read-data", "tidemark-write-data", "edit")


@dataclass(frozen=True)
class Served:
    """A release with the SQL port, a view, and one user."""

    system: System
    shell: Shell

    @property
    def authority(self) -> Path:
        return self.shell.folder / "ca.crt"

    def token(self, audience: str = "tidemark-gateway") -> str:
        return self.system.kubectl("create", "token", "reader", "--audience", audience).strip()

    def dsn(self, **options: object) -> str:
        found = {"host": HOST, "port": 5432, "dbname": self.system.team, "user": "reader", "sslmode": "verify-full"}
        found |= {"sslrootcert": self.authority, "password": self.token(), "connect_timeout": 20} | options
        return " ".join(f"{name}={value}" for name, value in found.items())

    @contextmanager
    def connected(self, **options: object) -> Iterator[psycopg.Connection[Any]]:
        """From this machine, through a forwarded port."""
        with (
            forwarded(self.system.node, HOME, "service/tidemark-pgwire", 5432) as port,
            psycopg.connect(self.dsn(hostaddr="127.0.0.1", port=port, **options), autocommit=True) as connection,
        ):
            yield connection

    def kubectl(self, *arguments: str) -> str:
        return self.system.node.kubectl("-n", HOME, *arguments)

    def pods(self) -> dict[str, dict[str, Any]]:
        """The pods that are ready, without those that are being deleted."""
        found = pods.get(self.system.node, HOME, "pods", SELECTOR)["items"]
        return {pod["metadata"]["name"]: pod for pod in found if is_ready(pod)}

    def wait_for_pods(self, number: int) -> dict[str, dict[str, Any]]:
        """Wait until the Service leads to `number` pods, and all of them are ready; return these pods."""

        def all_ready() -> dict[str, dict[str, Any]]:
            there = pods.get(self.system.node, HOME, "pods", SELECTOR)["items"]
            found = self.pods()
            return found if len(found) == len(there) == number and self._led_to() == set(found) else {}

        return wait_for(f"{number} pods", all_ready, lambda: self.kubectl("describe", "pods", SELECTOR))

    def _led_to(self) -> set[str]:
        slices = pods.get(
            self.system.node, HOME, "endpointslices", "--selector=kubernetes.io/service-name=tidemark-pgwire"
        )
        found = [endpoint for each in slices["items"] for endpoint in each["endpoints"] or ()]
        return {endpoint["targetRef"]["name"] for endpoint in found if endpoint["conditions"]["ready"]}


@pytest.fixture(scope="module")
def served(
    node: OneNode, helm: Helm, object_store: ObjectStore, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
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
    made = Served(system, shell)
    storage = {"location": system.location, "secretName": CREDENTIALS}
    system.apply("ComputeInstance", "default", {"storage": storage})
    system.apply("ComputeReplica", "r1", {"instance": "default", "resources": SMALL})
    system.kubectl("create", "serviceaccount", "reader")
    for role in ROLES:
        system.kubectl("create", "rolebinding", role, f"--clusterrole={role}", f"--serviceaccount={team}:reader")
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


def test_psql_reads_by_the_commands_of_the_guide(served: Served) -> None:
    """From outside, through a forwarded port; the certificate is checked by the Service's name."""
    if shutil.which("psql") is None:
        pytest.skip("psql is not installed: make test-packages")
    _, asked = blocks_of_start()
    with forwarded(served.system.node, HOME, "service/tidemark-pgwire", 5432) as port:
        shell = replace(served.shell, environ={**served.shell.environ, "PGPORT": str(port)})
        output = shell.run(asked)
    assert {tuple(map(str.strip, line.split("|"))) for line in output.splitlines() if "|" in line} == {
        ("status", "orders"),
        ("open", "2"),
        ("paid", "1"),
    }


def test_only_who_proves_to_be_the_server_gets_a_token(served: Served) -> None:
    """A client sends no token to a server of another authority or name, and a token for another audience is refused."""
    other = served.shell.folder / "other.crt"
    other.write_bytes(Authority.named("other").pair.certificate)
    for options, text in (
        ({"sslrootcert": other}, "certificate verify failed"),
        ({"host": "elsewhere"}, "does not match host name"),
        ({"password": served.token("elsewhere")}, "no valid token"),
    ):
        with pytest.raises(psycopg.OperationalError, match=text), served.connected(**options):
            pass


def test_pods_have_no_rights_and_reach_the_operator_alone(served: Served) -> None:
    """No token is mounted, and their account may do what an account may that nobody knows."""
    there = served.wait_for_pods(2)
    for name in there:
        inside = (
            "import os; print(os.getuid(), os.path.exists('/var/run/secrets'), sorted(os.listdir('/etc/tidemark')))"
        )
        output = served.kubectl("exec", name, "--", "python", "-c", inside)
        assert output.strip() == "65532 False ['gateway', 'tls']"
        output = served.kubectl("exec", name, "--", "ls", "/etc/tidemark/gateway")
        assert output.split() == ["ca.crt"]
    for namespace in (HOME, served.system.team):
        may = ("-n", namespace, "auth", "can-i", "--list", f"--as=system:serviceaccount:{HOME}")
        theirs, nobodys = (
            sorted(served.system.node.kubectl(*may[:-1], f"{may[-1]}:{account}").splitlines())
            for account in ("tidemark-pgwire", "nobody-knows")
        )
        assert theirs == nobodys

    policy = pods.get(served.system.node, HOME, "networkpolicy", "tidemark-pgwire")["spec"]
    assert {pod["metadata"]["name"] for pod in selected(served, policy["podSelector"])} == set(there)
    [gateway, dns] = policy["egress"]
    [peer] = gateway["to"]
    slices = pods.get(served.system.node, HOME, "endpointslice", "tidemark-gateway")
    leading = {address for endpoint in slices["endpoints"] for address in endpoint["addresses"]}
    assert leading <= {pod["status"]["podIP"] for pod in selected(served, peer["podSelector"])}
    assert [each["port"] for each in dns["ports"]] == [53, 53]
    budget = pods.get(served.system.node, HOME, "poddisruptionbudget", "tidemark-pgwire")["status"]
    assert (budget["currentHealthy"], budget["disruptionsAllowed"]) == (2, 1)


def blocks_of_start() -> tuple[Any, Any]:
    """The guide's commands that enable it, and those that ask."""
    enable, ask = [each for each in blocks("psql") if each.kind == "sh cluster" and each.heading == "Start"]
    return enable, ask


def selected(served: Served, selector: dict[str, Any]) -> list[dict[str, Any]]:
    labels = ",".join(f"{name}={value}" for name, value in selector["matchLabels"].items())
    return list(pods.get(served.system.node, HOME, "pods", f"--selector={labels}")["items"])


def is_ready(pod: dict[str, Any]) -> bool:
    conditions = {each["type"]: each["status"] for each in pod["status"].get("conditions", ())}
    return conditions.get("Ready") == "True" and "deletionTimestamp" not in pod["metadata"]
