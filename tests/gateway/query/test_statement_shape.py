"""Statements that differ in literals alone have one shape; literals that mean more than their value stay in it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_operator.gateway.query.plan_template import PlanTemplate, learn
from tidemark_operator.gateway.query.statement_shape import MAX_CHARACTERS, POSTGRES, StatementShape
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.types import BIGINT

EQUAL = "SELECT k FROM t WHERE a = CAST('{}' AS bigint) AND b = CAST('{}' AS int)"


@pytest.mark.parametrize(
    ("sql", "kinds", "values"),
    [
        ("SELECT n FROM t WHERE k = 007 AND s='a b'", "is", ("7", "a b")),
        ("SELECT n FROM t WHERE k > 7 AND k<=3000000000 ORDER BY n LIMIT 10;", "il", ("7", "3000000000")),
        ("SELECT n FROM t WHERE (`k` <> 7 OR t.k = 8)\nGROUP BY n HAVING n >= 9", "iii", ("7", "8", "9")),
        ("SELECT n FROM t WHERE a = 7 AND b = 7 AND c = 8", "ii", ("7", "8")),
        ("SELECT n FROM t WHERE a = 7 AND b = '7'", "is", ("7", "7")),
    ],
)
def test_literals_that_are_compared_with_names_are_parameters(sql: str, kinds: str, values: tuple[str, ...]) -> None:
    """Each value once, in canonical form."""
    shape = StatementShape.of(sql)
    assert (shape.kinds, shape.values) == (kinds, values)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("SELECT n FROM t WHERE k = 7", "SELECT n FROM t WHERE k = 9223372036854775807"),
        ("SELECT n FROM t WHERE k = 7", "SELECT n FROM t WHERE k = '7'"),
        ("SELECT n FROM t WHERE k = 7", "SELECT n FROM t WHERE k = -7"),
        ("SELECT n FROM t WHERE k = 7", "SELECT n FROM t WHERE k = 7L"),
        ("SELECT n FROM t WHERE k = 7", "SELECT n FROM t WHERE K = 7"),
        ("SELECT n FROM t WHERE a = 7 AND b = 7", "SELECT n FROM t WHERE a = 7 AND b = 8"),
        ("SELECT n FROM t WHERE k = 'a '", "SELECT n FROM t WHERE k = 'a ' 'b'"),
    ],
)
def test_other_types_and_other_equalities_are_other_shapes(one: str, other: str) -> None:
    """Literals of another type make another statement: the plans may differ in more."""
    assert StatementShape.of(one).text != StatementShape.of(other).text


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT n FROM t LIMIT 5",
        "SELECT n FROM t ORDER BY 1",
        "SELECT n + 5 FROM t",
        "SELECT n FROM t WHERE k = 5 LIMIT 5",
        "SELECT n FROM t WHERE k = 5 + 1",
        "SELECT n FROM t WHERE k = 5 - x",
        "SELECT n FROM t WHERE k = 5 IS NULL",
        "SELECT n FROM t WHERE 5 = k",
        "SELECT n FROM t WHERE f(k) = 5",
        "SELECT n FROM t WHERE k = .5",
        "SELECT n FROM t WHERE k = 5.0",
        "SELECT n FROM t WHERE k = 9223372036854775808",
        "SELECT n FROM t WHERE d = DATE '2020-01-01'",
        "SELECT n FROM t WHERE s LIKE 'a%'",
        "SELECT n FROM t WHERE s = 'a' COLLATE UNICODE",
        "SELECT n FROM t WHERE s = 'it''s'",
        "SELECT n FROM t WHERE CASE WHEN a THEN 'x' END = 'y'",
        "SELECT rank() OVER (ORDER BY n) AS r FROM t WHERE r = 5",
        "SELECT n FROM t -- WHERE k = 5",
        "SELECT n FROM t /* WHERE k = 5 */",
        'SELECT n FROM t WHERE k = 5 AND s = "a = 5"',
        r"SELECT n FROM t WHERE k = 5 AND s = 'it\'s'",
        "SELECT n FROM t WHERE s = '${x}' AND k = 5",
        "SELECT n FROM t WHERE true = 5",
        "SELECT `k = 5` FROM t",
        "SELECT 'k = 5' FROM t",
        "SELECT n FROM t WHERE k = 5" + " " * MAX_CHARACTERS,
    ],
)
def test_other_literals_stay_as_they_are(sql: str) -> None:
    """The statement has no parameters, and is its own shape."""
    assert StatementShape.of(sql) == StatementShape(sql)


@pytest.mark.parametrize(
    ("sql", "kinds", "values"),
    [
        ('SELECT "n" FROM "t" WHERE "t"."k" = 007 AND s = \'O\'\'Hara "x"\'', "is", ("7", 'O\'Hara "x"')),
        ("SELECT n FROM t WHERE k =  CAST('-7' AS smallint)  LIMIT 10", "H", ("-7",)),
        ("SELECT n FROM t WHERE k =  CAST('7' AS smallint) ::INT4 AND s =  CAST('a''b' AS text) ", "IS", ("7", "a'b")),
        ("SELECT n FROM t WHERE k =  CAST('9' AS bigint)  AND n = CAST('9' AS int)", "LI", ("9", "9")),
    ],
)
def test_parameters_of_postgresqls_dialect_are_literals_and_casts(
    sql: str, kinds: str, values: tuple[str, ...]
) -> None:
    """The statements are written as tidemark-pgwire writes them. A name is in double quotes there."""
    shape = StatementShape.of(sql, POSTGRES)
    assert (shape.kinds, shape.values) == (kinds, values)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT n FROM t WHERE k = CAST('32768' AS smallint)",
        "SELECT n FROM t WHERE k = CAST('70000' AS int) ::int2",
        "SELECT n FROM t WHERE k = CAST('x' AS int)",
        "SELECT n FROM t WHERE k = CAST('7' AS int) ::text",
        "SELECT n FROM t WHERE k = CAST('7' AS int) ::int[]",
        "SELECT n FROM t WHERE k = CAST('7' AS int) ::int8 ::int2",
        "SELECT n FROM t WHERE k = CAST('7' AS int) + 1",
        "SELECT n FROM t WHERE k = CAST('7.5' AS numeric(2, 1))",
        "SELECT n FROM t WHERE k = CAST(NULL AS int)",
        "SELECT n FROM t WHERE s = E'a'",
        r"SELECT n FROM t WHERE s = E'\' AND k = 5 --'",
        "SELECT n FROM t WHERE s = $$a$$ AND k = 5",
        "SELECT n FROM t WHERE s = 'a' 'b'",
        'SELECT "k = 5" FROM t',
        "SELECT n FROM t LIMIT 5",
    ],
)
def test_other_literals_of_postgresqls_dialect_stay_as_they_are(sql: str) -> None:
    """A cast that may fail among them."""
    assert StatementShape.of(sql, POSTGRES) == StatementShape(sql, dialect=POSTGRES)


def test_a_dialect_is_a_part_of_the_shape() -> None:
    """The same text may mean something else; what a dialect's literals are is known of two dialects alone."""
    sql = "SELECT n FROM t WHERE k = 7"
    assert len({StatementShape.of(sql, dialect) for dialect in ("spark", "postgres", "duckdb")}) == 3
    assert StatementShape.of(sql, "duckdb") == StatementShape(sql, dialect="duckdb")


@given(st.text(alphabet="CAST('7' AS int)k=<>5'\"`;.,:E-/*\\\0 aé", max_size=60))
def test_no_text_of_postgresqls_dialect_is_too_odd(text: str) -> None:
    """It has a shape; nothing is raised."""
    shape = StatementShape.of(text, POSTGRES)
    assert len(shape.kinds) == len(shape.values)


@given(st.text(alphabet="SELECT WHEREk=<>5'`;.,()-/*\"\\\0 aé", max_size=60))
def test_no_text_is_too_odd(text: str) -> None:
    """It has a shape; nothing is raised."""
    shape = StatementShape.of(text)
    assert len(shape.kinds) == len(shape.values)


def test_parameters_that_were_equal_twice_have_no_template_yet() -> None:
    """A literal of the plan may be from either parameter; a third statement with different ones shows from which."""

    def learnt(one: tuple[int, int], other: tuple[int, int]) -> PlanTemplate[Any] | None:
        shapes = [StatementShape.of(EQUAL.format(*values), POSTGRES) for values in (one, other)]
        plans = [tuple(Literal(str(value), BIGINT) for value in values) for values in (one, other)]
        assert len(shapes[0].values) == 2
        return learn(shapes[0], plans[0], shapes[1], plans[1])

    assert learnt((5, 5), (7, 7)) is None
    template = learnt((7, 7), (6, 9))
    assert template is not None
    assert template.filled(("3", "4")) == (Literal("3", BIGINT), Literal("4", BIGINT))
