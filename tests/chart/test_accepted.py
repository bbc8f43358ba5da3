"""The API server takes what the chart renders, and its rights are those the operator needs and no more."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import yaml

from tests.chart.render import CASES, CHART, NAMESPACE, RENDERED, helm, render, template
from tests.chart.test_chart import documents
from tidemark_devcluster.errors import KubectlFailed
from tidemark_devcluster.plane import ControlPlane

OURS = ("computeinstances", "computereplicas", "datasources", "dataflows")


@pytest.fixture(scope="module")
def cluster(kinds_installed: ControlPlane) -> ControlPlane:
    """A control plane with our kinds and the namespaces that the rendered files name."""
    for name in (NAMESPACE, "team-a", "team-b"):
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        kinds_installed.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(namespace))
    return kinds_installed


@pytest.mark.cluster
@pytest.mark.parametrize("case", CASES)
def test_the_api_server_takes_what_was_rendered(case: str, cluster: ControlPlane) -> None:
    """All of it, strictly, without keeping it."""
    taken = cluster.kubectl("apply", "--dry-run=server", "-f", str(RENDERED / f"{case}.yaml"))

    assert len(taken.splitlines()) == len(documents(case))


@pytest.fixture(scope="module")
def rights(cluster: ControlPlane) -> ControlPlane:
    """The confined release's roles and bindings, applied."""
    kinds = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole")
    bodies: list[dict[str, Any]] = [body for body in documents("confined") if body["kind"] in kinds]
    cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(bodies))
    return cluster


def may(cluster: ControlPlane, account: str, verb: str, what: str, namespace: str) -> bool:
    """`what` is resource.group, with /name or /=subresource."""
    who = f"--as=system:serviceaccount:{NAMESPACE}:{account}"
    resource, _, subresource = what.partition("/=")
    arguments = [verb, resource, *([f"--subresource={subresource}"] if subresource else [])]
    try:
        return cluster.kubectl("auth", "can-i", *arguments, "-n", namespace, who).strip() == "yes"
    except KubectlFailed:  # "no" is an exit status too
        return False


ALLOWED = [
    *(("team-a", "watch", f"{plural}.compute.tidemark.dev") for plural in OURS),
    *(("team-b", "patch", f"{plural}.compute.tidemark.dev/=status") for plural in OURS),
    ("team-a", "create", "controllerrevisions.apps"),
    ("team-a", "delete", "controllerrevisions.apps"),
    ("team-a", "create", "events.events.k8s.io"),
    (NAMESPACE, "create", "leases.coordination.k8s.io"),
    (NAMESPACE, "update", "leases.coordination.k8s.io/tidemark-operator"),
]
FORBIDDEN = [
    ("team-a", "get", "secrets"),
    ("team-a", "create", "pods"),
    ("team-a", "create", "dataflows.compute.tidemark.dev"),
    ("team-a", "delete", "dataflows.compute.tidemark.dev"),
    ("default", "get", "dataflows.compute.tidemark.dev"),
    (NAMESPACE, "update", "leases.coordination.k8s.io/other"),
    ("team-a", "create", "serviceaccounts/=token"),
]


@pytest.mark.cluster
@pytest.mark.parametrize(("namespace", "verb", "what"), ALLOWED)
def test_the_operator_may_do_its_work(namespace: str, verb: str, what: str, rights: ControlPlane) -> None:
    """In the namespaces it looks after, and with its own Lease."""
    assert may(rights, "tidemark-operator", verb, what, namespace)


@pytest.mark.cluster
@pytest.mark.parametrize(("namespace", "verb", "what"), FORBIDDEN)
def test_the_operator_may_do_nothing_else(namespace: str, verb: str, what: str, rights: ControlPlane) -> None:
    """No secrets, no pods, no resources of its own making, no other namespace, nobody else's Lease."""
    assert not may(rights, "tidemark-operator", verb, what, namespace)


@pytest.mark.cluster
def test_the_planner_may_do_nothing(rights: ControlPlane) -> None:
    """It has an account so as not to have the namespace's default one."""
    assert not may(rights, "tidemark-planner", "get", "dataflows.compute.tidemark.dev", "team-a")


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_helm_renders_what_is_kept(case: str) -> None:
    """The files beside this test are what helm makes of the chart."""
    assert render(case) == (RENDERED / f"{case}.yaml").read_text()


@pytest.mark.slow
def test_helm_finds_no_fault_and_the_server_takes_the_whole_release(cluster: ControlPlane) -> None:
    """With the CRDs, as templates."""
    whole = template()

    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))
    taken = cluster.kubectl("apply", "--dry-run=server", "-f", "-", stdin=whole)
    assert taken.count("customresourcedefinition.apiextensions.k8s.io/") == 4


@pytest.mark.slow
@pytest.mark.parametrize(
    ("option", "said"),
    [("bogus=1", "bogus"), ("watchNamespaces={A_b}", "watchNamespaces"), ("operator.image=x", "image")],
)
def test_helm_refuses_values_that_are_not_in_the_schema(option: str, said: str) -> None:
    """With the value named."""
    with pytest.raises(subprocess.CalledProcessError) as error:
        template("--set", option)

    assert said in error.value.stderr
