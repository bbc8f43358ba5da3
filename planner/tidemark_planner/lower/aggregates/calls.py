"""Spark's aggregates as aggregates of the allow-list (tidemark_protocol.functions.aggregates) and expressions over
them.

    count(a, b)         count(*) FILTER (a IS NOT NULL AND b IS NOT NULL); with DISTINCT, of structs of them
    bool_and(p)         CASE WHEN count(*) FILTER (NOT p) > 0 THEN false WHEN count(*) FILTER (p) > 0 THEN true END
    any_value, first    min: the rows of a group have no order, so the least value is taken; NULL only if all are NULL
    last                max
    max_by(x, y)        first(x ORDER BY y DESC, x) FILTER (y IS NOT NULL)
    median(x)           percentile_cont(x, 0.5)
    approx_count_distinct(x), percentile_approx(x, p)      count(DISTINCT x), percentile_disc(x, p)
    try_sum(x)          TRY_CAST(sum(CAST(x AS decimal(20,0))) AS bigint)

Every order ends with the argument itself, so the result of an aggregate depends on nothing else that is computed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.catalyst.spark_types import VOID
from tidemark_planner.errors import unsupported
from tidemark_planner.expressions.call_forms import try_variant
from tidemark_planner.expressions.casting import cast_to
from tidemark_planner.expressions.constants import fold_constant
from tidemark_planner.lower.aggregates.pair_statistics import STATISTICS
from tidemark_planner.lower.aggregates.placeholders import AggregateCalls, AggregateSite, as_struct, not_null_conditions
from tidemark_planner.lower.row_order import sort_key
from tidemark_planner.sql.try_functions import tried_aggregate
from tidemark_protocol.functions.registry import call, is_fallible
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr, is_nullable
from tidemark_protocol.plan.lir import OrderKey
from tidemark_protocol.types import BIGINT, BOOLEAN, DOUBLE, INTERVAL_TYPES, STRING, SqlType

ONE_ARGUMENT = {
    "StddevSamp": "stddev_samp",
    "StddevPop": "stddev_pop",
    "VarianceSamp": "var_samp",
    "VariancePop": "var_pop",
    "Skewness": "skewness",
    "Kurtosis": "kurtosis",
    "BitAndAgg": "bit_and",
    "BitOrAgg": "bit_or",
    "BitXorAgg": "bit_xor",
}
SUMS = {"Sum": "sum", "Average": "avg"}
# Sums of values of at most this many digits cannot overflow, however many rows there are.
_SAFE_DIGITS = 28
_WIDE = SqlType("decimal", 20, 0)
_EXTREMES = {"Min": "min", "Max": "max", "First": "min", "Last": "max"}


def lower_call(node: CatalystNode, calls: AggregateCalls) -> ScalarExpr:
    """The expression of an AggregateExpression, over the stand-ins of `calls`; raises Refusal."""
    function, condition = node.children[0], node.expression("filter")
    chosen = None if condition is None else calls.below.expression(condition)
    site = AggregateSite(calls, function, chosen, bool(node.fields.get("isDistinct")))
    special = _SPECIAL.get(function.kind)
    if special is not None:
        return special(site)
    name = ONE_ARGUMENT.get(function.kind)
    if name is None:
        unsupported(f"the aggregate {function.kind.lower()}", "see the list in docs/reference/sql.md")
    return site.aggregate(name, site.argument())


def _count(site: AggregateSite) -> ScalarExpr:
    """count(*), and count of an expression that is never NULL."""
    arguments = tuple(site.calls.below.expression(c) for c in site.function.children)
    may_be_null = [a for a in arguments if len(arguments) > 1 and (is_nullable(a) or is_fallible(a))]
    there = [call("is_not_null", (a,), BOOLEAN) for a in may_be_null]
    if site.distinct:
        return site.aggregate("count", arguments[0] if len(arguments) == 1 else as_struct(arguments), *there)
    if len(arguments) > 1:
        return site.aggregate("count", None, *there)
    argument = arguments[0]
    every_row = isinstance(argument, Literal | ColumnRef) and not is_nullable(argument)
    return site.aggregate("count", None if every_row else argument)


def _count_distinct(site: AggregateSite) -> ScalarExpr:
    """approx_count_distinct, exactly; the wanted accuracy makes no difference."""
    return replace(site, distinct=True).aggregate("count", site.argument())


def _sum_or_average(site: AggregateSite) -> ScalarExpr:
    """sum and avg; try_sum and try_avg are NULL where they would overflow."""
    name, of = SUMS[site.function.kind], site.function.children[0]
    tried_operation = tried_aggregate(of)
    if tried_operation is None:
        return site.aggregate(name, site.argument())
    argument = site.calls.below.expression(tried_operation)
    if argument.type.is_decimal and argument.type.precision > _SAFE_DIGITS:
        unsupported(f"try_{name} of {argument.type}", f"cast it to at most {_SAFE_DIGITS} digits", f"try_{name}")
    if name == "avg" or not argument.type.is_integral:
        return site.aggregate(name, argument)
    exact = site.aggregate(name, cast_to(argument, _WIDE))
    return try_variant(cast_to(exact, BIGINT), (exact,))


def _extreme(site: AggregateSite) -> ScalarExpr:
    name, argument = _EXTREMES[site.function.kind], site.argument()
    if argument.type != BOOLEAN:
        return site.aggregate(name, argument)
    there = {value: _has_row_with(site, argument, value) for value in ("false", "true")}
    order = ("false", "true") if name == "min" else ("true", "false")
    cases = tuple(e for value in order for e in (there[value], Literal(value, BOOLEAN)))
    return call("case", cases, BOOLEAN)


def _has_row_with(site: AggregateSite, argument: ScalarExpr, value: str) -> ScalarExpr:
    """Whether the condition has this value on some row."""
    condition = argument if value == "true" else call("not", (argument,), BOOLEAN)
    return call(">", (site.aggregate("count", None, condition), Literal("0", BIGINT)), BOOLEAN)


def _extreme_by(site: AggregateSite) -> ScalarExpr:
    """max_by and min_by: the least value of the rows with the extreme key."""
    value, by = site.argument(0), site.argument(1)
    also = not_null_conditions(by)
    order = ((by, OrderKey(0, descending=site.function.kind == "MaxBy")), (value, OrderKey(0)))
    return site.aggregate("first", value, *also, order=order)


def _percentile(site: AggregateSite) -> ScalarExpr:
    """percentile, median, percentile_cont, percentile_disc: of the values as doubles."""
    disc = site.function.kind == "PercentileDisc"
    if not disc and site.function.children[2].fields.get("value") != "1":
        unsupported("percentile with frequencies", "repeat the rows instead", "percentile")
    if not site.argument().type.is_numeric:
        unsupported(f"a percentile of {site.argument().type}", "cast it to double")
    argument = cast_to(site.argument(), DOUBLE)
    order = OrderKey(0, descending=bool(site.function.fields.get("reverse")))
    return _at_fractions(site, "percentile_disc" if disc else "percentile_cont", argument, order)


def _approximate_percentile(site: AggregateSite) -> ScalarExpr:
    """percentile_approx, exactly: the least value that at least the fraction of all values does not exceed. The
    accuracy makes no difference.
    """
    argument = site.argument()
    if argument.type.name in INTERVAL_TYPES:
        unsupported("percentile_approx of intervals", "use numbers, dates or times", "percentile_approx")
    return _at_fractions(site, "percentile_disc", argument, OrderKey(0))


def _at_fractions(site: AggregateSite, name: str, argument: ScalarExpr, order: OrderKey) -> ScalarExpr:
    """The percentile at the fraction, or at each of several as an array, which is NULL where there are no values."""
    of = site.function.children[1]
    several = _elements(of)
    fractions = [fraction(site.calls.below.expression(node)) for node in several or (of,)]
    found = tuple(site.aggregate(name, argument, order=((argument, order),), parameters=(f,)) for f in fractions)
    if not several:
        return found[0]
    there, all_of_them = call("is_not_null", found[:1], BOOLEAN), SqlType.array(found[0].type)
    return call("case", (there, call("array", found, all_of_them)), all_of_them)


def _elements(node: CatalystNode) -> tuple[CatalystNode, ...]:
    """The elements of an array of fractions; empty where there is one fraction."""
    while node.kind == "Cast":
        node = node.children[0]
    return node.children if node.kind == "CreateArray" else ()


def fraction(expr: ScalarExpr) -> Literal:
    """The literal fraction of a percentile. Raises Refusal where the expression is not constant, or a cast would change
    it.
    """
    found = fold_constant(expr)
    if found is None or found.value is None or not found.type.is_numeric:
        unsupported("a percentile with this expression", "write a number between 0 and 1", "percentile")
    return Literal(repr(float(found.value)), DOUBLE)


def _mode(site: AggregateSite) -> ScalarExpr:
    """The most frequent value; of several the least, or the greatest where the order is descending."""
    descending = site.function.fields.get("reverseOpt") is False
    return site.aggregate("mode", site.argument(), order=((site.argument(), OrderKey(0, descending)),))


def _string_agg(site: AggregateSite) -> ScalarExpr:
    argument, parameter = site.argument(0), separator(site.function)
    keys = [sort_key(c) for c in site.function.children[2:]]
    below = site.calls.below
    order = [(below.expression(k.expression), OrderKey(0, k.descending, k.nulls_last)) for k in keys]
    if argument not in [e for e, _ in order]:
        order.append((argument, OrderKey(0)))
    return site.aggregate("string_agg", argument, order=tuple(order), parameters=(parameter,))


def separator(function: CatalystNode) -> Literal:
    """The separator of a ListAgg."""
    given = function.children[1]
    if given.kind != "Literal" or given.fields.get("dataType") not in (VOID, "string"):
        unsupported("a separator that is not a string literal", "write the separator as a literal")
    return Literal(given.fields["value"] or "", STRING)


def _array_agg(site: AggregateSite) -> ScalarExpr:
    """The values in their own order; collect_set takes distinct values."""
    if site.function.fields.get("ignoreNulls") is False:
        unsupported("RESPECT NULLS", "replace NULL by a value with coalesce")
    if site.function.kind == "CollectSet":
        site = replace(site, distinct=True)
    return site.aggregate("array_agg", site.argument(), order=((site.argument(), OrderKey(0)),))


_SPECIAL: dict[str, Callable[[AggregateSite], ScalarExpr]] = {
    "Count": _count,
    "HyperLogLogPlusPlus": _count_distinct,
    "ApproximatePercentile": _approximate_percentile,
    **dict.fromkeys(SUMS, _sum_or_average),
    **dict.fromkeys(_EXTREMES, _extreme),
    "MaxBy": _extreme_by,
    "MinBy": _extreme_by,
    "Percentile": _percentile,
    "PercentileDisc": _percentile,
    "Mode": _mode,
    "ListAgg": _string_agg,
    "CollectList": _array_agg,
    "CollectSet": _array_agg,
    **STATISTICS,
}
