"""Drawn Dataflows of three views, with indexes of views and what the planner shares, give what they give without.

Views filter, compute, may fail, group, and join tables and earlier views: inner by two to four inputs, semi, anti,
left, full. They have parts of one another. The planner lowers both forms. One keeps no index of a view and shares
nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.oracle.harness import SINK, DataflowHarness, Updates, consolidated, delta
from tests.oracle.histories import Table, random_bounds, random_history
from tests.oracle.seeds import seeds
from tests.oracle.variants.in_process import InPieces, NeedsCatalyst, in_process
from tests.oracle.variants.in_tasks import InTasks
from tidemark_planner.errors import Refusal
from tidemark_planner.hir.nodes import (
    Aggregate,
    Filter,
    Hir,
    Join,
    Match,
    MatchKind,
    Project,
    Union,
    scan,
)
from tidemark_planner.lir.hir_to_lir import to_lir
from tidemark_planner.lir.imports import Imports
from tidemark_planner.lir.shared_arrangements import share_in_each
from tidemark_planner.lir.shared_subplans import share_subplans
from tidemark_planner.lir.shared_tables import share_tables
from tidemark_planner.rules import optimise
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.planning import Catalogue, Relation
from tidemark_protocol.plan import lir
from tidemark_protocol.plan.dataflow import (
    BuildDesc,
    DataflowDescription,
    IndexExport,
    MaterializedViewSink,
    ShardMetadata,
    SinkExport,
)
from tidemark_protocol.plan.expr import Literal, ScalarExpr
from tidemark_protocol.plan.lir import Schema, refs
from tidemark_protocol.types import BIGINT, BOOLEAN, Column, ColumnType
from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.render.plan.fragments import gets_of

VALUES = [0, 1, 2, 3, None]
TABLES = {
    "t": Table((("a", "bigint"), ("b", "bigint"), ("c", "bigint")), (VALUES, [0, 1, 2, 5, None], [0, 1, 2])),
    "u": Table((("a", "bigint"), ("d", "bigint"), ("e", "bigint")), (VALUES, VALUES, [0, 1, 2])),
}
IMPORTED = frozenset(map(GlobalId, TABLES))
VIEWS = ("base", "mid", "top")
COUNT = lir.AggregateExpr("count", None, ColumnType(BIGINT, False))
OF_TWO = (MatchKind.SEMI, MatchKind.ANTI, MatchKind.LEFT, MatchKind.FULL, MatchKind.MARK)


def number(value: int) -> Literal:
    return Literal(str(value), BIGINT)


def table(name: str) -> Hir:
    return scan(GlobalId(name), TABLES[name].schema)


def divided(column: ScalarExpr) -> ScalarExpr:
    """An error where the column is 0."""
    return call("div", (number(6), column), BIGINT)


class Drawing:
    """The Dataflow that one seed draws."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.seen: list[Hir] = [table("t"), table("u")]
        self.parts: list[Hir] = []
        self.views: list[tuple[GlobalId, Hir]] = []
        for name in VIEWS:
            view = optimise(self.base() if name == "base" else self.joined())
            self.views.append((GlobalId(name), view))
            self.seen += [scan(GlobalId(name), view.schema)] * 3

    def below(self, n: int) -> int:
        return int(self.rng.integers(0, n))

    def one_of(self, of: Sequence[Any]) -> Any:
        return of[self.below(len(of))]

    def condition(self, schema: Schema, may_fail: bool = False) -> ScalarExpr:
        row = refs(schema)
        column = self.one_of(row)
        if may_fail and column.type == BIGINT:
            return call(">", (divided(column), number(1)), BOOLEAN)
        integers = [c for c in row if c.type == BIGINT]
        column = self.one_of(integers)
        kind, other = self.one_of([("=", number(self.below(3))), (">", number(0)), ("<", self.one_of(integers))])
        return call(kind, (column, other), BOOLEAN)

    def base(self) -> Hir:
        """A view of tables."""
        node = table(self.one_of("tu"))
        row = refs(node.schema)
        self.parts.append(Aggregate(Project(node, (row[0], divided(row[1]), row[2])), row[:2], row, (COUNT,)))
        match self.below(7):
            case 0:
                return Filter(node, (self.condition(node.schema),))
            case 1:
                return self.part(Aggregate(node, row[:2], row, (COUNT,)))
            case 2:
                return Aggregate(node, (), row, (COUNT, COUNT))
            case 3:
                return Project(node, (row[0], divided(row[1]), row[2]))
            case 4:
                return Union((node, Filter(table("t"), (self.condition(TABLES["t"].schema),))))
            case _:
                return node

    def input(self) -> Hir:
        """Rows and columns of a table or an earlier view."""
        node: Hir = self.one_of(self.parts if self.below(3) == 0 else self.seen)
        match self.below(6):
            case 0:
                return Filter(node, (self.condition(node.schema, may_fail=self.below(3) == 0),))
            case 1:
                row = self.rng.permutation(np.array(refs(node.schema), dtype=object))
                return Project(node, tuple(row[: 1 + self.below(len(row))]))
            case _:
                return node

    def joined(self) -> Hir:
        """A join of inputs, or groups of it: three columns."""
        inputs = tuple(self.input() for _ in range(self.one_of([2, 2, 3, 3, 4])))
        equal, seen = list[ScalarExpr](), len(inputs[0].schema)
        row = refs(tuple(c for each in inputs for c in each.schema))
        for each in inputs[1:]:
            for _ in range(self.one_of([0, 1, 1, 1, 2, 2])):
                sides = (row[self.below(seen)], row[seen + self.below(len(each.schema))])
                if all(side.type == BIGINT for side in sides):
                    equal.append(call(self.one_of(["=", "=", "=", "<=>"]), sides, BOOLEAN))
            seen += len(each.schema)
        node: Hir = Join(inputs, tuple(dict.fromkeys(equal)))
        if len(inputs) == 2 and equal and self.below(3) == 0:
            node = Match(self.one_of(OF_TWO), *inputs, tuple(equal))
        return self.shown(self.part(node))

    def part(self, node: Hir) -> Hir:
        """The node, which later views may have, too."""
        self.parts.append(node)
        return node

    def shown(self, node: Hir) -> Hir:
        integers = [c for c in refs(node.schema) if c.type == BIGINT]
        out: list[ScalarExpr] = [self.one_of(integers) for _ in range(3)]
        if self.below(3) == 0:
            keys = tuple(dict.fromkeys(out[:2]))
            return self.part(Aggregate(node, keys, refs(node.schema), (COUNT,) * (3 - len(keys))))
        return Project(node, (*out[:2], divided(out[2]) if self.below(7) == 0 else out[2]))

    def indexes(self) -> tuple[IndexExport, ...]:
        """Exports of the views that the last one may read; some twice by one key."""
        found = list[IndexExport]()
        for id, view in self.views[:-1]:
            for at in range(self.one_of([1, 1, 2, 3])):
                order = self.rng.permutation(len(view.schema))
                key = tuple(int(c) for c in order[: self.one_of([0, 1, 1, 1, 2, 2, len(order)])])
                if at and self.below(3) == 0:
                    key = found[-1].key
                found.append(IndexExport(GlobalId(f"{id}-{at}"), id, key, named(view.schema)))
        return tuple(found)


def named(schema: Schema) -> tuple[Column, ...]:
    return tuple(Column(f"x{at}", c.type, c.nullable) for at, c in enumerate(schema))


def sharing(objects: Sequence[BuildDesc], parts: bool = True) -> tuple[BuildDesc, ...]:
    """The objects as the planner answers them. `parts` False: they share arrangements alone."""
    made, objects = share_tables(share_subplans(objects, IMPORTED, "d/") if parts else objects, IMPORTED, "d/")
    return (*made, *share_in_each(objects))


def described(
    of: DataflowHarness, drawing: Drawing, indexes: Sequence[IndexExport], share: bool
) -> DataflowDescription:
    """The Dataflow of the views. `share` False: nothing is, and no view has an index."""
    relations = tuple(Relation("s", n, GlobalId(n), t.named, shard=of.shard(n)) for n, t in TABLES.items())
    own = [(index.on, index.key) for index in indexes] if share else ()
    imports = Imports(Catalogue(relations), (view for _, view in drawing.views), (), own)
    objects = tuple(BuildDesc(id, to_lir(view, imports)) for id, view in drawing.views)
    if share:
        objects = sharing(objects)
    sources, imported = imports.of([built.plan for built in objects])
    shard = ShardMetadata(ShardId("sink"), "/x", named(objects[-1].plan.schema))
    found = DataflowDescription(
        name="drawn",
        source_imports=sources,
        index_imports=imported,
        objects=objects,
        index_exports=tuple(indexes) if share else (),
        sink_exports=(SinkExport(SINK, objects[-1].id, MaterializedViewSink(shard)),),
        as_of=of.history.as_of,
    )
    check_dataflow(found)
    return found


def shares(description: DataflowDescription) -> int:
    """The number of reads of what is computed or kept once. No index is imported."""
    gets = [get for built in description.objects for get in gets_of(built.plan)]
    return sum(get.key is not None or get.id.startswith("d/shared/") for get in gets)


def compacted(of: DataflowHarness, description: DataflowDescription, bounds: Sequence[int], seed: int) -> Updates:
    """The updates, where exports are dropped or compacted between the steps, and files swept."""
    rng, made = np.random.default_rng(seed), Counter[Any]()
    dataflow = of.build(description)
    try:
        for upper in bounds:
            while dataflow.frontier < Frontier.at(upper):
                outcome = of.step(dataflow, upper)
                made.update(delta(outcome, SINK))
                outcome.release()
                for export in description.index_exports:
                    if (kind := rng.integers(0, 4)) < 2:
                        dataflow.compact(export.id, Frontier.empty() if kind else Frontier.at(upper - 1))
                of.store.sweep(())
    finally:
        dataflow.drop()
    return consolidated(made)


WAYS: Mapping[str, Callable[[DataflowHarness, DataflowDescription, Sequence[int], int], Updates]] = {
    "at once": lambda of, d, bounds, seed: of.run(d, bounds),
    "in pieces": lambda of, d, bounds, seed: of.run(d, bounds, runner=InPieces),
    "in tasks": lambda of, d, bounds, seed: of.run(
        d, bounds, runner=InTasks, exchange_policy=ExchangePolicy(3, from_rows=5)
    ),
    "compacted": compacted,
}
COMPARED = 3
"""The number of Dataflows that are compared for a seed of the tests. Some of those drawn share nothing, are refused or
need Catalyst: others come instead."""
MOST_DRAWN = 50


def compare(folder: Path, number: int, way: str) -> bool:
    """Whether the Dataflow of this number shares something; then both forms give the same."""
    history = random_history(TABLES, number, changes=6)
    folder.mkdir()
    with in_process(folder, TABLES, history) as of:
        drawing = Drawing(number)
        indexes = drawing.indexes()
        try:
            apart, shared = (described(of, drawing, indexes, share) for share in (False, True))
            if not shares(shared):
                return False
            expected = of.run(apart, random_bounds(history, number))
            found = WAYS[way](of, shared, random_bounds(history, number + 1), number)
        except (NeedsCatalyst, Refusal):
            return False
        assert found == expected, f"Dataflow {number}, {way}"
        return True


@pytest.mark.parametrize("seed", seeds(1))
@pytest.mark.parametrize("way", WAYS)
def test_agree_drawn_dataflows_that_share(way: str, seed: int, tmp_path: Path) -> None:
    """Whatever is shared among their views, however they are stepped."""
    first = (seed * len(WAYS) + [*WAYS].index(way)) * MOST_DRAWN
    each = (compare(tmp_path / str(n), n, way) for n in range(first, first + MOST_DRAWN))
    assert len([*islice(filter(None, each), COMPARED)]) == COMPARED
