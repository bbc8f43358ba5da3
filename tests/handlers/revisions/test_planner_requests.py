"""Requests to the planner: their contents, their number, and its refusals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from tests.gateway.registries import registry, shard_of
from tests.handlers.revised_dataflows import dataflow, rev
from tests.resources.manifests import body
from tests.resources.manifests import dataflow as manifest
from tidemark_operator.catalogue.dataflow_state import PlannerAnswer
from tidemark_operator.catalogue.row_counts import counts_of, row_counts
from tidemark_operator.handlers.revisions.planner_requests import (
    must_send,
    outcome_of_refusal,
    plan_request,
    question_of,
    remember,
)
from tidemark_operator.planning.planner_fault import FIRST_PAUSE_MS, MAX_PAUSE_MS
from tidemark_operator.planning.revision import DataflowRevision, RowCount
from tidemark_operator.resources.conditions.dataflow import PlanRefused, WaitingForInputs
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_protocol.ids import Digest, GlobalId
from tidemark_protocol.messages.planning import Diagnostic, Planned, Refused
from tidemark_protocol.messages.responses import IngestionStatus, TableReport
from tidemark_protocol.plan.dataflow import SourceImport

FLOW = Dataflow.parse(manifest({"sql": "SELECT 1 AS a", "index": {}}))
Q, OTHER = Digest("q"), Digest("other")
PLANNED = Planned((), (), (), (), "")
TIMEOUT = Refused((Diagnostic("TIMEOUT", "planning took longer than 5 s"),))
SYNTAX = Refused((Diagnostic("SYNTAX", "mismatched input", line=1, column=8, word="FORM"),))


@pytest.mark.parametrize("reported", [PLANNED, SYNTAX])
def test_the_same_question_is_asked_once(reported: Planned | Refused) -> None:
    """The question is another when the text, or the meaning of its names, is."""
    answer = remember(FLOW, reported, Q, None, 0)

    assert must_send(None, Q, 0)
    assert not must_send(answer, Q, 10**12)
    assert must_send(answer, OTHER, 0)


def test_a_planner_that_was_busy_is_asked_again_ever_more_rarely() -> None:
    """The pause doubles up to ten minutes; another question begins anew."""
    answer: PlannerAnswer | None = None
    pauses = []
    for _ in range(12):
        answer = remember(FLOW, TIMEOUT, Q, answer, 1000)
        assert answer.again_ms is not None
        assert not must_send(answer, Q, answer.again_ms - 1)
        assert must_send(answer, Q, answer.again_ms)
        pauses.append(answer.again_ms - 1000)

    assert pauses[:3] == [FIRST_PAUSE_MS, 2 * FIRST_PAUSE_MS, 4 * FIRST_PAUSE_MS]
    assert pauses[-1] == MAX_PAUSE_MS
    assert remember(FLOW, TIMEOUT, OTHER, answer, 1000).again_ms == 1000 + FIRST_PAUSE_MS


def missing(*relation: str) -> Refused:
    return Refused((Diagnostic("UNRESOLVED_RELATION", "no such relation", relation=relation),))


def test_a_missing_relation_is_waited_for_but_not_oneself() -> None:
    """A Dataflow that reads itself would wait for ever."""
    assert isinstance(outcome_of_refusal(FLOW, missing("tpch", "orders")), WaitingForInputs)
    own = outcome_of_refusal(FLOW, missing(FLOW.meta.name))
    assert isinstance(own, PlanRefused)
    assert own.reason == "Cycle"


def test_the_request_has_the_views_and_exports_as_written() -> None:
    """And a prefix that makes ids the Dataflow's own."""
    request = plan_request(FLOW, [], [])

    assert (request.views, request.exports) == (FLOW.views, FLOW.exports)
    assert request.id_prefix == f"{body('Dataflow', {})['metadata']['uid']}/"


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({"sql": "SELECT * FROM a.i", "index": {}}, {"a"}),
        ({"sql": "SELECT * FROM `By-Day`.`I` JOIN A/* not b-y */.i USING (k)", "index": {}}, {"a", "by-day"}),
        ({"sql": "SELECT 1 AS k", "index": {}}, set()),
        (
            {
                "views": [{"name": "v", "sql": "SELECT * FROM orders"}, {"name": "w", "sql": "SELECT * FROM v, rates"}],
                "exports": [{"name": "w", "index": {"from": "w"}}],
            },
            {"orders", "rates"},
        ),
    ],
)
def test_must_the_planner_gets_every_relation_that_the_text_can_mean(spec: dict[str, object], named: set[str]) -> None:
    """Names in any case, quoted or not; others cost nothing, and no answer changes when they do."""
    others = [dataflow(name, rev(name, 1)) for name in ("by-day", "orders", "rates", "qq")]
    request = plan_request(Dataflow.parse(manifest(spec)), [], [*others, dataflow("a", rev("a", 1))])
    parents = {relation.parent for relation in request.catalogue.relations}

    # one may be there that is named by accident, such as a letter
    assert named <= parents <= named | {"a"}


def test_must_a_task_is_planned_with_its_watched_relation() -> None:
    """Though no SELECT names it."""
    task = {"watch": "orders", "columns": [{"name": "k", "type": "BIGINT"}]}
    spec = {"sql": "SELECT 1 AS k", "continualTask": task}
    request = plan_request(Dataflow.parse(manifest(spec)), [], [dataflow("orders", rev("orders", 1))])

    assert {relation.parent for relation in request.catalogue.relations} == {"orders"}


JOIN = Dataflow.parse(manifest({"sql": "SELECT * FROM s.a JOIN s.b USING (k)", "index": {}}))


def counted(*tables: TableReport, follows: Sequence[DataflowRevision] = ()) -> dict[str, int | None]:
    """The row counts of a request about the source `s`, whose ingester reports this."""
    known = registry()
    known.sources("ns")[0].report = IngestionStatus(GlobalId("s"), "running", tables=tables)
    request = plan_request(JOIN, known.sources("ns"), [], follows, row_counts(known.sources("ns")))
    return {relation.name: relation.rows for relation in request.catalogue.relations}


@pytest.mark.parametrize(
    ("report", "rows"),
    [
        (TableReport("a", 6_001_215), 1 << 22),
        (TableReport("a", 7), 1024),  # a new table may grow
        (TableReport("a", 0), None),
        (TableReport("a", 5_000, behind=0, unit="files"), 4096),
        (TableReport("a", 5_000, behind=3, unit="files"), None),  # not read to its end yet
        (TableReport("a", 5_000, behind=3, unit="bytes"), 4096),  # of PostgreSQL's log
        (TableReport("a", 5_000, behind=5_000, unit="offsets"), 4096),  # of a topic that is written all the time
        (TableReport("a", 5_000, unit="offsets"), None),  # of a topic whose ends are not known yet
        (TableReport("a", 5_000, unit="bytes"), 4096),
        (TableReport("a", 5_000, behind=5_001, unit="events"), None),
        (TableReport("a", 5_000, snapshot_percent=40, unit="bytes"), None),
    ],
)
def test_row_counts_are_coarse_and_of_tables_that_are_there(report: TableReport, rows: int | None) -> None:
    assert counted(report) == {"a": rows, "b": None}


def test_must_an_edit_is_planned_with_the_row_counts_of_its_revision() -> None:
    """Also with what was unknown then; only what the revision does not read has a new count."""
    now = (TableReport("a", 1 << 20), TableReport("b", 1 << 20))
    a, b = (SourceImport(GlobalId(f"s.{t}"), shard_of(f"s.{t}"), (0,)) for t in "ab")
    revision = rev("d", 1).revision
    both = replace(revision, description=replace(revision.description, source_imports=(a, b)))
    one = replace(revision, description=replace(revision.description, source_imports=(b,)))
    before = replace(both, row_counts=(RowCount(GlobalId("s.a"), 2048),))

    assert counted(*now) == {"a": 1 << 20, "b": 1 << 20}
    assert counted(*now, follows=[before]) == {"a": 2048, "b": None}
    assert counted(*now, follows=[one]) == {"a": 1 << 20, "b": None}
    # one that was stored and not marked, and then the active one
    unmarked = replace(both, row_counts=(RowCount(GlobalId("s.a"), 4096), RowCount(GlobalId("s.b"), 8192)))
    assert counted(*now, follows=[unmarked, one]) == {"a": 4096, "b": None}


def test_other_row_counts_make_no_other_question() -> None:
    """Otherwise each report of an ingester would send again what the planner refused, or failed at."""
    known = registry()
    questions = []
    for rows in (3000, 1 << 20):
        known.sources("ns")[0].report = IngestionStatus(GlobalId("s"), "running", tables=(TableReport("a", rows),))
        questions.append(plan_request(JOIN, known.sources("ns"), [], (), row_counts(known.sources("ns"))))
    assert questions[0] != questions[1]
    assert len(set(map(question_of, questions))) == 1
    assert question_of(questions[0]) != question_of(replace(questions[0], dialect="postgres"))


def test_the_row_counts_of_a_plan_are_those_of_what_it_reads() -> None:
    known = registry()
    known.sources("ns")[0].report = IngestionStatus(
        GlobalId("s"), "running", tables=(TableReport("a", 3000), TableReport("b", 0))
    )
    request = plan_request(JOIN, known.sources("ns"), [], (), row_counts(known.sources("ns")))

    assert counts_of(request.catalogue, [GlobalId("s.a"), GlobalId("s.b")]) == (RowCount(GlobalId("s.a"), 2048),)
    assert counts_of(request.catalogue, [GlobalId("s.b")]) == ()
