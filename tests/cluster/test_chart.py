"""The chart on a node: installed, at work, and gone again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster import pods
from tests.cluster.helm import CHART, Helm
from tests.cluster.waiting import wait_for
from tests.cluster.whole.system import GROUP
from tidemark_devcluster.node.cluster import OneNode

OF_THE_RELEASE = "--selector=app.kubernetes.io/instance=tidemark"
NAMESPACED = "deployments,services,pods,serviceaccounts,configmaps,secrets,roles,rolebindings,networkpolicies"


@pytest.fixture
def installed(helm: Helm, namespace: str) -> Iterator[str]:
    """The namespace of a release that is ready: of the images built from this checkout."""
    helm.install(namespace, f"watchNamespaces={{{namespace}}}")
    yield namespace
    helm.uninstall(namespace)


def test_operator_and_planner_become_ready_under_restricted(node: OneNode, helm: Helm, installed: str) -> None:
    """The chart makes the pods, with the images' own entry points; nothing is started twice, and `helm test` finds that
    somebody leads, and that planner and gateway answer."""
    for one in pods.get(node, installed, "pods", OF_THE_RELEASE)["items"]:
        assert [status["restartCount"] for status in one["status"]["containerStatuses"]] == [0]
    helm.run("test", "tidemark", "-n", installed)


def test_uninstalling_leaves_the_definitions_alone(node: OneNode, helm: Helm, namespace: str) -> None:
    """They are kept, or all resources of all users would go with them."""
    helm.install(namespace)
    helm.uninstall(namespace)

    def left() -> list[str]:
        found = pods.get(node, namespace, NAMESPACED, OF_THE_RELEASE)["items"]
        return [f"{one['kind']}/{one['metadata']['name']}" for one in found]

    # pods and Secrets are collected by Kubernetes, after their owners
    wait_for("all of the release to go", lambda: not left(), lambda: str(left()))
    assert pods.get(node, namespace, "clusterroles,clusterrolebindings", OF_THE_RELEASE)["items"] == []
    # of the repository's crds/, so without the labels of a release
    definitions = pods.get(node, namespace, "customresourcedefinitions")["items"]
    kept = [one["metadata"]["name"] for one in definitions if one["spec"]["group"] == GROUP]
    assert len(kept) == len(list((CHART / "files" / "crds").glob("*.yaml")))
