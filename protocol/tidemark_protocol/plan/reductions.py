"""Aggregates of a Reduce, by the state that they need, and the calls of a Window.

    accumulable    count, sum, avg, stddev ...    sums of contributions: a row of digits per group
    hierarchical   min, max                       the first rows of value-ordered state
    basic          array_agg, median, ...         all values of the group, read again when one changes
    collation      several of these               computed separately and put side by side

`lir.py` has the nodes that hold them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.types import ColumnType
from tidemark_protocol.vocabulary import wire_name


@wire_name("OrderKey")
@dataclass(frozen=True)
class OrderKey:
    """One column to order by; by default ascending with NULL first."""

    column: int
    descending: bool = False
    nulls_last: bool = False


@wire_name("Aggregate")
@dataclass(frozen=True)
class AggregateExpr:
    """`function` over the value column at `argument` (None: over the row itself, as in count(*)).

    Rows where the value column at `filter` is not true are left out. `distinct`: equal arguments count once. `order`
    (over the
    value columns): the order of the rows for functions that depend on one (first, last, array_agg, string_agg, max_by);
    ties
    are broken by the whole row of values. `parameters`: constant arguments, such as a separator or a fraction.
    """

    function: str
    argument: int | None
    type: ColumnType
    distinct: bool = False
    filter: int | None = None
    order: tuple[OrderKey, ...] = ()
    parameters: tuple[Literal, ...] = ()


@wire_name("DistinctReduce")
@dataclass(frozen=True)
class DistinctReduce:
    """The distinct keys."""


@wire_name("AccumulableReduce")
@dataclass(frozen=True)
class AccumulableReduce:
    """Aggregates that are sums of contributions, of distinct arguments where `distinct` is set."""

    aggregates: tuple[AggregateExpr, ...]


@wire_name("HierarchicalReduce")
@dataclass(frozen=True)
class HierarchicalReduce:
    """min and max. `monotonic`: the input only grows."""

    aggregates: tuple[AggregateExpr, ...]
    monotonic: bool = False


@wire_name("BasicReduce")
@dataclass(frozen=True)
class BasicReduce:
    """Aggregates that need all values of a group."""

    aggregates: tuple[AggregateExpr, ...]


@wire_name("CollationReduce")
@dataclass(frozen=True)
class CollationReduce:
    """Aggregates of several kinds; `parts[i]` computes the aggregates at `positions[i]`."""

    parts: tuple[AccumulableReduce | HierarchicalReduce | BasicReduce, ...]
    positions: tuple[tuple[int, ...], ...]


ReducePlan = DistinctReduce | AccumulableReduce | HierarchicalReduce | BasicReduce | CollationReduce


@wire_name("WindowFrame")
@dataclass(frozen=True)
class WindowFrame:
    """The rows of the partition, around the current row, that a call reads.

    `unit` rows: bounds count rows. `unit` range: bounds are distances in the one order column; peers belong together.
    Bounds
    are offsets (negative: before the current row; 0: the current row, in a range with its peers); None: the end of the
    partition on that side.
    """

    unit: str
    lower: Literal | None
    upper: Literal | None


@wire_name("WindowCall")
@dataclass(frozen=True)
class WindowCall:
    """One column of a Window: `function` over the input columns `arguments`.

    `frame` None: the function has no frame (row_number, rank, lag). `parameters`: constant arguments, such as the
    offset of
    lag or the number of ntile.
    """

    function: str
    arguments: tuple[int, ...]
    type: ColumnType
    frame: WindowFrame | None = None
    parameters: tuple[Literal, ...] = ()
    ignore_nulls: bool = False
