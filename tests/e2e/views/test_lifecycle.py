"""A user's path: missing names, wrong SQL, edits, deletions in any order."""

from __future__ import annotations

import json
import re

import pytest

from tests.e2e.system import System, revisions, wait_for
from tidemark_devcluster.errors import KubectlFailed

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster]

NATIONS = "SELECT n_regionkey, count(*) AS nations FROM tpch.nation GROUP BY n_regionkey"

# SQL -> reason, and what the message names
REFUSED = {
    "does not parse": ("SELECT n_name FORM tpch.nation", "Syntax", r"line 1, column \d+.*"),
    "unknown column": ("SELECT n_nam FROM tpch.nation", "UnresolvedColumn", r"line 1, column 8.*n_nam"),
    "not supported": ("SELECT n_name FROM tpch.nation TABLESAMPLE (5 PERCENT)", "Unsupported", "TABLESAMPLE"),
    "not allowed": ("SELECT reflect('java.lang.System', 'exit', 1) c FROM tpch.nation", "ForbiddenFunction", "reflect"),
    "no name of its own": ("SELECT n_name, n_name FROM tpch.nation", "DuplicateName", "n_name"),
}


def test_sql_that_cannot_be_is_said_where_and_why(system: System) -> None:
    """`Planned=False` with line, column and word; nothing runs."""
    for number, (sql, _, _) in enumerate(REFUSED.values()):
        system.dataflow(f"refused-{number}", sql)
    for number, (_, reason, reported) in enumerate(REFUSED.values()):
        message = system.wait_condition("dataflow", f"refused-{number}", "Planned", "False", reason)
        assert re.search(reported, message), message
    for number in range(len(REFUSED)):
        system.kubectl("delete", "dataflow", f"refused-{number}")


def test_a_missing_input_is_named_and_waited_for(system: System) -> None:
    """A Dataflow may come before what it reads."""
    system.dataflow("early", "SELECT nations FROM late WHERE nations > 4", index={})
    message = system.wait_condition("dataflow", "early", "Planned", "False", "WaitingForInputs")
    assert "late" in message
    system.dataflow("late", NATIONS)
    system.wait_hydrated("early")

    assert [r["nations"] for r in system.query("SELECT nations FROM early")["rows"]] == [5] * 5
    assert "filter [(nations > 4L)]" in system.explain("early")
    assert "Reduce key=" in system.explain(NATIONS)
    assert "no Dataflow nobody" in system.explain("nobody")
    system.kubectl("delete", "dataflow", "early", "late")


def test_a_missing_instance_prints_the_manifest_to_apply(system: System) -> None:
    """And is waited for."""
    system.apply("Dataflow", "homeless", {"instance": "nowhere", "sql": NATIONS, "index": {}})
    message = system.wait_condition("dataflow", "homeless", "InstanceFound", "False", "InstanceNotFound")

    assert "kind: ComputeInstance" in message
    system.kubectl("delete", "dataflow", "homeless")


def test_a_dataflow_and_a_query_speak_postgres(system: System) -> None:
    """Integers divide to integers, NULL comes last, and what is refused has its place in the user's text."""
    sql = "SELECT r_regionkey / 2 AS half,\n  nullif(r_regionkey, 0)::text AS k FROM tpch.region"
    system.dataflow("halves", sql, index={}, dialect="postgres")
    system.wait_hydrated("halves")
    ordered = "SELECT k, half FROM halves ORDER BY k"
    done = system.tidemark("query", ordered, "--dialect", "postgres", "-n", system.namespace, "-o", "json")
    rows = json.loads(done.stdout)["rows"]
    assert [row["k"] for row in rows] == ["1", "2", "3", "4", None]
    assert [row["half"] for row in rows] == [0, 1, 1, 2, 0]
    assert system.query(ordered)["rows"][0]["k"] is None

    system.dataflow("halves", sql.replace("nullif(r_regionkey, 0)", "sqrt(r_regionkey)"), index={}, dialect="postgres")
    message = system.wait_condition("dataflow", "halves", "Planned", "False", "Unsupported")
    assert 'line 2, column 3, at "sqrt"' in message
    assert system.condition("dataflow", "halves", "Ready")["status"] == "True", "the revision before it serves"
    system.kubectl("delete", "dataflow", "halves")


def test_an_edit_replaces_and_an_equal_plan_rehydrates_nothing(system: System) -> None:
    """A label and a read policy leave the computation alone; other SQL replaces it, and whoever reads its table reads
    on: the same table, with the new rows."""
    system.dataflow("edited", NATIONS)
    system.wait_hydrated("edited")
    computed = revisions(system, "edited"), export_ids(system, "edited")
    system.apply(
        "Dataflow",
        "edited",
        {"instance": "default", "sql": NATIONS + "\n", "materializedView": {}, "readPolicy": {"lag": "30s"}},
        labels={"team": "x"},
    )
    system.wait_hydrated("edited")
    system.wait_condition("dataflow", "edited", "Planned")
    assert (revisions(system, "edited"), export_ids(system, "edited")) == computed

    system.dataflow("reader", "SELECT sum(nations) AS n FROM edited", index={})
    system.wait_hydrated("reader")
    reads = revisions(system, "reader")
    system.dataflow("edited", NATIONS.replace("GROUP BY", "WHERE n_regionkey > 1 GROUP BY"))
    system.wait_up_to_date("edited")
    wait_for("the new rows", lambda: len(system.query("SELECT nations FROM edited")["rows"]) == 3, system.log)
    wait_for("its reader", lambda: [r["n"] for r in system.query("SELECT n FROM reader")["rows"]] == [15], system.log)
    assert revisions(system, "reader") == reads
    assert not system.shard("edited", "edited", version=2).exists()

    system.kubectl("delete", "dataflow", "reader")
    system.kubectl("delete", "dataflow", "edited")


def test_manifests_that_cannot_be_are_refused_with_the_field(system: System) -> None:
    """By the API server, before the operator sees them."""
    with pytest.raises(KubectlFailed, match="sql"):
        system.apply("Dataflow", "bad", {"instance": "default", "index": {}})
    with pytest.raises(KubectlFailed, match="location"):
        system.apply("ComputeInstance", "default", {"storage": {"location": "/elsewhere"}})


def test_deleting_in_any_order_leaves_nothing_but_tables(system: System) -> None:
    """The instance first, then the replica, the source, and the views: no process, no scratch, no finalizer."""
    system.dataflow("first", NATIONS)
    system.dataflow("second", "SELECT sum(nations) AS n FROM first", index={})
    system.wait_hydrated("first", "second")
    table = system.shard("first", "first")
    system.kubectl("delete", "computeinstance", "default")
    system.kubectl("delete", "computereplica", "r1")
    wait_for("the replica's process and home to go", lambda: not system.replica_pids(), system.log)
    system.kubectl("delete", "datasource", "tpch", "--wait=false")
    system.kubectl("delete", "dataflow", "first", "--wait=false")
    system.kubectl("delete", "dataflow", "second")
    wait_for(
        "the kinds to be empty",
        lambda: not _remaining_objects(system),
        lambda: str(_remaining_objects(system)) + system.log(),
    )

    assert (table / "_delta_log").is_dir()
    wait_for("homes to go", lambda: not list((system.home / "operator" / "replicas").iterdir()), system.log)


def export_ids(system: System, dataflow: str) -> list[str]:
    """Identities of what is computed: the digest of the plan is part of them."""
    return [export["id"] for export in system.get("dataflow", dataflow)["status"]["exports"]]


def _remaining_objects(system: System) -> str:
    kinds = "computeinstances,computereplicas,datasources,dataflows,controllerrevisions"
    return system.kubectl("get", kinds, "-o", "name")
