"""The upkeep of operators: how each is kept true while its inputs change, what a change costs it, and why.

    Mfp, Get, Union     stateless        the changed rows alone
    Reduce sum          incremental      about 1 row a change: its group's sums
    Window              computed anew    about 4 rows a change: its whole partition
    policy full         computed anew    all rows a refresh

A cost is the number of rows of state that an operator reads or computes for a changed row of an input, as rough as the
estimates of rows (`row_estimates.py`); of a join, where the change comes in the input that makes it dearest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import (
    AccumulableReduce,
    BasicReduce,
    CollationReduce,
    Constant,
    DeltaJoin,
    DistinctReduce,
    Get,
    HierarchicalReduce,
    Join,
    Let,
    LetRec,
    Mfp,
    Plan,
    Reduce,
    ReducePlan,
    Threshold,
    TopK,
    Window,
    inputs_of,
)
from tidemark_protocol.plan.refresh import FULL
from tidemark_protocol.plan.row_estimates import MOST, exponent

STATELESS, INCREMENTAL, ANEW = "stateless", "incremental", "computed anew"
Estimate = Callable[[Plan], int | None]
"""About how many rows a plan has; None: unknown."""
_ROWS_OF_A_GROUP = 4
"""Estimates of rows count a group for each four rows."""
_LEAST_BATCH = 12
"""Batches of an arrangement at least double from 4,096 rows on."""


@dataclass(frozen=True)
class Upkeep:
    """`how`: STATELESS, INCREMENTAL or ANEW. `rows`: the cost of a change, or of a refresh (`per`); None: unknown."""

    how: str
    rows: int | None
    why: str
    per: str = "change"

    @property
    def is_stateless(self) -> bool:
        return self.how == STATELESS

    @property
    def text(self) -> str:
        """One line."""
        cost = "" if self.rows is None else f", about {self.rows:,} {'row' if self.rows == 1 else 'rows'} a {self.per}"
        return f"{self.how}{cost}: {self.why}"


def upkeep_of(plan: Plan, rows: Estimate, policy: str = "") -> Upkeep | None:
    """The upkeep of an operator; None for a Let, which is none. `policy`: that of all views of the dataflow."""
    if isinstance(plan, Let):
        return None
    if policy == FULL:
        return Upkeep(ANEW, _all_rows(plan, rows), "refreshPolicy full keeps no state between refreshes", "refresh")
    match plan:
        case Reduce():
            return _of_reduce(plan, plan.plan, rows)
        case Window():
            why = f"a change may show in any row{' of its partition' if plan.partition else ': all are one partition'}"
            return Upkeep(ANEW, _group(rows(plan.input), bool(plan.partition)), why)
        case TopK():
            return _of_top_k(plan, rows)
        case Join():
            return _of_join(plan, rows)
        case Threshold():
            return Upkeep(INCREMENTAL, 1, "the number of each row is kept")
        case LetRec():
            return Upkeep(INCREMENTAL, None, "a change runs rounds over what it reaches; each round's rows are kept")
        case Mfp() if plan.mfp.lower or plan.mfp.upper:
            return Upkeep(INCREMENTAL, 2, "a row is kept until its time, at which it comes or goes")
    return Upkeep(STATELESS, 1, "changed rows are computed alone; none are kept")


def _all_rows(plan: Plan, rows: Estimate) -> int | None:
    read = [rows(each) for each in ((plan,) if isinstance(plan, Get | Constant) else inputs_of(plan))]
    known = [each for each in read if each is not None]
    return min(1 << MOST, sum(known)) if len(known) == len(read) else None


def _group(rows: int | None, has_key: bool) -> int | None:
    """The rows of a group, or of a partition, of so many rows."""
    return rows if rows is None or not has_key else min(rows, _ROWS_OF_A_GROUP)


def _first_rows(rows: int | None, count: int) -> int | None:
    """The first rows of each batch of an arrangement."""
    return None if rows is None else min(rows, count * (1 + max(0, exponent(rows) - _LEAST_BATCH)))


def _of_reduce(groups: Reduce, plan: ReducePlan, rows: Estimate) -> Upkeep:
    group = "its group" if groups.key else "the only group"
    match plan:
        case DistinctReduce():
            return Upkeep(INCREMENTAL, 1, f"the number of rows of {group} is kept, and a change is added to it")
        case AccumulableReduce(aggregates):
            kept = "totals and distinct values" if any(each.distinct for each in aggregates) else "totals"
            return Upkeep(INCREMENTAL, 1, f"the {kept} of {group} are kept, and a change is added to them")
        case HierarchicalReduce(monotonic=True):
            return Upkeep(INCREMENTAL, 1, f"rows are only added, and the first value of {group} is kept")
        case HierarchicalReduce():
            why = f"the values of {group} are kept in order, and a change reads the first ones of each batch"
            return Upkeep(INCREMENTAL, _first_rows(rows(groups.input), 2), why)
        case BasicReduce(aggregates):
            names = ", ".join(dict.fromkeys(each.function for each in aggregates))
            why = f"{names} of {group} needs all of its rows"
            return Upkeep(ANEW, _group(rows(groups.input), bool(groups.key)), why)
        case CollationReduce(parts):
            each = [_of_reduce(groups, part, rows) for part in parts]
            costs = [part.rows for part in each if part.rows is not None]
            how = ANEW if any(part.how == ANEW for part in each) else INCREMENTAL
            return Upkeep(how, sum(costs) if len(costs) == len(each) else None, "; ".join(part.why for part in each))


def _of_top_k(plan: TopK, rows: Estimate) -> Upkeep:
    limit = int(str(plan.limit.value)) if isinstance(plan.limit, Literal) and str(plan.limit.value).isdigit() else None
    if limit == 0 or (plan.limit is None and plan.offset == 0):
        return Upkeep(STATELESS, 1, "all rows pass, or none")
    group, count = "its group" if plan.group_key else "the only group", plan.offset + (limit or 0)
    if plan.plan.kind != "heads":
        return Upkeep(INCREMENTAL, count, f"rows are only added, and the first {count:,} of {group} are kept")
    why = f"the rows of {group} are kept in order, and a change reads the first {count:,} of each batch"
    return Upkeep(INCREMENTAL, _first_rows(rows(plan.input), count), why)


def _of_join(plan: Join, rows: Estimate) -> Upkeep:
    """A changed row meets a share of the rows that the join makes: the rows for each row of its input."""
    stages = plan.plan.stages if not isinstance(plan.plan, DeltaJoin) else ()
    is_crossed = any(not stage.lookup_key for stage in stages)
    meets = "all rows of an input" if is_crossed else "the rows of the other inputs with its key"
    met = "; rows met so far are kept, too" if len(stages) > 1 else ""
    found = [rows(each) for each in plan.inputs]
    sizes = [exponent(each) for each in found if each is not None]
    if len(sizes) < len(found):
        return Upkeep(INCREMENTAL, None, f"a change meets {meets}{met}")
    made = sizes[plan.plan.source] if not isinstance(plan.plan, DeltaJoin) else max(sizes)
    for stage in stages:
        made = max(made, sizes[stage.lookup]) if stage.lookup_key else made + sizes[stage.lookup]
    least = min(sizes)
    dearest = f", most where input {sizes.index(least)} changes" if max(sizes) > least else ""
    return Upkeep(INCREMENTAL, 1 << min(MOST, made - least), f"a change meets {meets}{dearest}{met}")
