"""The API server accepts the rendered chart for many values; helm refuses misspelt values."""

from __future__ import annotations

import copy
import subprocess
from typing import Any

import pytest
import yaml

from tests.chart.clusters import apply, cluster, monitored
from tests.chart.render import (
    CASES,
    CHART,
    MONITORING,
    NAMESPACE,
    RENDERED,
    documents,
    helm,
    pods,
    render,
    rendered_objects,
    template,
)
from tests.waiting import BOUND
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_devcluster.errors import KubectlFailed

__all__ = ["cluster", "monitored"]


def podless(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All but the pod, whose account must be there: as_pods."""
    return [b for b in bodies if b["kind"] != "Pod"]


@pytest.mark.cluster
@pytest.mark.parametrize("case", CASES)
def test_the_api_server_takes_what_was_rendered(case: str, monitored: ControlPlane) -> None:
    """All of it, strictly, without keeping it."""
    bodies = podless(rendered_objects(case))

    assert len(apply(monitored, bodies, "--dry-run=server")) == len(bodies)


@pytest.mark.cluster
@pytest.mark.parametrize(
    ("kind", "below", "right", "wrong", "message"),
    [
        ("PodMonitor", ("podMetricsEndpoints", 0), "interval", "intervall", "unknown field .*intervall"),
        ("PodMonitor", ("namespaceSelector",), "matchNames", "matchName", "unknown field .*matchName"),
        ("PrometheusRule", ("groups", 0, "rules", 0), "expr", "expression", "unknown field .*expression"),
        ("PrometheusRule", ("groups", 0, "rules", 0), "for", "for_", "unknown field .*for_"),
    ],
)
def test_misspelt_monitoring_is_refused(
    kind: str, below: tuple[str | int, ...], right: str, wrong: str, message: str, monitored: ControlPlane
) -> None:
    """The other tests accept values, which says something only if wrong ones are refused."""
    body = next(b for b in rendered_objects("watched") if b["kind"] == kind)
    assert apply(monitored, [body], "--dry-run=server")
    inside = body["spec"]
    for step in below:
        inside = inside[step]
    inside[wrong] = inside.pop(right)

    with pytest.raises(KubectlFailed, match=message):
        apply(monitored, [body], "--dry-run=server")


@pytest.mark.cluster
def test_an_interval_that_is_none_is_refused(monitored: ControlPlane) -> None:
    """The kinds say what values look like, too."""
    body = next(b for b in rendered_objects("watched") if b["kind"] == "PodMonitor")
    body["spec"]["podMetricsEndpoints"][0]["interval"] = "often"

    with pytest.raises(KubectlFailed, match="interval"):
        apply(monitored, [body], "--dry-run=server")


def as_pods(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pods that their makers would ask for, without their accounts, which are not there."""
    made = []
    for number, pod in enumerate(pods(bodies)):
        spec = copy.deepcopy(pod["spec"])
        spec.pop("serviceAccountName")
        metadata = {"name": f"pod-{number}", "namespace": NAMESPACE, "labels": pod["metadata"]["labels"]}
        made.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    return made


@pytest.mark.cluster
def test_pods_are_admitted_where_only_restricted_ones_are(cluster: ControlPlane) -> None:
    """The pods of all cases are admitted; and the namespace does refuse: the same pods with any of it taken away."""
    cluster.kubectl("wait", "-n", NAMESPACE, "--for=create", "serviceaccount/default", f"--timeout={BOUND:.0f}s")
    for case in CASES:
        made = as_pods(rendered_objects(case))
        for pod in made:
            pod["spec"].pop("priorityClassName", None)  # of another namespace's
        assert len(apply(cluster, made, "--dry-run=server")) == len(made) >= 3

    for taken in ("runAsNonRoot", "seccompProfile"):
        lax = as_pods(rendered_objects("default"))
        del lax[0]["spec"]["securityContext"][taken]
        with pytest.raises(KubectlFailed, match=f"violates PodSecurity.*{taken}"):
            apply(cluster, lax, "--dry-run=server")
    for taken in ("allowPrivilegeEscalation", "capabilities"):
        lax = as_pods(rendered_objects("default"))
        del lax[0]["spec"]["containers"][0]["securityContext"][taken]
        with pytest.raises(KubectlFailed, match=f"violates PodSecurity.*{taken}"):
            apply(cluster, lax, "--dry-run=server")


# --- with helm, which the first run compiles ---


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_helm_renders_what_is_kept(case: str) -> None:
    """The files beside this test are what helm makes of the chart."""
    assert render(case) == (RENDERED / f"{case}.yaml").read_text()


@pytest.mark.slow
def test_helm_finds_no_fault_and_the_server_takes_the_whole_release(cluster: ControlPlane) -> None:
    """With the CRDs, as templates."""
    taken = apply(cluster, podless(documents(template({}))), "--dry-run=server")

    assert "0 chart(s) failed" in helm("lint", "--strict", str(CHART))
    assert sum(line.startswith("customresourcedefinition.apiextensions.k8s.io/") for line in taken) == 4


VALUES: dict[str, dict[str, Any]] = {
    "crds left to another": {"crds": {"install": False}},
    "one namespace": {"watchNamespaces": ["team-a"]},
    "all of them, some with executors": {"replicaNamespaces": ["team-a", "team-b"]},
    "named twice": {"watchNamespaces": ["team-a"], "replicaNamespaces": ["team-a", "team-b"]},
    "no operator for a while": {"operator": {"replicas": 0}, "planner": {"replicas": 0}},
    "many of them": {"operator": {"replicas": 5}, "planner": {"replicas": 3}},
    "resources": {"planner": {"resources": {"requests": {"cpu": 1}, "limits": {"memory": "3Gi", "cpu": "2"}}}},
    "no requests": {"operator": {"resources": {"requests": None, "limits": {"memory": "1Gi"}}}},
    "images by digest": {p: {"image": {"digest": f"sha256:{'a' * 64}"}} for p in ("operator", "replica")},
    "pulled from elsewhere": {
        "imagePullPolicy": "Always",
        "imagePullSecrets": [{"name": "a"}, {"name": "b"}],
        "operator": {"image": {"repository": "registry.example.com:5000/t/operator", "tag": "1.2.3"}},
    },
    "placed": {
        "planner": {
            "nodeSelector": {"kubernetes.io/arch": "amd64"},
            "tolerations": [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoSchedule"}],
            "affinity": {
                "podAffinity": {
                    "requiredDuringSchedulingIgnoredDuringExecution": [
                        {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
                    ]
                }
            },
            "topologySpreadConstraints": [
                {
                    "maxSkew": 2,
                    "topologyKey": "zone",
                    "whenUnsatisfiable": "DoNotSchedule",
                    "labelSelector": {"matchLabels": {"a": "b"}},
                    "nodeTaintsPolicy": "Honor",
                }
            ],
        }
    },
    "a default instance": {"defaultInstance": {"create": True, "location": "/data"}},
    "one in an object store": {"defaultInstance": {"create": True, "location": "s3://bucket/p", "secretName": "store"}},
    "one of another name": {
        "watchNamespaces": ["team-b"],
        "defaultInstance": {"create": True, "name": "main", "namespace": "team-b", "location": "/data"},
    },
    "metrics elsewhere": {"metrics": {"port": 12345, "podMonitor": {"enabled": True, "interval": "1m"}}},
    "alerts of one namespace, for another Prometheus": {
        "watchNamespaces": ["team-a"],
        "metrics": {
            "podMonitor": {"enabled": True, "labels": {"release": "a"}},
            "rules": {"enabled": True, "labels": {"release": "a"}},
        },
    },
    "dashboards for another label": {"metrics": {"dashboards": {"enabled": True, "labels": {"grafana": "yes"}}}},
    "sources of a database and of brokers": {
        "sources": {"allowedHosts": ["db.shop.svc:5432", "*.kafka.svc:9092-9094", "10.1.0.0/16", "[fd00::/8]:5432"]}
    },
    "a gateway for all addresses": {
        "gateway": {"service": {"type": "LoadBalancer", "port": 443}, "hostNames": ["tidemark.example.com"]}
    },
    "a gateway with a certificate from elsewhere": {
        "gateway": {"tls": {"secretName": "query-tls"}, "clientCertificates": True}
    },
    "nothing besides": {"networkPolicy": {"enabled": False}, "podDisruptionBudget": {"enabled": False}},
    "awkward texts": {"commonLabels": {"a": "1", "b": "true"}, "commonAnnotations": {"c": "x: {y}\n# z", "d": "{{ }}"}},
    "labels of several hands": {
        "commonLabels": {"app.kubernetes.io/name": "ours", "release": "a", "team": "data"},
        "metrics": {"podMonitor": {"enabled": True, "labels": {"release": "b"}}},
    },
    "a parent chart's own": {"global": {"anything": [1, 2]}},
}


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize("values", VALUES)
def test_the_api_server_takes_what_helm_makes_of(values: str, monitored: ControlPlane) -> None:
    """Nothing is there twice, either."""
    bodies = podless(documents(template(VALUES[values], MONITORING)))
    names = [(b["kind"], b["metadata"].get("namespace"), b["metadata"]["name"]) for b in bodies]

    assert len(set(names)) == len(names)
    assert len(apply(monitored, bodies, "--dry-run=server")) == len(bodies)


@pytest.mark.slow
def test_a_label_stands_once_and_the_charts_own_as_they_are() -> None:
    """An object's own labels come before those of all objects."""
    bodies = documents(template(VALUES["labels of several hands"], MONITORING))
    labels = {(b["kind"], b["metadata"]["name"]): b["metadata"].get("labels", {}) for b in bodies}
    asked = ("app.kubernetes.io/name", "release", "team")

    monitor, service = labels["PodMonitor", "tidemark-operator"], labels["Service", "tidemark-gateway"]
    assert [monitor[label] for label in asked] == ["tidemark", "b", "data"]
    assert [service[label] for label in asked] == ["tidemark", "a", "data"]


REFUSED: list[tuple[str, str]] = [
    ("bogus: 1", "bogus"),
    ("watchNamespace: [team-a]", "watchNamespace"),
    ("watchNamespaces: [A_b]", "watchNamespaces"),
    ("watchNamespaces: team-a", "watchNamespaces"),
    ("watchNamespaces: [team-a, team-a]", "watchNamespaces"),
    ("crds: {instal: true}", "instal"),
    ('crds: {install: "yes"}', "install"),
    ("operator: {image: x}", "image"),
    ("operator: {image: {repo: x}}", "repo"),
    ('operator: {image: {tag: "a b"}}', "tag"),
    ("operator: {image: {digest: sha256:abc}}", "digest"),
    ("operator: {replicas: -1}", "replicas"),
    ('operator: {replicas: "2"}', "replicas"),
    ("operator: {resources: {limit: {memory: 1Gi}}}", "limit"),
    ("operator: {resources: {limits: {memory: null}}}", "memory"),
    ("operator: {resources: {requests: {mem: 1Gi}}}", "mem"),
    ("operator: {nodeselector: {a: b}}", "nodeselector"),
    ("operator: {nodeSelector: {a: 1}}", "nodeSelector"),
    ("operator: {tolerations: [{ky: a}]}", "ky"),
    ("operator: {tolerations: [{effect: NoSchedul}]}", "effect"),
    ("operator: {affinity: {nodeAfinity: {}}}", "nodeAfinity"),
    ("operator: {topologySpreadConstraints: [{maxSkew: 1, topologyKey: zone}]}", "whenUnsatisfiable"),
    ("planner: {podlabels: {a: b}}", "podlabels"),
    ("planner: {image: {tag: a}}", "image"),
    ("replica: {resources: {}}", "resources"),
    ("replicaNamespaces: team-a", "replicaNamespaces"),
    ("userRoles: {enabled: false}", "enabled"),
    ("planner: {serviceAccount: {create: false}}", "serviceAccount"),
    ("imagePullPolicy: always", "imagePullPolicy"),
    ("runAsUser: 0", "runAsUser"),
    ("runAsUser: tidemark", "runAsUser"),
    ("imagePullSecrets: [pull]", "imagePullSecrets"),
    ("commonLabels: {a: {b: c}}", "commonLabels"),
    ("defaultInstance: {create: true}", "location"),
    ("defaultInstance: {create: true, location: data}", "location"),
    ("defaultInstance: {create: true, location: s3://Bucket/data}", "location"),
    ("defaultInstance: {created: true}", "created"),
    ("defaultInstance: {name: A}", "name"),
    ("defaultInstance: {create: true, location: /data, secretName: a}", "location"),
    ("podDisruptionBudget: true", "podDisruptionBudget"),
    ("podDisruptionBudget: {maxUnavailable: 1}", "maxUnavailable"),
    ("networkPolicy: {enable: false}", "enable"),
    ("gateway: {service: {type: ExternalName}}", "type"),
    ("gateway: {service: {port: 65535}}", "port"),
    ("gateway: {tls: {secret: a}}", "secret"),
    ("gateway: {tls: {secretName: a}, hostNames: [b]}", "hostNames"),
    ("sources: {allowedHosts: [http://db]}", "allowedHosts"),
    ("sources: {allowedHosts: [user@db]}", "allowedHosts"),
    ("sources: {allowedHosts: ['db:']}", "allowedHosts"),
    ("sources: {allowedHosts: ''}", "allowedHosts"),
    ("sources: {hosts: []}", "hosts"),
    ("gateway: {clientCertificate: true}", "clientCertificate"),
    ("metrics: {port: 80}", "port"),
    ("metrics: {port: 7443}", "port"),
    ("metrics: {podmonitor: {enabled: true}}", "podmonitor"),
    ("metrics: {podMonitor: {interval: 30}}", "interval"),
    ("metrics: {rules: {enabled: yes please}}", "enabled"),
    ("metrics: {dashboard: {enabled: true}}", "dashboard"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("values", "message"), REFUSED)
def test_helm_refuses_what_is_not_in_the_schema(values: str, message: str) -> None:
    """With the value named."""
    with pytest.raises(subprocess.CalledProcessError) as error:
        template(yaml.safe_load(values))

    assert "schema" in error.value.stderr
    assert message in error.value.stderr


@pytest.mark.slow
def test_a_second_release_for_other_namespaces_has_nothing_of_the_whole_cluster() -> None:
    """Helm refuses to install what another release owns."""
    values = {"watchNamespaces": ["team-b"], "userRoles": {"create": False}, "crds": {"install": False}}
    bodies = documents(template(values))

    assert {body["metadata"].get("namespace") for body in bodies} == {NAMESPACE, "team-b"}


@pytest.mark.slow
def test_a_default_instance_outside_the_watched_namespaces_is_refused() -> None:
    """The operator has no rights there."""
    instance = {"create": True, "namespace": "team-b", "location": "/data"}
    with pytest.raises(subprocess.CalledProcessError) as error:
        template({"watchNamespaces": ["team-a"], "defaultInstance": instance})

    assert "nobody looks after team-b" in error.value.stderr
