"""Plans that are filled in from a template agree with the planner's own plans of the same statements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest

from tests.planner.catalogue import CATALOGUE
from tidemark_operator.gateway.query.plan_template import PlanTemplate, ValueDependent, learn
from tidemark_operator.gateway.query.statement_shape import POSTGRES, SPARK, StatementShape
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.one_shot import plan_query
from tidemark_protocol.messages.planning import PlannedOneShot, PlannedPeek, PlanQueryRequest, Refused

pytestmark = [pytest.mark.spark, pytest.mark.broad]
Plan = PlannedPeek | PlannedOneShot
NUMBERS = ("0", "1", "2", "7", "42", "127", "128", "32768", "65536", "2147483647")
TEXTS = ("''", "'a'", "'b c'", "'é'", "'2020-01-01'", "'7'", "'null'", "'%'")
STATEMENTS = (
    "SELECT n FROM live WHERE k = {i}",
    "SELECT k, s FROM s.t WHERE x {c} {i} AND s {c} {s}",
    "SELECT k FROM s.t WHERE x = {i} OR x = {i} OR s = {s}",
    "SELECT s, count(*) AS many FROM s.t WHERE x > {i} AND x < {i} GROUP BY s HAVING many {c} {i} ORDER BY 2 LIMIT 3",
    "SELECT t.k, u.y FROM s.t JOIN s.u ON t.k = u.k AND u.y {c} {i} WHERE t.s = {s}",
    "SELECT t.k FROM s.t LEFT JOIN s.u ON t.k = u.k AND t.x = {i} WHERE u.y = {i} OR u.y IS NULL",
    "SELECT k FROM s.t WHERE EXISTS (SELECT 1 FROM s.u WHERE u.k = t.k AND u.y = {i}) AND NOT x = {i}",
    "SELECT k FROM s.t WHERE k IN (SELECT k FROM s.u WHERE y = {i})",
    "WITH c AS (SELECT k, x FROM s.t WHERE x = {i}) SELECT a.k FROM c a JOIN c b ON a.k = b.k WHERE a.x = {i}",
    "SELECT sum(m) FILTER (WHERE x = {i}) AS a, sum(m) FILTER (WHERE x = {i}) AS b FROM s.t",
    "SELECT amount FROM sales.by_product WHERE product = {i} AND customer <> {i}",
    "SELECT k FROM s.t WHERE x = {i} UNION ALL SELECT k FROM s.u WHERE y = {i}",
    "SELECT x = {i} FROM s.t",
    "SELECT k FROM s.t WHERE m = {i}",
    "SELECT k FROM s.t WHERE h = {i}",
    "SELECT k FROM s.t WHERE f > {i} AND d = {s}",
    "SELECT k FROM (SELECT k, 5 AS five FROM s.t) AS q WHERE five = {i}",
)
ENOUGH = 4
"""Plans of each statement that are filled in; each is planned, too."""
VALUE_DEPENDENT = (
    "SELECT x = {i} FROM s.t",
    "SELECT k FROM s.t WHERE m = {i}",
    "SELECT k FROM s.t WHERE f > {i} AND d = {s}",
)
POSTGRES_STATEMENTS = (
    "SELECT n FROM live WHERE k = {i}",
    'SELECT "n" FROM "live" WHERE "live"."k" = {p2} LIMIT 10',
    "SELECT n FROM live WHERE k = {p4}",
    "SELECT n FROM live WHERE k = {p8} AND n > {i}",
    "SELECT n FROM live WHERE k = {p2} ::int",
    "SELECT k, s FROM s.t WHERE x {c} {p4} AND s {c} {s}",
    "SELECT k, s FROM s.t WHERE x {c} {i} AND (s = {pt} OR s = {pt})",
    "SELECT s, count(*) AS many FROM s.t WHERE x > {p4} AND x < {i} GROUP BY s ORDER BY 2 LIMIT 3",
    "SELECT t.k, u.y FROM s.t JOIN s.u ON t.k = u.k AND u.y {c} {p4} WHERE t.s = {s}",
    "SELECT amount FROM sales.by_product WHERE product = {p4} AND customer <> {i}",
    "SELECT k FROM s.t WHERE h = {p2} AND y = {p4}",
    "SELECT k FROM s.t WHERE x = {p8}",
    "SELECT k FROM s.t WHERE f > {p4}",
    "SELECT k FROM s.t WHERE s = {s} AND x = {p4} AND x <> {p8}",
)
POSTGRES_VALUE_DEPENDENT = ("SELECT k FROM s.t WHERE f > {p4}",)
POSTGRES_LITERALS = {
    "{s}": (*TEXTS, "'O''Hara'", "'a\nb'", "'a\tb'", "'`'", "'\"'"),
    "{pt}": tuple(f"CAST({text} AS text)" for text in ("''", "'a'", "'it''s'", "'7'", "'é'")),
    "{p2}": tuple(f"CAST('{n}' AS smallint)" for n in (-32767, -7, 0, 1, 7, 42, 32767)),
    "{p4}": tuple(f"CAST('{n}' AS int)" for n in (-2147483647, -7, 0, 1, 7, 127, 128, 65536, 2147483647)),
    "{p8}": tuple(f"CAST('{n}' AS bigint)" for n in (-(2**63) + 1, -7, 0, 1, 7, 2**31, 2**63 - 1)),
}


@pytest.mark.parametrize("statement", STATEMENTS)
def test_agree_a_filled_template_is_the_planners_plan(catalyst: Catalyst, statement: str) -> None:
    """The literals are random, and some are the same in several places. A shape whose plan depends on them has no
    template."""
    _agree(catalyst, statement, SPARK, {"{s}": TEXTS}, statement in VALUE_DEPENDENT)


@pytest.mark.parametrize("statement", POSTGRES_STATEMENTS)
def test_agree_a_filled_template_of_postgresqls_dialect_is_the_planners_plan(
    catalyst: Catalyst, statement: str
) -> None:
    """The templates are of literals, and of parameters as tidemark-pgwire writes them."""
    _agree(catalyst, statement, POSTGRES, POSTGRES_LITERALS, statement in POSTGRES_VALUE_DEPENDENT)


def _agree(
    catalyst: Catalyst, statement: str, dialect: str, literals: Mapping[str, Sequence[str]], value_dependent: bool
) -> None:
    random, filled = Random(statement), 0
    comparison = random.choice(("=", "<", ">=", "<>"))
    kept = dict[str, tuple[StatementShape, Plan, PlanTemplate[Plan] | None]]()
    for sql in (_with_literals(statement, comparison, random, literals) for _ in range(30)):
        shape = StatementShape.of(sql, dialect)
        planned = _planned(catalyst, sql, dialect)
        if isinstance(planned, Refused) or not shape.values:
            continue
        if shape.text not in kept:
            kept[shape.text] = (shape, planned, None)
            continue
        first, plan, template = kept[shape.text]
        if template is not None:
            assert template.filled(shape.values) == planned, sql
            filled += 1
            if filled == ENOUGH:
                break
        else:
            try:
                kept[shape.text] = (first, plan, learn(first, plan, shape, planned))
            except ValueDependent:
                assert filled == 0
                assert value_dependent
                return
    assert (filled > 0) != value_dependent


def _with_literals(statement: str, comparison: str, random: Random, literals: Mapping[str, Sequence[str]]) -> str:
    sql = statement.replace("{c}", comparison)
    for place, values in (("{i}", NUMBERS), *literals.items()):
        while place in sql:
            sql = sql.replace(place, _any(values, random), 1)
    return sql


def _any(values: Sequence[str], random: Random) -> str:
    return random.choice(values)


def _planned(catalyst: Catalyst, sql: str, dialect: str) -> Plan | Refused:
    planned = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q/", dialect))
    if isinstance(planned, PlannedOneShot):
        return replace(planned, planned=replace(planned.planned, explain=""))
    return planned
