"""Peeks at indexes and shards: rows as often as they are there, errors before rows, limits kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.oracle.harness import INDEX, DataflowHarness, as_table, harness
from tests.oracle.histories import History, Table
from tidemark_persist import create_or_open
from tidemark_protocol.errors import PlanNotAllowed
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.messages.commands import IndexTarget, Peek, ShardTarget
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.expr import ColumnRef, Literal
from tidemark_protocol.plan.lir import Get, MapFilterProject, Mfp, OrderKey, refs
from tidemark_protocol.types import BIGINT, BOOLEAN, Column
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.errors import OutOfFrontier
from tidemark_replica.arrangement.rows.updates import make_updates
from tidemark_replica.peek import collection_reader as peeks
from tidemark_replica.peek.collection_reader import ReadContext, SkippedErrors
from tidemark_replica.render.errors import CollectionInError, ResultTooLarge
from tidemark_replica.render.index import IndexTrace
from tidemark_replica.values.arrow_types import arrow_schema

pytestmark = pytest.mark.spark

TABLE = Table((("k", "bigint"), ("v", "bigint")), ([], []))
CHANGES = (
    ((1, 10), 3, 2),
    ((2, 20), 4, 1),
    ((None, 5), 4, 1),
    ((1, 10), 6, -1),
    ((3, 0), 8, 1),
    ((3, 0), 9, -1),
)
HISTORY = History({"t": CHANGES}, as_of=4, last=9)
K, V = refs(TABLE.schema)
IDENTITY = MapFilterProject.identity(TABLE.schema)


@pytest.fixture(scope="module")
def hydrated(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[DataflowHarness, IndexTrace]]:
    """An index of `k, v, 100 div v`'s rows, up to time 10; at 8 there is a row that cannot be computed."""
    quotient = call("div", (Literal("100", BIGINT), V), BIGINT)
    plan = Mfp(Get(GlobalId("t"), TABLE.schema), MapFilterProject(TABLE.schema, (quotient,)))
    with harness(spark, tmp_path_factory.mktemp("peek"), {"t": TABLE}, HISTORY) as made:
        dataflow = made.build(made.describe(plan))
        for upper in (7, 10):
            made.step(dataflow, upper).release()
        yield made, dataflow.indexes[INDEX]


def peek(index: IndexTrace, at: int, mfp: MapFilterProject | None = None, **more: Any) -> Peek:
    mfp = mfp or MapFilterProject.identity(tuple(refs_of(index)))
    columns = tuple(Column(f"x{i}", c.type) for i, c in enumerate(mfp.output))
    return Peek("u", IndexTarget(INDEX), Time(at), mfp, more.pop("finishing", Finishing()), columns, **more)


def refs_of(index: IndexTrace) -> list[Any]:
    from tidemark_protocol.types import ColumnType

    return [ColumnType(c.type, c.nullable) for c in index.columns]


def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    return Counter(zip(*(c.to_pylist() for c in table.columns), strict=True))


def read_index(reading: ReadContext, index: IndexTrace, peek: Peek) -> pa.Table:
    return table_of(peeks.read_index(reading, index, peek), peek)


def read_shard(reading: ReadContext, shard: ShardMetadata, peek: Peek) -> pa.Table:
    return table_of(peeks.read_shard(reading, shard, peek), peek)


def table_of(batches: Iterator[Any], peek: Peek) -> pa.Table:
    return pa.Table.from_batches(list(batches), arrow_schema(peek.columns))


def no_session() -> Any:
    raise AssertionError("this peek needs no job")


def test_a_peek_without_expressions_reads_the_files_and_runs_no_job(
    hydrated: tuple[DataflowHarness, IndexTrace],
) -> None:
    """At 6 one of the two equal rows is gone; both times are read from one arrangement."""
    _, index = hydrated

    assert rows(read_index(ReadContext(no_session, 10_000), index, peek(index, 5))) == Counter(
        {(1, 10, 10): 2, (2, 20, 5): 1, (None, 5, 20): 1}
    )
    assert rows(read_index(ReadContext(no_session, 10_000), index, peek(index, 6)))[(1, 10, 10)] == 1
    only = MapFilterProject(tuple(refs_of(index)), projection=(2, 0))
    assert rows(read_index(ReadContext(no_session, 10_000), index, peek(index, 6, only)))[(10, 1)] == 1


def test_a_literal_key_finds_its_rows_and_null_finds_null(hydrated: tuple[DataflowHarness, IndexTrace]) -> None:
    _, index = hydrated
    one, null, none = (Literal("1", BIGINT),), (Literal(None, BIGINT),), (Literal("7", BIGINT),)

    found = read_index(ReadContext(no_session, 10_000), index, peek(index, 5, literals=(one, null, none, one)))

    assert rows(found) == Counter({(1, 10, 10): 2, (None, 5, 20): 1})
    assert read_index(ReadContext(no_session, 10_000), index, peek(index, 5, literals=())).num_rows == 0


@pytest.fixture(params=["evaluator", "job"])
def either(request: pytest.FixtureRequest, hydrated: tuple[DataflowHarness, IndexTrace]) -> ReadContext:
    """Expressions are evaluated right here, without a session; or all of them by Catalyst, in a job."""
    if request.param == "job":
        return ReadContext(lambda: hydrated[0].session, 10_000, arrow=False)
    return ReadContext(no_session, 10_000, BatchCache(hydrated[1].store.directory))


def test_a_filter_repeats_equal_rows(hydrated: tuple[DataflowHarness, IndexTrace], either: ReadContext) -> None:
    _, index = hydrated
    schema = tuple(refs_of(index))
    above = call(">", (ColumnRef(1, BIGINT, schema[1].nullable), Literal("7", BIGINT)), BOOLEAN)
    mfp = MapFilterProject(schema, (), (above,), (0,))

    found = read_index(either, index, peek(index, 5, mfp))

    assert rows(found) == Counter({(1,): 2, (2,): 1})
    assert found.schema == pa.schema([("x0", pa.int64())])


def test_an_error_is_shown_whatever_is_asked_for_and_goes_with_its_cause(
    hydrated: tuple[DataflowHarness, IndexTrace], either: ReadContext
) -> None:
    """Row (3, 0) of time 8 fails; at 9 it is gone, and so is the error."""
    _, index = hydrated
    nothing = MapFilterProject(tuple(refs_of(index)), (), (Literal("false", BOOLEAN),))

    for asked in (peek(index, 8), peek(index, 8, nothing), peek(index, 8, literals=((Literal("1", BIGINT),),))):
        with pytest.raises(CollectionInError, match="100L DIV"):
            read_index(either, index, asked)
    assert read_index(ReadContext(no_session, 10_000), index, peek(index, 9)).num_rows == 3


def test_an_expression_of_the_peek_that_fails_is_the_peeks_error(
    hydrated: tuple[DataflowHarness, IndexTrace], either: ReadContext
) -> None:
    _, index = hydrated
    schema = tuple(refs_of(index))
    zero = call("-", (ColumnRef(0, BIGINT, schema[0].nullable), Literal("1", BIGINT)), BIGINT)
    mfp = MapFilterProject(schema, (call("div", (Literal("1", BIGINT), zero), BIGINT),))

    with pytest.raises(CollectionInError, match=r"DIV"):
        read_index(either, index, peek(index, 5, mfp))


def test_limits_of_rows_and_bytes_are_kept(hydrated: tuple[DataflowHarness, IndexTrace]) -> None:
    _, index = hydrated
    two = peek(index, 5, finishing=Finishing(limit=1, offset=1))

    assert read_index(ReadContext(no_session, 10_000), index, two).num_rows == 2
    with pytest.raises(ResultTooLarge):
        read_index(ReadContext(no_session, 10), index, peek(index, 5))


def test_a_time_that_is_not_complete_or_not_kept_is_refused(hydrated: tuple[DataflowHarness, IndexTrace]) -> None:
    _, index = hydrated
    for time in (3, 10):
        with pytest.raises(OutOfFrontier):
            read_index(ReadContext(no_session, 10_000), index, peek(index, time))


def test_a_peek_over_other_columns_is_refused(hydrated: tuple[DataflowHarness, IndexTrace]) -> None:
    _, index = hydrated
    with pytest.raises(PlanNotAllowed):
        read_index(ReadContext(no_session, 10_000), index, peek(index, 5, IDENTITY))


def test_a_shard_is_read_like_an_index(tmp_path: Path) -> None:
    """Consolidated, at any time it has, errors included."""
    location = str(tmp_path / "shard")
    history = as_table(TABLE, CHANGES)
    shard = create_or_open(location, history.select(["k", "v"]).schema, shard_id="s")
    errs = [None] * len(CHANGES) + ['{"code": "DIVIDE_BY_ZERO"}'] * 2
    wrong = as_table(TABLE, [((None, None), 7, 1), ((None, None), 9, -1)])
    updates = pa.concat_tables([history, wrong]).append_column("__error", pa.array(errs, pa.string()))
    shard.compare_and_append(updates, expected_upper=0, new_upper=10, term=1)
    metadata = ShardMetadata(ShardId("s"), location, TABLE.named)

    def at(time: int) -> Peek:
        target = ShardTarget(GlobalId("s"), metadata)
        return Peek("u", target, Time(time), IDENTITY, Finishing(), TABLE.named)

    here = ReadContext(no_session, 10_000)
    assert rows(read_shard(here, metadata, at(6))) == Counter({(1, 10): 1, (2, 20): 1, (None, 5): 1})
    with pytest.raises(CollectionInError, match="DIVIDE_BY_ZERO"):
        read_shard(here, metadata, at(7))
    assert rows(read_shard(here, metadata, at(9))) == Counter({(1, 10): 1, (2, 20): 1, (None, 5): 1})


def test_a_peek_that_skips_errors_has_the_other_rows_and_counts_them(
    hydrated: tuple[DataflowHarness, IndexTrace], either: ReadContext
) -> None:
    """At 8 row (3, 0) fails; at 9 it is gone upstream, and with it the error: nothing is counted any more."""
    _, index = hydrated
    for finishing in (Finishing(), Finishing(limit=10), Finishing((OrderKey(0),), limit=10)):
        counts = []
        for at in (7, 8, 9):
            reading = replace(either, skipped=SkippedErrors())
            found = read_index(reading, index, peek(index, at, finishing=finishing, skip_errors=True))
            assert rows(found) == Counter({(1, 10, 10): 1, (2, 20, 5): 1, (None, 5, 20): 1})
            counts.append(reading.skipped.count)
        assert counts == [0, 1, 0]
    reading = replace(either, skipped=SkippedErrors())
    found = read_index(reading, index, peek(index, 8, literals=((Literal("1", BIGINT),),), skip_errors=True))
    assert (rows(found), reading.skipped.count) == (Counter({(1, 10, 10): 1}), 1)


def test_errors_of_the_peeks_own_expressions_are_skipped_too(
    hydrated: tuple[DataflowHarness, IndexTrace], either: ReadContext
) -> None:
    """Once for each row: the row that is there twice fails twice."""
    _, index = hydrated
    schema = tuple(refs_of(index))
    of = call("-", (ColumnRef(1, BIGINT, schema[1].nullable), Literal("10", BIGINT)), BIGINT)
    quotient = MapFilterProject(schema, (call("div", (Literal("100", BIGINT), of), BIGINT),), (), (0, 3))
    reading = replace(either, skipped=SkippedErrors())

    found = read_index(reading, index, peek(index, 5, quotient, skip_errors=True))

    assert rows(found) == Counter({(2, 10): 1, (None, -20): 1})
    assert reading.skipped.count == 2
    with pytest.raises(CollectionInError):
        read_index(either, index, peek(index, 5, quotient))


def test_an_error_that_is_there_less_than_never_is_no_error_to_skip() -> None:
    """The collection is not consistent: its rows may be wrong, too."""
    columns = [pa.array([1, None], pa.int64())]
    batch = make_updates(columns, np.zeros(2, np.int64), np.array([1, -1]), pa.array([None, '{"code": "X"}']))

    (row,) = peeks.Finish(10_000, skip_errors=True)([batch])
    assert row.column("__error").to_pylist() == ['{"code": "X"}']
