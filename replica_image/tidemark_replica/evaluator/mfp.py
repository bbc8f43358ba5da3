"""MapFilterProject on a batch of updates, without the JVM: row for row and error for error what Catalyst gives.

    errs rows pass; ok rows that a predicate drops do not
    the output's columns are computed for the remaining rows
    a row with a failed predicate or output column is an error row; its first failure is its error

`render/expressions/mfp.py` is the same in Spark SQL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tidemark_protocol.functions.registry import is_fallible
from tidemark_protocol.functions.sql_text import error_of
from tidemark_protocol.plan.expr import ScalarExpr, columns_of
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_replica.arrangement.rows.columns import canonical
from tidemark_replica.arrangement.rows.updates import (
    Array,
    Bools,
    Ints,
    Updates,
    as_error_rows,
    diffs,
    make_updates,
    row_columns,
    split_errors,
    times,
)
from tidemark_replica.evaluator.functions import Evaluate, admits_expression, compiled
from tidemark_replica.evaluator.result import Result, as_type, is_true
from tidemark_replica.evaluator.simplified import can_fail, may_be_constant
from tidemark_replica.values.arrow_types import arrow_type
from tidemark_replica.values.error_text import error_text
from tidemark_replica.values.identity_cache import ByIdentity


def admits(mfp: MapFilterProject) -> bool:
    """Whether this evaluator supports every expression of the MapFilterProject."""
    if mfp.lower or mfp.upper:
        return False
    failing, constant = frozenset[int](), frozenset[int]()
    for position, expr in enumerate(mfp.expressions, len(mfp.input)):
        if not admits_expression(expr, failing, constant):
            return False
        failing |= {position} if can_fail(expr, failing) else set()
        constant |= {position} if may_be_constant(expr, constant) else set()
    return all(admits_expression(predicate, failing, constant) for predicate in mfp.predicates)


def evaluation(mfp: MapFilterProject) -> Callable[[Updates], Updates]:
    """The MapFilterProject as a function of a batch. It returns the ok rows in their order, then the errs rows."""
    return _compiled(mfp).run


class _Compiled:
    """The expressions as closures, and the texts of their errors."""

    def __init__(self, mfp: MapFilterProject) -> None:
        self.width = len(mfp.input)
        self.expressions = [_Part(e) for e in mfp.expressions]
        self.predicates = [_Part(p) for p in mfp.predicates]
        whole = range(len(mfp.extended))
        self.projection = tuple(whole) if mfp.projection is None else mfp.projection
        self.types = [arrow_type(c.type) for c in mfp.output]

    def run(self, updates: Updates) -> Updates:
        oks, errs = split_errors(updates)
        parts = [self._rows(oks)] if oks.num_rows else []
        if errs.num_rows:
            parts.append(as_error_rows(errs, self.types))
        return pa.concat_batches(parts) if parts else as_error_rows(errs, self.types)

    def _rows(self, oks: Updates) -> Updates:
        before = _Row(self, row_columns(oks), oks.num_rows)
        failures = []
        kept = np.ones(oks.num_rows, np.bool_)
        for predicate in self.predicates:
            result, error = before.evaluate(predicate)
            passed = is_true(result.values)
            kept &= passed if result.failed is None else passed | result.failed
            failures.append(error)
        rows = np.flatnonzero(kept)
        all_kept = len(rows) == oks.num_rows
        after = before if all_kept else _Row(self, row_columns(oks), len(rows), pa.array(rows))
        failures = [f if f is None or all_kept else f[rows] for f in failures]
        shown = [after.column(i) for i in self.projection]
        failures += [after.error(i) for i in dict.fromkeys(self.projection)]
        time, diff = (times(oks), diffs(oks)) if all_kept else (times(oks)[rows], diffs(oks)[rows])
        columns = [canonical(as_type(s.values, t)) for s, t in zip(shown, self.types, strict=True)]
        return _with_errors(columns, time, diff, [f for f in failures if f is not None])


_compiled = ByIdentity[MapFilterProject, _Compiled](_Compiled)


class _Part:
    """One expression: its closure, and the error text of its own failures."""

    def __init__(self, expr: ScalarExpr) -> None:
        self.run: Evaluate = compiled(expr)
        self.reads = sorted(columns_of(expr))
        self.text = _text(expr) if is_fallible(expr) else None


def _text(expr: ScalarExpr) -> str:
    error = error_of(expr)
    return error_text(error.code, error.expression)


class _Row:
    """Rows of a batch, perhaps only the `chosen` ones: the input's columns, and mapped ones, computed at their first
    use.
    """

    def __init__(self, of: _Compiled, columns: Sequence[Array], rows: int, chosen: Array | None = None) -> None:
        self._of, self._columns, self._rows, self._chosen = of, columns, rows, chosen
        self._taken: dict[int, Result] = {}
        self._mapped: dict[int, tuple[Result, Errors]] = {}

    def column(self, index: int) -> Result:
        if index >= self._of.width:
            return self._compute(index)[0]
        found = self._taken.get(index)
        if found is None:
            values = self._columns[index]
            found = self._taken[index] = Result(values if self._chosen is None else values.take(self._chosen))
        return found

    def error(self, index: int) -> Errors:
        """The error of a mapped column in each row; None: no row has one."""
        return None if index < self._of.width else self._compute(index)[1]

    def evaluate(self, part: _Part) -> tuple[Result, Errors]:
        """The value of an expression in each row, and its error there: that of a mapped column that it reads, else its
        own."""
        result = part.run(self.column, self._rows)
        if result.failed is None:
            return result, None
        error = np.full(self._rows, None, object)
        error[result.failed] = part.text
        for index in reversed(part.reads):
            inherited = self.error(index)
            if inherited is not None:
                which = result.failed & (inherited != None)  # noqa: E711 (an array of objects)
                error[which] = inherited[which]
        return result, error

    def _compute(self, index: int) -> tuple[Result, Errors]:
        if index not in self._mapped:
            self._mapped[index] = self.evaluate(self._of.expressions[index - self._of.width])
        return self._mapped[index]


Errors = np.ndarray[tuple[int], np.dtype[np.object_]] | None


def _with_errors(columns: Sequence[Array], time: Ints, diff: Ints, failures: Sequence[object]) -> Updates:
    if not failures:
        return make_updates(columns, time, diff)
    error = np.full(len(time), None, object)
    for failure in reversed(failures):
        assert isinstance(failure, np.ndarray)
        which: Bools = failure != None  # noqa: E711
        error[which] = failure[which]
    texts = pa.array(error, pa.string())
    ok = texts.is_null()
    if texts.null_count == len(texts):
        return make_updates(columns, time, diff)
    blank = [pc.if_else(ok, c, pa.scalar(None, c.type)) for c in columns]
    return make_updates(blank, time, diff, texts)
