"""Statistics of pairs: covariances, correlation and regression, of the rows in which neither value is NULL.

    regr_slope(y, x)        covar_pop(y, x) / var_pop(x)             NULL where all x are equal
    regr_intercept(y, x)    avg(y) - slope * avg(x)
    regr_r2(y, x)           corr(y, x)^2                             NULL where all x are equal, 1 where all y are
    regr_sxy(y, x)          count * covar_pop(y, x)

All results come from exact sums and are rounded once.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark_planner.errors import unsupported
from tidemark_planner.expressions.casting import cast_to
from tidemark_planner.lower.aggregates.placeholders import AggregateSite, as_struct, not_null_conditions
from tidemark_protocol.functions.registry import call
from tidemark_protocol.plan.expr import Literal, ScalarExpr
from tidemark_protocol.types import BOOLEAN, DOUBLE

_PAIRS = {"CovPopulation": "covar_pop", "CovSample": "covar_samp", "Corr": "corr"}
_ZERO = Literal("0.0", DOUBLE)


class _Pairs:
    """The pairs of a site as doubles: aggregates of the pairs, of their first values and of their second values."""

    def __init__(self, site: AggregateSite) -> None:
        if site.distinct:
            unsupported("DISTINCT in a regression", "remove duplicates in a subquery", "DISTINCT")
        self._site = site
        self._values = tuple(cast_to(site.argument(at), DOUBLE) for at in (0, 1))
        self._also = not_null_conditions(*self._values)

    def pair_aggregate(self, name: str) -> ScalarExpr:
        """The aggregate of this name, of the pairs."""
        return self._site.aggregate(name, as_struct(self._values), *self._also)

    def value_aggregate(self, name: str, at: int) -> ScalarExpr:
        """The aggregate of this name, of the first values (`at` = 0) or of the second ones."""
        return self._site.aggregate(name, self._values[at], *self._also)

    def count(self) -> ScalarExpr:
        return cast_to(self._site.aggregate("count", None, *self._also), DOUBLE)


def _of_pairs(site: AggregateSite) -> ScalarExpr:
    values = tuple(cast_to(site.argument(at), DOUBLE) for at in (0, 1))
    return site.aggregate(_PAIRS[site.function.kind], as_struct(values), *not_null_conditions(*values))


def _slope_of(pairs: _Pairs) -> ScalarExpr:
    return call("try_divide", (pairs.pair_aggregate("covar_pop"), pairs.value_aggregate("var_pop", 1)), DOUBLE)


def _intercept(site: AggregateSite) -> ScalarExpr:
    pairs = _Pairs(site)
    return _computed(
        "-", pairs.value_aggregate("avg", 0), _computed("*", _slope_of(pairs), pairs.value_aggregate("avg", 1))
    )


def _r2(site: AggregateSite) -> ScalarExpr:
    pairs = _Pairs(site)
    flat = [call("=", (pairs.value_aggregate("var_pop", at), _ZERO), BOOLEAN) for at in (0, 1)]
    corr = pairs.pair_aggregate("corr")
    known = (flat[1], Literal(None, DOUBLE), flat[0], Literal("1.0", DOUBLE), _computed("*", corr, corr))
    return call("case", known, DOUBLE)


def _sum_of_products(site: AggregateSite) -> ScalarExpr:
    pairs = _Pairs(site)
    return _computed("*", pairs.count(), pairs.pair_aggregate("covar_pop"))


def _sum_of_squares(site: AggregateSite) -> ScalarExpr:
    """regr_sxx and regr_syy: Spark has made the argument NULL where either value is NULL."""
    if site.distinct:
        unsupported("DISTINCT in a regression", "remove duplicates in a subquery", "DISTINCT")
    of = site.argument()
    count = cast_to(site.aggregate("count", None, *not_null_conditions(of)), DOUBLE)
    return _computed("*", count, site.aggregate("var_pop", of))


def _computed(operator: str, left: ScalarExpr, right: ScalarExpr) -> ScalarExpr:
    return call(operator, (left, right), DOUBLE)


STATISTICS: dict[str, Callable[[AggregateSite], ScalarExpr]] = {
    **dict.fromkeys(_PAIRS, _of_pairs),
    "RegrSlope": lambda site: _slope_of(_Pairs(site)),
    "RegrIntercept": _intercept,
    "RegrR2": _r2,
    "RegrSXY": _sum_of_products,
    "RegrReplacement": _sum_of_squares,
}
