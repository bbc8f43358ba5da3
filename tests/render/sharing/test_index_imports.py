"""Dataflows that read another one's index: its arrangement is shared, and held back for as long as it is needed."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.harness import INDEX, OBJECT, SINK, DataflowHarness, Updates, consolidated, contents, delta, harness
from tests.oracle.histories import random_history
from tests.oracle.plans import GET_T, GET_U, counted, joined
from tests.oracle.tables import TU, T
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.plan.dataflow import (
    BuildDesc,
    DataflowDescription,
    IndexImport,
    MaterializedViewSink,
    ShardMetadata,
    SinkExport,
    SourceImport,
)
from tidemark_protocol.plan.lir import Get, Plan, inputs_of, refs
from tidemark_protocol.types import Column
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.errors import NotRendered

pytestmark = pytest.mark.spark

IMPORTED = GlobalId("t-by-a")
HISTORY = random_history(TU, 5, times=9)


def importing(made: DataflowHarness, plan: Plan, as_of: int, until: int | None = None) -> DataflowDescription:
    """The plan over table u and the index of table t by its column a, as a materialized view."""
    columns = tuple(Column(f"x{i}", c.type, c.nullable) for i, c in enumerate(plan.schema))
    view = MaterializedViewSink(ShardMetadata(ShardId("view"), str(made.folder / "view"), columns))
    source = SourceImport(GlobalId("u"), made.shard("u"), (0, 1))
    index = IndexImport(IMPORTED, OBJECT, (refs(T.schema)[0],), T.schema)
    description = DataflowDescription(
        "reader",
        (source,),
        (index,),
        (BuildDesc(GlobalId("o"), plan),),
        (),
        (SinkExport(SINK, GlobalId("o"), view),),
        Time(as_of),
        None if until is None else Time(until),
    )
    check_dataflow(description)
    return description


def build_index(made: DataflowHarness) -> RenderedDataflow:
    return made.build(made.describe(GET_T))


def reader(made: DataflowHarness, exporter: RenderedDataflow, plan: Plan, as_of: int) -> RenderedDataflow:
    return made.build(importing(made, plan, as_of), indexes={IMPORTED: exporter.indexes[INDEX]})


def advance(made: DataflowHarness, dataflow: RenderedDataflow, upper: int, into: Counter[Any]) -> None:
    into.update(delta(made.step(dataflow, upper), SINK))


def expected(made: DataflowHarness, plan: Plan) -> Updates:
    return made.run(made.describe(plan), [HISTORY.last + 1])


INDEXED = Get(IMPORTED, T.schema)


@pytest.mark.parametrize(
    ("shared", "direct"),
    [
        (joined(INDEXED, GET_U), joined(GET_T, GET_U)),
        (joined(GET_U, INDEXED), joined(GET_U, GET_T)),
        (joined(INDEXED, INDEXED), joined(GET_T, GET_T)),
        (counted(INDEXED), counted(GET_T)),
    ],
    ids=["index on the left", "index on the right", "index on both sides", "index as a stream"],
)
def test_agree_an_index_and_the_collection_it_is_of(spark: Any, tmp_path: Path, shared: Plan, direct: Plan) -> None:
    """The same updates, whether a dataflow reads a collection or its index, in other steps than the index's."""
    made: Counter[Any] = Counter()
    with harness(spark, tmp_path, TU, HISTORY) as of:
        exporter = build_index(of)
        first, second, third = HISTORY.times[2], HISTORY.times[4] + 1, HISTORY.last + 1
        importer = reader(of, exporter, shared, HISTORY.as_of)
        of.step(exporter, first)
        of.step(exporter, second)
        advance(of, importer, second, made)
        of.step(exporter, third)
        advance(of, importer, third, made)

        assert consolidated(made) == expected(of, direct)


@pytest.mark.parametrize("plan", [joined(INDEXED, GET_U), joined(GET_U, INDEXED), joined(INDEXED, INDEXED)])
def test_until_leaves_out_updates_that_the_index_has_already(spark: Any, tmp_path: Path, plan: Plan) -> None:
    """The index is further than the end of its reader: the reader's updates are those before `until`, no others."""
    direct = joined(*(GET_T if i == INDEXED else GET_U for i in inputs_of(plan)))
    until = HISTORY.times[4]
    made: Counter[Any] = Counter()
    with harness(spark, tmp_path, TU, HISTORY) as of:
        exporter = build_index(of)
        of.step(exporter, HISTORY.last + 1)
        importer = of.build(importing(of, plan, HISTORY.as_of, until), indexes={IMPORTED: exporter.indexes[INDEX]})
        advance(of, importer, HISTORY.times[2], made)
        advance(of, importer, HISTORY.last + 1, made)
        whole = expected(of, direct)

        assert importer.frontier.is_empty
        assert consolidated(made) == Counter({key: diff for key, diff in whole.items() if key[2] < until})


def test_a_shared_index_is_not_copied(spark: Any, tmp_path: Path) -> None:
    """The dataflow keeps the one of the join's two arrangements that nobody else has."""
    with harness(spark, tmp_path, TU, HISTORY) as of:
        exporter = build_index(of)
        before = len(of.store.arrangements())
        reader(of, exporter, joined(INDEXED, GET_U), HISTORY.as_of)

        assert len(of.store.arrangements()) == before + 1


def test_a_reader_that_is_behind_holds_compaction_back(spark: Any, tmp_path: Path) -> None:
    """The index may be compacted up to the end, but keeps apart what its reader has not read; then it follows."""
    made: Counter[Any] = Counter()
    with harness(spark, tmp_path, TU, HISTORY) as of:
        exporter = build_index(of)
        index = exporter.indexes[INDEX]
        importer = reader(of, exporter, joined(INDEXED, GET_U), HISTORY.as_of)
        for upper in (*HISTORY.times[2:], HISTORY.last + 1):
            of.step(exporter, upper)
            exporter.compact(INDEX, Frontier.at(upper - 1))
        assert index.since == Frontier.at(HISTORY.as_of)

        middle = HISTORY.times[4]
        advance(of, importer, middle, made)
        exporter.compact(INDEX, Frontier.at(HISTORY.last))
        assert index.since == Frontier.at(middle - 1)
        advance(of, importer, HISTORY.last + 1, made)
        importer.drop()
        exporter.compact(INDEX, Frontier.at(HISTORY.last))

        assert index.since == Frontier.at(HISTORY.last)
        assert consolidated(made) == expected(of, joined(GET_T, GET_U))


def test_a_late_reader_begins_with_the_contents(spark: Any, tmp_path: Path) -> None:
    """Its as_of is past much of the index's history, some of which is compacted."""
    made: Counter[Any] = Counter()
    as_of = HISTORY.times[5]
    with harness(spark, tmp_path, TU, HISTORY) as of:
        exporter = build_index(of)
        for upper in (HISTORY.times[2], HISTORY.times[3], as_of + 1):
            of.step(exporter, upper)
        exporter.compact(INDEX, Frontier.at(as_of - 1))
        importer = reader(of, exporter, joined(INDEXED, GET_U), as_of)
        of.step(exporter, HISTORY.last + 1)
        advance(of, importer, HISTORY.last + 1, made)
        whole = expected(of, joined(GET_T, GET_U))

        for time in [t for t in HISTORY.times if t >= as_of]:
            assert contents(made, time) == contents(whole, time)


def test_an_index_that_is_not_here_is_refused(spark: Any, tmp_path: Path) -> None:
    with harness(spark, tmp_path, TU, HISTORY) as of, pytest.raises(NotRendered, match=IMPORTED):
        of.build(importing(of, counted(INDEXED), HISTORY.as_of))
