"""HIR, the planner's own relational algebra: positional, without names, before any physical choice.

    Project [c0, (c2 + 1)]
      Filter [(c1 = c3)]
        Join
          Scan s:orders
          Scan s:customer

Catalyst's tree is lowered to HIR (lower/), rules rewrite it (rules/), and lir/hir_to_lir.py turns it into LIR. A row of
a Join is the left row followed by the right row; a row of an Aggregate is its keys followed by its aggregates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import accumulate

from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr, is_nullable
from tidemark_protocol.plan.lir import AggregateExpr as AggregateCall
from tidemark_protocol.plan.lir import OrderKey, Plan, Schema, WindowCall, refs
from tidemark_protocol.types import BOOLEAN, ColumnType


@dataclass(frozen=True)
class Scan:
    """The rows of a collection, with the columns of it at `columns`.

    `of`: the schema of the whole collection. `keys`: sets of its columns that no two rows share.
    """

    id: GlobalId
    of: Schema
    columns: tuple[int, ...]
    keys: tuple[tuple[int, ...], ...] = ()
    monotonic: bool = False

    @property
    def schema(self) -> Schema:
        return tuple(self.of[c] for c in self.columns)


@dataclass(frozen=True)
class Values:
    """Constant rows."""

    rows: tuple[tuple[Literal, ...], ...]
    schema: Schema


@dataclass(frozen=True)
class Project:
    """One column per expression."""

    input: Hir
    exprs: tuple[ScalarExpr, ...]

    @property
    def schema(self) -> Schema:
        return tuple(ColumnType(e.type, is_nullable(e)) for e in self.exprs)


@dataclass(frozen=True)
class Filter:
    """The rows for which all predicates are true."""

    input: Hir
    predicates: tuple[ScalarExpr, ...]

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True)
class Join:
    """The inner join of any number of inputs: combinations of rows, side by side, for which all predicates are true."""

    inputs: tuple[Hir, ...]
    predicates: tuple[ScalarExpr, ...] = ()

    @property
    def schema(self) -> Schema:
        return tuple(c for i in self.inputs for c in i.schema)


class MatchKind(StrEnum):
    """The result for a left row, by the right rows that match it."""

    SEMI = "semi"
    """The row, if it has a match."""
    ANTI = "anti"
    """The row, if it has no match."""
    MARK = "mark"
    """The row, and beside it whether it has a match."""
    LEFT = "left"
    """The row beside each match, or beside NULLs if it has no match."""
    SINGLE = "single"
    """The rows of LEFT, but more than one match is an error."""
    FULL = "full"
    """The rows of LEFT, and right rows without a match beside NULLs."""


@dataclass(frozen=True)
class Match:
    """A join of two inputs that is not an inner one. Rows match where all predicates, over both rows, are true."""

    kind: MatchKind
    left: Hir
    right: Hir
    predicates: tuple[ScalarExpr, ...]

    @property
    def shows_right(self) -> bool:
        """Whether the columns of the right input are in the result."""
        return self.kind in (MatchKind.LEFT, MatchKind.SINGLE, MatchKind.FULL)

    @property
    def schema(self) -> Schema:
        left, right = self.left.schema, self.right.schema
        if self.kind is MatchKind.MARK:
            return (*left, ColumnType(BOOLEAN, False))
        if not self.shows_right:
            return left
        return (nullable(left) if self.kind is MatchKind.FULL else left) + nullable(right)


@dataclass(frozen=True)
class Aggregate:
    """One row per group of equal `keys`; without aggregates, the distinct keys.

    `aggregates` read the columns `values`.
    """

    input: Hir
    keys: tuple[ScalarExpr, ...]
    values: tuple[ScalarExpr, ...]
    aggregates: tuple[AggregateCall, ...]

    @property
    def schema(self) -> Schema:
        keys = tuple(ColumnType(k.type, is_nullable(k)) for k in self.keys)
        return keys + tuple(a.type for a in self.aggregates)


@dataclass(frozen=True)
class Union:
    """The sum of the inputs (UNION ALL)."""

    inputs: tuple[Hir, ...]

    @property
    def schema(self) -> Schema:
        columns = zip(*(i.schema for i in self.inputs), strict=True)
        return tuple(ColumnType(same[0].type, any(c.nullable for c in same)) for same in columns)


@dataclass(frozen=True)
class Intersection:
    """Each row as often as both inputs hold it (INTERSECT ALL)."""

    left: Hir
    right: Hir

    @property
    def schema(self) -> Schema:
        return self.left.schema


@dataclass(frozen=True)
class Negate:
    """Each row with the opposite multiplicity; allowed below a Union alone."""

    input: Hir

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True)
class Threshold:
    """The rows of positive multiplicity, as often."""

    input: Hir

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True)
class TopK:
    """The rows `offset` to `offset + limit`, by `order`, of each group of equal `group_key`; ties by the whole row.

    `limit` None: all rows from `offset` on.
    """

    input: Hir
    group_key: tuple[int, ...]
    order: tuple[OrderKey, ...]
    limit: int | None
    offset: int = 0

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True)
class Window:
    """Each row, and beside it one column per call over its partition (equal `partition` columns) in `order`."""

    input: Hir
    partition: tuple[int, ...]
    order: tuple[OrderKey, ...]
    calls: tuple[WindowCall, ...]

    @property
    def schema(self) -> Schema:
        return self.input.schema + tuple(c.type for c in self.calls)


@dataclass(frozen=True)
class FlatMap:
    """Each row once per value of a table function (tidemark_protocol.functions.table_functions), with the value beside
    it.

    `produces`: the schema of the value.
    """

    input: Hir
    function: str
    arguments: tuple[ScalarExpr, ...]
    produces: Schema

    @property
    def schema(self) -> Schema:
        return self.input.schema + self.produces


@dataclass(frozen=True)
class Let:
    """`value` is computed once and read by the Locals of this name in `body`.

    Only desugar/ makes it, after all rules.
    """

    name: LocalId
    value: Hir
    body: Hir

    @property
    def schema(self) -> Schema:
        return self.body.schema


@dataclass(frozen=True)
class Local:
    """The rows of the Let of this name; `keys`: their unique keys."""

    name: LocalId
    schema: Schema
    keys: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True)
class Binding:
    """One binding of a LetRec: its id and its rows.

    `limit`: the most iterations. Past it the binding is in error, or, with `returns`, its rows by then are its result.
    """

    id: GlobalId
    value: Hir
    limit: int | None = None
    returns: bool = False


@dataclass(frozen=True)
class LetRec:
    """The rows of `body`, which reads the bindings once they have stopped changing one another (their fixpoint)."""

    bindings: tuple[Binding, ...]
    body: Hir

    @property
    def schema(self) -> Schema:
        return self.body.schema


Hir = (
    Scan
    | Values
    | Local
    | Project
    | Filter
    | Join
    | Match
    | Aggregate
    | Union
    | Intersection
    | Negate
    | Threshold
    | TopK
    | Window
    | FlatMap
    | Let
    | LetRec
)


def scan(collection: GlobalId, of: Schema, keys: tuple[tuple[int, ...], ...] = (), monotonic: bool = False) -> Scan:
    """A Scan of all columns."""
    return Scan(collection, of, tuple(range(len(of))), keys, monotonic)


def columns(node: Hir) -> tuple[ColumnRef, ...]:
    """References to every output column."""
    return refs(node.schema)


def project(node: Hir, exprs: tuple[ScalarExpr, ...]) -> Hir:
    """A Project, or the node itself if the Project would change nothing."""
    return node if exprs == columns(node) else Project(node, exprs)


def filtered(node: Hir, predicates: tuple[ScalarExpr, ...]) -> Hir:
    """A Filter, or the node itself if there are no predicates."""
    return Filter(node, predicates) if predicates else node


def top_k(
    node: Hir, group_key: tuple[int, ...], order: tuple[OrderKey, ...], limit: int | None, offset: int = 0
) -> Hir:
    """A TopK; no rows if the limit is 0, and the node itself if it would keep every row."""
    if limit is not None and limit <= 0:
        return Values((), node.schema)
    return node if limit is None and offset <= 0 else TopK(node, group_key, order, limit, max(offset, 0))


def nullable(schema: Schema) -> Schema:
    """The same columns, all nullable."""
    return tuple(ColumnType(c.type) for c in schema)


def inputs_of(node: Hir) -> tuple[Hir, ...]:
    """The nodes directly below."""
    if isinstance(node, Scan | Values | Local):
        return ()
    if isinstance(node, Join | Union):
        return node.inputs
    if isinstance(node, Match | Intersection):
        return (node.left, node.right)
    if isinstance(node, LetRec):
        return (*(b.value for b in node.bindings), node.body)
    return (node.value, node.body) if isinstance(node, Let) else (node.input,)


def preorder(node: Hir) -> Iterator[Hir]:
    """The node and all below it."""
    yield node
    for below in inputs_of(node):
        yield from preorder(below)


def scans_of(node: Hir) -> Iterator[Scan]:
    return (each for each in preorder(node) if isinstance(each, Scan))


def starts(inputs: Sequence[Hir | Plan]) -> list[int]:
    """The first column of each input in the row of all of them."""
    return list(accumulate((len(i.schema) for i in inputs[:-1]), initial=0))


def expressions_of(node: Hir) -> tuple[ScalarExpr, ...]:
    """The expressions that the node itself evaluates on its inputs' rows."""
    if isinstance(node, Project):
        return node.exprs
    if isinstance(node, Filter | Join | Match):
        return node.predicates
    if isinstance(node, FlatMap):
        return node.arguments
    return node.keys + node.values if isinstance(node, Aggregate) else ()


def with_inputs(node: Hir, inputs: tuple[Hir, ...]) -> Hir:
    """The same node over other inputs with the same columns."""
    if isinstance(node, Scan | Values | Local):
        return node
    if isinstance(node, Join | Union):
        return replace(node, inputs=inputs)
    if isinstance(node, Match | Intersection):
        return replace(node, left=inputs[0], right=inputs[1])
    if isinstance(node, Let):
        return replace(node, value=inputs[0], body=inputs[1])
    if isinstance(node, LetRec):
        *values, body = inputs
        return LetRec(tuple(replace(b, value=v) for b, v in zip(node.bindings, values, strict=True)), body)
    return replace(node, input=inputs[0])
