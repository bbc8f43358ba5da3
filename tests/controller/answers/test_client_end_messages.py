"""The end message of a subscribe or copy whose input ended: the cause, and where to go on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.harness import EMPTY, INDEX, LAG, R1, TERM, InstanceHarness, at
from tests.protocol.samples import dataflow
from tests.replica.plans import COLUMNS, transient
from tidemark_operator.catalogue.dataflow_state import DataflowSpec, DataflowState
from tidemark_operator.controller.answers.client_dataflows import LAG_MS
from tidemark_operator.controller.answers.client_end_messages import EndMessage
from tidemark_operator.controller.answers.copies import CopyAnswer
from tidemark_operator.controller.answers.subscribes import Position, SubscribeAdvanced
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.frontiers.succession import Succession
from tidemark_operator.handlers.revisions.installer import why_dropped
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.responses import CopyToFailed, SubscribeBatch, SubscribeResponse
from tidemark_protocol.plan.dataflow import CopyToSink, IndexImport, SubscribeSink
from tidemark_protocol.types import ColumnType

S = GlobalId("s")
EDITED = "Dataflow d was edited, and its new revision has taken over"


def reading(sink: SubscribeSink | CopyToSink, *, edited: bool) -> InstanceHarness:
    """A client's dataflow over the index; `edited`: another revision of that, readable from 320 on, runs beside it."""
    harness = InstanceHarness()
    harness.connect(R1)
    harness.install()
    harness.report(R1, at(400))
    if edited:
        beside = Succession({GlobalId("d2/i"): INDEX}, frozenset())
        harness.instance.create(Dataflow("ns/d2", dataflow("d2", 320), LAG, beside), TERM)
    imported = IndexImport(INDEX, GlobalId("x"), (), tuple(ColumnType(c.type, c.nullable) for c in COLUMNS))
    description = replace(transient("s", sink), as_of=Time(300), source_imports=(), index_imports=(imported,))
    harness.instance.create(Dataflow("s", description, LAG_MS), TERM)
    return harness


def test_the_end_of_a_subscribe_names_the_edited_dataflow_and_where_to_go_on() -> None:
    """The end names the last time that was sent whole: from there on nothing is missing, and nothing told twice."""
    harness = reading(SubscribeSink(COLUMNS), edited=True)
    harness.hear(R1, SubscribeResponse(S, SubscribeBatch(at(0), at(350), b"", None, 0, 0)))
    (ended,) = harness.instance.drop("ns/d", cause=EDITED)

    assert isinstance(ended, SubscribeAdvanced)
    assert (ended.lower, ended.batch.upper) == ((at(350), 0), EMPTY)
    message = str(ended.batch.error)
    assert message.startswith(f"{EDITED}. All changes before 350 (1970-01-01T00:00:00.350Z) had been told. ")
    assert "Subscribe again with --as-of 349, and with the snapshot" in message
    assert message.endswith("every change from 350 on")


def test_the_end_of_a_copy_says_whether_to_copy_again() -> None:
    """After an edit, yes."""
    sink = CopyToSink(COLUMNS, "file:///data/ns/_copies/c", "parquet")
    (ended,) = reading(sink, edited=True).instance.drop("ns/d", cause=EDITED)
    assert ended == CopyAnswer(S, CopyToFailed(f"{EDITED}. Copy again"))
    (ended,) = reading(sink, edited=False).instance.drop("ns/d", cause="Dataflow d was deleted")
    assert ended == CopyAnswer(S, CopyToFailed("Dataflow d was deleted"))


@pytest.mark.parametrize(
    ("position", "since", "expected"),
    [
        pytest.param((at(350), 7), at(0), "before 350 (1970-01-01T00:00:00.350Z) had been told, and some", id="within"),
        pytest.param((at(350), 7), at(0), "--as-of 349, ", id="within a time: the one before was told whole"),
        pytest.param((at(350), 0), at(349), "--as-of 349, ", id="just readable"),
        pytest.param((at(350), 0), at(351), "can be read as of 351 (1970-01-01T00:00:00.351Z) and later", id="later"),
        pytest.param((at(0), 0), at(320), "No change had been sent yet. Subscribe again: ", id="nothing position"),
        pytest.param((at(0), 0), at(0), "No change had been sent yet. Subscribe again with --as-of 0, ", id="from 0"),
    ],
)
def test_where_to_go_on(position: Position, since: Frontier, expected: str) -> None:
    """Where what was told whole and what can be read overlap; else, from when on it can be read."""
    assert expected in EndMessage("c", since).of_subscribe(position)


def test_where_nothing_takes_its_place_nothing_is_advised() -> None:
    """A deleted Dataflow has no other revision."""
    assert EndMessage("Dataflow d was deleted").of_subscribe((at(350), 0)) == (
        "Dataflow d was deleted. All changes before 350 (1970-01-01T00:00:00.350Z) had been told"
    )


@pytest.mark.parametrize(
    ("suspended", "edited", "expected"),
    [
        (False, "d", "Dataflow d was edited, and its new revision has taken over"),
        (False, "a", "A new revision of Dataflow d has taken over, after an edit of Dataflow a, which it reads"),
        (False, None, "A new revision of Dataflow d has taken over, after an edit of it, or of what it reads"),
        (True, None, "Dataflow d is suspended"),
    ],
)
def test_why_a_dataflow_goes(suspended: bool, edited: str | None, expected: str) -> None:
    """By its name, and whose edit it was."""
    state = DataflowState(Key(DATAFLOWS, "ns", "d"), "uid", "default", DataflowSpec(suspended=suspended))
    assert why_dropped(state, edited) == expected
