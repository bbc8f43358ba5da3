"""LIR, the low-level plan: which operators a replica renders, with every physical choice made.

    Reduce key=[c2] accumulable [sum(c0), count(*)]
      Join linear 0 → 1
        Get s1:lineitem
        Mfp filter c3 >= DATE '1994-01-01'
          Get s1:orders

A node is a frozen value. Its `schema` (the types of its output columns, by position) follows from its fields, so a plan
can be checked without a catalogue (`check/plan.py`). The replica's `render/` evaluates plans; this file only describes
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.map_filter_project import MapFilterProject as MapFilterProject
from tidemark_protocol.plan.map_filter_project import Schema as Schema
from tidemark_protocol.plan.reductions import AccumulableReduce as AccumulableReduce
from tidemark_protocol.plan.reductions import AggregateExpr as AggregateExpr
from tidemark_protocol.plan.reductions import BasicReduce as BasicReduce
from tidemark_protocol.plan.reductions import CollationReduce as CollationReduce
from tidemark_protocol.plan.reductions import DistinctReduce as DistinctReduce
from tidemark_protocol.plan.reductions import HierarchicalReduce as HierarchicalReduce
from tidemark_protocol.plan.reductions import OrderKey as OrderKey
from tidemark_protocol.plan.reductions import ReducePlan as ReducePlan
from tidemark_protocol.plan.reductions import WindowCall as WindowCall
from tidemark_protocol.plan.reductions import WindowFrame as WindowFrame
from tidemark_protocol.types import STRING, TIMESTAMP, ColumnType
from tidemark_protocol.vocabulary import wire_name

LIR_VERSION = 1


@wire_name("ErrorValue")
@dataclass(frozen=True)
class ErrorValue:
    """An error as it is stored in `__error`: a code and the text of the expression, never data."""

    code: str
    expression: str


@wire_name("ConstantRow")
@dataclass(frozen=True)
class ConstantRow:
    """A row, and its multiplicity."""

    values: tuple[Literal, ...]
    diff: int = 1


@wire_name("Constant")
@dataclass(frozen=True)
class Constant:
    """A fixed collection: rows, or one error."""

    rows: tuple[ConstantRow, ...]
    schema: Schema
    error: ErrorValue | None = None


@wire_name("Get")
@dataclass(frozen=True)
class Get:
    """The collection `id`: an import, an object of the dataflow, or a binding.

    `key`: read the arrangement by this key.
    """

    id: GlobalId | LocalId
    schema: Schema
    key: tuple[ScalarExpr, ...] | None = None


@wire_name("Let")
@dataclass(frozen=True)
class Let:
    """`value` is computed once and read in `body` under the name `id`."""

    id: LocalId
    value: Plan
    body: Plan

    @property
    def schema(self) -> Schema:
        return self.body.schema


@wire_name("RecursiveBinding")
@dataclass(frozen=True)
class RecursiveBinding:
    """One binding of a LetRec. After `max_iterations` it is in error, or has the rows by then (`return_at_limit`)."""

    id: LocalId
    value: Plan
    max_iterations: int | None = None
    return_at_limit: bool = False


@wire_name("LetRec")
@dataclass(frozen=True)
class LetRec:
    """The rows of `body`, which reads the bindings at their fixpoint."""

    bindings: tuple[RecursiveBinding, ...]
    body: Plan

    @property
    def schema(self) -> Schema:
        return self.body.schema


@wire_name("Mfp")
@dataclass(frozen=True)
class Mfp:
    """Map, filter and project."""

    input: Plan
    mfp: MapFilterProject

    @property
    def schema(self) -> Schema:
        return self.mfp.output


@wire_name("FlatMap")
@dataclass(frozen=True)
class FlatMap:
    """A table function on each row; its columns are appended to the row, then `mfp_after` runs."""

    input: Plan
    function: str
    arguments: tuple[ScalarExpr, ...]
    produces: Schema
    mfp_after: MapFilterProject

    @property
    def schema(self) -> Schema:
        return self.mfp_after.output


@wire_name("JoinStage")
@dataclass(frozen=True)
class JoinStage:
    """One lookup: the stream so far is joined with input `lookup`.

    Rows match where `stream_key` = `lookup_key`, each over its own whole row. NULL matches nothing, unless the position
    of
    the key is in `null_safe`. No keys: a cross join. The columns `stream_thinning` and `lookup_thinning` of the two
    rows are
    kept; `closure` runs over their concatenation and gives the stream of the next stage.
    """

    lookup: int
    stream_key: tuple[ScalarExpr, ...]
    lookup_key: tuple[ScalarExpr, ...]
    stream_thinning: tuple[int, ...]
    lookup_thinning: tuple[int, ...]
    closure: MapFilterProject
    null_safe: tuple[int, ...] = ()


@wire_name("LinearJoin")
@dataclass(frozen=True)
class LinearJoin:
    """Inputs joined one after the other, starting with input `source`; each stage arranges the stream so far."""

    source: int
    stages: tuple[JoinStage, ...]


@wire_name("DeltaPath")
@dataclass(frozen=True)
class DeltaPath:
    """The lookups of an update of input `source`, in order. Keys are columns, and closures only choose columns."""

    source: int
    stages: tuple[JoinStage, ...]


@wire_name("DeltaJoin")
@dataclass(frozen=True)
class DeltaJoin:
    """One path per input, in the order of the inputs, over arrangements of the inputs alone: no intermediate state.

    All paths give rows with the same columns, and `closure` runs over them. Hydration follows the first path.
    """

    paths: tuple[DeltaPath, ...]
    closure: MapFilterProject


@wire_name("Join")
@dataclass(frozen=True)
class Join:
    """An inner join of any number of inputs."""

    inputs: tuple[Plan, ...]
    plan: LinearJoin | DeltaJoin

    @property
    def schema(self) -> Schema:
        last = self.plan if isinstance(self.plan, DeltaJoin) else self.plan.stages[-1]
        return last.closure.output


@wire_name("Reduce")
@dataclass(frozen=True)
class Reduce:
    """Group by `key`, aggregate over `values`; `mfp_after` runs over key ++ aggregates.

    Without a key there is always exactly one row, also for an empty input (`count` 0, other aggregates NULL), unless
    `plan` is
    distinct.
    """

    input: Plan
    key: tuple[ScalarExpr, ...]
    values: tuple[ScalarExpr, ...]
    plan: ReducePlan
    mfp_after: MapFilterProject

    @property
    def schema(self) -> Schema:
        return self.mfp_after.output


@wire_name("TopKPlan")
@dataclass(frozen=True)
class TopKPlan:
    """The algorithm: `heads` (of value-ordered batches), or, for an input that only grows, `monotonic_top1` and
    `monotonic_top_k`.
    """

    kind: str = "heads"


@wire_name("TopK")
@dataclass(frozen=True)
class TopK:
    """The rows `offset` to `offset + limit` of each group, by `order`; ties are broken by the whole row.

    `limit` None: all rows from `offset` on. A row of multiplicity n counts n times.
    """

    input: Plan
    group_key: tuple[int, ...]
    order: tuple[OrderKey, ...]
    limit: ScalarExpr | None
    offset: int
    plan: TopKPlan

    @property
    def schema(self) -> Schema:
        return self.input.schema


@wire_name("Window")
@dataclass(frozen=True)
class Window:
    """Each row of the input, with its multiplicity, and beside it one column per call over its partition."""

    input: Plan
    partition: tuple[int, ...]
    order: tuple[OrderKey, ...]
    calls: tuple[WindowCall, ...]

    @property
    def schema(self) -> Schema:
        return self.input.schema + tuple(c.type for c in self.calls)


@wire_name("Negate")
@dataclass(frozen=True)
class Negate:
    """Each row with the opposite multiplicity."""

    input: Plan

    @property
    def schema(self) -> Schema:
        return self.input.schema


@wire_name("Threshold")
@dataclass(frozen=True)
class Threshold:
    """The rows of positive multiplicity."""

    input: Plan

    @property
    def schema(self) -> Schema:
        return self.input.schema


@wire_name("Union")
@dataclass(frozen=True)
class Union:
    """The sum of collections (UNION ALL). `consolidate_output`: set where an input is a Negate."""

    inputs: tuple[Plan, ...]
    consolidate_output: bool = False

    @property
    def schema(self) -> Schema:
        columns = zip(*(i.schema for i in self.inputs), strict=True)
        return tuple(ColumnType(same[0].type, any(c.nullable for c in same)) for same in columns)


@wire_name("Changes")
@dataclass(frozen=True)
class Changes:
    """The changes of the input as a collection: at each time, the rows that it gained or lost at that time.

    A row whose multiplicity rises by n is a row `insert` n times; one whose multiplicity falls is a row `delete`.
    Beside it
    stands the time of the change. The contents at the as_of are no change. Allowed only over the input of a continual
    task.
    """

    input: Plan

    @property
    def schema(self) -> Schema:
        return (*self.input.schema, ColumnType(STRING, False), ColumnType(TIMESTAMP, False))


Plan = (
    Constant | Get | Let | LetRec | Mfp | FlatMap | Join | Reduce | TopK | Window | Negate | Threshold | Union | Changes
)


def refs(schema: Schema) -> tuple[ColumnRef, ...]:
    """One reference per column of the schema, in order."""
    return tuple(ColumnRef(i, c.type, c.nullable) for i, c in enumerate(schema))


def preorder(plan: Plan) -> Iterator[Plan]:
    """The plan and all below it, as `explain` lists and numbers them."""
    yield plan
    for below in inputs_of(plan):
        yield from preorder(below)


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


def with_inputs(plan: Plan, inputs: Sequence[Plan]) -> Plan:
    """The node over other plans."""
    match plan:
        case Constant() | Get():
            return plan
        case Let():
            return replace(plan, value=inputs[0], body=inputs[1])
        case Join() | Union():
            return replace(plan, inputs=tuple(inputs))
        case LetRec():
            raise ValueError("a recursion has the inputs of its bindings")
        case _:
            return replace(plan, input=inputs[0])
