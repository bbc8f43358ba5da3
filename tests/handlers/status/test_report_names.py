"""Replicas and statuses use the same names of counters and errors."""

from __future__ import annotations

import pytest

from tests.protocol.samples import DATAFLOW
from tidemark_operator.catalogue.dataflow_state import DataflowState, RevisionSet
from tidemark_operator.controller.frontiers.collection import Collection, ExportOnReplica
from tidemark_operator.handlers.publish.status_documents import Now
from tidemark_operator.handlers.status.statuses import _first_error, _remembered, file_counters
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision
from tidemark_operator.resources.conditions.dataflow import DataflowFacts, Stored, dataflow_conditions
from tidemark_operator.resources.conditions.instance import InstanceFacts
from tidemark_operator.resources.manifest.meta import InstanceName, Namespace
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, Time
from tidemark_protocol.plan.ingestion import FilesSource
from tidemark_replica.storage.files.source import FilesIngestion


def test_counters_of_files_are_all_shown() -> None:
    """The counters have the names that the ingester of this release gives."""
    counters = dict(FilesIngestion(FilesSource(()), None).counters())  # type: ignore[arg-type]
    assert file_counters(counters) == {"read": 0, "waiting": 0, "changed": 0, "refused": 0}

    for n, name in enumerate(counters):
        counters[name] = n
    assert sorted((file_counters(counters) or {}).values()) == list(range(len(counters)))


def test_an_error_in_a_view_is_told_with_its_place() -> None:
    """The condition says which file or expression to look at, and how many more there are."""
    assert _first_error({"errors": "1", "code": "SCHEMA_MISMATCH", "expression": "x.csv"}) == "SCHEMA_MISMATCH in x.csv"
    assert _first_error({"errors": "3", "code": "DIVIDE_BY_ZERO"}) == "DIVIDE_BY_ZERO, and 2 more"


def test_sources_without_files_show_none() -> None:
    """A generator counts nothing. Nor does a replica that tells half of it."""
    assert file_counters({}) is None
    assert file_counters({"files": 1}) is None


def test_errors_of_a_dataflow_without_a_replica_are_the_last_reported() -> None:
    """A finished table holds what it held, and nobody tells of its errors. The errors of another revision do not
    count."""
    revision = DataflowRevision(DATAFLOW, (), (), DATAFLOW.plan_digest, 1, "")
    state = DataflowState(
        Key(DATAFLOWS, "ns", "d"), "u", "default", revisions=RevisionSet(ActiveRevision("d-r2", 2, 1, "", revision))
    )
    condition = {"type": "Erroring", "status": "True", "message": "v: DIVIDE_BY_ZERO"}
    finished = Collection(GlobalId("u/v"), "d", Time(3), (), 0, ShardId("v"), write=Frontier.empty())
    finished.replicas[ReplicaId("r1")] = ExportOnReplica.finished(Frontier.at(3))

    def shown(stored: str, status: str = "True") -> tuple[str, ...]:
        old = {"revision": {"name": stored}, "conditions": [{**condition, "status": status}]}
        return _remembered([finished], state, Now(old, 1, 0))

    assert shown("d-r2") == ("v: DIVIDE_BY_ZERO",)
    assert shown("d-r1") == shown("d-r2", "False") == ()
    there = finished.replicas.pop(ReplicaId("r1"))
    assert shown("d-r2") == ("v: DIVIDE_BY_ZERO",), "the replica is away for a moment"
    finished.replicas[ReplicaId("r1")] = there
    finished.replicas[ReplicaId("r2")] = ExportOnReplica(Frontier.at(3), statuses={"erroring": {"errors": "0"}})
    assert shown("d-r2") == ()


@pytest.mark.parametrize(("finished", "remembered"), [({"finished": True}, 1), ({"time": 3}, 0), (None, 0)])
def test_errors_of_a_dataflow_that_is_not_installed_are_those_of_its_finished_table(
    finished: dict[str, object] | None, remembered: int
) -> None:
    """It is suspended, or the operator has just begun. Of what goes on, nobody knows."""
    state = DataflowState(Key(DATAFLOWS, "ns", "d"), "u", "default")
    condition = {"type": "Erroring", "status": "True", "message": "v: DIVIDE_BY_ZERO"}
    old = {"revision": {"name": "d-r2"}, "conditions": [condition], "writeFrontier": finished}

    assert len(_remembered([], state, Now(old, 1, 0))) == remembered
    assert _remembered([], state, Now({**old, "revision": None}, 1, 0)) == ()


def test_a_finished_table_is_in_error_while_no_replica_is_there() -> None:
    """It is not known whether it can be read, and what it holds is."""
    found = InstanceFacts(Namespace("ns"), InstanceName("default"), found=True, replicas=1, online=1)
    facts = DataflowFacts(
        found, Stored("d-r2"), scheduled=True, exports=1, exports_in_error=("v: X",), errors_recorded=True
    )
    held = {v.type: (v.status.value, v.reason) for v in dataflow_conditions(facts)}

    assert held["Erroring"] == ("True", "ErrorRows")
    assert held["Ready"] == ("False", "Hydrating")
