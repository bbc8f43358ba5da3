"""The PostgreSQL wire server as the chart makes it: two pods behind a Service.

It is enabled by the commands of docs/guides/psql.md, with a certificate that clients check by the Service's name.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any

import psycopg
import pytest

from tests.authorities import Authority
from tests.cluster import pods
from tests.cluster.forward import forwarded
from tests.cluster.pgwire.sql_port import HOME, SqlPort, blocks_of_start


def test_psql_reads_by_the_commands_of_the_guide(served: SqlPort) -> None:
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


def test_only_who_proves_to_be_the_server_gets_a_token(served: SqlPort) -> None:
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


def test_pods_have_no_rights_and_reach_the_operator_alone(served: SqlPort) -> None:
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


def selected(served: SqlPort, selector: dict[str, Any]) -> list[dict[str, Any]]:
    labels = ",".join(f"{name}={value}" for name, value in selector["matchLabels"].items())
    return list(pods.get(served.system.node, HOME, "pods", f"--selector={labels}")["items"])
