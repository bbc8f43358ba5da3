"""The admitted functions, and expressions compiled to closures over whole columns.

    ("+", admits_arithmetic, arithmetic)      the calls that are admitted, and their evaluation

To admit a function, add a line. `tests/evaluator/test_agree_catalyst.py` then compares it with Catalyst for every
combination of types that it admits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr, columns_of
from tidemark_replica.evaluator import casts, comparisons, dates, logic, numbers, text
from tidemark_replica.evaluator.comparisons import is_plain
from tidemark_replica.evaluator.result import Result
from tidemark_replica.evaluator.simplified import can_fail, keeps_failures
from tidemark_replica.values.arrow_types import arrow_type
from tidemark_replica.values.literals import literal_value

Columns = Callable[[int], Result]
Evaluate = Callable[[Columns, int], Result]
"""(column by position, number of rows) -> the expression's result."""


def any_call(call: Call) -> bool:
    return True


@dataclass(frozen=True)
class Admitted:
    """The admitted calls of a function, and its evaluation.

    `columns`: so many arguments are evaluated to columns (None: all); `run` reads the others, which are literals.
    """

    calls: Callable[[Call], bool]
    run: Callable[[Call, list[Result]], Result]
    columns: int | None = None


_TABLE: dict[str, Admitted] = {
    **{op: Admitted(numbers.admits_arithmetic, numbers.arithmetic) for op in ("+", "-", "*")},
    "/": Admitted(numbers.admits_division, numbers.division),
    "%": Admitted(numbers.admits_remainder, numbers.division),
    "div": Admitted(numbers.admits_whole_division, numbers.whole_division),
    "negate": Admitted(numbers.admits_sign, numbers.signed),
    "abs": Admitted(numbers.admits_sign, numbers.signed),
    **{op: Admitted(comparisons.admits_comparison, comparisons.comparison) for op in ("=", "<", "<=", ">", ">=")},
    "<=>": Admitted(comparisons.admits_comparison, comparisons.null_safe),
    "is_null": Admitted(any_call, comparisons.is_null),
    "is_not_null": Admitted(any_call, comparisons.is_not_null),
    "isnan": Admitted(any_call, comparisons.is_nan),
    "in": Admitted(comparisons.admits_in, comparisons.is_in, 1),
    "and": Admitted(any_call, logic.connective),
    "or": Admitted(any_call, logic.connective),
    "not": Admitted(any_call, logic.negation),
    "case": Admitted(logic.admits_choice, logic.case),
    "if": Admitted(logic.admits_choice, logic.case),
    "coalesce": Admitted(logic.admits_choice, logic.coalesce),
    "cast": Admitted(casts.admits_cast, casts.cast),
    **{name: Admitted(any_call, dates.date_part) for name in ("year", "month", "day", "quarter", "dayofweek")},
    "date_add": Admitted(any_call, dates.moved),
    "date_sub": Admitted(any_call, dates.moved),
    "datediff": Admitted(any_call, dates.difference),
    "like": Admitted(text.admits_like, text.like, 1),
    **{name: Admitted(text.admits_literal_argument, text.affix, 1) for name in ("startswith", "endswith", "contains")},
    "length": Admitted(any_call, text.length),
    "substring": Admitted(text.admits_substring, text.substring, 1),
    "concat": Admitted(text.admits_concat, text.concat),
    "replace": Admitted(text.admits_replace, text.replaced, 1),
}


def admits_expression(
    expr: ScalarExpr, failing: frozenset[int] = frozenset(), constant: frozenset[int] = frozenset()
) -> bool:
    """Whether this evaluator gives what Catalyst gives for an expression.

    `failing`: the columns that may have failed. `constant`: the columns that may be the same in every row.
    """
    if not constant.isdisjoint(columns_of(expr)) and can_fail(expr, failing):
        return False
    made = _rewritten(expr, failing)
    return keeps_failures(made, failing) and _is_known(made)


def _is_known(expr: ScalarExpr) -> bool:
    if isinstance(expr, ColumnRef):
        return True
    if isinstance(expr, Literal):
        return is_plain(expr.type)
    entry = _TABLE.get(expr.function)
    return entry is not None and all(map(_is_known, expr.arguments)) and entry.calls(expr)


def compiled(expr: ScalarExpr) -> Evaluate:
    """An admitted expression as a closure."""
    return _compiled(_rewritten(expr))


def _rewritten(expr: ScalarExpr, failing: frozenset[int] = frozenset()) -> ScalarExpr:
    """The expression in fewer functions, with the same values and failures. With `failing` columns an IN may stay as it
    is; it is then not admitted.
    """
    if not isinstance(expr, Call):
        return expr
    made = replace(expr, arguments=tuple(_rewritten(a, failing) for a in expr.arguments))
    if made.function != "in" or any(can_fail(choice, failing) for choice in made.arguments[1:]):
        return made
    return comparisons.as_equalities(made)


def _compiled(expr: ScalarExpr) -> Evaluate:
    if isinstance(expr, ColumnRef):
        index = expr.index
        return lambda columns, rows: columns(index)
    if isinstance(expr, Literal):
        return _constant(pa.scalar(literal_value(expr), arrow_type(expr.type)))
    made = _call(expr)
    if columns_of(expr):
        return made
    once = made(_no_column, 1)
    return made if once.failed is not None else _constant(once.values[0])


def _constant(value: Any) -> Evaluate:
    """A closure with the same value in every row."""
    return lambda columns, rows: Result(pa.repeat(value, rows))


def _no_column(index: int) -> Result:
    raise IndexError(f"a constant reads column {index}")


def _call(call: Call) -> Evaluate:
    entry = _TABLE[call.function]
    arguments = [_compiled(a) for a in call.arguments[: entry.columns]]
    run: Any = entry.run
    return lambda columns, rows: run(call, [a(columns, rows) for a in arguments])
