"""The things that a statement must not reach: files, extensions, the network, the process. Both walls are tried by
themselves."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pyarrow as pa
import pytest

from tests.pg_catalogue.samples import RELATIONS, ask, session
from tidemark_pgwire.catalogue import children
from tidemark_pgwire.catalogue.facts import CatalogueAnswer, CatalogueError
from tidemark_pgwire.catalogue.sandbox import ANSWER_MAX_BYTES, SandboxStatement, answer
from tidemark_pgwire.catalogue.session_catalogue import Catalogue
from tidemark_pgwire.statements.lexer import POSTGRES
from tidemark_pgwire.statements.subjects import StatementSubject, subject_of

SECRET = "a secret of the file"
SELECTED = (
    "SELECT * FROM read_csv('{file}')",
    "SELECT * FROM read_text('{file}')",
    "SELECT * FROM read_blob('{file}')",
    "SELECT * FROM read_json_auto('{file}')",
    "SELECT * FROM read_parquet('{file}')",
    "SELECT * FROM '{file}'",
    "SELECT * FROM glob('{folder}/*')",
    "SELECT * FROM sniff_csv('{file}')",
    "SELECT * FROM query('SELECT * FROM read_text(''{file}'')')",
    "SELECT * FROM query_table(['{file}'])",
    "SELECT * FROM read_csv('http://127.0.0.1:9/x')",
)
STATEMENTS = (
    "COPY (SELECT 1) TO '{folder}/out.csv'",
    "COPY (SELECT 1) TO '{folder}/out.parquet' (FORMAT parquet)",
    "CREATE TABLE x AS SELECT * FROM read_text('{file}')",
    "ATTACH '{folder}/out.db' AS x",
    "ATTACH 'http://127.0.0.1:9/x' AS x",
    "INSTALL httpfs",
    "LOAD httpfs",
    "LOAD '{folder}/x.duckdb_extension'",
    "EXPORT DATABASE '{folder}/out'",
    "IMPORT DATABASE '{folder}/out'",
    "SET enable_external_access = true",
    "SET GLOBAL enable_external_access = true",
    "RESET enable_external_access",
    "SET lock_configuration = false",
    "SET memory_limit = '10GB'",
    "SET threads = 8",
    "SET temp_directory = '{folder}'",
    "SET home_directory = '{folder}'",
    "SET log_query_path = '{folder}/out.log'",
    "PRAGMA enable_profiling",
    "PRAGMA profile_output = '{folder}/out.json'",
    "SET profiling_output = '{folder}/out.json'",
    "CREATE SECRET s (TYPE s3, KEY_ID 'a', SECRET 'b')",
)
OTHER_FUNCTIONS = (
    "getenv('HOME')",
    "getvariable('types')",
    "current_setting('memory_limit')",
    "duckdb_settings()",
    "pg_read_file('x')",
    "pg_ls_dir('/')",
    "lo_import('/etc/passwd')",
    "pg_sleep(1)",
    "dblink('x', 'y')",
    "query_to_xml('select 1', true, true, '')",
    "pg_terminate_backend(1)",
    "nextval('x')",
    "txid_snapshot_xmin('1')",
    "read_text('x')",
    "pg_advisory_lock(1)",
    "sql_auto_complete('x')",
    '"fn.format_type"(1, 2)',
    "main.getenv('x')",
    "system.main.getenv('x')",
)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "secret.csv"
    path.write_text(f"{SECRET}\n{SECRET}\n")
    return path


def filled(text: str, file: Path) -> str:
    return text.replace("{file}", str(file)).replace("{folder}", str(file.parent))


def raw(sql: str) -> pa.Table:
    """In the sandbox, past the rewriting."""
    return answer(SandboxStatement(sql, {}, {}, ()))


@pytest.mark.parametrize("sql", [*SELECTED, *STATEMENTS])
def test_sandbox_reaches_nothing_outside(file: Path, sql: str) -> None:
    with pytest.raises(CatalogueError) as refused:
        raw(filled(sql, file))
    assert SECRET not in str(refused.value)
    assert [path.name for path in file.parent.iterdir()] == [file.name]


def test_sandbox_has_no_environment_and_no_variable_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEMARK_SECRET", SECRET)
    rows_of_python = pa.table({"a": [SECRET]})
    for sql in ("SELECT getenv('TIDEMARK_SECRET')", "SELECT * FROM rows_of_python", "SELECT * FROM given"):
        with pytest.raises(CatalogueError):
            raw(sql)
    assert rows_of_python.num_rows == 1


@pytest.mark.parametrize("sql", [*SELECTED, *STATEMENTS])
def test_rewriting_admits_none_of_these(file: Path, sql: str) -> None:
    catalogue = Catalogue(session())
    for text in (filled(sql, file), f"WITH x AS (SELECT oid FROM pg_class) {filled(sql, file)}"):
        if subject_of(text, POSTGRES) is not StatementSubject.ROWS:
            with pytest.raises(CatalogueError):
                asyncio.run(catalogue.answer(text, (), RELATIONS))
    joined = f"SELECT * FROM pg_class, ({filled(sql, file)}) x"
    with pytest.raises(CatalogueError) as refused:
        asyncio.run(catalogue.answer(joined, (), RELATIONS))
    assert refused.value.sqlstate in ("0A000", "42601", "42883"), refused.value


@pytest.mark.parametrize("call", OTHER_FUNCTIONS)
def test_rewriting_admits_no_other_function(call: str) -> None:
    with pytest.raises(CatalogueError):
        asyncio.run(Catalogue(session()).answer(f"SELECT {call} FROM pg_class", (), RELATIONS))
    with pytest.raises(CatalogueError):
        asyncio.run(Catalogue(session()).answer(f"SELECT 1 FROM pg_class, {call} x", (), RELATIONS))


@pytest.mark.parametrize(
    "relation",
    [
        "duckdb_settings",
        "sqlite_master",
        "main.duckdb_tables",
        "pg_catalog.sqlite_master",
        "temp.x",
        '"pg_catalog.pg_class"',
    ],
)
def test_relations_of_duckdb_are_not_there(relation: str) -> None:
    """Nor through the name of a query of WITH, outside of where it stands."""
    catalogue = Catalogue(session())
    for sql in (
        f"SELECT 1 FROM pg_class, {relation} x",
        f"SELECT 1 FROM pg_class WHERE EXISTS (WITH {relation.rpartition('.')[2]} AS (SELECT 1) SELECT 1)"
        f" AND 1 IN (SELECT 1 FROM {relation})",
    ):
        with pytest.raises(CatalogueError):
            asyncio.run(catalogue.answer(sql, (), RELATIONS))


def test_long_statement_is_interrupted() -> None:
    sql = (
        "SELECT count(*) FROM pg_attribute a, pg_attribute b, pg_attribute c, pg_attribute d"
        " WHERE a.attname || b.attname < c.attname || d.attname"
    )
    before = time.monotonic()
    with pytest.raises(CatalogueError) as refused:
        ask(Catalogue(session()), sql)
    assert refused.value.sqlstate == "57014"
    assert time.monotonic() - before < 30


def test_endless_recursion_is_interrupted() -> None:
    sql = "WITH RECURSIVE x(n) AS (SELECT oid FROM pg_class UNION ALL SELECT n FROM x) SELECT count(*) FROM x"
    with pytest.raises(CatalogueError) as refused:
        ask(Catalogue(session()), sql)
    assert refused.value.sqlstate in ("57014", "53200")


def test_memory_of_a_statement_is_bounded() -> None:
    sql = "SELECT array_agg(a.attname || b.attname || c.relname) FROM pg_attribute a, pg_attribute b, pg_class c"
    with pytest.raises(CatalogueError) as refused:
        ask(Catalogue(session()), sql)
    assert refused.value.sqlstate in ("57014", "53200")


def test_size_of_an_answer_is_bounded() -> None:
    with pytest.raises(CatalogueError) as refused:
        raw(f"SELECT repeat('x', 1000000) FROM range({ANSWER_MAX_BYTES // 1_000_000 + 2})")
    assert refused.value.sqlstate in ("54000", "57014", "53200")


def test_waiting_statements_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "WAITING_MAX", 4)
    catalogue = Catalogue(session())

    async def many() -> list[BaseException | CatalogueAnswer]:
        asked = (catalogue.answer("SELECT 1", (), ()) for _ in range(9))
        return await asyncio.gather(*asked, return_exceptions=True)

    refused = [each for each in asyncio.run(many()) if isinstance(each, CatalogueError)]
    assert [each.sqlstate for each in refused] == ["53300"] * 5
    assert asyncio.run(many())  # and the places are free again


def test_deep_and_long_statements_are_refused() -> None:
    catalogue = Catalogue(session())
    deep = "SELECT " + "(" * 5_000 + "1" + ")" * 5_000 + " FROM pg_catalog.pg_class"
    long = f"SELECT '{'x' * 100_000}' FROM pg_catalog.pg_class"
    for sql in (deep, long):
        with pytest.raises(CatalogueError):
            asyncio.run(catalogue.answer(sql, (), RELATIONS))
