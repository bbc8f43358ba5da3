"""Selections of tidemark_introspection that the operator computes itself have the rows of Spark, in its order."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from tidemark_operator.introspection.relations import Row, relations
from tidemark_operator.introspection.selected_rows import select
from tidemark_operator.introspection.selection import is_selection
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.one_shot import plan_query
from tidemark_protocol.messages.planning import Catalogue, PlannedPeek, PlanQueryRequest
from tidemark_protocol.types import BIGINT, BOOLEAN, STRING

pytestmark = pytest.mark.spark

(FRONTIERS,) = (relation for relation in relations() if relation.name == "frontiers")
CATALOGUE = Catalogue((FRONTIERS,))
NAMES = [column.name for column in FRONTIERS.columns]
TEXTS = ("", "a", "A", "ab", "a%b", "a_b", "é", "ß", "a\nb", "10", "index", "\U0001f600")
NUMBERS = (0, 1, -1, 10, 2**31, 2**63 - 1, -(2**63) + 1)
SPARK_TYPES = {STRING: "string", BIGINT: "bigint", BOOLEAN: "boolean"}


@pytest.mark.parametrize("seed", [0, *(pytest.param(n, marks=pytest.mark.broad) for n in range(1, 6))])
def test_agree_random_selections_have_the_rows_of_spark(catalyst: Catalyst, spark: Any, seed: int) -> None:
    """Comparisons of all types, patterns, three-valued logic, orders with and without ties, limits and offsets."""
    random, computed = Random(seed), 0
    batch = spark.newSession()
    batch.conf.set("spark.sql.optimizer.excludedRules", "")  # the planner excludes rules that execution needs
    rows = [_row(random) for _ in range(random.choice((0, 1, 40)))]
    schema = ", ".join(f"{c.name} {SPARK_TYPES[c.type]}" for c in FRONTIERS.columns)
    batch.createDataFrame(rows, schema).createOrReplaceTempView("told")
    for _ in range(25):
        shown, where, order, cut = _statement(random)
        sql = f"SELECT {', '.join(shown)} FROM tidemark_introspection.frontiers{where}"
        plan = plan_query(catalyst, PlanQueryRequest(f"{sql}{_ordered(order)}{cut}", CATALOGUE, "q/"))
        if not (isinstance(plan, PlannedPeek) and is_selection(plan)):
            continue
        computed += 1
        answer = select(rows, FRONTIERS.columns, plan)
        columns = pa.ipc.open_stream(answer.data).read_all().to_pydict().values()
        found = list(zip(*columns, strict=True))
        assert answer.row_count == len(found)
        same = f"SELECT {', '.join(shown)} FROM told{where}"
        if order:
            expected = _collected(batch, f"{same}{_ordered([*order, *(each.split()[-1] for each in shown)])}{cut}")
            assert found == expected, sql
        else:
            expected = _collected(batch, same)
            assert not Counter(found) - Counter(expected), sql
            assert len(found) == len(_collected(batch, f"{same}{cut}")), sql
    assert computed > 15


@pytest.mark.parametrize(
    ("condition", "is_computed"),
    [
        ("lag_ms > 1000 AND hydrated", True),
        ("lag_ms > 60 * 1000", False),
        ("name LIKE 'rev%' OR kind NOT IN ('index', 'table')", True),
        ("NOT (write_time IS NULL) AND name <> 'a'", True),
        ("name <=> NULL", True),
        ("upper(name) = 'A'", False),
        ("lag_ms / 1000 > 5", False),
        ("name LIKE 'a\\\\_b'", False),
        ("name LIKE kind", False),
        ("write_time < unix_millis(now())", False),
        (f"lag_ms IN ({', '.join(map(str, range(150)))})", True),
        (f"lag_ms IN ({', '.join(map(str, range(250)))})", False),
        (f"name LIKE '%{'a_' * 200}%'", False),
        (f"name < '{'x' * 100_000}'", True),
    ],
)
def test_what_may_fail_is_left_to_replicas(catalyst: Catalyst, condition: str, is_computed: bool) -> None:
    """The planner's plans of what people write."""
    sql = f"SELECT name FROM tidemark_introspection.frontiers WHERE {condition} ORDER BY lag_ms DESC LIMIT 5"
    plan = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q/"))
    assert (isinstance(plan, PlannedPeek) and is_selection(plan)) == is_computed


@pytest.mark.parametrize(
    ("shown", "is_computed"),
    [
        ("name, lag_ms > 5 AS late, 'text' AS t, 7 AS n", True),
        (f"'{'x' * 100}' AS t", False),
        ("name, name AS again", False),
        (", ".join(f"{n} AS n{n}" for n in range(40)), False),
    ],
)
def test_an_answer_larger_than_the_relation_is_left_to_replicas(
    catalyst: Catalyst, shown: str, is_computed: bool
) -> None:
    """One statement repeats a column, or a literal, for each row."""
    plan = plan_query(
        catalyst, PlanQueryRequest(f"SELECT {shown} FROM tidemark_introspection.frontiers", CATALOGUE, "q/")
    )
    assert (isinstance(plan, PlannedPeek) and is_selection(plan)) == is_computed


def _row(random: Random) -> Row:
    made = {STRING: TEXTS, BIGINT: NUMBERS, BOOLEAN: (True, False)}
    return tuple(None if random.random() < 0.25 else random.choice(made[c.type]) for c in FRONTIERS.columns)


def _collected(spark: Any, sql: str) -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(sql).collect()]


def _statement(random: Random) -> tuple[list[str], str, list[str], str]:
    """Shown columns, the filter, the order's keys, and the limit."""
    shown = random.sample([*NAMES, "7 AS n", "'a' AS t", "lag_ms > 5 AS late"], random.randint(1, len(NAMES)))
    where = f" WHERE {_condition(random, 3)}" if random.random() < 0.9 else ""
    directions = ("", " DESC", " DESC NULLS FIRST", " NULLS LAST")
    keys = random.sample(NAMES, random.randint(1, 3)) if random.random() < 0.7 else []
    cut = f" LIMIT {random.choice((0, 1, 3, 100))}" if random.random() < 0.6 else ""
    cut += f" OFFSET {random.randint(0, 3)}" if cut and random.random() < 0.4 else ""
    return shown, where, [f"{key}{random.choice(directions)}" for key in keys], cut


def _ordered(keys: list[str]) -> str:
    return f" ORDER BY {', '.join(keys)}" if keys else ""


def _condition(random: Random, depth: int) -> str:
    if depth and random.random() < 0.6:
        inner = [_condition(random, depth - 1) for _ in range(random.randint(1, 3))]
        joined = random.choice((" AND ", " OR ")).join(f"({part})" for part in inner)
        return f"NOT ({joined})" if random.random() < 0.3 else joined
    column = random.choice(FRONTIERS.columns)
    if column.type == BOOLEAN:
        return random.choice((column.name, f"{column.name} = {random.choice(('true', 'false', 'NULL'))}"))
    if random.random() < 0.2:
        return f"{column.name} IS {random.choice(('', 'NOT '))}NULL"
    if column.type == STRING and random.random() < 0.4:
        return f"{column.name} LIKE '{random.choice(('a%', '%b', '%a%', '_', 'a_b', '%', 'a%b', 'é'))}'"
    if random.random() < 0.2:
        listed = ", ".join(_literal(random, column.type) for _ in range(random.randint(1, 3)))
        return f"{column.name} {random.choice(('', 'NOT '))}IN ({listed})"
    compared = random.choice(("=", "<>", "<", "<=", ">", ">=", "<=>"))
    other = random.choice([c.name for c in FRONTIERS.columns if c.type == column.type])
    return f"{column.name} {compared} {other if random.random() < 0.2 else _literal(random, column.type)}"


def _literal(random: Random, of: Any) -> str:
    if random.random() < 0.1:
        return "NULL"
    if of == BIGINT:
        return str(random.choice(NUMBERS))
    return "'" + random.choice(TEXTS).replace("\n", "\\n") + "'"
