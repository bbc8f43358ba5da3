"""The chart, without helm: its files are well-formed, its CRDs are the repository's, what was rendered is current."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml

from tests.chart.render import CASES, CHART, NAMESPACE, RENDERED, ROOT, chart_digest
from tidemark_operator.main import parse

CRDS = sorted((ROOT / "crds").glob("*.yaml"))


def documents(case: str) -> list[dict[str, Any]]:
    return [body for body in yaml.safe_load_all((RENDERED / f"{case}.yaml").read_text()) if body]


def test_the_charts_crds_are_the_repositorys() -> None:
    """Through a link, which helm follows: there is nothing to keep equal."""
    linked = sorted((CHART / "files" / "crds").glob("*.yaml"))

    assert [path.resolve() for path in linked] == [path.resolve() for path in CRDS]
    assert len(CRDS) == 4


def test_every_crd_stays_when_the_release_goes() -> None:
    """Deleting a CRD deletes every object of its kind."""
    for path in CRDS:
        assert yaml.safe_load(path.read_text())["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


def described(schema: dict[str, Any], definitions: dict[str, Any], values: Any) -> bool:
    """Whether each field of `values` stands in the schema."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].removeprefix("#/definitions/")]
    if not isinstance(values, dict) or not schema.get("properties"):
        return True
    known = schema["properties"]
    return all(name in known and described(known[name], definitions, below) for name, below in values.items())


def test_each_default_value_stands_in_the_schema_and_the_schema_is_closed() -> None:
    """A misspelt value must be an error, never ignored."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    assert described(schema, schema["definitions"], values)
    assert not described(schema, schema["definitions"], {"bogus": 1})
    assert schema["additionalProperties"] is False
    assert schema["definitions"]["component"]["additionalProperties"] is False


@pytest.mark.parametrize("case", CASES)
def test_what_was_rendered_is_of_this_chart(case: str) -> None:
    """After a change of the chart: python -m tests.chart.render"""
    first = (RENDERED / f"{case}.yaml").read_text().splitlines()[0]

    assert first == f"# of chart {chart_digest()}"


@pytest.mark.parametrize("case", CASES)
def test_pods_are_unprivileged_and_bounded(case: str) -> None:
    """What PodSecurity `restricted` demands, and a memory limit for each container."""
    pods = [body["spec"]["template"]["spec"] for body in documents(case) if body["kind"] == "Deployment"]

    assert len(pods) == 2
    for pod in pods:
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in pod["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False
            assert security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["limits"]["memory"]


def test_a_confined_operator_has_rights_in_its_namespaces_alone() -> None:
    """With watchNamespaces, no ClusterRole is bound to it."""
    kinds = {(body["kind"], body["metadata"].get("namespace")) for body in documents("confined")}

    assert {("Role", "team-a"), ("Role", "team-b")} <= kinds
    assert not any(kind == "ClusterRoleBinding" for kind, _ in kinds)


@pytest.mark.parametrize("case", CASES)
def test_the_operator_understands_its_arguments(case: str) -> None:
    """The chart and the program are of one version."""
    [operator] = [
        body["spec"]["template"]["spec"]["containers"][0]
        for body in documents(case)
        if body["kind"] == "Deployment" and body["metadata"]["name"] == "tidemark-operator"
    ]
    options = parse(operator["args"])

    assert options.kubeconfig is None
    assert options.lease_namespace == NAMESPACE
    assert options.namespaces == (("team-a", "team-b") if case == "confined" else ())
    assert options.planner == "tidemark-planner:7070"
