"""MapFilterProject over a tagged stream, as Catalyst projections and one filter.

    c0 ... cn-1, __time, __diff, __error

    projections   what the predicates need             (failable_sql.py: nothing in them raises)
    filter        error rows pass, and rows that no predicate drops
    projections   what the output needs
    projection    the output's columns, and __error: the row's own, else of the first expression that failed

A row is dropped if some predicate is false or NULL, whatever other predicates do. Otherwise it is an error row if a
predicate failed, or an expression of the output. Expressions that neither the output nor a predicate reads are not
evaluated.

The text is built here; `catalyst.py` hands it to Spark.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_protocol.functions.registry import is_fallible
from tidemark_protocol.functions.sql_text import error_of, string_sql
from tidemark_protocol.plan.expr import ScalarExpr, columns_of
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_replica.render.expressions.failable_sql import ColumnBinding, Lifted, Lifter
from tidemark_replica.values.error_text import error_text

TAGS = ("__time", "__diff", "__error")


@dataclass(frozen=True)
class MfpSelect:
    """Projections that add columns, a filter, more projections, and the output as (name, text)."""

    before: tuple[tuple[ColumnBinding, ...], ...]
    keep: str | None
    after: tuple[tuple[ColumnBinding, ...], ...]
    output: tuple[tuple[str, str], ...]


def compile_mfp(mfp: MapFilterProject) -> MfpSelect:
    """The MapFilterProject as text over `c0 ... cn-1` and the tags."""
    return _Compiler(mfp).compile()


def projection_of(mfp: MapFilterProject) -> tuple[int, ...] | None:
    """The input columns that an MFP keeps, if it does nothing else; else None."""
    if mfp.expressions or mfp.predicates or mfp.lower or mfp.upper:
        return None
    return tuple(range(len(mfp.input))) if mfp.projection is None else mfp.projection


class _Compiler:
    def __init__(self, mfp: MapFilterProject) -> None:
        self._mfp = mfp
        self._width = len(mfp.input)
        self._lifter = Lifter(self._column)
        self._mapped: dict[int, Lifted] = {}
        self._errors: dict[int, str] = {}

    def compile(self) -> MfpSelect:
        lifter = self._lifter
        predicates = [lifter.lift(p) for p in self._mfp.predicates]
        errors = [
            self._error(p, e) for p, e in zip(predicates, self._mfp.predicates, strict=True) if p.failed is not None
        ]
        filtered = len(lifter.projections)
        lifter.least_level = filtered
        shown = [self._column(i) for i in self._projection]
        errors += [self._errors[i] for i in dict.fromkeys(self._projection) if i in self._errors]
        error = "__error"
        if errors:
            level = len(lifter.projections)
            error = lifter.bind(f"coalesce(__error, {', '.join(errors)})", level).value
        projections = tuple(tuple(p) for p in lifter.projections)
        texts = [self._output_column(at, column, error) for at, column in zip(self._projection, shown, strict=True)]
        output = [(f"c{i}", text) for i, text in enumerate(texts)]
        tags = [("__time", "__time"), ("__diff", "__diff"), ("__error", error)]
        return MfpSelect(projections[:filtered], _keep(predicates), projections[filtered:], (*output, *tags))

    @property
    def _projection(self) -> tuple[int, ...]:
        projection = self._mfp.projection
        return tuple(range(len(self._mfp.extended))) if projection is None else projection

    def _output_column(self, position: int, lifted: Lifted, error: str) -> str:
        """The SQL of an output column, which is NULL in error rows."""
        if error == "__error" and position < self._width:
            return lifted.value
        return f"CASE WHEN {error} IS NULL THEN {lifted.value} END"

    def _column(self, index: int) -> Lifted:
        """A column of the row: the input's, or a mapped one, which is computed at its first use."""
        if index < self._width:
            return Lifted(f"c{index}")
        if index not in self._mapped:
            expr = self._mfp.expressions[index - self._width]
            lifted = self._lifter.keep(self._lifter.lift(expr))
            if lifted.failed is not None:
                self._errors[index] = self._error(lifted, expr)
            self._mapped[index] = lifted
        return self._mapped[index]

    def _error(self, lifted: Lifted, expr: ScalarExpr) -> str:
        """The error of an expression, NULL where it did not fail: that of a mapped column it reads, else its own."""
        inherited = [self._errors[i] for i in sorted(columns_of(expr)) if i in self._errors]
        own = f"CASE WHEN {lifted.failed} THEN "
        if not is_fallible(expr):
            return own + _first(inherited) + " END"
        error = error_of(expr)
        text = string_sql(error_text(error.code, error.expression))
        return own + _first([*inherited, text]) + " END"


def _first(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else f"coalesce({', '.join(texts)})"


def _keep(predicates: list[Lifted]) -> str | None:
    """The filter: error rows, and rows that no predicate drops."""
    if not predicates:
        return None
    passed = [p.value if p.failed is None else f"({p.failed} OR coalesce({p.value}, FALSE))" for p in predicates]
    return f"(__error IS NOT NULL) OR ({' AND '.join(passed)})"
