"""The chart without helm: files are well-formed, its CRDs are the repository's, rendered manifests are current."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.chart.render import CASES, CHART, NAMESPACE, RENDERED, ROOT, chart_digest, pods, rendered_objects
from tests.orchestrator.pods import SETTINGS, large
from tidemark_operator.certificates.names import MOUNT_PATH, PLANNER
from tidemark_operator.gateway.server.endpoint_slice import GatewayService
from tidemark_operator.gateway.server.listener import IssuedCertificate, TlsFolder
from tidemark_operator.handlers.default_instance import DefaultInstance
from tidemark_operator.options import parse
from tidemark_operator.orchestrator.kubernetes.driver import pod_template
from tidemark_operator.orchestrator.kubernetes.names import DRIVER, EXECUTOR, ROLE
from tidemark_operator.orchestrator.kubernetes.settings import KubernetesSettings
from tidemark_operator.resources.addresses.allowed_hosts import AllowedHosts
from tidemark_pgwire.main import parser

# of the cases: None, where the cluster chooses
USERS = {"default": 65532, "confined": None, "watched": 1000650000, "reading": 65532}
CRDS = sorted((ROOT / "crds").glob("*.yaml"))


def test_the_charts_crds_are_the_repositorys() -> None:
    """Through a link, which helm follows: there is nothing to keep equal."""
    linked = sorted((CHART / "files" / "crds").glob("*.yaml"))

    assert [path.resolve() for path in linked] == [path.resolve() for path in CRDS]
    assert len(CRDS) == 4


def test_every_crd_stays_when_the_release_goes() -> None:
    """Deleting a CRD deletes every object of its kind."""
    for path in CRDS:
        assert yaml.safe_load(path.read_text())["metadata"]["annotations"] == {"helm.sh/resource-policy": "keep"}


# What Kubernetes defines, and a cluster's administrator writes as it is.
FREE = {"nodeAffinity", "podAffinity", "podAntiAffinity", "labelSelector", "global"}


def open_objects(schema: Any, name: str) -> Iterator[str]:
    """Names of objects that would take a field that nobody reads."""
    if isinstance(schema, list):
        for part in schema:
            yield from open_objects(part, name)
    if not isinstance(schema, dict):
        return
    texts = isinstance(schema.get("additionalProperties"), dict)
    if schema.get("type") == "object" and schema.get("additionalProperties") is not False and not texts:
        yield name
    for below in ("properties", "definitions"):
        for key, part in schema.get(below, {}).items():
            yield from open_objects(part, key)
    yield from open_objects(schema.get("items"), name)


def test_the_schema_takes_no_value_without_a_reader() -> None:
    """A misspelt value must be an error, never ignored."""
    schema = json.loads((CHART / "values.schema.json").read_text())

    assert set(open_objects(schema, "values")) == FREE


def fields(
    schema: dict[str, Any], definitions: dict[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[str, ...]]:
    """Each value that the schema describes; what a list holds is not a value of its own."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"].removeprefix("#/definitions/")]
    if path in CLOSED or not schema.get("properties"):
        yield path
        return
    for name, below in schema["properties"].items():
        yield from fields(below, definitions, (*path, name))


CLOSED = {(part, name) for part in ("operator", "planner", "pgwire") for name in ("resources", "affinity")} | {
    ("global",)
}


def test_each_value_of_the_schema_has_a_default() -> None:
    """The file values.yaml shows all values."""
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())

    for path in fields(schema, schema["definitions"]):
        found = values
        for name in path:
            assert path == ("global",) or name in found, f"{'.'.join(path)} is not in values.yaml"
            found = found.get(name, {})


@pytest.mark.parametrize("case", CASES)
def test_rendered_manifests_are_of_this_chart(case: str) -> None:
    """After a change of the chart: python -m tests.chart.render"""
    first = (RENDERED / f"{case}.yaml").read_text().splitlines()[0]

    assert first == f"# of chart {chart_digest()}"


@pytest.mark.parametrize("case", CASES)
def test_each_container_is_bounded_and_only_clients_of_the_api_server_have_a_token(case: str) -> None:
    """Executors and replicas are the operator's; these are the chart's own."""
    found = {
        pod["metadata"]["labels"]["app.kubernetes.io/component"]: pod["spec"] for pod in pods(rendered_objects(case))
    }

    with_token = {"operator": True, "planner": False, "pgwire": False, "test": True}
    assert {name: spec["automountServiceAccountToken"] for name, spec in found.items()} == {
        name: with_token[name] for name in names_of(case)
    }
    for spec in found.values():
        assert spec["enableServiceLinks"] is False
        assert all(container["resources"]["limits"]["memory"] for container in spec["containers"])


@pytest.mark.parametrize("case", CASES)
def test_services_budgets_and_policies_select_the_pods_they_are_for(case: str) -> None:
    """Whatever labels a user adds."""
    labels = {
        name: pod["metadata"]["labels"] for name, pod in zip(names_of(case), pods(rendered_objects(case)), strict=True)
    }
    roles = {ROLE: DRIVER}, {ROLE: EXECUTOR}
    for body in rendered_objects(case):
        selector = body.get("spec", {}).get("selector") or body.get("spec", {}).get("podSelector")
        if selector is None:
            continue
        wanted = selector.get("matchLabels", selector)
        if wanted in roles:
            continue  # pods of the operator's making
        component = body["metadata"]["labels"]["app.kubernetes.io/component"]
        chosen = [name for name, have in labels.items() if wanted.items() <= have.items()]
        assert chosen == [component], f"{body['kind']} {body['metadata']['name']}"


def names_of(case: str) -> tuple[str, ...]:
    return "operator", *(["pgwire"] if case in ("watched", "reading") else []), "planner", "test"


def test_pgwire_understands_its_arguments() -> None:
    """Its files are in the volumes, and of the gateway's Secret it has the authority alone."""
    [spec] = [
        pod["spec"]
        for pod in pods(rendered_objects("watched"))
        if pod["spec"].get("serviceAccountName") == "tidemark-pgwire"
    ]
    options = parser().parse_args(spec["containers"][0]["args"])
    assert (options.listen, options.gateway, options.insecure_loopback) == (
        "0.0.0.0:5432",
        "tidemark-gateway:443",
        False,
    )
    mounts = {each["name"]: Path(each["mountPath"]) for each in spec["containers"][0]["volumeMounts"]}
    assert (options.certificate.parent, options.key.parent) == (mounts["tls"], mounts["tls"])
    assert options.gateway_ca == mounts["gateway"] / "ca.crt"
    [secret] = [volume["secret"] for volume in spec["volumes"] if volume["name"] == "gateway"]
    assert (secret["secretName"], [item["key"] for item in secret["items"]]) == ("query-tls", ["ca.crt"])
    assert (options.write_bytes, options.idle_seconds) == (4 << 30, 60)
    assert options.transaction_seconds == 900
    [room] = [volume["emptyDir"]["sizeLimit"] for volume in spec["volumes"] if volume["name"] == "tmp"]
    assert int(room) > options.write_bytes


@pytest.mark.parametrize(("case", "defines"), [("default", False), ("watched", True), ("reading", False)])
def test_the_operator_refuses_definitions_unless_the_chart_gives_it_the_rights(case: str, defines: bool) -> None:
    [spec] = [
        pod["spec"]
        for pod in pods(rendered_objects(case))
        if pod["spec"].get("serviceAccountName") == "tidemark-operator"
    ]
    assert parse(spec["containers"][0]["args"]).defines is defines
    [role] = [
        body
        for body in rendered_objects(case)
        if body["kind"] == "ClusterRole" and body["metadata"]["name"] == "tidemark-operator"
    ]
    may = {
        verb
        for rule in role["rules"]
        if {"dataflows", "datasources"} & set(rule["resources"])
        for verb in ("create", "delete")
        if verb in rule["verbs"]
    }
    assert may == ({"create", "delete"} if defines else set())


@pytest.mark.parametrize(
    ("case", "passwords"), [("default", False), ("confined", False), ("watched", True), ("reading", False)]
)
def test_the_operator_reads_service_accounts_where_it_takes_passwords_and_nowhere_else(
    case: str, passwords: bool
) -> None:
    [spec] = [
        pod["spec"]
        for pod in pods(rendered_objects(case))
        if pod["spec"].get("serviceAccountName") == "tidemark-operator"
    ]
    assert parse(spec["containers"][0]["args"]).passwords is passwords
    roles = [body for body in rendered_objects(case) if body["kind"] in ("ClusterRole", "Role")]
    may = [
        (role["metadata"]["name"], rule["verbs"])
        for role in roles
        for rule in role["rules"]
        if {"serviceaccounts", "*"} & set(rule["resources"])
    ]
    assert may == ([("tidemark-operator", ["get"])] if passwords else [])


def test_policies_of_replicas_name_their_ports_and_roles() -> None:
    """The pods are the operator's making, the policies the chart's."""
    [container] = pod_template(large(), SETTINGS)["spec"]["containers"]
    ports = {port["name"] for port in container["ports"]}
    policies = {
        b["spec"]["podSelector"]["matchLabels"][ROLE]: b["spec"]["ingress"]
        for b in rendered_objects("watched")
        if b["kind"] == "NetworkPolicy" and b["metadata"]["namespace"] == "team-b"
    }

    assert policies.keys() == {DRIVER, EXECUTOR}
    assert {port["port"] for rule in policies[DRIVER] for port in rule["ports"]} == ports


def test_the_planner_has_the_certificate_that_the_operator_makes() -> None:
    """Both know it by name; mounted whole, so that it is renewed in the pod."""
    planner = next(
        pod["spec"]
        for pod in pods(rendered_objects("default"))
        if pod["spec"]["serviceAccountName"] == "tidemark-planner"
    )
    [container] = planner["containers"]
    [mount] = [each for each in container["volumeMounts"] if each["name"] == "tls"]
    [volume] = [each for each in planner["volumes"] if each["name"] == "tls"]

    assert volume["secret"]["secretName"] == PLANNER
    assert (mount["mountPath"], mount.get("subPath")) == (MOUNT_PATH, None)
    assert f"--tls-dir={MOUNT_PATH}" in container["args"]


@pytest.mark.parametrize("case", CASES)
def test_the_gateways_ports_are_those_that_the_operator_listens_at(case: str) -> None:
    """Nothing selects the pod: Service, EndpointSlice, policy and container must name the same."""
    bodies = {(body["kind"], body["metadata"]["name"]): body for body in rendered_objects(case)}
    service, endpoints = bodies["Service", "tidemark-gateway"], bodies["EndpointSlice", "tidemark-gateway"]
    [container] = bodies["Deployment", "tidemark-operator"]["spec"]["template"]["spec"]["containers"]
    listens = {port["containerPort"]: port["name"] for port in container["ports"]}

    assert "selector" not in service["spec"]
    # what `helm upgrade` does not know, it leaves as it is
    assert "endpoints" not in endpoints
    assert endpoints["metadata"]["labels"]["kubernetes.io/service-name"] == "tidemark-gateway"
    assert {p["name"]: p["port"] for p in endpoints["ports"]} == {
        p["name"]: p["targetPort"] for p in service["spec"]["ports"]
    }
    assert {port["port"] for port in endpoints["ports"]} <= listens.keys()
    if policy := bodies.get(("NetworkPolicy", "tidemark-operator")):
        assert {p["port"] for rule in policy["spec"]["ingress"] for p in rule["ports"]} == set(listens.values())


def test_a_confined_operator_has_rights_in_its_namespaces_alone() -> None:
    """With watchNamespaces, no ClusterRole is bound to it."""
    kinds = {(body["kind"], body["metadata"].get("namespace")) for body in rendered_objects("confined")}

    assert {("Role", "team-a"), ("Role", "team-b")} <= kinds
    assert not any(kind == "ClusterRoleBinding" for kind, _ in kinds)


@pytest.mark.parametrize("case", CASES)
def test_roles_of_users_are_made_unless_another_release_has_them(case: str) -> None:
    """Their names are the cluster's, so a second release with them could not be installed."""
    there = {body["metadata"]["name"] for body in rendered_objects(case) if body["kind"] == "ClusterRole"}
    roles = {"tidemark-view", "tidemark-edit", "tidemark-read-data", "tidemark-copy-data", "tidemark-change-files"}
    roles |= {"tidemark-write-data", "tidemark-delete-tables"}

    assert there & roles == (set() if case == "watched" else roles)


@pytest.mark.parametrize("case", CASES)
def test_all_pods_run_as_the_user_that_is_asked_for(case: str) -> None:
    """Or as no one in particular, where the cluster is to choose; never as root."""
    for pod in pods(rendered_objects(case)):
        security = pod["spec"]["securityContext"]
        assert {security.get(name) for name in ("runAsUser", "runAsGroup", "fsGroup")} == {USERS[case]}
        assert security["runAsNonRoot"] is True


@pytest.mark.parametrize("case", CASES)
def test_the_operator_understands_its_arguments(case: str) -> None:
    """The chart and the program are of one version."""
    operator = next(
        pod for pod in pods(rendered_objects(case)) if pod["spec"]["serviceAccountName"] == "tidemark-operator"
    )
    [container] = operator["spec"]["containers"]
    options = parse(container["args"])

    assert options.kubeconfig is None
    assert options.lease_namespace == NAMESPACE
    assert options.namespaces == (("team-a", "team-b") if case == "confined" else ())
    assert options.planner == "tidemark-planner:7070"
    patterns = ["*.db.svc:5432", "[fd00::/8]:9092-9094", "10.1.0.0/16", "*"] if case == "confined" else []
    assert options.allowed_hosts == AllowedHosts.parse(patterns)
    image = {"watched": f"tidemark/replica@sha256:{'0123456789abcdef' * 4}"}.get(case, "tidemark/replica:0.1.0-dev")
    assert options.pods == KubernetesSettings(
        image, pull_secrets=("pull",) if case == "confined" else (), user=USERS[case]
    )
    assert (options.metrics_host, options.metrics_port) == ("0.0.0.0", container["ports"][0]["containerPort"])
    assert options.gateway_service == GatewayService("tidemark-gateway", "$(POD_NAME)", "$(POD_IP)")
    listening = options.gateway
    assert (listening.host, listening.port, listening.clients is not None) == ("0.0.0.0", 7443, case == "watched")
    names = [f"tidemark-gateway.{NAMESPACE}.svc", "tidemark-gateway", f"tidemark-gateway.{NAMESPACE}"]
    names += [f"tidemark-gateway.{NAMESPACE}.svc.cluster.local"]
    names += ["query.example.com"] if case == "confined" else []
    tls = TlsFolder(Path("/etc/tidemark/gateway")) if case == "watched" else IssuedCertificate(tuple(names))
    assert listening.tls == tls
    instance = options.default_instance
    assert instance == (
        DefaultInstance("team-a", "default", "s3://bucket/data", "store") if case == "confined" else None
    )
