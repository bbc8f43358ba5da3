"""Values that the database takes for equal, and that are not the same: the table has the view's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres.databases import Database, connect
from tests.postgres_sink.views import COLUMNS, Row, View, sink_to
from tidemark_protocol.types import Column, SqlType

pytestmark = [pytest.mark.postgres, pytest.mark.broad]
WITHOUT_CASE = "create collation without_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
FIRST: Row = (1, "Key", "Name", 0.0)


def texts(database: Database, query: str) -> list[tuple[str, ...]]:
    with connect(database.server, database.name) as connection:
        return connection.execute(query).fetchall()


@pytest.mark.parametrize(
    "then", [(1, "Key", "Name", -0.0), (1, "Key", "name", 0.0), (1, "key", "Name", 0.0), (1, "key", "name", -0.0)]
)
@pytest.mark.parametrize("whole", [False, True])
def test_a_value_that_changes_to_an_equal_one_is_written(
    database: Database, tmp_path: Path, then: Row, whole: bool
) -> None:
    """A number's sign, and a text under a collation that knows no case, in the key too. `whole`: all contents are
    compared."""
    view, sink = View(tmp_path), sink_to(database)
    text = "text collate without_case"
    database.run(
        WITHOUT_CASE, f"create table kept (k bigint, part {text}, name {text}, price float8, unique (part, k))"
    )
    view.append([(FIRST, 0, 1), ((2, "Key", "Name", 0.0), 0, 1)])
    view.deliver(sink)
    time = view.append([(FIRST, 1, -1), (then, 1, 1)])
    if whole:
        view.forget_before(time)
    assert bool(view.deliver(sink).anew_because) is whole
    found = texts(database, "select part, name, price::text from kept order by k")
    assert found == [(then[1], then[2], str(then[3]).removesuffix(".0")), ("Key", "Name", "0")]


@pytest.mark.parametrize("whole", [False, True])
def test_a_key_of_all_columns_that_changes_to_an_equal_one(database: Database, tmp_path: Path, whole: bool) -> None:
    columns = (COLUMNS[1], Column("price", SqlType.parse("double")))
    view, sink = View(tmp_path, columns), sink_to(database, key=["part", "price"])
    view.append([(("a", 0.0), 0, 1)])
    view.deliver(sink)
    time = view.append([(("a", 0.0), 1, -1), (("a", -0.0), 1, 1)])
    if whole:
        view.forget_before(time)
    view.deliver(sink)
    assert texts(database, "select part, price::text from kept") == [("a", "-0")]
