"""CREATE, ALTER and DROP over the protocol: what reaches the API server, tags, notices, refusals."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tests.pgwire.frames import Frames
from tests.pgwire.served import ALLOWED, ONE, Served, served
from tests.pgwire.sessions.test_statements import unresolved
from tests.waiting import BOUND

VERBS = ("create", "patch", "delete")
NAMES = ("delays", "d-e", "s-a-b-idx", "s-a-b-c-idx", "i")
MAY_DEFINE = tuple(f"{verb} dataflows {name} in namespace ns" for verb in VERBS[1:] for name in NAMES)


@pytest.fixture(scope="module")
def module_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The user may define Dataflows of some names."""
    allowed = (*ALLOWED, "create dataflows in namespace ns", *MAY_DEFINE)
    with served(tmp_path_factory.mktemp("definitions"), allowed) as made:
        yield made


@pytest.fixture(scope="module")
def without_definitions(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    allowed = (*ALLOWED, "create dataflows in namespace ns", *MAY_DEFINE)
    with served(tmp_path_factory.mktemp("without"), allowed, defines=False) as made:
        yield made


@pytest.fixture
def server(module_server: Served) -> Served:
    module_server.says(lambda sql, dialect: ONE)
    module_server.objects.bodies.clear()
    return module_server


def test_a_view_is_created_edited_and_dropped(server: Served) -> None:
    """The text goes into the object as it is, with its dialect; the instance is the session's."""
    stored = server.objects.bodies
    with server.connect() as connection:
        made = connection.execute(
            'CREATE MATERIALIZED VIEW delays WITH (deletion_policy = Delete) AS SELECT a FROM "s".a'
        )
        assert made.statusmessage == "CREATE MATERIALIZED VIEW"
        spec = {"instance": "default", "sql": 'SELECT a FROM "s".a', "dialect": "postgres", "materializedView": {}}
        assert stored["delays"]["spec"] == {**spec, "deletionPolicy": "Delete"}
        assert stored["delays"]["metadata"]["annotations"]["compute.tidemark.dev/changed-by"] == "anne"
        with pytest.raises(psycopg.errors.DuplicateTable, match='relation "delays" already exists'):
            connection.execute("CREATE MATERIALIZED VIEW delays AS SELECT a FROM s.a")
        notices = list[str]()
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        connection.execute("CREATE MATERIALIZED VIEW IF NOT EXISTS delays AS SELECT a FROM s.a")
        connection.execute("SET dialect = spark")
        edited = connection.execute("ALTER MATERIALIZED VIEW `delays` AS SELECT a + 1 AS a FROM s.a")
        assert edited.statusmessage == "ALTER MATERIALIZED VIEW"
        assert (stored["delays"]["spec"]["sql"], stored["delays"]["spec"]["dialect"]) == (
            "SELECT a + 1 AS a FROM s.a",
            "spark",
        )
        connection.execute("CREATE OR REPLACE MATERIALIZED VIEW delays AS SELECT a + 2 AS a FROM s.a")
        assert stored["delays"]["spec"]["sql"] == "SELECT a + 2 AS a FROM s.a"
        assert connection.execute("DROP MATERIALIZED VIEW delays.delays").statusmessage == "DROP MATERIALIZED VIEW"
        assert stored == {}
        connection.execute("DROP MATERIALIZED VIEW IF EXISTS delays")
        assert notices == [
            'relation "delays" already exists, skipping',
            'materialized view "delays" does not exist, skipping',
        ]
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("DROP MATERIALIZED VIEW delays")


def test_views_and_indexes_are_kept_as_indexes(server: Served) -> None:
    stored = server.objects.bodies
    with server.connect() as connection:
        connection.execute("SET tidemark.instance = other")
        connection.execute("CREATE VIEW \"d-e\" WITH (key = 'a, b') AS SELECT a FROM s.a")
        assert stored["d-e"]["spec"]["index"] == {"key": ["a", "b"]}
        assert stored["d-e"]["spec"]["instance"] == "other"
        assert connection.execute("CREATE INDEX CONCURRENTLY ON s (a, b)").statusmessage == "CREATE INDEX"
        spec = stored["s-a-b-idx"]["spec"]
        assert (spec["sql"], spec["index"]) == ("SELECT * FROM s", {"key": ["a", "b"]})
        connection.execute('CREATE INDEX i ON "d-e" ("A") WITH (instance = third)')
        assert (stored["i"]["spec"]["sql"], stored["i"]["spec"]["instance"]) == ('SELECT * FROM "d-e"', "third")
        with pytest.raises(psycopg.errors.WrongObjectType, match="is no materialized view"):
            connection.execute("DROP MATERIALIZED VIEW i")
        connection.execute("DROP INDEX i")
        connection.execute('CREATE INDEX ON s (a_b, "C")')
        connection.execute('DROP INDEX "s-a-b-c-idx"')
        assert connection.execute('DROP VIEW "d-e" RESTRICT').statusmessage == "DROP VIEW"


def test_a_transaction_or_a_message_with_others_defines_nothing(server: Served) -> None:
    text = "CREATE MATERIALIZED VIEW delays AS SELECT a FROM s.a"
    with server.connect() as connection:
        for ask in (text, "DROP VIEW delays"):
            with pytest.raises(psycopg.errors.ActiveSqlTransaction), connection.transaction():
                connection.execute(ask.encode())
            with pytest.raises(psycopg.errors.ActiveSqlTransaction):
                connection.execute(f"{ask}; SELECT a FROM s.a".encode())
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="takes no parameters"):
            connection.execute(text + " WHERE a = %s", [1])
    assert server.objects.bodies == {}
    assert server.answers.asked == []


def test_explain_of_a_definition_creates_nothing(server: Served) -> None:
    """The plan is that of the view; what CREATE refuses, EXPLAIN refuses, at its place in the client's text."""
    with server.connect() as connection:
        rows = connection.execute("EXPLAIN CREATE MATERIALIZED VIEW delays AS SELECT a FROM s.a").fetchall()
        text = "\n".join(line for (line,) in rows)
        assert text.startswith("import s.a [a]\n"), text
        assert "materialized view of o" in text, text
        assert server.answers.asked == [("SELECT a FROM s.a", "postgres")]
        explained = connection.execute("EXPLAIN VERBOSE CREATE VIEW i WITH (wait = on) AS SELECT a FROM s.a")
        assert explained.fetchall()
        assert connection.execute("EXPLAIN CREATE INDEX ON s (a)").fetchall()
        assert server.answers.asked[-1] == ("SELECT * FROM s", "postgres")
        assert server.objects.bodies == {}
        with pytest.raises(psycopg.errors.UndefinedTable, match='view "delays" does not exist'):
            connection.execute("EXPLAIN ALTER MATERIALIZED VIEW delays AS SELECT a FROM s.a")
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="option 'nonsense'"):
            connection.execute("EXPLAIN CREATE VIEW i WITH (nonsense = 1) AS SELECT a FROM s.a")
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="refreshPolicy"):
            connection.execute("EXPLAIN CREATE VIEW i WITH (refresh_policy = never) AS SELECT a FROM s.a")
        for other in ("CREATE TABLE t (a BIGINT)", "DROP VIEW delays", "ALTER TABLE t ADD COLUMN b BIGINT"):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="of a view or an index alone"):
                connection.execute(f"EXPLAIN {other}".encode())
        connection.execute("CREATE MATERIALIZED VIEW delays AS SELECT a FROM s.a")
        with pytest.raises(psycopg.errors.DuplicateTable, match='relation "delays" already exists'):
            connection.execute("EXPLAIN CREATE MATERIALIZED VIEW delays AS SELECT a FROM s.a")
        edited = "EXPLAIN CREATE OR REPLACE MATERIALIZED VIEW delays AS SELECT a + 1 AS a FROM s.a"
        assert connection.execute(edited.encode()).fetchall()
        assert server.objects.bodies["delays"]["spec"]["sql"] == "SELECT a FROM s.a"
        server.says(unresolved)
        text = "EXPLAIN CREATE MATERIALIZED VIEW i AS\n SELECT nme FROM s.a"
        with pytest.raises(psycopg.errors.UndefinedColumn) as failed:
            connection.execute(text.encode())
        assert failed.value.diag.statement_position == str(text.index("nme") + 1)


def test_a_definition_that_is_canceled_may_be_stored_and_its_error_says_so(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def create(resource: Any, namespace: str, body: dict[str, Any]) -> dict[str, Any]:
        await created(resource, namespace, body)
        await asyncio.sleep(BOUND)
        raise AssertionError

    created = server.objects.create
    monkeypatch.setattr(server.objects, "create", create)
    with server.connect() as connection:
        connection.execute("SET statement_timeout = '2s'")
        with pytest.raises(psycopg.errors.QueryCanceled) as failed:
            connection.execute("CREATE MATERIALIZED VIEW delays AS SELECT a FROM s.a")
        assert "may be stored" in str(failed.value.diag.message_hint)
    assert "delays" in server.objects.bodies


def test_a_missing_right_and_a_refused_query_are_named(server: Served) -> None:
    """The position counts in the client's text."""
    server.says(unresolved)
    text = "CREATE MATERIALIZED VIEW delays AS\n SELECT nme FROM s.a"
    with server.connect() as connection:
        with pytest.raises(psycopg.errors.UndefinedColumn) as failed:
            connection.execute(text.encode())
        assert failed.value.diag.statement_position == str(text.index("nme") + 1)
        with pytest.raises(psycopg.errors.InsufficientPrivilege, match="anne may not delete dataflows other"):
            connection.execute("DROP VIEW other")
    assert server.objects.bodies == {}


@pytest.mark.parametrize(("text", "sqlstate"), [
    ("CREATE VIEW delays (a) AS SELECT 1", "0A000"),
    ("CREATE UNIQUE INDEX i ON s (a)", "0A000"),
    ("CREATE INDEX i ON s USING btree (a)", "0A000"),
    ("CREATE INDEX i ON s (a + 1)", "42601"),
    ("CREATE OR REPLACE INDEX i ON s (a)", "25006"),
    ("CREATE MATERIALIZED VIEW other.delays AS SELECT 1", "3F000"),
    ("CREATE MATERIALIZED VIEW delays_of AS SELECT 1", "42602"),
    ("CREATE MATERIALIZED VIEW delays WITH (sekret = 1) AS SELECT 1", "22023"),
    ("CREATE MATERIALIZED VIEW delays WITH (wait = 7) AS SELECT 1", "22023"),
    ("CREATE MATERIALIZED VIEW delays", "42601"),
    ("ALTER VIEW delays RENAME TO x", "0A000"),
    ("DROP VIEW delays CASCADE", "0A000"),
    ("DROP VIEW delays, other", "0A000"),
    ("CREATE SCHEMA delays", "25006"),
])  # fmt: skip
def test_what_would_mean_something_else_is_refused(server: Served, text: str, sqlstate: str) -> None:
    with server.connect() as connection:
        with pytest.raises(psycopg.Error) as failed:
            connection.execute(text.encode())
        assert failed.value.sqlstate == sqlstate
    assert server.objects.bodies == {}


def test_the_extended_protocol_describes_no_rows(server: Served) -> None:
    with Frames(server) as frames:
        frames.send(b"P", b"s\0DROP VIEW IF EXISTS delays\0\0\0")
        frames.send(b"D", b"Ss\0")
        frames.send(b"B", b"\0s\0\0\0\0\0\0\0")
        frames.send(b"E", b"\0\0\0\0\0")
        frames.send(b"S")
        answers = dict(frames.until_ready())
    assert b"n" in answers
    assert answers[b"C"] == b"DROP VIEW\0"


@pytest.mark.parametrize("text", [
    "CREATE MATERIALIZED VIEW delays AS SELECT a FROM s.a",
    "ALTER MATERIALIZED VIEW delays AS SELECT a FROM s.a",
    "DROP MATERIALIZED VIEW IF EXISTS delays",
])  # fmt: skip
def test_an_operator_without_definitions_refuses_them(without_definitions: Served, text: str) -> None:
    """Also edits by those who may patch the Dataflow, which need no further right of the operator."""
    with without_definitions.connect() as connection:
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="--no-definitions"):
            connection.execute(text.encode())
        assert connection.execute("SELECT a FROM s.a").fetchall() == [(1,), (2,), (3,)]
    assert without_definitions.objects.bodies == {}
