"""The demo's writes to the API server, and its reads."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tidemark_devcluster.demo.home import EXAMPLE_DATA, DemoHome
from tidemark_devcluster.errors import KubectlFailed

_DELETION_SECONDS = 240
_DATAFLOW = re.compile(r"^kind: Dataflow\nmetadata:\n  name: (\S+)$", re.MULTILINE)


class Cluster(Protocol):
    """The API server that the demo talks to: its own control plane, or a cluster of the user's."""

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl and return what it prints. Raises KubectlFailed."""

    def serve(self, kinds: Path) -> None:
        """Apply CustomResourceDefinitions; each of them is served on return."""


@dataclass(frozen=True)
class DemoDataflow:
    """A Dataflow as its resource shows it."""

    name: str
    hydrated: bool
    reason: str


def examples(checkout: Path, home: DemoHome) -> str:
    """The manifests of examples/, with the demo's folder for their data."""
    files = sorted((checkout / "examples").glob("*.yaml"))
    manifests = "---\n".join(path.read_text(encoding="utf-8") for path in files)
    return manifests.replace(EXAMPLE_DATA, str(home.data))


def example_dataflows(manifests: str) -> frozenset[str]:
    """Names of the Dataflows among `manifests`."""
    found = _DATAFLOW.findall(manifests)
    return frozenset(found)


def create_examples(cluster: Cluster, manifests: str) -> int:
    """Create the absent examples. Returns the number of existing ones, which stay as they are.

    Raises KubectlFailed if an object cannot be created for any other reason.
    """
    try:
        cluster.kubectl("create", "--save-config", "-f", "-", stdin=manifests)
    except KubectlFailed as error:
        lines = [line for line in str(error).splitlines() if line.strip()]
        if not all("(AlreadyExists)" in line for line in lines):
            raise
        return len(lines)
    return 0


def reset_examples(cluster: Cluster, manifests: str) -> None:
    """Apply examples/ over the present objects."""
    cluster.kubectl("apply", "-f", "-", stdin=manifests)


def delete_examples(cluster: Cluster, checkout: Path, home: DemoHome) -> None:
    """Delete examples/ while the operator runs, which takes their tables along."""
    words = ("delete", "--ignore-not-found", f"--timeout={_DELETION_SECONDS}s", "-f", "-")
    cluster.kubectl(*words, stdin=examples(checkout, home))


def dataflows(cluster: Cluster) -> list[DemoDataflow]:
    """All Dataflows of the demo's namespace, by name."""
    listed = json.loads(cluster.kubectl("get", "dataflows", "-o", "json"))
    return [_dataflow(item) for item in listed["items"]]


def replica_states(cluster: Cluster) -> dict[str, str]:
    """The Ready condition of each replica as text, by name."""
    listed = json.loads(cluster.kubectl("get", "computereplicas", "-o", "json"))
    return {item["metadata"]["name"]: _condition_text(_condition(item, "Ready")) for item in listed["items"]}


def _dataflow(item: Mapping[str, Any]) -> DemoDataflow:
    hydrated = _condition(item, "Hydrated").get("status") == "True"
    return DemoDataflow(item["metadata"]["name"], hydrated, _unmet_condition(item))


def _unmet_condition(item: Mapping[str, Any]) -> str:
    """The first condition of a Dataflow that is not True, as text; empty where all are."""
    for kind in ("Planned", "Scheduled", "Hydrated"):
        condition = _condition(item, kind)
        if condition.get("status") != "True":
            return _condition_text(condition)
    return ""


def _condition(item: Mapping[str, Any], kind: str) -> dict[str, Any]:
    conditions: list[dict[str, Any]] = item.get("status", {}).get("conditions", [])
    return next((c for c in conditions if c["type"] == kind), {})


def _condition_text(condition: Mapping[str, Any]) -> str:
    if not condition:
        return "waiting for the operator"
    return f"{condition.get('reason', '')}: {condition.get('message', '')}".strip(": ").splitlines()[0][:150]
