"""NOTES: each command that helm prints can be pasted, and names existing objects."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from tests.chart.clusters import cluster
from tests.chart.render import CHART, NAMESPACE, helm
from tests.cli.usage import check_usage
from tidemark_devcluster.control_plane.control_plane import ControlPlane

__all__ = ["cluster"]
pytestmark = [pytest.mark.slow, pytest.mark.cluster]
IN_TEAM_A = {"create": True, "namespace": "team-a", "location": "s3://bucket/p", "name": "main"}
CASES: dict[str, tuple[dict[str, Any], str, str]] = {
    "default": ({}, "default", "default"),
    "watched": ({"watchNamespaces": ["team-a", "team-b"]}, "team-a", "default"),
    "with executors": ({"replicaNamespaces": ["team-b"]}, "team-b", "default"),
    "with an instance": ({"defaultInstance": IN_TEAM_A}, "team-a", "main"),
    "with one of its own": ({"defaultInstance": {"create": True, "location": "/data"}}, NAMESPACE, "default"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_next_steps_in_notes_can_be_done(case: str, cluster: ControlPlane, tmp_path: Any) -> None:
    """In the namespace that is looked after, on the instance that is there."""
    values, namespace, instance = CASES[case]
    (tmp_path / "values.yaml").write_text(yaml.safe_dump(values))
    # dry, but helm asks the cluster; the definitions there are nobody's
    dry = ("--dry-run=client", "--take-ownership", "--kubeconfig", str(cluster.kubeconfig))
    at = ("-n", NAMESPACE, "--values", str(tmp_path / "values.yaml"), *dry)
    notes = helm("install", "tidemark", str(CHART), *at).partition("\nNOTES:\n")[2]

    applied = re.findall(r"^kubectl apply -n (\S+) -f - <<YAML\n(.*?)^YAML$", notes, re.MULTILINE | re.DOTALL)
    assert [where for where, _ in applied] == [namespace] * (1 if "defaultInstance" in values else 2)
    for where, manifest in applied:
        cluster.kubectl("apply", "-n", where, "--dry-run=server", "-f", "-", stdin=manifest)
    replica = yaml.safe_load(applied[-1][1])
    assert (replica["kind"], replica["spec"]) == ("ComputeReplica", {"instance": instance})

    made = re.findall(
        r"^kubectl create (secret|serviceaccount|rolebinding) (.*)$", notes.replace("\\\n", ""), re.MULTILINE
    )
    own = [] if "defaultInstance" in values else ["secret"]
    assert [kind for kind, _ in made] == [*own, "serviceaccount", "rolebinding"]
    for kind, rest in made:
        assert f"-n {namespace}" in rest
        cluster.kubectl("create", kind, *rest.split(), "--dry-run=server")

    lines = re.findall(r"^kubectl (get|explain|tidemark) (.*)$", notes, re.MULTILINE)
    assert [verb for verb, _ in lines] == ["get", "explain", "tidemark"]
    for verb, rest in lines:
        if verb == "tidemark":
            check_usage(rest.replace("'SELECT ...'", "SELECT").split())
        else:
            cluster.kubectl(verb, *rest.split())
    assert re.search(rf"^helm test tidemark -n {NAMESPACE}$", notes, re.MULTILINE)
