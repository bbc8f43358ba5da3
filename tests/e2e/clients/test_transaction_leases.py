"""BEGIN pins a time before a whole system: replicas keep it, however short the read policy is, and whoever dies."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.e2e.clients.test_pgwire import account, launched, serving
from tests.e2e.system import System, wait_for
from tidemark.errors import OffsetTooOld
from tidemark.spark.change_feed import CHANGE_COLUMNS, ChangeFeed
from tidemark.spark.columns import schema_of
from tidemark.spark.options import ReadOptions

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster]

COLUMNS = [{"name": "id", "type": "BIGINT"}, {"name": "amount", "type": "BIGINT"}]
TOTAL = "SELECT count(*) AS number, sum(amount) AS amount FROM bank.lines"
JOINED = "SELECT l.id, s.amount FROM bank.lines l JOIN sums s ON l.id = s.number"
READS = ("SELECT number, amount FROM sums", "SELECT id, amount FROM bank.lines ORDER BY id", TOTAL, JOINED)
Rows = list[list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def system(shared_operator: System, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A table, an index over it, and another table that no transaction reads, each readable for two seconds."""
    with shared_operator.emptied_after(tmp_path_factory.mktemp("system")) as system:
        system.base(readPolicy={"lag": "2s"})
        for name in ("bank", "apart"):
            tables = [{"name": "lines", "columns": COLUMNS, "primaryKey": ["id"]}]
            system.apply("DataSource", name, {"instance": "default", "tick": "500ms", "table": {"tables": tables}})
        system.dataflow("sums", TOTAL, index={"key": ["number"]})
        system.wait_hydrated("sums")
        yield system


def test_a_transaction_reads_the_same_rows_whoever_dies(
    system: System, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Beyond the read policy, with rows that change; under the next operator; by another replica's process. Then the
    time is gone: it was the lease that kept it. One whose process is killed runs out."""
    token = account(system, "leases")
    with (
        serving(system, tmp_path_factory.mktemp("writer")) as options,
        psycopg.connect(**options, password=token) as writer,
        psycopg.connect(**options, password=token) as reader,
    ):
        wait_for("the right to write", lambda: _tried(writer, "INSERT INTO bank.lines VALUES (1, 10)"))
        wait_for("the sum", lambda: _tried(writer, READS[0]) == [(1, 10)])
        wait_for("the other table", lambda: _tried(writer, "SELECT * FROM apart.lines") is not None)
        reader.execute("BEGIN")
        first, time = _read(reader), _held(system)
        assert first[:3] == [[(1, 10)], [(1, 10)], [(1, 10)]]

        writer.execute("INSERT INTO bank.lines VALUES (2, 20)")
        wait_for("the sum", lambda: _tried(writer, READS[0]) == [(2, 30)])
        _wait_until_others_pass(system, time)
        assert _read(reader) == first
        _is_shown(system, time)

        system.kill_operator()
        system.start_operator()
        wait_for("the new operator", lambda: _tried(writer, READS[0]) == [(2, 30)])
        writer.execute("INSERT INTO bank.lines VALUES (3, 30)")
        _wait_until_others_pass(system, _newest(system))
        assert _read(reader) == first
        assert _held(system) == time

        system.kill_replica()
        wait_for("the replica", lambda: _tried(writer, READS[0]) == [(3, 60)])
        _wait_until_others_pass(system, _newest(system))
        assert _read(reader) == first

        reader.execute("COMMIT")
        writer.execute(f"SET tidemark.as_of = {time}".encode())
        wait_for("the time to be gone", lambda: _is_gone(writer))
        writer.execute("RESET tidemark.as_of")
    _runs_out(system, tmp_path_factory, token)


def test_a_stream_of_spark_finds_the_time_of_its_last_micro_batch(system: System, tmp_path: Path) -> None:
    """The driver holds it, however long no micro-batch comes; a driver that ends lets it go."""
    options = {"gatewayFile": str(system.home / "gateway.json"), "namespace": system.namespace, "relation": "sums"}
    columns = schema_of([("number", "bigint"), ("amount", "bigint"), *CHANGE_COLUMNS.items()])
    feed = ChangeFeed(ReadOptions.of({**options, "readChangeFeed": "true"}), columns)
    first = feed.latestOffset(feed.initialOffset(), None)
    (tmp_path / "rows.jsonl").write_text('{"id": 100, "amount": 1}')
    done = system.tidemark("insert", "bank.lines", "--from", str(tmp_path / "rows.jsonl"), "-n", system.namespace)
    assert done.returncode == 0, done.stderr
    _wait_until_others_pass(system, _newest(system))
    second = feed.latestOffset(first, None)
    (partition,) = feed.partitions(first, second)
    changes = [row for batch in feed.read(partition) for row in batch.to_pylist()]
    assert {row["_change_type"] for row in changes} == {"insert", "delete"}
    feed.stop()
    wait_for("the time to be gone", lambda: _reads_from(system, "sums.sums") > first["time"])
    with pytest.raises(OffsetTooOld):
        list(feed.read(partition))


def _runs_out(system: System, folders: pytest.TempPathFactory, token: str) -> None:
    """The process of a transaction is killed: its time is kept for a minute, and no longer."""
    with launched(system, folders.mktemp("killed")) as (process, options):
        reader = psycopg.connect(**options, password=token)
        reader.execute("BEGIN")
        _read(reader)
        time = _held(system)
        process.kill()
        process.wait()
    _wait_until_others_pass(system, time)
    assert system.query(READS[0], as_of=time)["rows"], "it is kept for whoever renews it"
    wait_for("the lease to run out", lambda: not _leases(system))
    wait_for("the time to be gone", lambda: _reads_from(system, "sums.sums") > time)


def _read(connection: psycopg.Connection[Any]) -> Rows:
    return [connection.execute(sql.encode()).fetchall() for sql in READS]


def _tried(connection: psycopg.Connection[Any], sql: str) -> Any:
    """The rows, or the number of written ones; None where it cannot be done now."""
    try:
        done = connection.execute(sql.encode())
    except psycopg.Error:
        return None
    return done.fetchall() if done.description else done.rowcount


def _leases(system: System) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = system.query("SELECT * FROM tidemark_introspection.leases ORDER BY name")["rows"]
    return rows


def _held(system: System) -> int:
    """The time at which the table and the index are held, and nothing else."""
    found = wait_for("the lease", lambda: _leases(system))
    assert [row["name"] for row in found] == ["bank.lines", "sums.sums"]
    (time,) = {int(row["time"]) for row in found}
    return time


def _reads_from(system: System, name: str) -> int:
    """The since of a table or an index; -1 where it is not known."""
    return int(system.live_frontiers().get(name, {}).get("read", -1))


def _newest(system: System) -> int:
    return int(system.live_frontiers()["apart.lines"]["write"])


def _wait_until_others_pass(system: System, time: int) -> None:
    """Wait until a relation that no lease holds cannot be read at the time any more."""
    wait_for("others to be compacted", lambda: _reads_from(system, "apart.lines") > time, system.log)


def _is_shown(system: System, time: int) -> None:
    """`leases` and `why` name the holder of the index and how far it is kept."""
    (row,) = [row for row in _leases(system) if row["name"] == "sums.sums"]
    assert int(row["behind_ms"]) > 0
    assert row["holder"] == f"system:serviceaccount:{system.namespace}:leases"
    why = json.loads(system.tidemark("why", "sums", "-n", system.namespace, "-o", "json").stdout)
    assert "a lease keeps it readable from " in json.dumps(why), (why, time)


def _is_gone(connection: psycopg.Connection[Any]) -> bool:
    try:
        connection.execute(READS[0].encode())
    except psycopg.Error as error:
        return error.sqlstate == "72000"
    return False
