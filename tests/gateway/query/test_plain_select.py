"""Plain SELECTs are recognised for what they are, and nothing else is taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tidemark_operator.gateway.query.plain_select import RelationNames, recognise
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue, Finishing, PlannedPeek, Relation
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal
from tidemark_protocol.types import BIGINT, DOUBLE, INT, STRING, Column


def relation(dotted: str, key: tuple[int, ...] | None = (0,), *, short: bool = False) -> Relation:
    columns = (Column("k", BIGINT), Column("name", STRING), Column("part", INT), Column("x", DOUBLE))
    parent, name = dotted.split(".")
    return Relation(parent, name, GlobalId(dotted), columns, index_key=key, short=short)


NAMES = RelationNames.of(
    Catalogue(
        (
            relation("live.live", short=True),
            relation("by-name.rows", (1,), short=True),
            relation("pairs.both", (2, 0)),
            relation("plain.view", None),
            relation("floats.rows", (3,)),
            Relation("cases", "rows", GlobalId("cases"), (Column("k", BIGINT), Column("K", BIGINT)), index_key=(0,)),
            relation("twice.rows"),
            relation("Twice.Rows"),
        )
    )
)


def key_of(sql: str) -> tuple[str, list[str | None], int | None] | None:
    """The relation, the values of its key, the limit."""
    found = recognise(sql, NAMES)
    if found is None:
        return None
    assert found.literals is not None
    (key,) = found.literals
    return str(found.relation), [v.value for v in key], found.finishing.limit


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("SELECT * FROM live WHERE k = 7", ("live.live", ["7"], None)),
        ("select name,k from LIVE.live where k=-007 limit 3;", ("live.live", ["-7"], 3)),
        ("SELECT\n `name` FROM `live` . live\tWHERE `k` = 9223372036854775807", ("live.live", [str(2**63 - 1)], None)),
        ("SELECT * FROM `by-name` WHERE name = 'it is é'", ("by-name.rows", ["it is é"], None)),
        ("SELECT * FROM `by-name` WHERE name = '' LIMIT 0", ("by-name.rows", [""], 0)),
        ("SELECT k FROM pairs.both WHERE k = 1 AND part = 2", ("pairs.both", ["2", "1"], None)),
    ],
)
def test_a_lookup_is_recognised(sql: str, expected: object) -> None:
    """Whatever the white space, the case of key words, and the order of the key's columns."""
    assert key_of(sql) == expected


@pytest.mark.parametrize(
    ("sql", "filtered", "literals"),
    [
        ("SELECT * FROM live", [], None),
        ("SELECT * FROM live WHERE name = 'a'", [(1, "a")], None),
        ("SELECT * FROM pairs.both WHERE k = 1", [(0, "1")], None),
        ("SELECT * FROM plain.view WHERE part = 7 AND k = 8 LIMIT 2", [(2, "7"), (0, "8")], None),
        ("SELECT * FROM live WHERE name = 'a' AND k = 7", [(1, "a")], [["7"]]),
    ],
)
def test_rows_are_filtered_where_no_lookup_picks_them_alone(
    sql: str, filtered: list[tuple[int, str]], literals: list[list[str]] | None
) -> None:
    """Over a view or a table, and where the key is not all of the filter."""
    found = recognise(sql, NAMES)
    assert found is not None
    predicates = [p.arguments for p in found.mfp.predicates if isinstance(p, Call) and p.function == "="]

    assert [
        (c.index, v.value) for c, v in predicates if isinstance(c, ColumnRef) and isinstance(v, Literal)
    ] == filtered
    assert (None if found.literals is None else [[v.value for v in key] for key in found.literals]) == literals


def test_a_lookup_shows_the_columns_asked_for() -> None:
    """In their order, also twice; the filter is done by the lookup."""
    found = recognise("SELECT x, k, x FROM live WHERE k = 7", NAMES)

    assert isinstance(found, PlannedPeek)
    assert [c.name for c in found.columns] == ["x", "k", "x"]
    assert found.mfp.projection == (3, 0, 3)
    assert found.mfp.predicates == ()
    assert found.finishing == Finishing()


@pytest.mark.parametrize(
    "sql",
    [
        "",
        "SELECT * FROM live WHERE k = 7 OR k = 8",
        "SELECT * FROM live WHERE k = 7 AND k = 8",
        "SELECT * FROM live WHERE name = 7",
        "SELECT * FROM plain.view WHERE x = 7",
        "SELECT k FROM cases.rows WHERE k = 7",
        "SELECT * FROM live WHERE k = 7.0",
        "SELECT * FROM live WHERE k = 7L",
        "SELECT * FROM live WHERE k = 7e1",
        "SELECT * FROM live WHERE k = '7'",
        "SELECT * FROM live WHERE k = 9223372036854775808",
        "SELECT * FROM live WHERE k = NULL",
        "SELECT * FROM live WHERE 7 = k",
        "SELECT * FROM live WHERE k <=> 7",
        "SELECT * FROM live WHERE K = 7",
        "SELECT nope FROM live WHERE k = 7",
        "SELECT k AS a FROM live WHERE k = 7",
        "SELECT k + 1 FROM live WHERE k = 7",
        "SELECT DISTINCT name FROM live WHERE k = 7",
        "SELECT count(*) FROM live WHERE k = 7",
        "SELECT * FROM live l WHERE k = 7",
        "SELECT * FROM live, live WHERE k = 7",
        "SELECT * FROM live WHERE k = 7 ORDER BY name",
        "SELECT * FROM live WHERE k = 7 LIMIT 1 OFFSET 1",
        "SELECT * FROM live WHERE k = 7 LIMIT 99999999999",
        "SELECT * FROM live WHERE k = 7 -- a comment",
        "SELECT * FROM live WHERE k = 7; SELECT 1",
        r"SELECT * FROM `by-name` WHERE name = 'it\'s'",
        "SELECT * FROM `by-name` WHERE name = 'it''s'",
        "SELECT * FROM `by-name` WHERE name = '${x}'",
        'SELECT * FROM `by-name` WHERE name = "a"',
        "SELECT * FROM `by-name` WHERE name = 'a' 'b'",
        "SELECT * FROM pairs.both WHERE k = 1 AND part = 2147483648",
        "SELECT * FROM floats.rows WHERE x = 7",
        "SELECT * FROM twice.rows WHERE k = 7",
        "SELECT * FROM a.live.live WHERE k = 7",
        "SELECT * FROM nowhere WHERE k = 7",
        "SELECT * FROM live WHERE k\x85= 7",
        "SELECT * FROM live WHERE k = 7" + " " * 5000 + ";",
    ],
)
def test_anything_else_goes_to_the_planner(sql: str) -> None:
    """Also what means the same: the short cut is for one shape."""
    assert recognise(sql, NAMES) is None


@given(st.text(alphabet="SELECT*FROMWHEREklive7='`;., -", max_size=60))
def test_no_text_is_too_odd(text: str) -> None:
    """It is a lookup, or it is not; nothing is raised."""
    recognise(text, NAMES)
