"""Expressions that may fail, as Spark SQL text that never does.

    x div y > 1 AND y <> 0

    projection 1   __x0     = TryEval(named_struct('v', (x div y) > 1))      NULL: it failed
    projection 2   __x1     = value    __x0.v AND (y <> 0)
                   __x2     = failed   (__x0 IS NULL) AND NOT (y <> 0 is false)

A failing part is wrapped whole: CASE, IF and COALESCE are lazy in Catalyst as they are here. Only AND and OR differ
(false AND error is false, in either order), so they are computed from what their parts are, and so are CASE, IF and
COALESCE above them. Any other function above them is wrapped whole again, and fails where it reads a part that failed:

    a + CASE WHEN x div y > 1 AND ... END       TryEval(named_struct('v', a + if(__x2, raise_error(..), __x1)))

So Catalyst says what is read, as in a batch: where `a` is NULL, the sum is. Intermediate results are columns of earlier
projections: no expression is written, or evaluated, twice; but one that Catalyst's optimiser may simplify, so that a
failure disappears (`simplified.py`), is evaluated as a whole besides, and where that answers, that is what it is:

    if(b AND 1 div n > 0, c, c)       is c, as Catalyst does not look at the condition
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from tidemark_protocol.functions.entry import is_lambda
from tidemark_protocol.functions.registry import is_fallible
from tidemark_protocol.functions.sql_text import to_sql
from tidemark_protocol.plan.expr import Call, ColumnRef, ScalarExpr, columns_of
from tidemark_replica.evaluator.simplified import keeps_failures

_STAND_INS = 1 << 40
_FAILED = "raise_error('failed')"


@dataclass(frozen=True)
class ColumnBinding:
    """A column that a projection adds. `guarded`: NULL where evaluating the text raises."""

    name: str
    text: str
    guarded: bool = False


@dataclass(frozen=True)
class Lifted:
    """An expression's value, and whether it failed (None: it never fails); the value of a failed one is undefined."""

    value: str
    failed: str | None = None
    level: int = 0
    """The number of projections that must have run before both texts can be read."""


@dataclass
class Lifter:
    """Turns expressions into text over the columns of `projections`, which it extends.

    `column`: the meaning of a column reference, an input column or an earlier expression's result.
    """

    column: Callable[[int], Lifted]
    projections: list[list[ColumnBinding]] = field(default_factory=list)
    least_level: int = 0
    """New columns are added to this projection or a later one."""
    _stand_ins: dict[int, Lifted] = field(default_factory=dict)
    _names: int = 0

    def lift(self, expr: ScalarExpr) -> Lifted:
        """The expression as text; the projections get the columns that it needs."""
        parts = self._lift(expr)
        if self._is_plain(expr) or keeps_failures(expr, self._failing(expr)):
            return parts
        whole = self._guard(expr)
        value = f"if({whole.failed}, {parts.value}, {whole.value})"
        return Lifted(value, f"({whole.failed} AND {parts.failed})", max(whole.level, parts.level))

    def bind(self, text: str, level: int, *, guarded: bool = False) -> Lifted:
        """A new column with the text's value. The text reads columns of `level` projections."""
        at = max(level, self.least_level)
        while len(self.projections) <= at:
            self.projections.append([])
        name = f"__x{self._names}"
        self._names += 1
        self.projections[at].append(ColumnBinding(name, text, guarded))
        return Lifted(name, None, at + 1)

    def keep(self, lifted: Lifted) -> Lifted:
        """The same value in columns of its own, so that it can be read often."""
        value = self.bind(lifted.value, lifted.level)
        if lifted.failed is None:
            return value
        failed = self.bind(lifted.failed, lifted.level)
        return Lifted(value.value, failed.value, max(value.level, failed.level))

    def _lift(self, expr: ScalarExpr) -> Lifted:
        """Lift an expression in parts. The result may be defined where a batch fails: AND and OR accept failures in any
        order.
        """
        if isinstance(expr, ColumnRef):
            return self._resolve(expr.index)
        if not self._can_fail(expr):
            return Lifted(self._text(expr), None, self._level(expr))
        assert isinstance(expr, Call)
        if self._is_plain(expr):
            return self._guard(expr)
        if expr.function in _LIFTING:
            return _LIFTING[expr.function](self, [self._lift(a) for a in expr.arguments])
        return self._strict(expr)

    def _resolve(self, index: int) -> Lifted:
        return self._stand_ins[index] if index in self._stand_ins else self.column(index)

    def _can_fail(self, expr: ScalarExpr) -> bool:
        return is_fallible(expr) or bool(self._failing(expr))

    def _failing(self, expr: ScalarExpr) -> frozenset[int]:
        """The columns that an expression reads and that may have failed."""
        return frozenset(i for i in columns_of(expr) if self._resolve(i).failed is not None)

    def _is_plain(self, expr: ScalarExpr) -> bool:
        """Whether Catalyst can evaluate the expression whole, so that it fails as a whole."""
        return not any(n.function in ("and", "or") and self._can_fail(n) for n in _calls_outside_lambdas(expr))

    def _guard(self, expr: ScalarExpr) -> Lifted:
        """Evaluate the expression whole in Catalyst. It fails where it reads a failed column."""
        box = self.bind(f"named_struct('v', {self._text(expr)})", self._level(expr), guarded=True)
        return Lifted(f"{box.value}.v", f"({box.value} IS NULL)", box.level)

    def _strict(self, call: Call) -> Lifted:
        """A function with arguments that are computed in parts; Catalyst decides which arguments it reads."""
        arguments = (a if is_lambda(a) or self._is_plain(a) else self._stand_in(a) for a in call.arguments)
        return self._guard(Call(call.function, tuple(arguments), call.type, call.nullable))

    def _stand_in(self, argument: ScalarExpr) -> ColumnRef:
        index = _STAND_INS + len(self._stand_ins)
        self._stand_ins[index] = self._lift(argument)
        return ColumnRef(index, argument.type)

    def _text(self, expr: ScalarExpr) -> str:
        return to_sql(expr, lambda i: _read(self._resolve(i)))

    def _level(self, expr: ScalarExpr) -> int:
        return max((self._resolve(i).level for i in columns_of(expr)), default=0)


def _calls_outside_lambdas(expr: ScalarExpr) -> Iterator[Call]:
    """Yield the calls outside lambdas. Catalyst evaluates a lambda per element, AND and OR from the left."""
    if isinstance(expr, Call) and not is_lambda(expr):
        yield expr
        for argument in expr.arguments:
            yield from _calls_outside_lambdas(argument)


def _read(column: Lifted) -> str:
    """The column's value; reading it raises where it failed."""
    return column.value if column.failed is None else f"if({column.failed}, {_FAILED}, {column.value})"


def _any(flags: list[str]) -> str:
    return flags[0] if len(flags) == 1 else "(" + " OR ".join(flags) + ")"


def _level_of(parts: list[Lifted]) -> int:
    return max(p.level for p in parts)


def _decided(part: Lifted, by: str) -> str:
    """Whether the part alone decides: it is false (for AND) or true (for OR), and has not failed."""
    decides = f"coalesce({by.format(part.value)}, FALSE)"
    return decides if part.failed is None else f"(NOT {part.failed} AND {decides})"


def _connective(operator: str, decides: str) -> Callable[[Lifter, list[Lifted]], Lifted]:
    """AND (decided by a false part) and OR (by a true one)."""

    def lift(lifter: Lifter, parts: list[Lifted]) -> Lifted:
        known = lifter.bind(_any([_decided(p, decides) for p in parts]), _level_of(parts))
        value = "(" + f" {operator} ".join(p.value for p in parts) + ")"
        value = f"(CASE WHEN {known.value} THEN {'FALSE' if operator == 'AND' else 'TRUE'} ELSE {value} END)"
        failed = _any([p.failed for p in parts if p.failed is not None])
        return lifter.keep(Lifted(value, f"({failed} AND NOT {known.value})", known.level))

    return lift


def _case(lifter: Lifter, parts: list[Lifted]) -> Lifted:
    """CASE WHEN c THEN v ... [ELSE v] END: the first condition that is true, or fails, decides."""
    paired = len(parts) // 2 * 2
    values, failures = [], []
    for condition, then in zip(parts[:paired:2], parts[1:paired:2], strict=True):
        if condition.failed is not None:
            failures.append(f"WHEN {condition.failed} THEN TRUE")
        values.append(f"WHEN {condition.value} THEN {then.value}")
        failures.append(f"WHEN {condition.value} THEN {then.failed or 'FALSE'}")
    rest = parts[paired] if paired < len(parts) else None
    last = "" if rest is None else f" ELSE {rest.value}"
    last_failed = "FALSE" if rest is None else rest.failed or "FALSE"
    value = f"CASE {' '.join(values)}{last} END"
    return lifter.keep(Lifted(value, f"CASE {' '.join(failures)} ELSE {last_failed} END", _level_of(parts)))


def _coalesce(lifter: Lifter, parts: list[Lifted]) -> Lifted:
    failures = []
    for part in parts:
        if part.failed is not None:
            failures.append(f"WHEN {part.failed} THEN TRUE")
        failures.append(f"WHEN {part.value} IS NOT NULL THEN FALSE")
    value = f"coalesce({', '.join(p.value for p in parts)})"
    return lifter.keep(Lifted(value, f"CASE {' '.join(failures)} ELSE FALSE END", _level_of(parts)))


_LIFTING: Mapping[str, Callable[[Lifter, list[Lifted]], Lifted]] = {
    "and": _connective("AND", "NOT {0}"),
    "or": _connective("OR", "{0}"),
    "case": _case,
    "if": _case,
    "coalesce": _coalesce,
}
