"""A source skips rows that the filter behind it drops: the same rows and errors from fewer reads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.oracle.harness import DataflowHarness, Updates
from tests.oracle.histories import History, random_history
from tests.oracle.plans import GET_T, counted
from tests.oracle.tables import T
from tests.oracle.variants.in_process import in_process
from tests.oracle.variants.in_tasks import InTasks
from tidemark_persist import FilePart, read_part
from tidemark_persist.files import staging
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.lir import MapFilterProject, Mfp, Plan, Union, refs
from tidemark_protocol.types import BIGINT, BOOLEAN, DATE, DOUBLE, STRING
from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.render.plan import lowering_stream as flow_module
from tidemark_replica.render.plan.pipeline import Source
from tidemark_replica.render.plan.scan_pushdown import push_down
from tidemark_replica.render.task import stage_inputs

A, B, S = refs(T.schema)
TWO, FIVE, NULL = Literal("2", BIGINT), Literal("5", BIGINT), Literal(None, BIGINT)
QUOTIENT = call("div", (Literal("10", BIGINT), B), BIGINT)


def is_true(operator: str, left: ScalarExpr, right: ScalarExpr) -> Call:
    return call(operator, (left, right), BOOLEAN)


FILTERS: dict[str, tuple[ScalarExpr, ...]] = {
    "above": (is_true(">", A, TWO),),
    "mirrored": (is_true(">=", TWO, A),),
    "equal": (is_true("=", A, TWO),),
    "both ends": (is_true(">=", A, TWO), is_true("<", B, FIVE)),
    "and": (call("and", (is_true("=", A, TWO), is_true("=", QUOTIENT, TWO)), BOOLEAN),),
    "and, behind what fails": (call("and", (is_true("=", QUOTIENT, TWO), is_true("=", A, TWO)), BOOLEAN),),
    "several": (is_true("=", A, TWO), is_true("=", QUOTIENT, TWO)),
    "what fails": (is_true(">", QUOTIENT, TWO), is_true("<", A, TWO)),
    "or": (call("or", (is_true("=", A, TWO), is_true("=", B, FIVE)), BOOLEAN),),
    "null": (is_true("=", A, NULL),),
    "text": (is_true(">", S, Literal("x", STRING)),),
}


def sorted_by_a(history: History) -> History:
    """Rows lie in the file as they come."""
    changes = sorted(history.changes["t"], key=lambda change: (change[0][0] is None, change[0][0] or 0))
    return replace(history, changes={"t": tuple(changes)})


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of rows that sources read; files have groups of two, and are read as larger ones are."""
    rows: list[int] = []

    def counting(*args: Any, **kwargs: Any) -> Iterator[Any]:
        for batch in partial(read_part, batch_rows=1)(*args, **kwargs):
            rows.append(batch.num_rows)
            yield batch

    monkeypatch.setattr(staging, "ROW_GROUP_ROWS", 2)
    monkeypatch.setattr(stage_inputs, "read_part", counting)
    return rows


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize("tasks", [1, 2])
def test_agree_rows_that_a_filter_drops_need_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[int], name: str, tasks: int
) -> None:
    """At hydration, and in steps; in one task and in several."""
    history = sorted_by_a(random_history({"t": T}, 3, times=30, changes=8))
    plan = Mfp(GET_T, MapFilterProject(GET_T.schema, (QUOTIENT,), FILTERS[name], (0, 1, 3)))
    found, read = both_ways(tmp_path, monkeypatch, reads, history, plan, tasks)
    assert found["pruned"] == found["all"]
    assert found["all"] or name == "null"
    spares = name not in ("and", "and, behind what fails", "or", "null", "text")
    assert (read["pruned"] < read["all"]) is spares


def test_another_reader_of_the_same_table_reads_all_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reads: list[int]
) -> None:
    """In the same plan, and in the same process."""
    history = sorted_by_a(random_history({"t": T}, 3, times=30, changes=8))
    few = Mfp(GET_T, MapFilterProject(GET_T.schema, (), FILTERS["equal"]))
    plan = Union((counted(few), counted(GET_T)), counted(GET_T).schema)
    found, read = both_ways(tmp_path, monkeypatch, reads, history, plan, 1)
    assert found["pruned"] == found["all"]
    assert read["all"] // 2 < read["pruned"] < read["all"]


class OfUnknownSize(DataflowHarness):
    """Its files are read as large ones are."""

    def parts(self, table: str, lower: int, upper: int) -> list[FilePart]:
        return [replace(part, rows=-1) for part in super().parts(table, lower, upper)]


@pytest.mark.spark
@pytest.mark.parametrize("arrow", [True, False])
def test_agree_rows_that_catalyst_drops_need_not_be_read(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arrow: bool
) -> None:
    """Its neighbours on the disk may even be damaged. The test runs with and without a predicate that only Catalyst
    knows."""
    monkeypatch.setattr(staging, "ROW_GROUP_ROWS", 2)
    history = sorted_by_a(random_history({"t": T}, 3, times=30, changes=8))
    last = history.last + 1
    upper = is_true(">=", call("upper", (S,), STRING), Literal("", STRING))
    filters = (*FILTERS["above"], *((upper,) if arrow else ()))
    plan = Mfp(GET_T, MapFilterProject(GET_T.schema, (QUOTIENT,), filters, (0, 1, 3)))
    found = []
    for way in ("whole", "damaged"):
        of = OfUnknownSize(spark, tmp_path / way, {"t": T}, history)
        file = of.parts("t", 0, last)[0].path
        if way == "damaged":
            damage(tmp_path / way / "t" / file, 2)
        found.append(of.run(of.describe(plan, as_of=last - 1), [last], arrow=arrow))
        of.close()
    assert found[0]
    assert found[1] == found[0]


def damage(file: Path, most: int) -> None:
    """Every row group in which no `a` is larger."""
    metadata = pq.ParquetFile(file).metadata
    groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
    columns = [[group.column(n) for n in range(group.num_columns)] for group in groups]
    stats = [next(c.statistics for c in group if c.path_in_schema == "a") for group in columns]
    dropped = [group for group, of in zip(columns, stats, strict=True) if of.has_min_max and of.max <= most]
    assert dropped
    with file.open("r+b") as opened:
        for column in (c for group in dropped for c in group):
            opened.seek(column.dictionary_page_offset or column.data_page_offset)
            opened.write(bytes(column.total_compressed_size))


def both_ways(
    folder: Path, monkeypatch: pytest.MonkeyPatch, reads: list[int], history: History, plan: Plan, tasks: int
) -> tuple[dict[str, Updates], dict[str, int]]:
    """The rows found, and the number of rows read, with all that there is and without what the filter drops."""
    found, read = {}, {}
    for way in ("all", "pruned"):
        with monkeypatch.context() as patch, in_process(folder / way, {"t": T}, history) as of:
            if way == "all":
                patch.setattr(flow_module, "push_down", lambda source, mfp: source)
            reads.clear()
            found[way] = made(of, plan, tasks)
            read[way] = sum(reads)
    return found, read


def made(of: Any, plan: Plan, tasks: int) -> Updates:
    shapes = {} if tasks == 1 else {"runner": InTasks, "exchange_policy": ExchangePolicy(tasks, 1)}
    last = of.history.last + 1
    found: Updates = of.run(of.describe(plan, as_of=last - 5), [last - 4, last], **shapes)
    return found


def test_other_comparisons_are_not_pushed_down() -> None:
    """A literal of another type, a computed column, a date that Python does not have."""
    source = Source(GlobalId("t"), ("a", "d", "f"), (pa.int64(), pa.date32(), pa.float64()))
    a, d, f = ColumnRef(0, BIGINT), ColumnRef(1, DATE), ColumnRef(2, DOUBLE)
    none = (
        is_true(">", ColumnRef(3, BIGINT), TWO),
        is_true(">", f, Literal("1.0", DOUBLE)),
        is_true(">", d, Literal("+12020-01-01", DATE)),
        is_true(">", a, a),
    )
    mfp = MapFilterProject((), (), none)
    assert push_down(source, mfp).conditions == ()
    pushed = push_down(source, MapFilterProject((), (), (is_true("<=", d, Literal("1970-01-03", DATE)),)))
    assert [(c.column, c.operator, c.value) for c in pushed.conditions] == [("d", "<=", 2)]
