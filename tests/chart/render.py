"""Rendered manifests of the chart, kept beside the tests: `python -m tests.chart.render` writes them.

The rendered files are for reviewers, who see what a change of a template does, and for the tests that have no time to
compile helm. Their first line names the chart that they were made of, so that a stale one is found without helm; the
slow test makes them again and compares.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import yaml

from tests.waiting import BOUND
from tidemark_devcluster.programs.build import ensure_helm
from tidemark_devcluster.programs.progress import ProgressOutput

ROOT = Path(__file__).parents[2]
CHART = ROOT / "helm" / "tidemark"
RENDERED = Path(__file__).parent / "rendered"
NAMESPACE = "tidemark-system"
KUBERNETES = "1.34.0"
MONITORING = [f"monitoring.coreos.com/v1/{kind}" for kind in ("PodMonitor", "PrometheusRule")]

# without the CRDs, which stand in crds/ already; each case is values and the kinds that the cluster has besides
CASES: dict[str, tuple[dict[str, Any], list[str]]] = {
    "default": ({}, []),
    "confined": (
        {
            "watchNamespaces": ["team-a", "team-b"],
            "networkPolicy": {"enabled": False},
            "podDisruptionBudget": {"enabled": False},
            "operator": {
                "replicas": 1,
                "image": {"tag": "1"},
                "nodeSelector": {"disk": "fast"},
                "tolerations": [{"operator": "Exists"}],
                "priorityClassName": "system-cluster-critical",
            },
            "imagePullSecrets": [{"name": "pull"}],
            "sources": {"allowedHosts": ["*.db.svc:5432", "[fd00::/8]:9092-9094", "10.1.0.0/16", "*"]},
            "runAsUser": None,
            "gateway": {"hostNames": ["query.example.com"]},
            "defaultInstance": {
                "create": True,
                "namespace": "team-a",
                "location": "s3://bucket/data",
                "secretName": "store",
            },
        },
        [],
    ),
    "watched": (
        {
            "runAsUser": 1000650000,
            "commonLabels": {"team": "data"},
            "commonAnnotations": {"contact": "data@example.com"},
            "operator": {
                "podLabels": {"team": "other", "app.kubernetes.io/component": "mine"},
                "podAnnotations": {"a": "b"},
                "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
                "topologySpreadConstraints": [
                    {"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway"}
                ],
            },
            "replica": {"image": {"digest": f"sha256:{'0123456789abcdef' * 4}"}},
            "replicaNamespaces": ["team-b"],
            "tracing": {"endpoint": "http://collector.monitoring:4317", "ratio": 0.01},
            "gateway": {
                "service": {"type": "LoadBalancer", "port": 443, "annotations": {"lb": "internal"}},
                "tls": {"secretName": "query-tls"},
                "clientCertificates": True,
                "http": True,
            },
            "pgwire": {
                "enabled": True,
                "tls": {"secretName": "pgwire-tls"},
                "writeBytes": 4 << 30,
                "idleInTransactionSeconds": 60,
                "transactionSeconds": 900,
            },
            "userRoles": {"create": False},
            "metrics": {
                "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
                "rules": {"enabled": True},
                "dashboards": {"enabled": True},
            },
        },
        MONITORING,
    ),
    "reading": (
        {"pgwire": {"enabled": True, "ddl": False, "passwords": False, "tls": {"secretName": "pgwire-tls"}}},
        [],
    ),
}


def helm(*arguments: str, stdin: str | None = None) -> str:
    """Run helm, compiled on first use; raises CalledProcessError with its output."""
    program = ensure_helm(os.environ, ProgressOutput(sys.__stderr__ or sys.stderr))
    command = [str(program), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=BOUND, input=stdin).stdout


def template(values: dict[str, Any], kinds: list[str] | None = None, crds: bool = True) -> str:
    """Everything of a release with these values, in a cluster that has these kinds besides its own."""
    options = [f"--api-versions={kind}" for kind in kinds or []]
    given = yaml.safe_dump(values if crds else {**values, "crds": {"install": False}})
    place = ("-n", NAMESPACE, "--kube-version", KUBERNETES)
    return helm("template", "tidemark", str(CHART), *place, *options, "--values", "-", stdin=given)


class Strict(yaml.SafeLoader):
    """Refuses a key that stands twice in one mapping, as many readers do. helm takes the last."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [key.value for key, _ in node.value]
        if twice := {key for key in keys if keys.count(key) > 1}:
            raise ValueError(f"{', '.join(sorted(twice))} more than once{node.start_mark}")
        return super().construct_mapping(node, deep)


def documents(text: str) -> list[dict[str, Any]]:
    return [body for body in yaml.load_all(text, Strict) if body]


def rendered_objects(case: str) -> list[dict[str, Any]]:
    """The rendered objects of a case."""
    return documents((RENDERED / f"{case}.yaml").read_text())


def pods(bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pods that are made of these: metadata and spec."""
    templates = [body["spec"]["template"] for body in bodies if body["kind"] == "Deployment"]
    return templates + [
        {"metadata": {"labels": body["metadata"]["labels"]}, "spec": body["spec"]}
        for body in bodies
        if body["kind"] == "Pod"
    ]


def render(case: str) -> str:
    """One case, under the name of the chart it is made of."""
    return f"# of chart {chart_digest()}\n{template(*CASES[case], crds=False)}"


def chart_digest() -> str:
    """Names everything that the rendered files depend on."""
    seen = hashlib.sha256(repr(CASES).encode())
    for path in sorted(path for path in CHART.rglob("*") if path.is_file() and "crds" not in path.parts):
        seen.update(f"{path.relative_to(CHART)}\n".encode() + path.read_bytes())
    return seen.hexdigest()


if __name__ == "__main__":
    for case in CASES:
        (RENDERED / f"{case}.yaml").write_text(render(case))
