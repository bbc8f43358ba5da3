"""Continual tasks that a replica must refuse, each with its error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.frontiers.test_tasks import OWN, TASK, task
from tests.protocol.samples import DATAFLOW, POSITIVE, ROW, SHARD, SOURCE, A
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.errors import PlanNotAllowed
from tidemark_protocol.explain import explain_dataflow
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.codec import decode, encode
from tidemark_protocol.plan.dataflow import (
    BuildDesc,
    ContinualTaskSink,
    DataflowDescription,
    IndexImport,
    SinkExport,
    SourceImport,
)
from tidemark_protocol.plan.lir import Changes, Get, MapFilterProject, Mfp
from tidemark_protocol.types import STRING, TIMESTAMP, Column, ColumnType

GOOD = task(OWN)
(SINK,) = GOOD.sink_exports
assert isinstance(SINK.sink, ContinualTaskSink)
FILTER = MapFilterProject(ROW, predicates=(POSITIVE,))
CHANGES = Changes(Get(SOURCE, ROW))


def with_sink(**changed: object) -> DataflowDescription:
    return replace(GOOD, sink_exports=(replace(SINK, sink=replace(SINK.sink, **changed)),))  # type: ignore[arg-type]


def with_object(plan: Changes, of: DataflowDescription = GOOD) -> DataflowDescription:
    return replace(of, objects=(*of.objects, BuildDesc(GlobalId("more"), plan)))


BAD: list[tuple[str, DataflowDescription]] = [
    ("watches nix, which is no shard", with_sink(watches=GlobalId("nix"))),
    ("watches d/own, which is no shard", with_sink(watches=OWN)),
    ("two import or objects have the id s1/a", with_sink(own=SOURCE)),
    ("d/own is read, but neither imported nor built", with_sink(own=None)),
    ("not all of it is imported", replace(GOOD, source_imports=(SourceImport(SOURCE, SHARD, ()),))),
    (
        "the only export",
        replace(GOOD, sink_exports=(SINK, SinkExport(GlobalId("e"), SINK.on, replace(SINK.sink, own=None)))),
    ),
    ("no indexes", replace(GOOD, index_imports=(IndexImport(GlobalId("i"), GlobalId("x"), (), ROW),))),
    ("that no continual task of the dataflow watches", with_object(CHANGES, DATAFLOW)),
    ("that no continual task of the dataflow watches", with_object(Changes(Mfp(Get(SOURCE, ROW), FILTER)))),
    ("that no continual task of the dataflow watches", with_object(Changes(Get(OWN, ROW)))),
]


@pytest.mark.parametrize(
    ("message", "description"), BAD, ids=[f"{i}-{message[:30]}" for i, (message, _) in enumerate(BAD)]
)
def test_must_refuse_a_task_that_is_not_one(message: str, description: DataflowDescription) -> None:
    """The error names the mistake."""
    with pytest.raises(PlanNotAllowed, match=message):
        check_dataflow(description)


def test_changes_are_the_inputs_columns_a_word_and_a_time() -> None:
    """A valid description passes and survives the wire."""
    description = with_object(CHANGES)
    check_dataflow(description)

    assert CHANGES.schema == (*ROW, ColumnType(STRING, False), ColumnType(TIMESTAMP, False))
    assert decode(encode(description), DataflowDescription) == description


def test_a_task_explains_its_watched_relation() -> None:
    """The printed dataflow names the task."""
    message = explain_dataflow(with_object(CHANGES)).text()

    assert f"continual task of d/o at each change of {SOURCE}, reading its own output as {OWN}" in message
    assert f"Changes\n  Get {SOURCE}" in message


def test_the_output_must_have_the_columns_of_the_export() -> None:
    """The sink of a task needs permission to write, like that of a view."""
    shard = replace(SINK.sink.shard, columns=(A, Column("b", STRING)))
    with pytest.raises(PlanNotAllowed, match=f"columns of sink {TASK} are not those"):
        check_dataflow(replace(with_sink(shard=shard, own=None), objects=(BuildDesc(SINK.on, Get(SOURCE, ROW)),)))
