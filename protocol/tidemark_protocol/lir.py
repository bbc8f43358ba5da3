"""LIR, the low-level plan: which operators a replica renders, with every physical choice made.

    ArrangeBy [c0]
      Reduce key=[c2] accumulable [sum(c0), count(*)]
        Join linear 0 → 1
          Get s1:lineitem
          Mfp filter c3 >= DATE '1994-01-01'
            Get s1:orders

A node is a frozen value; its `schema` (types of its positional output columns) follows from its fields, so a plan
can be checked without a catalogue (`check.py`). Nothing here evaluates anything.

The vocabulary is whole (a one-way door); which nodes the replica renders today is `replica .../render/`'s to say,
and the planner plans no other.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_protocol.expr import ColumnRef, Literal, ScalarExpr, is_nullable
from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.types import ColumnType

LIR_VERSION = 1
Schema = tuple[ColumnType, ...]


@dataclass(frozen=True)
class MapFilterProject:
    """Map, then filter, then project: the stateless part of any operator.

    `expressions` are appended one by one to the row (each may read those before it), rows are kept where all
    `predicates` are true, and `projection` picks the output columns out of input ++ expressions. `lower` and
    `upper` are temporal bounds (a row is there while lower <= now < upper).

    Errors: false AND error is false, so a row that some predicate drops raises nothing.
    """

    input: Schema
    expressions: tuple[ScalarExpr, ...] = ()
    predicates: tuple[ScalarExpr, ...] = ()
    projection: tuple[int, ...] | None = None
    lower: tuple[ScalarExpr, ...] = ()
    upper: tuple[ScalarExpr, ...] = ()

    @staticmethod
    def identity(schema: Schema) -> MapFilterProject:
        return MapFilterProject(schema)

    @property
    def is_identity(self) -> bool:
        return not (self.expressions or self.predicates or self.lower or self.upper) and (
            self.projection is None or self.projection == tuple(range(len(self.input)))
        )

    @property
    def extended(self) -> Schema:
        """Input columns and mapped ones, before the projection."""
        return self.input + tuple(ColumnType(e.type, is_nullable(e)) for e in self.expressions)

    @property
    def output(self) -> Schema:
        if self.projection is None:
            return self.extended
        return tuple(self.extended[i] for i in self.projection)


@dataclass(frozen=True)
class ErrorValue:
    """An error as it stands in `__error`: a code and the expression's text, never data."""

    code: str
    expression: str


@dataclass(frozen=True)
class ConstantRow:
    values: tuple[Literal, ...]
    diff: int = 1


@dataclass(frozen=True)
class Constant:
    """A fixed collection: rows, or one error."""

    rows: tuple[ConstantRow, ...]
    schema: Schema
    error: ErrorValue | None = None


@dataclass(frozen=True)
class Get:
    """The collection `id`: an import, an object of the dataflow, or a Let's binding; `key` asks for an arrangement."""

    id: GlobalId | LocalId
    schema: Schema
    key: tuple[ScalarExpr, ...] | None = None


@dataclass(frozen=True)
class Let:
    id: LocalId
    value: Plan
    body: Plan

    @property
    def schema(self) -> Schema:
        return self.body.schema


@dataclass(frozen=True)
class RecursiveBinding:
    """One binding of a LetRec; past `max_iterations` it raises, or returns what there is."""

    id: LocalId
    value: Plan
    max_iterations: int | None = None
    return_at_limit: bool = False


@dataclass(frozen=True)
class LetRec:
    bindings: tuple[RecursiveBinding, ...]
    body: Plan

    @property
    def schema(self) -> Schema:
        return self.body.schema


@dataclass(frozen=True)
class Mfp:
    input: Plan
    mfp: MapFilterProject

    @property
    def schema(self) -> Schema:
        return self.mfp.output


@dataclass(frozen=True)
class FlatMap:
    """A table function on each row; its columns are appended to the row, then `mfp_after`."""

    input: Plan
    function: str
    arguments: tuple[ScalarExpr, ...]
    produces: Schema
    mfp_after: MapFilterProject

    @property
    def schema(self) -> Schema:
        return self.mfp_after.output


@dataclass(frozen=True)
class JoinStage:
    """One lookup: the stream so far meets input `lookup`.

    Rows meet where `stream_key` = `lookup_key`, both over their own whole row, NULL never equal unless the key's
    position is in `null_safe`. No keys: a cross join. Of the two rows the columns `stream_thinning` and
    `lookup_thinning` are kept; `closure` runs over their concatenation and gives the stream of the next stage.
    """

    lookup: int
    stream_key: tuple[ScalarExpr, ...]
    lookup_key: tuple[ScalarExpr, ...]
    stream_thinning: tuple[int, ...]
    lookup_thinning: tuple[int, ...]
    closure: MapFilterProject
    null_safe: tuple[int, ...] = ()


@dataclass(frozen=True)
class LinearJoin:
    """Inputs met one after the other, beginning with input `source`; each stage keeps the stream so far arranged."""

    source: int
    stages: tuple[JoinStage, ...]


@dataclass(frozen=True)
class DeltaPath:
    """What an update of input `source` meets, in this order."""

    source: int
    stages: tuple[JoinStage, ...]


@dataclass(frozen=True)
class DeltaJoin:
    """One path per input, all over arrangements of the inputs alone: no intermediate state."""

    paths: tuple[DeltaPath, ...]


@dataclass(frozen=True)
class Join:
    """An inner join of any number of inputs."""

    inputs: tuple[Plan, ...]
    plan: LinearJoin | DeltaJoin

    @property
    def schema(self) -> Schema:
        last = self.plan if isinstance(self.plan, LinearJoin) else self.plan.paths[0]
        return last.stages[-1].closure.output


@dataclass(frozen=True)
class Aggregate:
    """`function` over the value column at `argument` (None: the row itself, as in count(*)).

    Rows where the value column at `filter` is not true are left out.
    """

    function: str
    argument: int | None
    type: ColumnType
    distinct: bool = False
    filter: int | None = None


@dataclass(frozen=True)
class DistinctReduce:
    """The keys alone, each once."""


@dataclass(frozen=True)
class AccumulableReduce:
    """Aggregates that are sums of contributions: count, sum, avg."""

    aggregates: tuple[Aggregate, ...]


@dataclass(frozen=True)
class HierarchicalReduce:
    """min and max; `monotonic` when the input only grows."""

    aggregates: tuple[Aggregate, ...]
    buckets: tuple[int, ...] = ()
    monotonic: bool = False
    must_consolidate: bool = False


@dataclass(frozen=True)
class BasicReduce:
    """Aggregates that need all values of a group."""

    aggregates: tuple[Aggregate, ...]


@dataclass(frozen=True)
class CollationReduce:
    """Aggregates of several kinds; `parts[i]` computes the aggregates at `positions[i]`."""

    parts: tuple[AccumulableReduce | HierarchicalReduce | BasicReduce, ...]
    positions: tuple[tuple[int, ...], ...]


ReducePlan = DistinctReduce | AccumulableReduce | HierarchicalReduce | BasicReduce | CollationReduce


@dataclass(frozen=True)
class Reduce:
    """Group by `key`, aggregate over `values`; `mfp_after` runs over key ++ aggregates and keeps the key.

    With no key there is always exactly one row, also for an empty input (`count` 0, other aggregates NULL),
    unless `plan` is distinct.
    """

    input: Plan
    key: tuple[ScalarExpr, ...]
    values: tuple[ScalarExpr, ...]
    plan: ReducePlan
    mfp_after: MapFilterProject

    @property
    def schema(self) -> Schema:
        return self.mfp_after.output


@dataclass(frozen=True)
class OrderKey:
    column: int
    descending: bool = False
    nulls_last: bool = False


@dataclass(frozen=True)
class TopKPlan:
    """Which algorithm: `monotonic` ones need an input that only grows; `buckets` are the tournament's stages."""

    kind: str
    buckets: tuple[int, ...] = ()
    must_consolidate: bool = False


@dataclass(frozen=True)
class TopK:
    input: Plan
    group_key: tuple[int, ...]
    order: tuple[OrderKey, ...]
    limit: ScalarExpr | None
    offset: int
    plan: TopKPlan

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True)
class Negate:
    input: Plan

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True)
class Threshold:
    """Rows of positive multiplicity."""

    input: Plan

    @property
    def schema(self) -> Schema:
        return self.input.schema


@dataclass(frozen=True)
class Union:
    """The sum of collections (UNION ALL). `consolidate_output` where an input is a Negate."""

    inputs: tuple[Plan, ...]
    consolidate_output: bool = False

    @property
    def schema(self) -> Schema:
        columns = zip(*(i.schema for i in self.inputs), strict=True)
        return tuple(ColumnType(same[0].type, any(c.nullable for c in same)) for same in columns)


@dataclass(frozen=True)
class ArrangeBy:
    """The input, and arrangements of it by each of `keys`."""

    input: Plan
    keys: tuple[tuple[ScalarExpr, ...], ...]

    @property
    def schema(self) -> Schema:
        return self.input.schema


Plan = Constant | Get | Let | LetRec | Mfp | FlatMap | Join | Reduce | TopK | Negate | Threshold | Union | ArrangeBy


def refs(schema: Schema) -> tuple[ColumnRef, ...]:
    """One reference per column of the schema, in order."""
    return tuple(ColumnRef(i, c.type, c.nullable) for i, c in enumerate(schema))


def inputs_of(plan: Plan) -> tuple[Plan, ...]:
    """The plans directly below."""
    if isinstance(plan, Constant | Get):
        return ()
    if isinstance(plan, Join | Union):
        return plan.inputs
    if isinstance(plan, Let):
        return (plan.value, plan.body)
    if isinstance(plan, LetRec):
        return (*(b.value for b in plan.bindings), plan.body)
    return (plan.input,)
