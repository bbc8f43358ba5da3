"""Views are created, edited and dropped by psql, by whoever may do the same by kubectl."""

from __future__ import annotations

import pytest

from tests.cluster.pgwire.sql_port import SqlPort
from tidemark_devcluster.errors import KubectlFailed

WAITING = "SET tidemark.wait = on"
OPTIONS = "WITH (deletion_policy = delete)"
CREATE = f"CREATE MATERIALIZED VIEW paid {OPTIONS} AS SELECT id FROM orders WHERE status = 'paid'"
ALTER = "ALTER MATERIALIZED VIEW paid AS SELECT id FROM orders WHERE status = 'open'"
ASK = "SELECT id FROM paid ORDER BY id"


def test_who_may_write_dataflows_defines_views_by_psql(served: SqlPort) -> None:
    """Where psql waits, a view serves when the statement ends, and an edited one has its new rows."""
    system = served.system
    done = served.psql(WAITING, CREATE, ASK)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["SET", "CREATE MATERIALIZED VIEW", "3"]), done.stderr
    assert system.condition("dataflow", "paid", "Ready").get("status") == "True"
    user = system.get("dataflow", "paid")["metadata"]["annotations"]["compute.tidemark.dev/changed-by"]
    assert user == f"system:serviceaccount:{system.team}:reader"
    done = served.psql(WAITING, ALTER, ASK)
    assert (done.returncode, done.stdout.splitlines()) == (0, ["SET", "ALTER MATERIALIZED VIEW", "1", "2"]), done.stderr
    assert system.condition("dataflow", "paid", "Ready").get("status") == "True"
    done = served.psql(WAITING, "DROP MATERIALIZED VIEW paid")
    assert (done.returncode, done.stdout.splitlines()) == (0, ["SET", "DROP MATERIALIZED VIEW"]), done.stderr
    with pytest.raises(KubectlFailed, match="NotFound"):
        system.get("dataflow", "paid")
    done = served.psql(ASK)
    assert (done.returncode, "42P01" in done.stderr) == (1, True), done.stderr


def test_who_may_only_read_defines_nothing(served: SqlPort) -> None:
    """The same user reads the view before and after."""
    before = served.system.get("dataflow", "statuses")
    for statement in (
        CREATE,
        "ALTER MATERIALIZED VIEW statuses AS SELECT status, count(*) + 1 AS orders FROM orders GROUP BY status",
        "DROP MATERIALIZED VIEW statuses",
        "CREATE TABLE more (id bigint, PRIMARY KEY (id))",
        "DROP TABLE orders",
        "INSERT INTO orders VALUES (4, 'paid')",
    ):
        done = served.psql(statement, account="watcher")
        assert (done.returncode, "42501" in done.stderr) == (1, True), f"{statement}: {done.stdout}{done.stderr}"
    done = served.psql("SELECT status, orders FROM statuses ORDER BY status", account="watcher")
    assert (done.returncode, done.stdout.splitlines()) == (0, ["open|2", "paid|1"]), done.stderr
    after = served.system.get("dataflow", "statuses")
    assert after["metadata"]["generation"] == before["metadata"]["generation"]
    assert served.system.kubectl("get", "dataflows,datasources", "--output=name").split() == [
        "dataflow.compute.tidemark.dev/statuses",
        "datasource.compute.tidemark.dev/orders",
    ]
