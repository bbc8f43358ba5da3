"""A control plane for charts, and questions to it."""

from __future__ import annotations

import json
import os
import secrets
import sys
from collections.abc import Iterable
from typing import Any, NamedTuple

import pytest
import yaml

from tests.chart.render import NAMESPACE, rendered_objects
from tests.waiting import until
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.programs.module_files import ensure_monitoring_kinds
from tidemark_devcluster.programs.progress import ProgressOutput

OURS = ("computeinstances", "computereplicas", "datasources", "dataflows")
GROUP, RBAC = "compute.tidemark.dev", "rbac.authorization.k8s.io"
RESTRICTED = {"pod-security.kubernetes.io/enforce": "restricted"}


def apply(plane: ControlPlane, bodies: Iterable[dict[str, Any]], *options: str) -> list[str]:
    """The line of kubectl for each object."""
    return plane.kubectl("apply", *options, "-f", "-", stdin=yaml.safe_dump_all(bodies)).splitlines()


@pytest.fixture(scope="module")
def cluster(kinds_installed: ControlPlane) -> ControlPlane:
    """A control plane with our kinds and the namespaces that the rendered files name; the release's is restricted."""
    labels = {NAMESPACE: RESTRICTED, "team-a": {}, "team-b": {}}
    apply(
        kinds_installed,
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": marks}}
            for name, marks in labels.items()
        ],
    )
    return kinds_installed


@pytest.fixture(scope="module")
def monitored(cluster: ControlPlane) -> ControlPlane:
    """The same with the kinds of the Prometheus operator, as it makes them. Nothing acts on their objects."""
    for kind in ensure_monitoring_kinds(os.environ, ProgressOutput(sys.__stderr__ or sys.stderr)):
        cluster.serve(kind)
    return cluster


@pytest.fixture(scope="module")
def rights(cluster: ControlPlane) -> ControlPlane:
    """The confined release's accounts, roles and bindings, applied."""
    kinds = ("ServiceAccount", "Role", "RoleBinding", "ClusterRole")
    apply(cluster, [body for body in rendered_objects("confined") if body["kind"] in kinds])
    wait_for_bindings(cluster)
    return cluster


def wait_for_bindings(plane: ControlPlane) -> None:
    """Waits until the API server judges by all roles and bindings that there are: it comes to know of them a little
    later, of each kind in order. So what is made now is known last."""
    user = f"mark-{secrets.token_hex(4)}"
    rules = [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"], "resourceNames": [user]}]
    made = [{"kind": "ClusterRole", "metadata": {"name": user}, "rules": rules}]
    made += [{"kind": "Role", "metadata": {"name": user, "namespace": "team-b"}, "rules": rules}]
    for kind, namespace in (("ClusterRole", "team-a"), ("Role", "team-b")):
        subjects = [{"apiGroup": RBAC, "kind": "User", "name": user}]
        role = {"apiGroup": RBAC, "kind": kind, "name": user}
        metadata = {"name": user, "namespace": namespace}
        made += [{"kind": "RoleBinding", "metadata": metadata, "roleRef": role, "subjects": subjects}]
    apply(plane, [{"apiVersion": f"{RBAC}/v1", **body} for body in made])
    asked = [May(user, "get", f"configmaps:{user}", namespace) for namespace in ("team-a", "team-b")]
    until(lambda: all(answers(plane, asked).values()))


class May(NamedTuple):
    """Whether `who` may do `verb` to `what` (resource.group, with /subresource and :name) in a namespace."""

    who: str
    verb: str
    what: str
    namespace: str = "team-a"

    def review(self) -> dict[str, Any]:
        what, _, name = self.what.partition(":")
        what, _, subresource = what.partition("/")
        resource, _, group = what.partition(".")
        attributes = {"verb": self.verb, "group": group, "resource": resource, "subresource": subresource, "name": name}
        groups = ["system:serviceaccounts", "system:authenticated"] if ":" in self.who else ["system:authenticated"]
        return {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {
                "user": self.who,
                "groups": groups,
                "resourceAttributes": {**attributes, "namespace": self.namespace},
            },
        }


def account(name: str, namespace: str = NAMESPACE) -> str:
    return f"system:serviceaccount:{namespace}:{name}"


def answers(plane: ControlPlane, questions: Iterable[May]) -> dict[May, bool]:
    """All of them in one request of kubectl's."""
    asked = list(questions)
    output = plane.kubectl(
        "create", "-o", "json", "-f", "-", stdin=yaml.safe_dump_all(question.review() for question in asked)
    )
    decoder, reviews, at = json.JSONDecoder(), [], 0
    while at < len(output.rstrip()):
        review, at = decoder.raw_decode(output, at)
        reviews += review.get("items", [review])
        at += len(output[at:]) - len(output[at:].lstrip())
    return {question: review["status"]["allowed"] for question, review in zip(asked, reviews, strict=True)}
