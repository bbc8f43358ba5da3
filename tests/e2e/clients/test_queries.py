"""One-shot queries: any SELECT over tables and exports, as of one time, without leftovers."""

from __future__ import annotations

import json
import os
import signal
import subprocess

import pytest

from tests.directory_listing import matching
from tests.e2e.oracle import by_duckdb, expanded
from tests.e2e.system import CLI, PATIENCE_SECONDS, System, is_to_be_asked_again, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

BY_NATION = "SELECT c_nationkey, count(*) AS customers FROM tpch.customer GROUP BY c_nationkey"
# an index joined with tables, aggregated again, and finished: rows come in this order
BUSIEST = """
WITH busy AS (
  SELECT n.n_regionkey AS region, b.customers, (SELECT count(*) FROM tpch.orders) AS orders
  FROM {by_nation} b JOIN tpch.nation n ON n.n_nationkey = b.c_nationkey
)
SELECT region, sum(customers) AS customers, max(orders) AS orders FROM busy GROUP BY region
ORDER BY customers DESC, region LIMIT 3
"""
# of three tables each compared with the next: a factor that nothing is compared with could be counted by itself
FOREVER = """SELECT count(*) FROM tpch.lineitem a, tpch.lineitem b, tpch.lineitem c
WHERE a.l_comment < b.l_comment AND b.l_comment < c.l_comment"""


def test_oracle_any_select_is_answered_as_of_one_time(system: System) -> None:
    """Twice at the same time, the same answer; it is DuckDB's."""
    _by_nation(system)
    sql = BUSIEST.format(by_nation="`by-nation`")
    answer = system.query(sql)
    at = answer["as_of"]
    tables = {f"tpch.{t}": expanded(system.contents("tpch", t, at)) for t in ("customer", "nation", "orders")}
    expected = by_duckdb(BUSIEST.format(by_nation=f"({BY_NATION})"), tables)

    assert sorted(tuple(str(v) for v in r.values()) for r in answer["rows"]) == sorted(expected)
    assert [r["customers"] for r in answer["rows"]] == sorted((r["customers"] for r in answer["rows"]), reverse=True)
    assert answer["export"] is None
    assert system.query(sql, as_of=at) == answer
    assert system.query("SELECT 1 + 1 AS two")["rows"] == [{"two": 2}]
    wait_for("the queries' files to go", lambda: len(_scratch(system)) == 1, system.log)


def test_a_refused_query_has_its_reason_and_no_effect(system: System) -> None:
    """An error of the data, an error of the text, a time that is gone."""
    for sql, message in {
        "SELECT sum(1 / (n_regionkey - 1)) FROM tpch.nation": "EXPRESSION_FAILED in (1.0D",
        "SELECT count(n_nam) FROM tpch.nation": "n_nam",
        "SELECT count(*) FROM tpch.nation TABLESAMPLE (5 PERCENT)": "TABLESAMPLE",
    }.items():
        done = system.tidemark("query", sql, "-n", system.namespace)
        assert (done.returncode, message in done.stderr) == (1, True), done.stderr
    count = ("query", "SELECT count(*) FROM tpch.orders")
    old = (*count, "-n", system.namespace, "--as-of", "1")
    wait_for("the table's first times to go", lambda: "any more" in system.tidemark(*old).stderr, system.log)
    for command in (
        count,
        ("subscribe", "tpch.orders"),
        ("copy", "tpch.orders", "--to", "past", "--format", "csv"),
    ):
        for time, says in {"1": "cannot be read at 1 any more: only from", str(2**62): "and before"}.items():
            done = system.tidemark(*command, "-n", system.namespace, "--as-of", time)
            assert (done.returncode, says in done.stderr) == (1, True), done.stderr
    done = system.tidemark("query", "SELECT count(*) FROM tpch.orders", "-n", system.namespace, "--instance", "nowhere")
    assert "no ComputeInstance nowhere" in done.stderr

    assert system.query("SELECT count(*) AS n FROM tpch.nation")["rows"] == [{"n": 25}]


def test_crash_reads_are_answered_while_the_planner_is_away(system: System) -> None:
    """Plain SELECTs over a table, a view and an index, and a statement that was planned before with other literals.
    The planner, once it is back, has the same answers to the same statements."""
    _by_nation(system)
    system.dataflow("nations", "SELECT n_name, n_regionkey FROM tpch.nation")
    system.wait_hydrated("nations")
    known = "SELECT c_mktsegment, count(*) AS n FROM tpch.customer WHERE c_custkey > {n} GROUP BY c_mktsegment"
    for number in (3, 5):
        system.query(known.format(n=number))
    statements = (
        "SELECT n_name, n_nationkey FROM tpch.nation WHERE n_regionkey = 2",
        "SELECT n_regionkey FROM nations WHERE n_name = 'PERU'",
        "SELECT * FROM nations",
        "SELECT customers FROM `by-nation` WHERE c_nationkey = 7 LIMIT 3",
        known.format(n=20),
    )
    planner = int(json.loads((system.home / "operator" / "planner" / "process.json").read_text())["pid"])
    os.kill(planner, signal.SIGSTOP)
    try:
        answers = [system.query(sql) for sql in statements]
    finally:
        os.kill(planner, signal.SIGCONT)
    for sql, answer in zip(statements, answers, strict=True):
        planned = system.query(f"/* as the planner plans it */ {sql}", as_of=answer["as_of"])
        assert planned["export"] == answer["export"], sql
        assert sorted(map(str, planned["rows"])) == sorted(map(str, answer["rows"])), sql
    assert answers[1]["rows"] == [{"n_regionkey": 1}]
    system.kubectl("delete", "dataflow", "nations")
    wait_for("its files to go", lambda: len(_scratch(system)) == 1, system.log)


def test_crash_a_query_that_is_given_up_or_orphaned_ends_on_the_replica(system: System) -> None:
    """Ctrl-C, and SIGKILL of the operator: the replica frees what it had, and goes on answering."""
    _by_nation(system)
    with _under_way(system, FOREVER) as asked:
        asked.send_signal(signal.SIGINT)
        assert asked.wait(PATIENCE_SECONDS) == 130
    wait_for("the query's files to go", lambda: len(_scratch(system)) == 1, system.log)

    with _under_way(system, FOREVER) as asked:
        system.kill_operator()
        assert asked.wait(PATIENCE_SECONDS) == 1
    (system.home / "gateway.json").unlink()
    system.start_operator()
    wait_for("the orphan's files to go", lambda: len(_scratch(system)) == 1, system.log)
    wait_for("an answer", lambda: _counts(system), system.log)


def test_crash_a_query_outlives_the_replica_that_computes_it(system: System) -> None:
    """Killed in the middle, the replica computes it anew: as of the same time, so that the answer is the same."""
    expected = system.query("SELECT count(*) AS n, sum(l_quantity) AS q FROM tpch.lineitem")
    at = str(expected["as_of"])
    slow = """SELECT count(*) AS n, sum(q) AS q FROM (
        SELECT DISTINCT l_orderkey, l_linenumber, l_quantity AS q FROM tpch.lineitem)"""
    _by_nation(system)
    why = "no replica of ComputeInstance"
    while "no replica of ComputeInstance" in why:  # a busy machine takes more than a minute to start one
        with _under_way(system, slow, "--as-of", at) as asked:
            system.kill_replica()
            output, why = asked.communicate(timeout=2 * PATIENCE_SECONDS)
        wait_for("the replica to answer again", lambda: _counts(system), system.log)

    assert asked.returncode == 0, why + system.log()
    assert [cell.strip() for cell in output.splitlines()[1].split("  ") if cell.strip()] == [
        str(v) for v in expected["rows"][0].values()
    ]


def test_a_large_answer_comes_whole_and_past_the_maximum_not_at_all(system: System) -> None:
    """The answer has 60 MB, in any order and in the one asked for; `maxResultSize` counts at once. No folder keeps any
    of it."""
    sql = "SELECT id, repeat(CAST(id AS STRING), 200) AS text FROM range(0, 60000)"
    expected = [{"id": id, "text": str(id) * 200} for id in range(60_000)]
    assert sorted(system.query(sql)["rows"], key=lambda row: int(row["id"])) == expected
    assert system.query(f"{sql} ORDER BY id DESC LIMIT 50000 OFFSET 5")["rows"] == expected[-6:-50_006:-1]
    _limit(system, "1Mi")
    try:
        refused = wait_for("the maximum to count", lambda: _refused(system, sql), system.log)
        assert "max size of 1048576 bytes" in refused
        assert "spec.maxResultSize" in refused
    finally:
        _limit(system, "1Gi")
    homes = system.home / "operator" / "replicas"
    wait_for("what was kept to go", lambda: not matching(homes, "*/scratch/*/stash/*"), system.log)


def _limit(system: System, size: str) -> None:
    patch = f'{{"spec":{{"maxResultSize":"{size}"}}}}'
    system.kubectl("patch", "computeinstance", "default", "--type=merge", "-p", patch)


def _refused(system: System, sql: str) -> str:
    """The reason of the refusal; empty where the query is answered."""
    return system.tidemark("query", sql, "-n", system.namespace, "-o", "json").stderr


def _by_nation(system: System) -> None:
    """The one Dataflow of this file, and nothing left of earlier queries."""
    system.dataflow("by-nation", BY_NATION, index={"key": ["c_nationkey"]})
    system.wait_hydrated("by-nation")
    wait_for("nothing else to be there", lambda: len(_scratch(system)) == 1, system.log)


def _under_way(system: System, sql: str, *options: str) -> subprocess.Popen[str]:
    """A query that runs on the replica, or has ended; asked again where the planner had no time for it."""
    while True:
        asked = _asking(system, sql, *options)
        wait_for("the query to run", lambda asked=asked: len(_scratch(system)) == 2 or asked.poll() is not None)
        if asked.poll() != 1 or not is_to_be_asked_again(asked.communicate()[1]):
            return asked


def _asking(system: System, sql: str, *options: str) -> subprocess.Popen[str]:
    command = [*CLI, "query", sql, "-n", system.namespace, *options]
    return subprocess.Popen(
        [*command, "--gateway-file", str(system.home / "gateway.json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _scratch(system: System) -> set[str]:
    """The folders of dataflows in the replica's scratch."""
    return {str(p) for p in matching(system.home / "operator" / "replicas", "*/scratch/*/dataflows/*")}


def _counts(system: System) -> bool:
    return system.tidemark("query", "SELECT count(*) AS n FROM tpch.nation", "-n", system.namespace).returncode == 0
