"""The PostgreSQL protocol before a whole system: its own process, TLS, tokens of ServiceAccounts, psycopg."""

from __future__ import annotations

import datetime
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.authorities import Authority
from tests.e2e.system import System, wait_for
from tests.ports import free_port
from tests.waiting import BOUND

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster]

RULES = ("--verb=get", "--resource=dataflows.compute.tidemark.dev/data,datasources.compute.tidemark.dev/data")
LISTS = ("--verb=list", "--resource=dataflows.compute.tidemark.dev,datasources.compute.tidemark.dev")
HOSTILE = ("'; SELECT 1; --", "' OR '1'='1", "\\' OR 1=1 --", "CANADA'/*")
TEXTS = ("GERMANY", "O'Hara", "a\\b", "\\n", "\\'", "x'y\\", "é😀", "a`b", 'a"b', "--", "/* x", "%_", "\t", "${x}")


@contextmanager
def serving(system: System, folder: Path) -> Iterator[dict[str, Any]]:
    """The program before the system's gateway; libpq's options of its address."""
    with launched(system, folder) as (_, options):
        yield options


@contextmanager
def launched(system: System, folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """The process that serves, as in `serving`."""
    signing = Authority.named("pgwire")
    issued = signing.server("127.0.0.1")
    for name, data in (("ca.crt", signing.pair.certificate), ("tls.crt", issued.certificate), ("tls.key", issued.key)):
        (folder / name).write_bytes(data)
    port = free_port()
    command = [sys.executable, "-m", "tidemark_pgwire", "--listen", f"127.0.0.1:{port}"]
    command += ["--certificate", str(folder / "tls.crt"), "--key", str(folder / "tls.key")]
    command += ["--gateway-file", str(system.home / "gateway.json")]
    with (folder / "pgwire.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        wait_for("the listener", lambda: b"listening" in (folder / "pgwire.log").read_bytes())
        options = {
            "host": "127.0.0.1",
            "port": port,
            "dbname": system.namespace,
            "user": "me",
            "autocommit": True,
            "sslmode": "verify-full",
            "sslrootcert": str(folder / "ca.crt"),
        }
        yield process, options
    finally:
        process.terminate()
        process.wait(BOUND)


DEFINES = ("--verb=create,patch,delete", "--resource=dataflows.compute.tidemark.dev")
CREATES = ("--verb=create,patch,delete", "--resource=datasources.compute.tidemark.dev")
WRITES = ("--verb=create,update,delete", "--resource=datasources.compute.tidemark.dev/rows")


def account(system: System, name: str) -> str:
    """A token of a new ServiceAccount, which may read and write every row of the namespace, list objects, and define
    views and tables."""
    system.kubectl("create", "serviceaccount", name)
    rights = {"rows": RULES, "lists": LISTS, "defines": DEFINES, "creates": CREATES, "writes": WRITES}
    for right, rules in rights.items():
        system.kubectl("create", "role", f"{name}-{right}", *rules)
        bound = (f"--role={name}-{right}", f"--serviceaccount={system.namespace}:{name}")
        system.kubectl("create", "rolebinding", f"{name}-{right}", *bound)
    return system.kubectl("create", "token", name, "--audience", "tidemark-gateway").strip()


def test_psycopg_reads_views_through_restarts_of_the_operator(system: System, tmp_path: Path) -> None:
    """Values, parameters, plans of both dialects, errors with their position, the catalogue, one time; and the session
    goes on with another operator."""
    system.dataflow("nations", "SELECT n_nationkey, n_name FROM tpch.nation", index={"key": ["n_nationkey"]})
    system.wait_hydrated("nations")
    token = account(system, "psycopg")
    with serving(system, tmp_path) as options:
        wrong = system.kubectl("create", "token", "psycopg", "--audience", "elsewhere").strip()
        with pytest.raises(psycopg.OperationalError, match="no valid token"):
            psycopg.connect(**options, password=wrong)
        connection = psycopg.connect(**options, password=token)
        with connection:
            # the API server comes to know of a new binding a little later
            wait_for("the right", lambda: _has_rows(connection, "SELECT n_name FROM nations"))
            wait_for("orders", lambda: _has_rows(connection, "SELECT o_orderkey FROM tpch.orders LIMIT 1"))
            _values(connection)
            _hostile_texts(connection)
            _errors(connection)
            _catalogue(connection)
            _one_time(connection)
            _subscribe_canceled(connection)
            _definitions(system, connection)
            system.kill_operator()
            system.start_operator()
            wait_for("the new operator", lambda: _has_rows(connection, "SELECT n_name FROM nations"))
        assert token not in (tmp_path / "pgwire.log").read_text()


def test_a_dashboard_logs_in_by_a_password_until_its_secret_is_gone(system: System, tmp_path: Path) -> None:
    """By the commands of the guide; also at the next operator."""
    account(system, "grafana")
    password = "a-password-that-lasts"
    literals = ("--from-literal=username=grafana", f"--from-literal=password={password}")
    system.kubectl("create", "secret", "generic", "grafana-login", "--type=compute.tidemark.dev/login", *literals)
    system.kubectl("annotate", "serviceaccount", "grafana", "compute.tidemark.dev/login-secret=grafana-login")
    with serving(system, tmp_path) as options:
        given = {**options, "user": "grafana", "password": password}
        with psycopg.connect(**given) as connection:
            wait_for("rows", lambda: _has_rows(connection, "SELECT n_name FROM tpch.nation LIMIT 1"))
            system.kill_operator()
            system.start_operator()
            wait_for("the new operator", lambda: _has_rows(connection, "SELECT n_name FROM tpch.nation LIMIT 1"))
            assert _rows(connection, "SELECT current_user") == [(f"system:serviceaccount:{system.namespace}:grafana",)]
            with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
                psycopg.connect(**{**given, "password": password.upper()})
            system.kubectl("delete", "secret", "grafana-login")
            wait_for("the end of the session", lambda: _is_ended(connection))
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            psycopg.connect(**given)
        assert password not in (tmp_path / "pgwire.log").read_text()


def _is_ended(connection: psycopg.Connection[Any]) -> bool:
    try:
        connection.execute("SELECT n_name FROM tpch.nation LIMIT 1")
    except psycopg.Error:
        return connection.closed
    return False


def test_insert_and_copy_write_what_a_view_shows(system: System, tmp_path: Path) -> None:
    """Each transaction at one time; what is rolled back was never there. A COPY goes on where the operator is another
    one at its COMMIT."""
    columns = [{"name": "id", "type": "BIGINT"}, {"name": "batch", "type": "STRING"}]
    table = {"name": "lines", "columns": columns, "primaryKey": ["id"]}
    system.apply("DataSource", "sqlshop", {"instance": "default", "tick": "200ms", "table": {"tables": [table]}})
    count = "SELECT batch, count(*) AS n, sum(id) AS ids FROM sqlshop.lines GROUP BY batch"
    system.dataflow("sqlbatches", count, index={"key": ["batch"]})
    system.wait_hydrated("sqlbatches")
    token = account(system, "writer")
    with serving(system, tmp_path) as options, psycopg.connect(**options, password=token) as connection:
        wait_for("the table", lambda: _writes(connection))
        with connection.transaction():
            connection.execute("INSERT INTO sqlshop.lines VALUES (1, 'block'), (2, 'block')")
            connection.execute("INSERT INTO sqlshop.lines (batch, id) VALUES (%s, %s)", ["block", 3])
        with connection.transaction(force_rollback=True):
            connection.execute("INSERT INTO sqlshop.lines VALUES (4, 'rolled')")
        _copy(connection, range(1000, 3000), "copied")
        with pytest.raises(psycopg.errors.UniqueViolation):
            _copy(connection, range(2999, 5000), "twice")
        connection.execute("BEGIN")
        _copy(connection, range(5000, 6000), "moved")
        system.kill_operator()
        system.start_operator()
        connection.execute("COMMIT")
        expected = {("block", 3, 6), ("copied", 2000, sum(range(1000, 3000))), ("moved", 1000, sum(range(5000, 6000)))}
        wait_for("the rows", lambda: set(_rows(connection, "SELECT batch, n, ids FROM sqlbatches")) == expected)
        assert set(_rows(connection, count)) == expected


TOTALS = "SELECT batch, count(*) AS n, sum(amount) AS total FROM sqllines GROUP BY batch"


@pytest.mark.broad
def test_a_table_is_created_filled_and_read_by_sql_alone(system: System, tmp_path: Path) -> None:
    """Rows come right after CREATE TABLE, and go on under another operator. kubectl's tables are dropped the same
    way, and a table of a name that was dropped begins empty."""
    token = account(system, "tables")
    with serving(system, tmp_path) as options, psycopg.connect(**options, password=token) as connection:
        wait_for("the right to create", lambda: _creates(connection))
        _refuses_rows_where_it_cannot_begin(connection)
        connection.execute("INSERT INTO sqllines VALUES (1, 'a', 1.50), (2, 'a', 2), (3, 'b', 3)")
        connection.execute("SET tidemark.wait = on")
        connection.execute(f"CREATE MATERIALIZED VIEW sqltotals AS {TOTALS}".encode())
        _shows(connection, {("a", 2, Decimal("3.50")), ("b", 1, Decimal(3))})
        with connection.transaction():
            connection.execute("DELETE FROM sqllines WHERE id = 1")
            connection.execute("DELETE FROM sqllines WHERE id IN (%s, NULL)", [3])
        _shows(connection, {("a", 1, Decimal(2))})
        system.kill_operator()
        system.start_operator()
        upsert = "INSERT INTO sqllines VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET batch = EXCLUDED.batch, "
        rows = [(2, "c", 5), (4, "c", 6)]
        connection.cursor().executemany((upsert + "amount = EXCLUDED.amount").encode(), rows)
        _shows(connection, {("c", 2, Decimal(11))})
        assert connection.execute("DELETE FROM sqllines WHERE id IN (2, 77)").statusmessage == "DELETE 1"
        _shows(connection, {("c", 1, Decimal(6))})
        columns = "SELECT column_name, data_type FROM information_schema.columns WHERE table_name = 'sqllines'"
        assert set(_rows(connection, columns)) == {("id", "bigint"), ("batch", "text"), ("amount", "numeric")}
        _adds_a_column(connection)
        shown = system.kubectl("get", "datasource", "sqllines", "-o", "jsonpath={.metadata.annotations}")
        assert f"system:serviceaccount:{system.namespace}:tables" in shown
        with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="sqltotals"):
            connection.execute("DROP TABLE sqllines")
        connection.execute("DROP MATERIALIZED VIEW sqltotals")
        connection.execute("DROP TABLE sqllines")
        with pytest.raises(psycopg.errors.UndefinedTable):
            connection.execute("SELECT id FROM sqllines")
        connection.execute("CREATE TABLE sqllines (id bigint, other date NOT NULL) WITH (tick = '200ms')")
        assert connection.execute("SELECT * FROM sqllines").fetchall() == []
        with pytest.raises(psycopg.errors.NotNullViolation, match="column other of table sqllines is NOT NULL"):
            connection.execute("INSERT INTO sqllines (id) VALUES (1)")
        nullable = "SELECT column_name, is_nullable FROM information_schema.columns WHERE table_name = 'sqllines'"
        assert set(_rows(connection, nullable)) == {("id", "YES"), ("other", "NO")}
        connection.execute("DROP TABLE sqllines")
        table = {"name": "t", "columns": [{"name": "id", "type": "BIGINT"}]}
        system.apply("DataSource", "sqlapplied", {"instance": "default", "table": {"tables": [table]}})
        connection.execute("DROP TABLE sqlapplied.t")
        assert system.kubectl("get", "datasource", "sqlapplied", "--ignore-not-found") == ""


def _adds_a_column(connection: psycopg.Connection[Any]) -> None:
    """The next query and the next INSERT have it; the view of before goes on."""
    connection.execute("SET tidemark.wait = off")
    connection.execute("ALTER TABLE sqllines ADD COLUMN note text")
    assert connection.execute("SELECT id, note FROM sqllines").fetchall() == [(4, None)]
    connection.execute("INSERT INTO sqllines (id, batch, amount, note) VALUES (5, 'c', 1, 'new')")
    assert set(_rows(connection, "SELECT id, note FROM sqllines")) == {(4, None), (5, "new")}
    _shows(connection, {("c", 2, Decimal(7))})
    connection.execute("SET tidemark.wait = on")
    connection.execute("ALTER TABLE sqllines ADD COLUMN IF NOT EXISTS more bigint")
    connection.execute("UPDATE sqllines SET more = 1 WHERE id = 5")
    assert set(_rows(connection, "SELECT id, note, more FROM sqllines")) == {(4, None, None), (5, "new", 1)}


def _refuses_rows_where_it_cannot_begin(connection: psycopg.Connection[Any]) -> None:
    notices = list[str]()
    connection.add_notice_handler(lambda notice: notices.append(f"{notice.severity} {notice.message_primary}"))
    connection.execute("CREATE TABLE sqlnowhere (id bigint) WITH (instance = nope)")
    [notice] = notices
    assert notice.startswith("WARNING DataSource sqlnowhere is stored, and takes no rows yet: InstanceNotFound: ")
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="ComputeInstance nope does not exist"):
        connection.execute("INSERT INTO sqlnowhere VALUES (1)")
    connection.execute("DROP TABLE sqlnowhere")


def _creates(connection: psycopg.Connection[Any]) -> bool:
    columns = "(id bigint, batch text, amount numeric(12, 2), PRIMARY KEY (id))"
    try:
        connection.execute(f"CREATE TABLE sqllines {columns} WITH (tick = '200ms', deletion_policy = delete)".encode())
    except psycopg.errors.InsufficientPrivilege:
        return False
    return True


def _shows(connection: psycopg.Connection[Any], expected: set[tuple[Any, ...]]) -> None:
    """The view comes to show it, as the table's rows do at once."""
    wait_for("the view", lambda: set(_rows(connection, "SELECT batch, n, total FROM sqltotals")) == expected)
    wait_for("the table", lambda: set(_rows(connection, TOTALS)) == expected)


def _writes(connection: psycopg.Connection[Any]) -> bool:
    """Whether the table is there, and the user may write it. Nothing is written."""
    try:
        with connection.transaction(force_rollback=True):
            connection.execute("INSERT INTO sqlshop.lines VALUES (0, 'probe')")
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.UndefinedTable, psycopg.OperationalError):
        return False
    return True


def _copy(connection: psycopg.Connection[Any], ids: range, batch: str) -> None:
    with connection.cursor() as cursor:
        with cursor.copy("COPY sqlshop.lines (id, batch) FROM STDIN") as into:
            for id in ids:
                into.write_row((id, batch))
        assert cursor.statusmessage == f"COPY {len(ids)}"


def _rows(connection: psycopg.Connection[Any], sql: str) -> list[tuple[Any, ...]]:
    """No rows where they cannot be read now."""
    try:
        return connection.execute(sql.encode()).fetchall()
    except (psycopg.errors.InsufficientPrivilege, psycopg.errors.CannotConnectNow):
        return []


def _has_rows(connection: psycopg.Connection[Any], sql: str) -> bool:
    return bool(_rows(connection, sql))


def _subscribe_canceled(connection: psycopg.Connection[Any]) -> None:
    """The session reads the same relation afterwards."""
    for name in ("nations", "tpch.nation"):
        canceling = threading.Timer(1.0, connection.cancel_safe, kwargs={"timeout": BOUND})
        canceling.start()
        with pytest.raises(psycopg.errors.QueryCanceled):
            connection.execute(f"SUBSCRIBE {name}".encode())
        canceling.join()
        assert len(connection.execute(f"SELECT n_name FROM {name}".encode()).fetchall()) == 25


def _values(connection: psycopg.Connection[Any]) -> None:
    """In both formats and dialects, by plans with and without operators."""
    ordered = "SELECT o_orderkey, o_totalprice, o_orderdate, o_orderstatus FROM tpch.orders WHERE o_orderkey > %s"
    for dialect in ("postgres", "spark"):
        connection.execute(f"SET dialect = {dialect}".encode())
        with connection.transaction():
            found = [
                connection.execute(f"{ordered} ORDER BY o_orderkey LIMIT %s".encode(), [7, 5], binary=binary).fetchall()
                for binary in (False, True)
            ]
            date = connection.execute(
                "SELECT count(*) FROM tpch.orders WHERE o_orderdate >= %s AND o_orderdate = %s",
                [datetime.date(1900, 1, 1), found[0][0][2]],
            )
            assert date.fetchone() != (0,)
        assert found[0] == found[1]
        assert [type(value) for value in found[0][0]] == [int, Decimal, datetime.date, str]
        assert [row[0] for row in found[0]] == sorted(row[0] for row in found[0])
        for value, equal in ((3, "n_nationkey"), ("CANADA", "n_name")):
            one = connection.execute(f"SELECT n_nationkey, n_name FROM nations WHERE {equal} = %s".encode(), [value])
            assert one.fetchall() == [(3, "CANADA")]
    connection.execute("RESET dialect")


def _hostile_texts(connection: psycopg.Connection[Any]) -> None:
    """A text is a value, whatever it holds, in both dialects: it comes back as it went, and selects nothing more."""
    for dialect in ("postgres", "spark"):
        connection.execute(f"SET dialect = {dialect}".encode())
        for text in HOSTILE:
            found = connection.execute("SELECT count(*) FROM nations WHERE n_name = %s", [text])
            assert found.fetchone() == (0,), (dialect, text)
        several = ", ".join(["%s"] * len(TEXTS))
        rows = connection.execute(f"SELECT {several} FROM nations WHERE n_nationkey = 3".encode(), TEXTS).fetchall()
        assert rows == [TEXTS], dialect
    connection.execute("RESET dialect")


def _errors(connection: psycopg.Connection[Any]) -> None:
    with pytest.raises(psycopg.errors.UndefinedColumn) as failed:
        connection.execute("SELECT n_name,\n nope FROM nations")
    assert failed.value.diag.statement_position == "17"
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT 1 FROM nowhere.nothing")
    with pytest.raises(psycopg.errors.SyntaxError):
        connection.execute("SELECT FROM WHERE")
    with pytest.raises(psycopg.errors.FeatureNotSupported):
        connection.execute("SELECT sqrt(n_nationkey) FROM nations")


def _catalogue(connection: psycopg.Connection[Any]) -> None:
    found = connection.execute(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN ('tpch', 'nations')"
    ).fetchall()
    assert {("tpch", "nation"), ("tpch", "orders")} <= set(found)
    assert any(schema == "nations" for schema, _ in found)


def _one_time(connection: psycopg.Connection[Any]) -> None:
    """Orders come all the time; in a transaction the newest one stays."""
    count = "SELECT max(o_orderkey), count(*) FROM tpch.orders"
    with connection.transaction():
        first = connection.execute(count).fetchone()
        assert [connection.execute(count).fetchone() for _ in range(3)] == [first] * 3
    wait_for("a later time", lambda: connection.execute(count).fetchone() != first)


def _definitions(system: System, connection: psycopg.Connection[Any]) -> None:
    """A view and an index serve when their statements end; kubectl's Dataflow is dropped the same way."""
    connection.execute("SET tidemark.wait = on")
    connection.execute(
        "CREATE MATERIALIZED VIEW defined AS SELECT n_regionkey, count(*) AS n FROM tpch.nation GROUP BY n_regionkey"
    )
    assert connection.execute("SELECT n FROM defined ORDER BY n_regionkey").fetchall() == [(5,)] * 5
    with pytest.raises(psycopg.errors.ActiveSqlTransaction), connection.transaction():
        connection.execute("DROP MATERIALIZED VIEW defined")
    with pytest.raises(psycopg.errors.UndefinedColumn):
        connection.execute("CREATE OR REPLACE MATERIALIZED VIEW defined AS SELECT nope FROM tpch.nation")
    connection.execute("ALTER MATERIALIZED VIEW defined AS SELECT n_regionkey, 7 / 2 AS n FROM tpch.nation")
    assert connection.execute("SELECT DISTINCT n FROM defined").fetchall() == [(3,)], "in PostgreSQL's dialect"
    connection.execute('CREATE INDEX "defined-idx" ON defined (n_regionkey)')
    assert connection.execute('SELECT count(*) FROM "defined-idx" WHERE n_regionkey = 3').fetchone() == (5,)
    with pytest.raises(psycopg.errors.DependentObjectsStillExist, match="defined-idx"):
        connection.execute("DROP MATERIALIZED VIEW defined")
    shown = system.kubectl("get", "dataflow", "defined", "-o", "jsonpath={.metadata.annotations}")
    assert f"system:serviceaccount:{system.namespace}:psycopg" in shown
    connection.execute('DROP INDEX "defined-idx"')
    connection.execute("DROP MATERIALIZED VIEW defined")
    with pytest.raises(psycopg.errors.UndefinedTable):
        connection.execute("SELECT n FROM defined")
