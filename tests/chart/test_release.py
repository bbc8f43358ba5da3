"""A release, by helm against a real API server: installed, upgraded, and gone again. Pods do not run here."""

from __future__ import annotations

import json

import pytest

from tests.chart.render import CHART, helm
from tidemark_devcluster.control_plane.control_plane import ControlPlane

pytestmark = [pytest.mark.slow, pytest.mark.cluster]
KINDS = (
    "deployments,replicasets,services,endpointslices,serviceaccounts,configmaps,roles,rolebindings,networkpolicies,"
    "poddisruptionbudgets,leases"
)
LEADS = {"addresses": ["10.1.2.3"], "targetRef": {"kind": "Pod", "name": "one"}}


class Release:
    """In a namespace of its own, with nothing of the whole cluster."""

    def __init__(self, plane: ControlPlane, namespace: str) -> None:
        self.plane, self.namespace = plane, namespace
        self.place = ("-n", namespace, "--kubeconfig", str(plane.kubeconfig))

    def helm(self, verb: str, *values: str) -> None:
        own = (f"watchNamespaces={{{self.namespace}}}", "crds.install=false", "userRoles.create=false")
        settings = [option for value in (*own, *values) for option in ("--set", value)]
        helm(verb, "tidemark", str(CHART), *self.place, *settings)

    def uninstall(self) -> None:
        helm("uninstall", "tidemark", *self.place, "--cascade=foreground", "--wait")

    def kubectl(self, *arguments: str) -> str:
        return self.plane.kubectl("-n", self.namespace, *arguments)

    def objects(self) -> list[str]:
        return self.kubectl("get", KINDS, "-l", "app.kubernetes.io/instance=tidemark", "-o", "name").split()


@pytest.fixture
def release(kinds_installed: ControlPlane, namespace: str) -> Release:
    return Release(kinds_installed, namespace)


def test_an_upgrade_leaves_what_the_operator_has_written(release: Release) -> None:
    """Where the gateway's Service leads, and who holds the Lease: neither is in a manifest of the chart."""
    release.helm("install")
    release.kubectl(
        "patch", "endpointslice", "tidemark-gateway", "--type=merge", "-p", json.dumps({"endpoints": [LEADS]})
    )
    release.kubectl("patch", "lease", "tidemark-operator", "--type=merge", "-p", '{"spec": {"holderIdentity": "one"}}')

    release.helm("upgrade", "operator.replicas=1", "gateway.service.port=443", "commonLabels.team=data")

    found = json.loads(release.kubectl("get", "endpointslice", "tidemark-gateway", "-o", "json"))
    assert [each["targetRef"]["name"] for each in found["endpoints"]] == ["one"]
    assert found["metadata"]["labels"]["team"] == "data"
    assert release.kubectl("get", "lease", "tidemark-operator", "-o", "jsonpath={.spec.holderIdentity}") == "one"


def test_a_release_that_is_uninstalled_leaves_resources_and_nothing_of_its_own(release: Release) -> None:
    """In whichever order: what is of our kinds is its users'."""
    release.helm("install")
    instance = {"apiVersion": "compute.tidemark.dev/v1alpha1", "kind": "ComputeInstance", "metadata": {"name": "i"}}
    body = json.dumps({**instance, "spec": {"storage": {"location": "/data"}}})
    release.plane.kubectl("-n", release.namespace, "apply", "-f", "-", stdin=body)
    assert release.objects()

    release.uninstall()

    assert release.objects() == []
    assert release.kubectl("get", "computeinstances", "-o", "name").split() == [
        "computeinstance.compute.tidemark.dev/i"
    ]
