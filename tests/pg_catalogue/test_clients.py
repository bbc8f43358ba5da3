"""psql and psycopg against the server, with the relations that the gateway shows to the user."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.types import TypeInfo
from psycopg.types.composite import CompositeInfo
from psycopg.types.range import RangeInfo

from tests.pgwire.served import NAMESPACE, TOKEN, Served, served
from tests.waiting import BOUND


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("pgwire")) as made:
        yield made


def psql(server: Served, *commands: str) -> list[str]:
    """The lines that psql prints, as csv."""
    program = shutil.which("psql")
    assert program, "psql is not installed: make test-packages"
    target = f"host=127.0.0.1 port={server.port} dbname={NAMESPACE} user=anne sslmode=verify-full"
    done = subprocess.run(
        [program, "-X", "--csv", "-t", f"{target} sslrootcert={server.authority}"],
        input="\n".join(commands),
        env={**os.environ, "PGPASSWORD": TOKEN},
        capture_output=True,
        text=True,
        timeout=BOUND,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def test_psql_lists_relations(server: Served) -> None:
    assert psql(server, r"\d") == ["s,a,table,tidemark", "s,b,table,tidemark"]
    assert psql(server, r"\dt s.a") == ["s,a,table,tidemark"]
    assert psql(server, r"\dn") == ["public,tidemark", "s,tidemark"]
    assert psql(server, r"\df", r"\dT") == []


def test_psql_describes_a_relation(server: Served) -> None:
    assert psql(server, r"\d s.a")[0].startswith("a,bigint,")
    assert [line.split(",")[0] for line in psql(server, r"\l")] == [NAMESPACE]


@pytest.mark.parametrize("binary", [False, True])
def test_psycopg_reads_the_catalogue(server: Served, binary: bool) -> None:
    with server.connect() as connection, connection.cursor(binary=binary) as cursor:
        sql = "SELECT relname, oid, relkind, relacl, indkey FROM pg_class LEFT JOIN pg_index ON indexrelid = oid"
        found = cursor.execute(f"{sql} WHERE relnamespace = %s::regnamespace ORDER BY 1", ["s"]).fetchall()
        assert [row[0] for row in found] == ["a", "b"]
        again = cursor.execute(f"{sql} WHERE oid = ANY(%s) ORDER BY 1", [[row[1] for row in found]]).fetchall()
        assert again == found
        prepared = cursor.execute("SELECT typname FROM pg_type WHERE oid = %s", [23], prepare=True).fetchall()
        assert prepared == [("int4",)]


def test_psycopg_looks_types_up(server: Served) -> None:
    with server.connect() as connection:
        numeric = TypeInfo.fetch(connection, "numeric")
        assert numeric is not None
        assert (numeric.oid, numeric.array_oid) == (1700, 1231)
        assert TypeInfo.fetch(connection, "hstore") is None
        of_rows = CompositeInfo.fetch(connection, "s.a")
        assert of_rows is not None
        assert list(of_rows.field_names) == ["a"]
        assert list(of_rows.field_types) == [20]
        found = RangeInfo.fetch(connection, "int4range")
        assert found is not None
        assert found.subtype_oid == 23


def test_an_error_of_the_catalogue_ends_its_statement_alone(server: Served) -> None:
    with server.connect() as connection:
        with pytest.raises(psycopg.errors.UndefinedTable, match="does not exist"):
            connection.execute("SELECT 'nothing'::regclass")
        with pytest.raises(psycopg.errors.UndefinedFunction):
            connection.execute("SELECT pg_read_file('/etc/passwd') FROM pg_class")
        assert connection.execute("SELECT 1").fetchone() == (1,)
