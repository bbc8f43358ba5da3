"""The operator's relations as tables: views and subscribes over them, over the deaths of operator and replica."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
import yaml

from tests.e2e.clients.subscription import following
from tests.e2e.system import CHECKOUT, System, wait_for
from tidemark_operator.resources.relation_columns import TABLES
from tidemark_persist import DIFF, ERROR

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

STATES = """
SELECT f.name, f.hydrated, d.instance FROM system.frontiers f JOIN system.dataflows d
    ON f.name = concat(d.name, '.', d.name)
"""
KINDS = "SELECT kind, count(*) AS n FROM system.frontiers GROUP BY kind"
DATAFLOWS = "SELECT name, hydrated FROM system.dataflows WHERE name NOT LIKE 'subscribe-%'"
ORDERS = {"name": "orders", "columns": [{"name": "id", "type": "BIGINT"}]}


@pytest.fixture(scope="module")
def system(bare_system: System) -> System:
    """With a table that clients write, one of a file that is refused, and the operator's relations as tables."""
    (bare_system.folder / "in" / "orders").mkdir(parents=True)
    (bare_system.folder / "in" / "orders" / "a.csv").write_text("other\n1\n")
    of_files = {"path": str(bare_system.folder / "in"), "tables": [{**ORDERS, "format": "csv", "path": "orders"}]}
    bare_system.apply("DataSource", "drop", {"instance": "default", "tick": "1s", "files": of_files})
    bare_system.apply("DataSource", "shop", {"instance": "default", "tick": "1s", "table": {"tables": [ORDERS]}})
    bare_system.apply("DataSource", "system", {"instance": "default", "tick": "1s", "introspection": {}})
    bare_system.wait_condition("datasource", "system", "Ready")
    return bare_system


def rows(system: System, sql: str) -> list[tuple[Any, ...]]:
    return sorted((tuple(row.values()) for row in system.query(sql)["rows"]), key=repr)


def upper(system: System) -> int:
    return min(system.upper("system", name) for name in TABLES)


def goes_on(system: System, after: int) -> int:
    """The upper of all tables, once they have it beyond `after`."""
    wait_for("the tables to go on", lambda: upper(system) > after, system.log)
    return upper(system)


def goes_on_alone(system: System) -> int:
    """The upper of a table of clients, once it is beyond all that the operator can have sent before it was killed."""
    sent = system.upper("shop", "orders") + 3_000
    wait_for("the replica to go on", lambda: system.upper("shop", "orders") > sent, system.log)
    return system.upper("shop", "orders")


def test_a_view_and_a_subscribe_see_a_dataflow_come_hydrate_and_go(system: System) -> None:
    system.dataflow("states", STATES)
    system.dataflow("kinds", KINDS, index={})
    system.wait_hydrated("states", "kinds")
    with following(system, DATAFLOWS, "--progress") as seen:
        system.dataflow("late", "SELECT count(*) AS n FROM shop.orders")
        expected = ("late.late", True, "default")
        wait_for("the view to have it", lambda: expected in rows(system, "SELECT * FROM states"), system.log)
        both = ("materializedView", 2)
        wait_for("the index to count it", lambda: both in rows(system, "SELECT kind, n FROM kinds"), system.log)
        wait_for("the subscribe to have it", lambda: ("late", True) in {row for _, row, _ in seen.changes}, system.log)

        system.kubectl("delete", "dataflow", "late")
        wait_for("the view to lose it", lambda: expected not in rows(system, "SELECT * FROM states"), system.log)
        wait_for("the subscribe to lose it", lambda: ("late", True, -1) in _rows_and_diffs(seen.changes), system.log)
        added_up = Counter[tuple[Any, ...]]()
        for _, row, diff in list(seen.changes):
            added_up[row] += diff
        assert {row for row, n in added_up.items() if n} == {("kinds", True), ("states", True)}
        assert set(added_up.values()) <= {0, 1}


def _rows_and_diffs(changes: list[tuple[int, tuple[Any, ...], int]]) -> set[tuple[Any, ...]]:
    return {(*row, diff) for _, row, diff in list(changes)}


@pytest.mark.parametrize(
    ("relation", "columns"),
    [
        ("frontiers", "name, kind, hydrated"),
        ("dataflows", "*"),
        ("tables", "source, table, instance, replica"),
        ("imports", "dataflow, instance, name, kind"),
        ("errors", "*"),
        ("files", "*"),
        ("hydrations", "*"),
        ("operator_channels", "*"),
    ],
)
def test_the_tables_are_what_queries_of_introspection_answer(system: System, relation: str, columns: str) -> None:
    """Where nothing changes, but for the tables themselves. Of each relation but `errors` there are rows."""
    own = {"frontiers": " WHERE name NOT LIKE 'system.%'", "tables": " WHERE source != 'system'"}.get(relation, "")

    def is_same() -> bool:
        table = rows(system, f"SELECT {columns} FROM system.{relation}")
        return (table or relation == "errors") and table == rows(
            system, f"SELECT {columns} FROM tidemark_introspection.{relation}{own}"
        )

    wait_for(f"{relation} to be the same", is_same, system.log)


def test_a_view_over_introspection_itself_says_what_to_create(system: System) -> None:
    system.dataflow("direct", "SELECT name FROM tidemark_introspection.frontiers")
    said = system.wait_condition("dataflow", "direct", "Planned", "False", "Unsupported")
    assert "as system.frontiers" in said
    system.kubectl("delete", "dataflow", "direct")
    tried = system.tidemark("subscribe", "tidemark_introspection.frontiers", "-n", system.namespace)
    assert tried.returncode == 1
    assert "create a DataSource with spec.introspection" in tried.stderr


def test_crash_of_operator_and_replica_the_tables_go_on_and_double_nothing(system: System) -> None:
    """Without an operator they stand still: what was so is not taken for what is."""
    reached = goes_on(system, 0)
    system.kill_operator()
    orders = goes_on_alone(system)
    stood = upper(system)
    assert stood < orders, "the replica wrote the rows of an operator that is gone"
    system.start_operator()
    reached = goes_on(system, max(reached, stood))

    (killed,) = system.replica_pids().values()
    system.kill_replica()
    wait_for("a new replica", lambda: [*system.replica_pids().values()] not in ([killed], []), system.log)
    reached = goes_on(system, reached)
    for name in ("frontiers", "dataflows", "tables"):
        found = system.contents("system", name, reached - 1)
        assert set(found.column(DIFF).to_pylist()) == {1}, name
        assert found.column(ERROR).null_count == found.num_rows
        keys = found.select(["source", "table"] if name == "tables" else ["name"]).to_pylist()
        assert len({tuple(key.values()) for key in keys}) == len(keys), name
    assert rows(system, "SELECT name FROM system.dataflows") == [("kinds",), ("states",)]


def test_the_examples_alarms_show_an_error_and_are_quiet_again(system: System) -> None:
    """With the source and the view of examples/introspection."""
    source, view = yaml.safe_load_all((CHECKOUT / "examples" / "introspection" / "alarms.yaml").read_text())
    sql = view["spec"]["sql"].replace("system.", "watch.")
    system.apply("DataSource", "watch", source["spec"] | {"tick": "1s"})
    system.dataflow("alarms", sql)
    system.wait_hydrated("alarms")
    wait_for("no alarm", lambda: rows(system, "SELECT * FROM alarms") == [], system.log)

    broken = "SELECT id, 1 DIV id AS inverse FROM shop.orders"
    system.dataflow("inverse", broken)
    orders = system.folder / "orders.csv"
    orders.write_text("id\n0\n")
    inserted = system.tidemark("insert", "shop.orders", "--from", str(orders), "-n", system.namespace)
    assert inserted.returncode == 0, inserted.stderr
    alarm = ("error", "inverse.inverse")
    wait_for("the alarm", lambda: alarm in rows(system, "SELECT * FROM alarms"), system.log)
    deleted = system.tidemark("insert", "shop.orders", "--from", str(orders), "-n", system.namespace, "--delete")
    assert deleted.returncode == 0, deleted.stderr
    wait_for("no alarm again", lambda: alarm not in rows(system, "SELECT * FROM alarms"), system.log)
    system.kubectl("delete", "dataflow", "inverse", "alarms")
    system.kubectl("delete", "datasource", "watch")


def test_a_relation_is_removed_and_added_again(system: System) -> None:
    spec = {"instance": "default", "tick": "1s"}
    most = [name for name in TABLES if name != "peeks"]
    system.apply("DataSource", "system", {**spec, "introspection": {"relations": most}})
    gone = "relation system.peeks does not exist"

    def said() -> str:
        return system.tidemark("query", "SELECT count(*) FROM system.peeks", "-n", system.namespace).stderr

    wait_for("the table to go", lambda: gone in said(), system.log)
    system.apply("DataSource", "system", {**spec, "introspection": {}})
    wait_for("the table to be back", lambda: gone not in said(), system.log)
    back = written_until(system)
    wait_for("the new table to go on", lambda: written_until(system) > back, system.log)


def written_until(system: System) -> int:
    """The frontier of the table of peeks, as the operator knows it; -1: there is none."""
    return int(system.live_frontiers().get("system.peeks", {}).get("write", -1))
