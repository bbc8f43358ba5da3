"""Each of Spark's aggregates as LIR's (tidemark_protocol.aggregates) and an expression over them.

    count(a, b)         count(*) FILTER (a IS NOT NULL AND b IS NOT NULL); of distinct ones, of structs of them
    bool_and(p)         CASE WHEN count(*) FILTER (NOT p) > 0 THEN false WHEN count(*) FILTER (p) > 0 THEN true END
    any_value, first    min: the rows of a group have no order, so the least value is taken; NULL only if all are
    last                max
    max_by(x, y)        first(x ORDER BY y DESC, x) FILTER (y IS NOT NULL)
    median(x)           percentile_cont(x, 0.5)

Every order ends with the argument itself: what an aggregate gives never depends on what else is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tidemark_planner.casting import cast_to
from tidemark_planner.errors import refuse, unsupported
from tidemark_planner.lower.base import Lowered
from tidemark_planner.lower.organisation import sort_key
from tidemark_planner.rules.scalar import all_of
from tidemark_planner.spark_types import VOID
from tidemark_planner.tree import Node
from tidemark_protocol.aggregates import AGGREGATES, result_type
from tidemark_protocol.expr import Call, ColumnRef, Literal, ScalarExpr, is_nullable
from tidemark_protocol.functions import call, is_fallible
from tidemark_protocol.lir import Aggregate, OrderKey
from tidemark_protocol.types import BIGINT, BOOLEAN, DOUBLE, STRING, ColumnType, SqlType

# Stand-ins for aggregates while an output is lowered: columns far beyond those of any input.
FIRST_STAND_IN = 1 << 30
_ONE_ARGUMENT = {
    "Sum": "sum",
    "Average": "avg",
    "StddevSamp": "stddev_samp",
    "StddevPop": "stddev_pop",
    "VarianceSamp": "var_samp",
    "VariancePop": "var_pop",
}
_PAIRS = {"CovPopulation": "covar_pop", "CovSample": "covar_samp", "Corr": "corr"}
_EXTREMES = {"Min": "min", "Max": "max", "First": "min", "Last": "max"}


class Calls:
    """The distinct aggregates of all outputs over the rows `below`, and the values that they read."""

    def __init__(self, below: Lowered) -> None:
        self.below = below
        self.values: list[ScalarExpr] = []
        self.made: list[Aggregate] = []

    def value(self, expr: ScalarExpr) -> int:
        if expr not in self.values:
            self.values.append(expr)
        return self.values.index(expr)

    def count_rows(self) -> None:
        self.stand_in(Aggregate("count", None, ColumnType(BIGINT, False)))

    def stand_in(self, made: Aggregate) -> ColumnRef:
        if made not in self.made:
            self.made.append(made)
        return ColumnRef(FIRST_STAND_IN + self.made.index(made), made.type.type, made.type.nullable)


@dataclass(frozen=True)
class _Site:
    """One aggregate in the text: its function's node, FILTER and DISTINCT."""

    calls: Calls
    function: Node
    chosen: ScalarExpr | None
    distinct: bool

    def argument(self, at: int = 0) -> ScalarExpr:
        return self.calls.below.expression(self.function.children[at])

    def aggregate(
        self,
        name: str,
        argument: ScalarExpr | None,
        *also: ScalarExpr,
        order: tuple[tuple[ScalarExpr, OrderKey], ...] = (),
        parameters: tuple[Literal, ...] = (),
    ) -> ColumnRef:
        """The stand-in of `name` over the rows for which the FILTER and `also` are true."""
        entry, of = AGGREGATES[name], None if argument is None else argument.type
        result = result_type(name, of)
        if result is None:
            refuse("TYPE", f"there is no {name} of {of}", word=name)
        conditions = (*(() if self.chosen is None else (self.chosen,)), *also)
        chosen = all_of(conditions) if conditions else None
        made = Aggregate(
            name,
            None if argument is None else self._guarded(argument, chosen),
            ColumnType(result, not entry.never_null),
            distinct=self.distinct and entry.distinct and argument is not None,
            filter=None if chosen is None else self.calls.value(chosen),
            order=tuple(OrderKey(self._guarded(e, chosen), k.descending, k.nulls_last) for e, k in order),
            parameters=parameters,
        )
        return self.calls.stand_in(made)

    def _guarded(self, value: ScalarExpr, chosen: ScalarExpr | None) -> int:
        """The value's place. One that can fail is evaluated only in the rows that are chosen."""
        if chosen is not None and is_fallible(value):
            value = call("case", (chosen, value), value.type)
        return self.calls.value(value)


def lower_call(node: Node, calls: Calls) -> ScalarExpr:
    """What the AggregateExpression gives, over the stand-ins of `calls`."""
    function, condition = node.children[0], node.expression("filter")
    chosen = None if condition is None else calls.below.expression(condition)
    site = _Site(calls, function, chosen, bool(node.fields.get("isDistinct")))
    special = _SPECIAL.get(function.kind)
    if special is not None:
        return special(site)
    name = _ONE_ARGUMENT.get(function.kind)
    if name is None:
        unsupported(f"the aggregate {function.kind.lower()}")
    return site.aggregate(name, site.argument())


def _count(site: _Site) -> ScalarExpr:
    """count(*), and what is the same: a count of what is never NULL."""
    arguments = tuple(site.calls.below.expression(c) for c in site.function.children)
    may_be_null = [a for a in arguments if len(arguments) > 1 and (is_nullable(a) or is_fallible(a))]
    there = [call("is_not_null", (a,), BOOLEAN) for a in may_be_null]
    if site.distinct:
        return site.aggregate("count", arguments[0] if len(arguments) == 1 else _together(arguments), *there)
    if len(arguments) > 1:
        return site.aggregate("count", None, *there)
    argument = arguments[0]
    every_row = isinstance(argument, Literal | ColumnRef) and not is_nullable(argument)
    return site.aggregate("count", None if every_row else argument)


def _together(arguments: tuple[ScalarExpr, ...]) -> ScalarExpr:
    """Several values as one."""
    fields = ((f"_{at}", a.type) for at, a in enumerate(arguments))
    return call("named_struct", arguments, SqlType.struct(fields))


def _extreme(site: _Site) -> ScalarExpr:
    name, argument = _EXTREMES[site.function.kind], site.argument()
    if argument.type != BOOLEAN:
        return site.aggregate(name, argument)
    there = {value: _any_row(site, argument, value) for value in ("false", "true")}
    order = ("false", "true") if name == "min" else ("true", "false")
    cases = tuple(e for value in order for e in (there[value], Literal(value, BOOLEAN)))
    return call("case", cases, BOOLEAN)


def _any_row(site: _Site, argument: ScalarExpr, value: str) -> ScalarExpr:
    """Whether there is a row on which the condition is that."""
    condition = argument if value == "true" else call("not", (argument,), BOOLEAN)
    return call(">", (site.aggregate("count", None, condition), Literal("0", BIGINT)), BOOLEAN)


def _extreme_by(site: _Site) -> ScalarExpr:
    """max_by, min_by: of the rows with the extreme order the least value."""
    value, by = site.argument(0), site.argument(1)
    also = (call("is_not_null", (by,), BOOLEAN),) if is_nullable(by) or is_fallible(by) else ()
    order = ((by, OrderKey(0, descending=site.function.kind == "MaxBy")), (value, OrderKey(0)))
    return site.aggregate("first", value, *also, order=order)


def _percentile(site: _Site) -> ScalarExpr:
    """percentile, median, percentile_cont, percentile_disc: of the values as doubles."""
    disc = site.function.kind == "PercentileDisc"
    if not disc and site.function.children[2].fields.get("value") != "1":
        unsupported("percentile with frequencies")
    if not site.argument().type.is_numeric:
        unsupported(f"a percentile of {site.argument().type}")
    argument = cast_to(site.argument(), DOUBLE)
    order = ((argument, OrderKey(0, descending=bool(site.function.fields.get("reverse")))),)
    name = "percentile_disc" if disc else "percentile_cont"
    return site.aggregate(name, argument, order=order, parameters=(fraction(site.argument(1)),))


def fraction(expr: ScalarExpr) -> Literal:
    """The literal fraction of a percentile."""
    while isinstance(expr, Call) and expr.function == "cast":
        expr = expr.arguments[0]
    if not isinstance(expr, Literal) or expr.value is None or not expr.type.is_numeric:
        unsupported("a percentile with an expression", "write one number between 0 and 1")
    return Literal(repr(float(expr.value)), DOUBLE)


def _mode(site: _Site) -> ScalarExpr:
    """The commonest value; of several the least, or the greatest where the order is descending."""
    descending = site.function.fields.get("reverseOpt") is False
    return site.aggregate("mode", site.argument(), order=((site.argument(), OrderKey(0, descending)),))


def _string_agg(site: _Site) -> ScalarExpr:
    argument, parameter = site.argument(0), separator(site.function)
    keys = [sort_key(c) for c in site.function.children[2:]]
    below = site.calls.below
    order = [(below.expression(k.expression), OrderKey(0, k.descending, k.nulls_last)) for k in keys]
    if argument not in [e for e, _ in order]:
        order.append((argument, OrderKey(0)))
    return site.aggregate("string_agg", argument, order=tuple(order), parameters=(parameter,))


def separator(function: Node) -> Literal:
    """What stands between the texts of a ListAgg."""
    given = function.children[1]
    if given.kind != "Literal" or given.fields.get("dataType") not in (VOID, "string"):
        unsupported("string_agg with a separator that is not a string literal")
    return Literal(given.fields["value"] or "", STRING)


def _array_agg(site: _Site) -> ScalarExpr:
    """The values in their own order; collect_set is of distinct ones."""
    if site.function.fields.get("ignoreNulls") is False:
        unsupported("an array of NULLs (RESPECT NULLS)")
    if site.function.kind == "CollectSet":
        site = replace(site, distinct=True)
    return site.aggregate("array_agg", site.argument(), order=((site.argument(), OrderKey(0)),))


def _of_pairs(site: _Site) -> ScalarExpr:
    """Over the rows in which neither value is NULL."""
    pair = tuple(cast_to(site.argument(at), DOUBLE) for at in (0, 1))
    there = (call("is_not_null", (v,), BOOLEAN) for v in pair if is_nullable(v) or is_fallible(v))
    return site.aggregate(_PAIRS[site.function.kind], _together(pair), *there)


_SPECIAL: dict[str, Callable[[_Site], ScalarExpr]] = {
    "Count": _count,
    **dict.fromkeys(_EXTREMES, _extreme),
    "MaxBy": _extreme_by,
    "MinBy": _extreme_by,
    "Percentile": _percentile,
    "PercentileDisc": _percentile,
    "Mode": _mode,
    "ListAgg": _string_agg,
    "CollectList": _array_agg,
    "CollectSet": _array_agg,
    **dict.fromkeys(_PAIRS, _of_pairs),
}
