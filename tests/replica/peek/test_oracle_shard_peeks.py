"""Random peeks of random shards: the answers are those of a reader that holds the whole consolidated table.

Shards have several parts, compactions, retractions across parts, errors that come and go, and NULLs, NaNs, both zeros
and other edge values of every type. Row groups are of three rows, so that each way of reading is taken.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.evaluator.edges import EDGES
from tidemark_persist import DIFF, ERROR, TIME, MaintenancePolicy, Shard, create_or_open
from tidemark_persist.files import file_parts, live_rows, staging
from tidemark_persist.maintenance import compaction
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.messages.commands import Peek, ShardTarget
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.lir import MapFilterProject, OrderKey
from tidemark_protocol.types import BIGINT, BOOLEAN, Column, SqlType
from tidemark_replica.arrangement.rows.columns import canonical_rows
from tidemark_replica.arrangement.rows.updates import Updates, make_updates
from tidemark_replica.evaluator import admits
from tidemark_replica.events.jobs import JobCancelled
from tidemark_replica.peek import collection_reader as reader
from tidemark_replica.peek import shard_at
from tidemark_replica.peek.collection_reader import ReadContext
from tidemark_replica.peek.result_finishing import finished_batches
from tidemark_replica.render.errors import CollectionInError
from tidemark_replica.values.arrow_types import arrow_schema, arrow_type

EAGER = MaintenancePolicy(checkpoint_commits=5, compact_runs=3, compact_rows_in_memory=8)
ERRORS = ('{"code": "DIVIDE_BY_ZERO"}', '{"code": "CAST_OVERFLOW"}')
PLAIN = [name for name in EDGES if not name.startswith(("array", "struct"))]
TEXTS = {"binary": lambda value: value.hex(), "boolean": lambda value: str(value).lower()}
Row = tuple[Any, ...]


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Row groups and batches of three rows; retractions of a few rows are settled at once."""
    for module in (staging, compaction):
        monkeypatch.setattr(module, "ROW_GROUP_ROWS", 3)
    for module, name in ((live_rows, "BATCH_ROWS"), (shard_at, "BATCH_ROWS"), (live_rows, "PENDING_ROWS")):
        monkeypatch.setattr(module, name, 3)
    monkeypatch.setattr(file_parts, "FEW_ROWS", 0)
    monkeypatch.setattr(live_rows, "SHARE_ROWS", 5)


@dataclass(frozen=True)
class Whole:
    """The contents of a shard as one consolidated table."""

    shard: Shard
    columns: tuple[Column, ...]
    as_of: int

    def __call__(self) -> Iterator[Updates]:
        found = self.shard.snapshot(self.as_of).combine_chunks()
        columns = [found.column(c.name).combine_chunks().cast(arrow_type(c.type)) for c in self.columns]
        at, errors = np.full(found.num_rows, self.as_of, np.int64), found.column(ERROR).combine_chunks()
        yield canonical_rows(make_updates(columns, at, found.column(DIFF).to_numpy(), errors))


@dataclass
class History:
    """A shard of random columns, and the live rows and errors."""

    shard: Shard
    metadata: ShardMetadata
    pools: list[list[Any]]

    @property
    def columns(self) -> tuple[Column, ...]:
        return self.metadata.columns


def random_history(rng: random.Random, location: str) -> History:
    """Twelve appends; most retract rows that are live, and some errors."""
    types = [SqlType.parse(name) for name in ("bigint", *rng.choices(list(EDGES), k=rng.randint(1, 4)))]
    columns = tuple(Column(f"k{i}", t) for i, t in enumerate(types))
    pools = [[None, *rng.sample(EDGES[str(t)], min(4, len(EDGES[str(t)])))] for t in types]
    schema = arrow_schema(columns)
    shard = create_or_open(location, schema, shard_id="s", policy=EAGER)
    made = History(shard, ShardMetadata(ShardId("s"), location, columns), pools)
    live: list[Row] = []
    upper = 0
    for _ in range(12):
        updates = [
            update for _ in range(rng.choice((0, 2, 9, 20))) for update in random_updates(rng, made, live, upper)
        ]
        table = as_table(schema, updates)
        shard.compare_and_append(table, expected_upper=upper, new_upper=upper + 2, term=1)
        upper += 2
        if rng.random() < 0.2:
            shard.downgrade_since(rng.randint(0, upper - 1))
        if rng.random() < 0.5:
            for work in shard.maintenance_due():
                shard.run_maintenance(work)
    return made


def random_updates(rng: random.Random, of: History, live: list[Row], at: int) -> Iterator[tuple[Row, int, int]]:
    """Insertions at `at`, and retractions at `at + 1`."""
    if live and rng.random() < 0.4:
        yield live.pop(rng.randrange(len(live))), at + 1, -1
        return
    error = rng.choice(ERRORS) if rng.random() < 0.02 else None
    row = tuple(None if error else rng.choice(pool) for pool in of.pools)
    times = rng.choice((1, 1, 2))
    live += [(*row, error)] * times
    yield (*row, error), at, times


def as_table(schema: pa.Schema, updates: list[tuple[Row, int, int]]) -> pa.Table:
    rows = [update[0] for update in updates]
    arrays = [pa.array([row[i] for row in rows], field.type) for i, field in enumerate(schema)]
    arrays += [pa.array([row[-1] for row in rows], pa.string())]
    arrays += [pa.array([update[i] for update in updates], pa.int64()) for i in (1, 2)]
    return pa.table(arrays, names=[*schema.names, ERROR, TIME, DIFF])


def random_peek(rng: random.Random, of: History, as_of: int) -> Peek:
    schema = of.metadata.schema
    columns = [ColumnRef(i, t.type, t.nullable) for i, t in enumerate(schema)]
    expressions = (inverse(columns[0]),) if rng.random() < 0.2 else ()
    predicates = tuple(
        p for _ in range(rng.choice((0, 1, 1, 2))) if (p := random_predicate(rng, of, columns)) is not None
    )
    width = len(schema) + len(expressions)
    projection = tuple(rng.choices(range(width), k=rng.randint(1, 3))) if rng.random() < 0.7 else None
    mfp = MapFilterProject(schema, expressions, predicates, projection)
    output = tuple(Column(f"x{i}", c.type) for i, c in enumerate(mfp.output))
    ordered = [i for i in range(len(output)) if rng.random() < 0.5] if rng.random() < 0.4 else []
    order = tuple(OrderKey(i, rng.random() < 0.5, rng.random() < 0.5) for i in ordered)
    finishing = Finishing(order, rng.choice((None, 0, 1, 3, 10)), rng.choice((0, 0, 2)))
    target = ShardTarget(GlobalId("s"), of.metadata)
    return Peek("u", target, Time(as_of), mfp, finishing, output, skip_errors=rng.random() < 0.3)


def inverse(column: ColumnRef) -> ScalarExpr:
    return call("div", (Literal("7", BIGINT), column), BIGINT)


def random_predicate(rng: random.Random, of: History, columns: list[ColumnRef]) -> ScalarExpr | None:
    """A comparison of a column with a value, a random condition that may fail, or a comparison with a quotient."""
    if rng.random() < 0.1:
        return call("<", (inverse(columns[0]), Literal("3", BIGINT)), BOOLEAN)
    if rng.random() < 0.15:
        either = [p for _ in range(2) if (p := random_predicate(rng, of, columns)) is not None]
        return call("or", tuple(either), BOOLEAN) if len(either) == 2 else None
    column = rng.choice(columns)
    value = rng.choice(of.pools[column.index][1:])
    if str(column.type) not in PLAIN:
        return None
    text = f"{value:.{column.type.scale}f}" if column.type.is_decimal else TEXTS.get(column.type.name, text_of)(value)
    literal = Literal(text, column.type)
    operator = rng.choice(("=", "=", "=", "<", ">="))
    return call(operator, (column, literal) if rng.random() < 0.7 else (literal, column), BOOLEAN)


def text_of(value: Any) -> str:
    if isinstance(value, float):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}.get(repr(value), repr(value))
    return value.replace(tzinfo=None).isoformat() if isinstance(value, datetime) else str(value)


def answer(batches: Any, peek: Peek) -> list[Row] | str:
    """The finished rows, or that the answer is an error."""
    schema = arrow_schema(peek.columns)
    try:
        found = list(finished_batches(batches, schema, peek.finishing))
    except CollectionInError:
        return "error"
    return [tuple(map(repr, row.values())) for batch in found for row in batch.to_pylist()]


def opened(of: History, location: str) -> Shard:
    assert location == of.shard.location
    return of.shard


def whole_answer(of: History, peek: Peek) -> tuple[list[Row] | str, int]:
    reading = ReadContext(no_session, 1 << 30)
    whole = Whole(of.shard, of.columns, peek.timestamp)
    found = answer(reader._read(reading, whole, whole, of.metadata.schema, peek), peek)
    return found, reading.skipped.count


def no_session() -> Any:
    raise AssertionError("this peek needs no job")


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("retracted_bytes", [1 << 20, 300], ids=["retractions in memory", "divided"])
def test_oracle_random_peeks_of_random_shards(
    tmp_path: Path, seed: int, retracted_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows in their order where there is one; any rows up to a limit without an order; errors, and how many."""
    monkeypatch.setattr(live_rows, "RETRACTED_BYTES", retracted_bytes)
    rng, seen = random.Random(seed), Counter[str]()
    of = random_history(rng, str(tmp_path))
    state, reading = of.shard.state(), ReadContext(no_session, 1 << 30, open_shard=partial(opened, of))
    for _ in range(20):
        peek = random_peek(rng, of, rng.randint(state.since, state.upper - 1))
        if not admits(peek.mfp):
            continue
        reading.skipped.count = 0
        found = answer(reader.read_shard(reading, of.metadata, peek), peek)
        wanted, errors = whole_answer(of, peek)
        if isinstance(found, str) or isinstance(wanted, str) or peek.finishing.order:
            assert found == wanted, peek
        else:
            every, _ = whole_answer(of, replace(peek, finishing=Finishing()))
            assert len(found) == len(wanted), peek
            assert not Counter(found) - Counter(every), peek
        assert isinstance(found, str) or reading.skipped.count == errors
        seen["error" if isinstance(found, str) else "rows" if found else "empty"] += 1
    assert seen["rows"]


def shard_of(location: str, updates: list[tuple[Row, int, int]], upper: int = 10) -> History:
    columns = (Column("k", BIGINT), Column("v", BIGINT))
    shard = create_or_open(location, arrow_schema(columns), shard_id="s")
    table = as_table(arrow_schema(columns), updates)
    shard.compare_and_append(table, expected_upper=0, new_upper=upper, term=1)
    return History(shard, ShardMetadata(ShardId("s"), location, columns), [])


def peek_of(of: History, finishing: Finishing, mfp: MapFilterProject | None = None) -> Peek:
    mfp = mfp or MapFilterProject.identity(of.metadata.schema)
    output = tuple(Column(f"x{i}", c.type) for i, c in enumerate(mfp.output))
    return Peek("u", ShardTarget(GlobalId("s"), of.metadata), Time(9), mfp, finishing, output)


def test_a_limit_ends_the_reading(tmp_path: Path) -> None:
    """The first few of a thousand row groups are read; an error anywhere is still the answer."""
    rows = [((k, k, None), 0, 1) for k in range(3000)]
    of = shard_of(str(tmp_path / "fine"), rows)
    failed = shard_of(str(tmp_path / "failed"), [*rows, ((None, None, ERRORS[0]), 0, 1)])
    read: list[int] = []
    context = ReadContext(no_session, 1 << 30, stopped=lambda: bool(read.append(1)))
    peek = peek_of(of, Finishing(limit=5, offset=1))

    assert len(answer(reader.read_shard(context, of.metadata, peek), peek)) == 5
    assert len(read) < 6
    assert answer(reader.read_shard(context, failed.metadata, peek), peek) == "error"
    assert len(read) < 10


def test_a_limit_does_not_hide_a_failure_behind_it(tmp_path: Path) -> None:
    """The answer does not depend on the order in which rows are read."""
    of = shard_of(str(tmp_path), [((k, k, None), 0, 1) for k in range(30, -1, -1)])
    column = ColumnRef(0, BIGINT, of.metadata.schema[0].nullable)
    peek = peek_of(of, Finishing(limit=1), MapFilterProject(of.metadata.schema, (inverse(column),), (), (2,)))

    assert answer(reader.read_shard(ReadContext(no_session, 1 << 30), of.metadata, peek), peek) == "error"


@pytest.mark.parametrize("retracted_bytes", [1 << 20, 1])
def test_a_negative_multiplicity_is_an_error(
    tmp_path: Path, retracted_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The row is not there, or is there less often."""
    monkeypatch.setattr(live_rows, "RETRACTED_BYTES", retracted_bytes)
    for number, wrong in enumerate([((9, 9, None), 5, -1), ((2, 2, None), 5, -2)]):
        of = shard_of(str(tmp_path / str(number)), [*(((k, k, None), 0, 1) for k in range(8)), wrong])
        peek = peek_of(of, Finishing())
        assert answer(reader.read_shard(ReadContext(no_session, 1 << 30), of.metadata, peek), peek) == "error"


def test_a_dropped_peek_stops_reading(tmp_path: Path) -> None:
    """Also where no row passes the filter, and nothing is written."""
    of = shard_of(str(tmp_path), [((k, k % 2, None), 0, 1) for k in range(300)])
    schema = of.metadata.schema
    v = ColumnRef(1, BIGINT, schema[1].nullable)
    never = MapFilterProject(
        schema, (), (call("=", (call("%", (v, Literal("2", BIGINT)), BIGINT), Literal("7", BIGINT)), BOOLEAN),)
    )
    asked: list[int] = []

    def stopped() -> bool:
        asked.append(1)
        return len(asked) > 2

    peek = peek_of(of, Finishing(), never)
    with pytest.raises(JobCancelled):
        list(reader.read_shard(ReadContext(no_session, 1 << 30, stopped=stopped), of.metadata, peek))
    assert len(asked) == 3
