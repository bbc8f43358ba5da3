"""Two entries for one upstream table are refused: only one of them would get the changes."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.sources.postgres import parse_postgres
from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.postgres.inspect import tables_of


def test_the_manifest_is_refused() -> None:
    """With the default schema and with its name; the same name in another schema is another table."""
    tables = [{"name": "a", "table": "t"}, {"name": "b", "table": "t", "schema": "other"}]
    given = {"host": "db", "database": "d", "secret": "s", "publication": "p", "tables": tables}
    assert len(parse_postgres(Fields(given, "spec.postgres")).tables) == 2
    tables.append({"name": "c", "table": "t", "schema": "public"})
    with pytest.raises(InvalidValue, match=r"spec\.postgres\.tables: must name table public\.t once"):
        parse_postgres(Fields(given, "spec.postgres"))


def test_a_replica_refuses_it_before_it_connects() -> None:
    def credentials() -> Mapping[str, str]:
        raise AssertionError("no Secret is read")

    tables = (PostgresTable("a", "public", "t"), PostgresTable("c", "public", "t"))
    with pytest.raises(SourceUnusable, match=r"table c: another entry names public\.t, too"):
        tables_of(PostgresSource("db", 5432, "d", "s", "p", tables), credentials)
