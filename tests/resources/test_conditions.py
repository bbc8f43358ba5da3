"""The truth table, row by row: facts, and the conditions that follow from them.

A row of expectations is written as `Type=status/Reason`, only for the conditions that the situation is about.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tidemark_operator.resources.conditions import data_source, dataflow
from tidemark_operator.resources.conditions.condition import Verdict
from tidemark_operator.resources.conditions.data_source import DataSourceFacts, IngestionFailure
from tidemark_operator.resources.conditions.dataflow import (
    DataflowFacts,
    EarlierRevision,
    Planning,
    PlanRefused,
    ReplacementFacts,
    Stored,
    WaitingForInputs,
)
from tidemark_operator.resources.conditions.diagnostics import classify_refusal
from tidemark_operator.resources.conditions.instance import (
    InstanceFacts,
    ReplicaProblem,
    SecretProblem,
    instance_conditions,
    invalid_spec,
)
from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.meta import InstanceName, Namespace
from tidemark_protocol.messages.planning import Diagnostic, Refused

INSTANCE = InstanceFacts(Namespace("ns"), InstanceName("default"), found=True, replicas=1, online=1)
MISSING = replace(INSTANCE, found=False, replicas=0, online=0)
SUSPENDED = replace(INSTANCE, suspended=True)
OFFLINE = replace(INSTANCE, online=0)
DENIED = ReplicaProblem("r1", "AccessDenied", "403")


def table(verdicts: Sequence[Verdict]) -> dict[str, str]:
    return {v.type: f"{v.status.value}/{v.reason}" for v in verdicts}


def message(verdicts: Sequence[Verdict], type: str) -> str:
    return next(v.message for v in verdicts if v.type == type)


def expect(verdicts: Sequence[Verdict], rows: str) -> None:
    """Each `Type=status/Reason` of `rows` is so."""
    expected = dict(row.split("=") for row in rows.split())
    assert {type: table(verdicts)[type] for type in expected} == expected


SERVING = DataflowFacts(INSTANCE, Stored("flow-1"), scheduled=True, exports=1, exports_hydrated=1)
EARLIER = EarlierRevision("flow-1", hydrated=True)
EDITED = replace(
    SERVING,
    plan=Stored("flow-2"),
    earlier=EARLIER,
    replacement=ReplacementFacts(own=True, waits="Dataflow b hydrates"),
)

DATAFLOWS: list[tuple[str, DataflowFacts, str]] = [
    (
        "all is well",
        SERVING,
        "InstanceFound=True/Found Planned=True/Planned Scheduled=True/Scheduled Hydrated=True/Hydrated "
        "Erroring=False/NoErrors Ready=True/Ready Progressing=False/UpToDate",
    ),
    (
        "nothing will change any more",
        replace(SERVING, finished=True),
        "Scheduled=True/Scheduled Hydrated=True/Hydrated Erroring=False/NoErrors Ready=True/Finished "
        "Progressing=False/Finished",
    ),
    (
        "nothing will change any more, and it is in error",
        replace(SERVING, finished=True, exports_in_error=("x: DIVIDE_BY_ZERO",)),
        "Erroring=True/ErrorRows Ready=False/ErrorRows Progressing=False/UpToDate",
    ),
    (
        "no such instance",
        DataflowFacts(MISSING, Planning()),
        "InstanceFound=False/InstanceNotFound Planned=Unknown/InstanceNotFound Scheduled=False/InstanceNotFound "
        "Hydrated=False/InstanceNotFound Erroring=Unknown/InstanceNotFound Ready=False/InstanceNotFound "
        "Progressing=True/InstanceNotFound",
    ),
    (
        "an instance that cannot be read: what runs goes on",
        replace(SERVING, instance=replace(INSTANCE, unreadable="spec.storage.location: of tomorrow")),
        "InstanceFound=False/InstanceUnreadable Planned=True/Planned Scheduled=True/Scheduled Hydrated=True/Hydrated "
        "Ready=False/InstanceUnreadable Progressing=True/InstanceUnreadable",
    ),
    (
        "the planner has not answered",
        DataflowFacts(INSTANCE, Planning()),
        "Planned=Unknown/Planning Scheduled=False/Planning Ready=False/Planning Progressing=True/Planning",
    ),
    (
        "the SQL names what is not there",
        DataflowFacts(INSTANCE, WaitingForInputs(("DataSource tpch",))),
        "Planned=False/WaitingForInputs Ready=False/WaitingForInputs Progressing=True/WaitingForInputs",
    ),
    (
        "the SQL does not resolve",
        DataflowFacts(INSTANCE, PlanRefused("UnresolvedColumn", "line 1")),
        "Planned=False/UnresolvedColumn Scheduled=False/UnresolvedColumn Ready=False/UnresolvedColumn "
        "Progressing=False/UnresolvedColumn",
    ),
    (
        "an edit does not plan: the revision before it serves",
        replace(EDITED, plan=PlanRefused("Syntax", "line 1")),
        "Planned=False/Syntax Hydrated=False/Syntax Ready=True/Ready Progressing=False/Syntax",
    ),
    (
        "an edit names what is not there, and waits for it",
        replace(EDITED, plan=WaitingForInputs(("DataSource tpch",))),
        "Planned=False/WaitingForInputs Ready=True/Ready Progressing=True/Replacing",
    ),
    (
        "an edit kills replicas",
        replace(EDITED, exports_hydrated=0, quarantined="r1 died"),
        "Scheduled=False/Quarantined Ready=True/Ready Progressing=False/Quarantined",
    ),
    (
        "an edit that no image can compute",
        replace(EDITED, exports_hydrated=0, too_old="refreshes"),
        "Hydrated=False/ImageTooOld Ready=True/Ready Progressing=False/ImageTooOld",
    ),
    (
        "an edit hydrates, and the revision before it is in error",
        replace(EDITED, exports_hydrated=0, earlier=replace(EARLIER, exports_in_error=("flow: DIVIDE_BY_ZERO",))),
        "Hydrated=False/Hydrating Erroring=Unknown/Hydrating Ready=False/ErrorRows Progressing=True/Replacing",
    ),
    (
        "an edit is in error, and the revision before it is not",
        replace(EDITED, exports_in_error=("flow: DIVIDE_BY_ZERO",)),
        "Hydrated=True/Hydrated Erroring=True/ErrorRows Ready=True/Ready Progressing=True/Replacing",
    ),
    (
        "an edit hydrates, and the replica with the revision before it began anew",
        replace(EDITED, exports_hydrated=0, earlier=replace(EARLIER, hydrated=False)),
        "Hydrated=False/Hydrating Ready=False/Hydrating Progressing=True/Replacing",
    ),
    (
        "an edit hydrates, and no replica answers",
        replace(EDITED, instance=OFFLINE),
        "Scheduled=False/NoReplicaOnline Ready=False/NoReplicaOnline Progressing=True/Replacing",
    ),
    (
        "another revision has finished the tables of the one that served",
        replace(EDITED, earlier=None),
        "Hydrated=True/Hydrated Ready=False/Replacing Progressing=True/Replacing",
    ),
    (
        "in quarantine",
        replace(SERVING, exports_hydrated=0, quarantined="r1 died"),
        "Planned=True/Planned Scheduled=False/Quarantined Ready=False/Quarantined Progressing=False/Quarantined",
    ),
    (
        "what it reads an index of is in quarantine, and it has never been scheduled",
        replace(SERVING, exports_hydrated=0, quarantined_input="it waits for d", waiting_for_inputs=("index d.i",)),
        "Planned=True/Planned Scheduled=False/InputQuarantined Hydrated=False/InputQuarantined "
        "Ready=False/InputQuarantined Progressing=False/InputQuarantined",
    ),
    (
        "what it reads an index of is in quarantine, and it is hydrated all the same",
        replace(SERVING, quarantined_input="it waits for d"),
        "Scheduled=True/Scheduled Ready=True/Ready Progressing=False/UpToDate",
    ),
    (
        "in quarantine, and hydrated on a replica that did not die",
        replace(SERVING, quarantined="r1 died"),
        "Scheduled=True/Scheduled Ready=True/Ready Progressing=False/UpToDate",
    ),
    (
        "an edit hydrates beside the revision that serves",
        replace(EDITED, exports_hydrated=0),
        "Planned=True/Planned Scheduled=True/Scheduled Hydrated=False/Hydrating Ready=True/Ready "
        "Progressing=True/Replacing",
    ),
    (
        "an edit is hydrated, and waits for what is replaced with it",
        EDITED,
        "Hydrated=True/Hydrated Erroring=False/NoErrors Ready=True/Ready Progressing=True/Replacing",
    ),
    (
        "an edit cannot take over, because a dependant cannot",
        replace(EDITED, replacement=ReplacementFacts(own=True, waits="Dataflow b fails", failed=True)),
        "Hydrated=True/Hydrated Ready=True/Ready Progressing=False/ReplacementFailed",
    ),
    (
        "replaced because what it imports is edited: its own spec serves",
        replace(SERVING, replacement=ReplacementFacts(own=False, waits="Dataflow a hydrates")),
        "Ready=True/Ready Progressing=True/Replacing",
    ),
    (
        "cannot be planned on what it imports as that is edited: its own spec serves",
        replace(SERVING, replacement=ReplacementFacts(own=False, waits="line 1", failed=True)),
        "Ready=True/Ready Progressing=False/ReplacementFailed",
    ),
    (
        "an edit is suspended before it took over",
        replace(EDITED, suspended=True),
        "Scheduled=False/Suspended Ready=False/Suspended Progressing=False/Suspended",
    ),
    (
        "suspended",
        replace(SERVING, suspended=True, scheduled=False),
        "Planned=True/Planned Scheduled=False/Suspended Hydrated=False/Suspended Ready=False/Suspended "
        "Progressing=False/Suspended",
    ),
    (
        "the instance is suspended",
        replace(SERVING, instance=SUSPENDED),
        "Planned=True/Planned Scheduled=False/InstanceSuspended Ready=False/InstanceSuspended "
        "Progressing=False/Suspended",
    ),
    (
        "no replica answers",
        replace(SERVING, instance=OFFLINE),
        "Scheduled=False/NoReplicaOnline Hydrated=False/NoReplicaOnline Ready=False/NoReplicaOnline "
        "Progressing=True/NoReplicaOnline",
    ),
    (
        "inputs have not reached the as_of",
        replace(SERVING, scheduled=False, waiting_for_inputs=("tpch.orders",)),
        "Scheduled=False/WaitingForInputs Ready=False/WaitingForInputs Progressing=True/WaitingForInputs",
    ),
    (
        "another dataflow hydrates first",
        replace(SERVING, scheduled=False),
        "Scheduled=False/Queued Hydrated=False/Queued Progressing=True/Queued",
    ),
    (
        "hydrating",
        replace(SERVING, exports=3, exports_hydrated=1),
        "Scheduled=True/Scheduled Hydrated=False/Hydrating Erroring=Unknown/Hydrating Ready=False/Hydrating "
        "Progressing=True/Hydrating",
    ),
    (
        "a division by zero in the data: up to date, and reads give the error",
        replace(SERVING, exports_in_error=("flow: DIVIDE_BY_ZERO",)),
        "Hydrated=True/Hydrated Erroring=True/ErrorRows Ready=False/ErrorRows Progressing=False/UpToDate",
    ),
    (
        "to be deleted while others read: it serves on",
        replace(SERVING, deleting_used_by=("Dataflow b",)),
        "Ready=True/Ready Progressing=False/InUse",
    ),
]


@pytest.mark.parametrize(("facts", "rows"), [row[1:] for row in DATAFLOWS], ids=[row[0] for row in DATAFLOWS])
def test_dataflow(facts: DataflowFacts, rows: str) -> None:
    """Every row gives all seven conditions, in one order."""
    verdicts = dataflow.dataflow_conditions(facts)

    assert tuple(v.type for v in verdicts) == dataflow.TYPES
    expect(verdicts, rows)


def test_missing_instance_prints_a_manifest_to_apply() -> None:
    """It can be pasted: kind, name and namespace are right."""
    text = message(dataflow.dataflow_conditions(DataflowFacts(MISSING, Planning())), "InstanceFound")

    assert "kind: ComputeInstance\nmetadata: {name: default, namespace: ns}\n" in text


def test_an_edit_that_cannot_take_over_says_why_and_that_the_old_revision_serves() -> None:
    """The reader learns what to do, and that nothing is lost."""
    failed = ReplacementFacts(own=True, waits="Dataflow b cannot be planned on it: line 1", failed=True)
    verdicts = dataflow.dataflow_conditions(replace(EDITED, replacement=failed))

    assert "Dataflow b cannot be planned" in message(verdicts, "Progressing")
    assert message(verdicts, "Ready").startswith("revision flow-1, of the spec before the edit, serves")


def test_a_message_stands_in_one_condition() -> None:
    """`kubectl describe` shows a planner's text once; the other conditions name the one that has it."""
    refused = dataflow.dataflow_conditions(DataflowFacts(INSTANCE, PlanRefused("Syntax", "line 1")))
    assert [v.type for v in refused if "line 1" in v.message] == ["Planned"]
    assert message(refused, "Ready") == message(refused, "Progressing") == "see condition Planned"


READING = DataSourceFacts(INSTANCE, suspended=False, ingester="r1")

DATA_SOURCES: list[tuple[str, DataSourceFacts, str]] = [
    (
        "all is well",
        READING,
        "InstanceFound=True/Found SchemaKnown=True/SchemaKnown Ingesting=True/Ingesting Erroring=False/NoErrors "
        "Ready=True/Ingesting",
    ),
    (
        "no such instance",
        replace(READING, instance=MISSING, ingester=None),
        "InstanceFound=False/InstanceNotFound Ingesting=False/InstanceNotFound Erroring=Unknown/NotIngesting "
        "Ready=False/InstanceNotFound",
    ),
    (
        "no file to infer columns from",
        replace(READING, schema_unknown_of=("flights",)),
        "SchemaKnown=False/WaitingForFiles Ready=False/WaitingForFiles",
    ),
    ("suspended", replace(READING, suspended=True), "Ingesting=False/Suspended Ready=False/Suspended"),
    ("no replica answers", replace(READING, instance=OFFLINE), "Ingesting=False/NoReplicaOnline"),
    ("not reported yet", replace(READING, ingester=None), "Ingesting=False/Starting Ready=False/Starting"),
    (
        "the directory is gone",
        replace(READING, failure=IngestionFailure("SourceUnreadable", "/in")),
        "Ingesting=False/SourceUnreadable Ready=False/SourceUnreadable",
    ),
    (
        "files refused: what was read well stays right",
        replace(READING, files_in_error=2),
        "Erroring=True/BadInput Ready=True/Ingesting",
    ),
    (
        "a file is half written: nothing to mend yet",
        replace(READING, warning="x.csv: waiting"),
        "Ingesting=True/Ingesting Erroring=False/NoErrors Ready=True/Ingesting",
    ),
    (
        "to be deleted while read",
        replace(READING, deleting_used_by=("Dataflow b",)),
        "Ready=False/InUse",
    ),
]


@pytest.mark.parametrize(("facts", "rows"), [row[1:] for row in DATA_SOURCES], ids=[row[0] for row in DATA_SOURCES])
def test_data_source(facts: DataSourceFacts, rows: str) -> None:
    """Every row gives all five conditions, in one order."""
    verdicts = data_source.data_source_conditions(facts)

    assert tuple(v.type for v in verdicts) == data_source.TYPES
    expect(verdicts, rows)


@pytest.mark.parametrize(
    ("facts", "rows"),
    [
        (INSTANCE, "Ready=True/ReplicasOnline"),
        (SUSPENDED, "Ready=False/Suspended"),
        (OFFLINE, "Ready=False/NoReplicaOnline"),
        (replace(INSTANCE, replicas=0, online=0), "Ready=False/NoReplicas"),
        (replace(INSTANCE, secret=SecretProblem("SecretNotFound", "no")), "Ready=False/SecretNotFound"),
        (replace(INSTANCE, store=(DENIED,)), "Ready=False/StorageAccessDenied"),
        (replace(INSTANCE, replicas=2, online=2, store=(DENIED,)), "Ready=True/ReplicasOnline"),
        (replace(OFFLINE, store=(DENIED,)), "Ready=False/NoReplicaOnline"),
    ],
)
def test_instance(facts: InstanceFacts, rows: str) -> None:
    """An instance is ready while a replica is."""
    expect(instance_conditions(facts), rows)


def test_an_instance_that_one_replica_cannot_store_for_names_it() -> None:
    """Another does it."""
    verdicts = instance_conditions(replace(INSTANCE, replicas=2, online=2, store=(DENIED,)))
    assert message(verdicts, "Ready") == "2 of 2 replicas online; replica r1: 403"


def test_an_object_that_cannot_be_read_says_which_field() -> None:
    """Ready=False names it; the other conditions are unknown rather than stale."""
    verdicts = invalid_spec(dataflow.TYPES, InvalidValue("spec.sql", "must be a string"))

    expect(verdicts, "Ready=False/InvalidSpec Planned=Unknown/InvalidSpec")
    assert message(verdicts, "Ready") == "spec.sql: must be a string"


def test_a_missing_name_alone_is_waited_for() -> None:
    """With the position, and both kinds the name could be of; the same name twice is one."""
    missing = Diagnostic("UNRESOLVED_RELATION", "not found", line=2, column=6, word="tpch.x", relation=("tpch", "x"))

    assert classify_refusal(Refused((missing, missing))) == WaitingForInputs(
        ('DataSource or Dataflow tpch with x (line 2, column 6, at "tpch.x": not found)',)
    )


def test_a_fault_beside_a_missing_name_is_refused() -> None:
    """Waiting would not help."""
    missing = Diagnostic("UNRESOLVED_RELATION", "not found", relation=("tpch", "x"))
    fault = Diagnostic("SYNTAX", "no such word", view="v", line=1, column=3, word="FORM")

    assert classify_refusal(Refused((missing, fault))) == PlanRefused(
        "Syntax", 'view v, line 1, column 3, at "FORM": no such word'
    )


def test_every_condition_and_reason_is_in_the_reference() -> None:
    """The truth table above and the one in docs/ say the same words."""
    reference = (Path(__file__).parents[2] / "docs/reference/conditions.md").read_text()
    rows = " ".join(row[2] for row in (*DATAFLOWS, *DATA_SOURCES)).split()
    said_by_us = {word for row in rows for word in (row.split("=")[0], row.split("/")[1])}

    assert {word for word in said_by_us if f"`{word}`" not in reference and f"| {word} |" not in reference} == set()


def test_files_in_error_are_named_with_the_remedy() -> None:
    """Ten of them, and how many more there are."""
    named = tuple(f"t/{i}.csv (SCHEMA_MISMATCH)" for i in range(12))
    facts = replace(READING, name="drop", files_in_error=1200, named_in_error=named)
    (message,) = (v.message for v in data_source.data_source_conditions(facts) if v.type == "Erroring")

    assert message.startswith("1200 files have error rows in their tables: t/0.csv (SCHEMA_MISMATCH), t/1.csv")
    assert "t/9.csv (SCHEMA_MISMATCH), 1190 more. To delete a file changes nothing" in message
    assert "kubectl tidemark files drop" in message


def test_what_fails_before_it_is_hydrated_is_told_first() -> None:
    """No other condition has it: an attempt that fails leaves nothing behind that could be in error."""
    failing = replace(SERVING, exports_hydrated=0, exports_in_error=("flow: step failed: no room",), hydration="3%")
    (hydrated,) = [v for v in dataflow.dataflow_conditions(failing) if v.type == "Hydrated"]
    assert hydrated.message == "flow: step failed: no room; 3%; 0 of 1 exports are hydrated"
