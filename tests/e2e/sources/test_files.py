"""A `files` source from kubectl apply to a view: files that arrive, a bad one, and a replica killed while they do."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.avro.containers import container
from tests.e2e.system import System, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

TOTALS = "SELECT k, count(*) AS n, sum(v) AS total FROM drop.readings GROUP BY k"
POSITIVE = "SELECT k, v FROM drop.readings WHERE v > 1"
"""Computed row by row: an error row of the source is an error row of the view, whatever the filter."""
COLUMNS = [{"name": "k", "type": "STRING"}, {"name": "v", "type": "INT"}]


@pytest.fixture(scope="module")
def system(bare_system: System) -> System:
    return bare_system


def arrive(system: System, name: str, text: str) -> None:
    """A complete file, as a careful writer leaves it."""
    folder = system.folder / "in" / "readings"
    (folder / f".{name}").write_text(text)
    os.replace(folder / f".{name}", folder / name)


def totals(system: System) -> dict[str, tuple[int, int]]:
    return {r["k"]: (r["n"], r["total"]) for r in system.query("SELECT k, n, total FROM totals")["rows"]}


def test_crash_files_reach_the_view_once_each_despite_kills(system: System) -> None:
    """Three files, the replica killed with SIGKILL after the second arrived; then a file that is refused."""
    (system.folder / "in" / "readings").mkdir(parents=True)
    table = {"name": "readings", "format": "csv", "pattern": "*.csv", "path": "readings", "columns": COLUMNS}
    files = {"path": str(system.folder / "in"), "tables": [table]}
    system.apply("DataSource", "drop", {"instance": "default", "tick": "200ms", "files": files})
    arrive(system, "1.csv", "k,v\na,1\nb,2\n")
    system.dataflow("totals", TOTALS)
    system.dataflow("positive", POSITIVE)
    system.wait_hydrated("totals")
    system.wait_hydrated("positive")
    wait_for("the first file", lambda: totals(system) == {"a": (1, 1), "b": (1, 2)}, system.log)

    arrive(system, "2.csv", "k,v\na,10\n")
    pids = system.replica_pids()
    system.kill_replica()
    arrive(system, "3.csv", "k,v\nb,20\nc,\n")
    wait_for("another process", lambda: system.replica_pids() not in ({}, pids), system.log)
    expected = {"a": (2, 11), "b": (2, 22), "c": (1, None)}
    wait_for("all three files", lambda: totals(system) == expected, system.log)

    arrive(system, "4.csv", "v,k\n5,a\n")
    message = system.wait_condition("dataflow", "totals", "Erroring")
    assert "4.csv" in message
    for relation in ("totals", "positive", "drop.readings"):  # each is complete up to a time of its own
        refused = wait_for(f"a refusal of {relation}", lambda name=relation: refusal(system, name), system.log)
        assert refused.stdout == ""
        assert "SCHEMA_MISMATCH" in refused.stderr
    skipping(system)
    releasing(system, expected)


def skipping(system: System) -> None:
    """The rows of the table, and of a view, that are right, on request; never an aggregate of them."""
    for sql, right in (
        ("SELECT k, v FROM drop.readings WHERE k = 'a'", [1, 10]),
        ("SELECT k, v FROM positive", [2, 10, 20]),
    ):
        done = system.tidemark("query", sql, "--skip-errors", "-n", system.namespace, "-o", "json")
        answer = json.loads(done.stdout)
        assert sorted(row["v"] for row in answer["rows"]) == right
        assert answer["skipped_errors"] == 1
        assert "warning: 1 row is an error and is left out" in done.stderr
        done = system.tidemark("query", sql, "-n", system.namespace)
        assert (done.returncode, done.stdout) == (1, "")
        assert "SCHEMA_MISMATCH" in done.stderr
    for sql in ("SELECT k FROM totals", "SELECT count(*) AS n FROM drop.readings"):
        done = system.tidemark("query", sql, "--skip-errors", "-n", system.namespace)
        assert done.returncode == 1
        assert "--skip-errors reads" in done.stderr


def releasing(system: System, expected: dict[str, tuple[int, int]]) -> None:
    """The refused file is let go, while the replica is killed, and comes again in another version."""
    listed = system.tidemark("files", "drop", "-n", system.namespace)
    assert listed.stdout.splitlines()[1].split()[1] == "4.csv"

    # a replica that is killed when the request comes, and then the file in another version
    system.kill_replica()
    released = system.tidemark("files", "drop", "--release", "4.csv", "-n", system.namespace)
    assert released.returncode == 0, released.stderr
    for relation in ("totals", "positive"):
        wait_for(f"{relation} without its error", lambda name=relation: refusal(system, name) is None, system.log)
    assert totals(system) == expected
    assert sorted(row["v"] for row in system.query("SELECT v FROM positive")["rows"]) == [2, 10, 20]
    arrive(system, "4.csv", "k,v\na,100\n")
    wait_for("the mended file", lambda: totals(system)["a"] == (3, 111), system.log)
    missing = system.tidemark("files", "drop", "--release", "none.csv", "-n", system.namespace)
    assert (missing.returncode, "NOT_BOUND" in missing.stderr) == (1, True)


def refusal(system: System, relation: str) -> subprocess.CompletedProcess[str] | None:
    """The end of a query of the relation, if it does not end with rows."""
    done = system.tidemark("query", f"SELECT k FROM {relation}", "-n", system.namespace)
    return done if done.returncode else None


def apply_visits(system: System, *columns: str) -> None:
    table = {"name": "visits", "format": "json", "path": "visits", "pattern": "*.json"}
    columns_of = [{"name": name, "type": "STRING" if name == "page" else "INT"} for name in columns]
    files = {"path": str(system.folder / "late"), "tables": [{**table, "columns": columns_of}]}
    spec = {"instance": "default", "tick": "200ms", "deletionPolicy": "Delete", "files": files}
    system.apply("DataSource", "late", spec)


def test_crash_columns_that_come_are_for_new_views(system: System) -> None:
    """A field that the files had before anybody took it. Views of before go on as they are; the table that they read
    goes once nothing reads it. Where a file is gone the edit is refused, and nothing changes."""
    folder = system.folder / "late" / "visits"
    folder.mkdir(parents=True)

    def put(name: str, *records: dict[str, object]) -> None:
        (folder / f".{name}").write_text("".join(json.dumps(record) + "\n" for record in records))
        os.replace(folder / f".{name}", folder / name)

    def rows(sql: str) -> list[tuple[object, ...]]:
        return sorted(tuple(row.values()) for row in system.query(sql)["rows"])

    def tables() -> set[str]:
        return {table["name"] for table in system.get("datasource", "late")["status"].get("tables", [])}

    put("1.json", {"id": 1, "page": "a", "ms": 5}, {"id": 2, "page": "a"})
    put("2.json", {"id": 3, "page": "b", "ms": 7})
    apply_visits(system, "id", "page")
    system.dataflow("hits", "SELECT page, count(*) AS n FROM late.visits GROUP BY page")
    system.wait_hydrated("hits")
    wait_for("the files", lambda: rows("SELECT page, n FROM hits") == [("a", 2), ("b", 1)], system.log)
    planned = system.get("dataflow", "hits")["status"]["revision"]["name"]

    os.replace(folder / "2.json", folder.parent / "2.json")
    apply_visits(system, "id", "page", "ms")
    message = system.wait_condition("datasource", "late", "SchemaKnown", "False", reason="SourceUnreadable")
    assert "gone, or others by now (2.json)" in message
    os.replace(folder.parent / "2.json", folder / "2.json")

    pids = system.replica_pids()
    system.dataflow("times", "SELECT id, ms FROM late.visits")
    wait_for("the successor", lambda: tables() == {"visits", "visits.1"}, system.log)
    system.kill_replica()
    put("3.json", {"id": 4, "page": "b", "ms": 9})
    wait_for("another process", lambda: system.replica_pids() not in ({}, pids), system.log)
    system.wait_hydrated("times")
    expected = [(1, 5), (2, None), (3, 7), (4, 9)]
    wait_for("all rows", lambda: sorted(rows("SELECT id, ms FROM times"), key=repr) == expected, system.log)
    wait_for("the view of before", lambda: rows("SELECT page, n FROM hits") == [("a", 2), ("b", 2)], system.log)
    assert planned == system.get("dataflow", "hits")["status"]["revision"]["name"]

    system.kubectl("delete", "dataflow", "hits", "--wait=true")
    wait_for("the first table is gone", lambda: tables() == {"visits"}, system.log)
    put("4.json", {"id": 5, "ms": 1})
    expected.append((5, 1))
    wait_for("the next file", lambda: sorted(rows("SELECT id, ms FROM times"), key=repr) == expected, system.log)
    system.kubectl("delete", "dataflow", "times", "--wait=true")
    system.kubectl("delete", "datasource", "late", "--wait=true")


def rows_or_none(system: System, sql: str) -> list[tuple[object, ...]] | None:
    """The rows of a query; None while it is refused."""
    done = system.tidemark("query", sql, "-n", system.namespace, "-o", "json")
    if done.returncode:
        return None
    return sorted((tuple(row.values()) for row in json.loads(done.stdout)["rows"]), key=repr)


def test_columns_that_come_in_headers_and_with_evolve(system: System) -> None:
    """Columns of csv come by an edit of the spec, of Avro without one. Rows of before have what their files say."""
    folder = system.folder / "wide"
    for name in ("lines", "events"):
        (folder / name).mkdir(parents=True)

    def put(name: str, data: bytes) -> None:
        path = folder / name
        path.with_name(f".{path.name}").write_bytes(data)
        os.replace(path.with_name(f".{path.name}"), path)

    def avro(*fields: str, **values: int) -> bytes:
        schema = {"type": "record", "name": "Event", "fields": [{"name": name, "type": "long"} for name in fields]}
        return container(schema, [values])

    def apply(*columns: str) -> None:
        lines = {"name": "lines", "format": "csv", "path": "lines"}
        tables = [
            {**lines, "columns": [{"name": name, "type": "BIGINT"} for name in columns]},
            {"name": "events", "format": "avro", "path": "events", "evolve": "addColumns"},
        ]
        files = {"path": str(folder), "tables": tables}
        system.apply("DataSource", "wide", {"instance": "default", "tick": "200ms", "files": files})

    put("lines/1.csv", b"id\n1\n")
    put("lines/2.csv", b"ms,id\n5,2\n")
    put("events/1.avro", avro("id", id=1))
    apply("id")
    for name, count in (("lines", 2), ("events", 1)):
        sql = f"SELECT id FROM wide.{name}"
        wait_for(f"the files of {name}", lambda sql=sql, n=count: len(rows_or_none(system, sql) or ()) == n, system.log)
    apply("id", "ms")
    put("events/2.avro", avro("ms", "id", id=2, ms=5))
    for name in ("lines", "events"):
        sql = f"SELECT id, ms FROM wide.{name}"
        wait_for(
            f"column ms of {name}", lambda sql=sql: rows_or_none(system, sql) == [(1, None), (2, 5)], system.log, 300
        )
    system.kubectl("delete", "datasource", "wide", "--wait=true")
