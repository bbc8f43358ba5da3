"""The schema accepts every status that the builders make; and the columns of `kubectl get`."""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Any

import pytest

from tests.crds.kubectl import Kubectl
from tests.crds.manifests import manifest
from tests.protocol.samples import DATAFLOW
from tidemark_devcluster.errors import KubectlFailed
from tidemark_operator.catalogue.dataflow_state import PendingRevision, ReplacementId
from tidemark_operator.controller.hydration.quarantine import Death, Suspicion
from tidemark_operator.handlers.publish import status_documents
from tidemark_operator.handlers.revisions.revision_marks import document, pending_document
from tidemark_operator.handlers.status.replica_statuses import process_document
from tidemark_operator.orchestrator.interface import Exit, Observation, Phase
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision
from tidemark_operator.resources.conditions.condition import yes
from tidemark_operator.resources.conditions.instance import InstanceFacts
from tidemark_operator.resources.manifest.meta import InstanceName, Namespace
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Time
from tidemark_protocol.messages.responses import TableReport
from tidemark_protocol.types import Column, SqlType

pytestmark = pytest.mark.cluster

COLUMNS = (Column("n", SqlType("decimal", 15, 2), False),)


def now() -> status_documents.Now:
    return status_documents.Now({}, 1, int(time.time() * 1000))


def dataflow_status(write: Frontier | None = None) -> dict[str, Any]:
    """Every field that the builder knows."""
    frontier = write or Frontier.at(now().ms - 5000)
    export = status_documents.ExportStatus(
        "x",
        "materializedView",
        id="u1",
        location="/data/ns/x/x/v1",
        columns=COLUMNS,
        key=("n",),
        read_frontier=Frontier.at(0),
        write_frontier=frontier,
        input_frontier=frontier,
        output_frontier=Frontier.empty(),
        hydrated=True,
        replicas=(status_documents.ReplicaExport("r1", True, frontier),),
    )
    mark = ActiveRevision("x-1", 1, 1, "sha256:s", DataflowRevision(DATAFLOW, (), (), DATAFLOW.plan_digest, 1, ""))
    together = PendingRevision(replace(mark, name="x-2"), ReplacementId("upstream", "upstream-7"))
    pending = pending_document(together, [export.document(now().ms)])
    verdicts = [yes("Ready", "Ready"), yes("Hydrated", "Hydrated")]
    suspicion = Suspicion("x-1", (Death("r1", "i-1"), Death("r1", "i-2")), "monday")
    return status_documents.dataflow_status(now(), verdicts, [export], document(mark), pending, [suspicion])


def data_source_status() -> dict[str, Any]:
    table = status_documents.TableStatus(
        "orders",
        id="s1",
        location="/data/ns/x/orders/v1",
        columns=COLUMNS,
        read_frontier=Frontier.at(0),
        write_frontier=Frontier.at(now().ms - 5000),
        ingested=TableReport("orders", 5, 9, 3, "versions", 40, 2, "it failed", 7, Time(now().ms), True),
    )
    files = {"read": 1, "waiting": 2, "changed": 3, "refused": 4}
    return status_documents.data_source_status(now(), [yes("Ready", "Ingesting")], [table], 0, "r1", files)


def replica_status() -> dict[str, Any]:
    last = Exit(137, now().ms, "OomKilled")
    process = process_document(Observation(Phase.RUNNING, "", "i-1", now().ms, restarts=1, last_exit=last))
    verdicts = [yes("Online", "Online"), yes("Ready", "Hydrated")]
    return status_documents.replica_status(now(), verdicts, process, dataflows=2, dataflows_hydrated=2, hydrations=3)


def instance_status() -> dict[str, Any]:
    facts = InstanceFacts(Namespace("ns"), InstanceName("x"), found=True, replicas=2, online=1)
    return status_documents.instance_status(now(), [yes("Ready", "ReplicasOnline")], facts, 7, "0.1")


STATUSES = {
    "ComputeInstance": instance_status,
    "ComputeReplica": replica_status,
    "DataSource": data_source_status,
    "Dataflow": dataflow_status,
}


@pytest.mark.parametrize("kind", STATUSES)
def test_the_schema_takes_whole_what_the_builder_makes(kind: str, kubectl: Kubectl) -> None:
    """A field that the schema does not know would be pruned in silence."""
    kubectl.create(manifest(kind))
    document = STATUSES[kind]()

    assert kubectl.set_status(manifest(kind), document)["status"] == document


def test_status_is_not_taken_with_the_object(kubectl: Kubectl) -> None:
    """It is a subresource: users edit spec, the operator edits status, and only spec counts generations."""
    created = kubectl.create({**manifest("Dataflow"), "status": dataflow_status()})
    after = kubectl.set_status(manifest("Dataflow"), dataflow_status())

    assert "status" not in created
    assert after["metadata"]["generation"] == 1


@pytest.mark.parametrize("shape", [{"time": 1, "finished": True}, {"finished": False}, {}, {"time": -1}])
def test_a_frontier_is_a_time_or_finished(shape: dict[str, Any], kubectl: Kubectl) -> None:
    """The two shapes exclude each other, or readers would have to guess."""
    kubectl.create(manifest("Dataflow"))

    with pytest.raises(KubectlFailed, match=r"status\.writeFrontier"):
        kubectl.set_status(manifest("Dataflow"), {"writeFrontier": shape})


COLUMNS_SHOWN = {
    "computeinstances": "NAME REPLICAS ONLINE READY AGE",
    "computereplicas": "NAME INSTANCE ONLINE READY RESTARTS AGE",
    "datasources": "NAME INSTANCE READY LAG AGE",
    "dataflows": "NAME INSTANCE READY HYDRATED LAG AGE",
}


@pytest.mark.parametrize(("kind", "plural"), list(zip(STATUSES, COLUMNS_SHOWN, strict=True)))
def test_kubectl_get_shows_the_columns_filled(kind: str, plural: str, kubectl: Kubectl) -> None:
    """Each column has a value: its path into the status is right."""
    kubectl.create(manifest(kind))
    kubectl.set_status(manifest(kind), STATUSES[kind]())

    header, row = kubectl.run("get", plural).splitlines()
    assert header.split() == COLUMNS_SHOWN[plural].split()
    assert len(row.split()) == len(header.split())
    assert "<" not in row

    header, row = kubectl.run("get", plural, "-o", "wide").splitlines()
    assert len(row.split()) == len(header.split())


@pytest.mark.parametrize(("hours_ahead", "lag"), [(1, r"\d+s"), (-30, "30h"), (-400_000, r"\d+y")])
def test_lag_is_the_age_of_the_write_frontier(hours_ahead: int, lag: str, kubectl: Kubectl) -> None:
    """kubectl computes it when asked; a frontier beyond the clock is no lag at all, rather than invalid."""
    kubectl.create(manifest("Dataflow"))
    write = Frontier.at(now().ms + hours_ahead * 3_600_000)
    kubectl.set_status(manifest("Dataflow"), dataflow_status(write))

    row = kubectl.run("get", "dataflows", "--no-headers").split()
    assert re.fullmatch(lag, row[4])


def test_short_names_and_the_category_find_the_kinds(kubectl: Kubectl) -> None:
    """`kubectl get tidemark` lists all four, `kubectl get all` none."""
    for kind in STATUSES:
        kubectl.create(manifest(kind))

    for name in ("ci", "crep", "dsrc", "df"):
        assert len(kubectl.run("get", name, "-o", "name").splitlines()) == 1
    assert len(kubectl.run("get", "tidemark", "-o", "name").splitlines()) == 4
    assert "tidemark" not in kubectl.run("get", "all", "-o", "name")


def test_kubectl_explain_describes_every_field(kubectl: Kubectl) -> None:
    """Descriptions are the reference that is always at hand."""
    for plural in COLUMNS_SHOWN:
        assert "DESCRIPTION" in kubectl.run("explain", f"{plural}.spec", "--recursive")
    assert "128 KiB" in kubectl.run("explain", "dataflows.spec.sql")


def test_the_schemas_are_structural_and_established(kubectl: Kubectl) -> None:
    """A schema with a flaw is stored all the same, with a condition that says so."""
    for plural in COLUMNS_SHOWN:
        path = "{.status.conditions[*].type}"
        shown = kubectl.run("get", "crd", f"{plural}.compute.tidemark.dev", "-o", f"jsonpath={path}")
        assert set(shown.split()) == {"NamesAccepted", "Established"}
