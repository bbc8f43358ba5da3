"""The names of the columns of a plan's rows, for people who read the plan.

    Mfp map [(amount * 2)] project [carrier, c2]      carrier and amount are columns of an import, c2 is computed
      Get shop.orders                                 carrier, amount

A column that passes through operators keeps its name. A column without a name, or with a name that the row has twice,
is shown by its position.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.dataflow import IndexImport, SourceImport
from tidemark_protocol.plan.expr import ColumnRef, ScalarExpr
from tidemark_protocol.plan.lir import (
    Changes,
    DeltaJoin,
    FlatMap,
    Get,
    Join,
    JoinStage,
    Let,
    LetRec,
    MapFilterProject,
    Mfp,
    Negate,
    Plan,
    Reduce,
    Threshold,
    TopK,
    Union,
    Window,
)
from tidemark_protocol.types import Column

Names = tuple[str, ...]
"""One name per column of a row; empty: the column has none."""
ColumnFormat = Callable[[int], str]
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_POSITION = re.compile(r"c[0-9]+")
_OF_CHANGES = ("_change_type", "_commit_timestamp")


def column_format(names: Sequence[str]) -> ColumnFormat:
    """The function from a column's position in a row of these names to the text that stands for the column in a
    plan."""
    columns = [
        _quoted(name) if name and names.count(name) == 1 else f"c{position}" for position, name in enumerate(names)
    ]
    return columns.__getitem__


def _quoted(name: str) -> str:
    if _PLAIN.fullmatch(name) and not _POSITION.fullmatch(name):
        return name
    return "`" + name.replace("`", "``") + "`"


class RowNames:
    """The names of the rows of collections and plans. `known`: the names of imports that do not carry them."""

    def __init__(
        self,
        sources: Sequence[SourceImport],
        indexes: Sequence[IndexImport],
        known: Mapping[GlobalId, Names],
    ) -> None:
        self._collections: dict[GlobalId | LocalId, Names] = {}
        self._plans: dict[int, tuple[Plan, Names]] = {}
        for source in sources:
            self._collections[source.id] = tuple(source.shard.columns[at].name for at in source.columns)
        for index in indexes:
            names = known.get(index.on) or known.get(index.id)
            if names is not None and len(names) == len(index.schema):
                self._collections[index.id] = self._collections[index.on] = names

    def export(self, on: GlobalId, columns: Sequence[Column]) -> None:
        """Object `on` is exported with these columns, whose names it has then."""
        self._collections[on] = tuple(column.name for column in columns)

    def built(self, id: GlobalId, plan: Plan) -> None:
        """Objects are built in order; an exported one has its names already."""
        self._collections.setdefault(id, self.of(plan))

    def of(self, plan: Plan) -> Names:
        """The names of the plan's output row."""
        found = self._plans.get(id(plan))
        if found is None:
            found = self._plans[id(plan)] = (plan, self._compute_names(plan))
        return found[1]

    def _compute_names(self, plan: Plan) -> Names:
        match plan:
            case Get():
                names = self._collections.get(plan.id, ())
                return names if len(names) == len(plan.schema) else _empty_names(plan)
            case Let():
                self._collections[plan.id] = self.of(plan.value)
                return self.of(plan.body)
            case LetRec():
                for binding in plan.bindings:
                    self._collections.setdefault(binding.id, _empty_names(binding.value))
                for binding in plan.bindings:
                    self.of(binding.value)
                return self.of(plan.body)
            case Mfp():
                return after(plan.mfp, self.of(plan.input))
            case FlatMap():
                return after(plan.mfp_after, self.flat_mapped(plan))
            case Join():
                return self._joined(plan)
            case Reduce():
                return after(plan.mfp_after, self.reduced(plan))
            case Window():
                return (*self.of(plan.input), *("" for _ in plan.calls))
            case Changes():
                return (*self.of(plan.input), *_OF_CHANGES)
            case Union():
                inputs = [self.of(each) for each in plan.inputs]
                return tuple(same[0] if len(set(same)) == 1 else "" for same in zip(*inputs, strict=True))
            case TopK() | Negate() | Threshold():
                return self.of(plan.input)
        return _empty_names(plan)

    def flat_mapped(self, plan: FlatMap) -> Names:
        """The row that `mfp_after` reads."""
        return (*self.of(plan.input), *("" for _ in plan.produces))

    def reduced(self, plan: Reduce) -> Names:
        """The row that `mfp_after` reads: the key, then the aggregates."""
        input, width = self.of(plan.input), len(plan.mfp_after.input)
        key = [_of_expression(expr, input) for expr in plan.key]
        return (*key, *("" for _ in range(width - len(key))))

    def streams(self, join: Join, source: int, stages: Sequence[JoinStage]) -> list[Names]:
        """The stream before each stage, and after the last one."""
        found = [self.of(join.inputs[source])]
        for stage in stages:
            found.append(after(stage.closure, self.stage_row(join, found[-1], stage)))
        return found

    def stage_row(self, join: Join, stream: Names, stage: JoinStage) -> Names:
        """The names of the row that the closure of a stage reads."""
        lookup = self.of(join.inputs[stage.lookup])
        return (*(stream[at] for at in stage.stream_thinning), *(lookup[at] for at in stage.lookup_thinning))

    def delta_join_row(self, join: Join, plan: DeltaJoin) -> Names:
        """The names of the row that the closure of a delta join reads."""
        return self.streams(join, plan.paths[0].source, plan.paths[0].stages)[-1]

    def _joined(self, join: Join) -> Names:
        if isinstance(join.plan, DeltaJoin):
            return after(join.plan.closure, self.delta_join_row(join, join.plan))
        return self.streams(join, join.plan.source, join.plan.stages)[-1]


def extended(mfp: MapFilterProject, names: Names) -> Names:
    """The names of the row before the projection."""
    row = list(names)
    for expression in mfp.expressions:
        row.append(_of_expression(expression, row))
    return tuple(row)


def after(mfp: MapFilterProject, names: Names) -> Names:
    """The names of the row after the projection."""
    row = extended(mfp, names)
    return row if mfp.projection is None else tuple(row[at] for at in mfp.projection)


def _of_expression(expression: ScalarExpr, row: Sequence[str]) -> str:
    return row[expression.index] if isinstance(expression, ColumnRef) else ""


def _empty_names(plan: Plan) -> Names:
    """The names of a plan's row where none of them is known."""
    return ("",) * len(plan.schema)
