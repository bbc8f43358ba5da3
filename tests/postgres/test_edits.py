"""Tables that are added to a running source, and removed from it."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.postgres.databases import Database, ingested_rows, source_of, tick, tick_until_begun
from tests.postgres.test_stops import A, B, ingesting, rows, ticks_read_everything, upper

pytestmark = pytest.mark.postgres
__all__ = ["ticks_read_everything"]


def test_a_table_is_added_and_another_one_removed_while_a_third_goes_on(database: Database, tmp_path: Path) -> None:
    """The added one has its contents at a position that the others have reached, and later transactions once."""
    odd = replace(A, name="odd", table="Odd Name", names=("The Key",))
    database.run("insert into a values (1, 'x')", "insert into b values (1)", 'insert into "Odd Name" values (1)')
    spec = database.spec(A, B, odd)
    first, second, third = spec.tables
    with ingesting(tmp_path, replace(spec, tables=(first, second))) as one:
        tick(one, 1000)
        database.run("insert into a values (2, 'y')", "insert into b values (2)", 'insert into "Odd Name" values (2)')
        tick(one, 1100)
    database.run("insert into a values (3, 'z')", 'insert into "Odd Name" values (3)')
    with ingesting(tmp_path, replace(spec, tables=(third, first))) as one:
        begun = tick_until_begun(one, 1200)
        database.run('delete from "Odd Name" where "The Key" = 1', "delete from a where id = 1", "delete from b")
        tick(one, 8000)
        assert not source_of(one).stop_reasons()
    assert ingested_rows(tmp_path, "odd", begun) == Counter([(1,), (2,), (3,)])
    assert (upper(tmp_path, "odd"), upper(tmp_path, "b")) == (8001, 1101)
    assert rows(tmp_path, "a") == Counter([(2, "y"), (3, "z")])
    assert rows(tmp_path, "odd") == Counter([(2,), (3,)])
    assert rows(tmp_path, "b") == Counter([(1,), (2,)])
