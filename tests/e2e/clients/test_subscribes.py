"""Subscribes and copies over two replicas, either of which may die at any moment."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections import Counter
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.directory_listing import matching
from tests.e2e.clients.subscription import Row, following
from tests.e2e.system import CLI, PATIENCE_SECONDS, System, is_to_be_asked_again, wait_for

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

ORDERS = "SELECT o_orderkey, o_orderstatus, CAST(o_totalprice AS string) AS price FROM tpch.orders"
# some 150,000 rows at one time: many batches, each ending within that time
WIDE = """SELECT l_orderkey, l_linenumber, l_comment, n_nationkey, n_comment
FROM tpch.lineitem JOIN tpch.nation ON n_nationkey < 12"""
FOREVER = "SELECT a.l_comment FROM tpch.lineitem a, tpch.lineitem b, tpch.lineitem c WHERE a.l_comment < b.l_comment"


@pytest.fixture(scope="module")
def both(system: System) -> System:
    """The system with a second replica."""
    system.apply(
        "ComputeReplica", "r2", {"instance": "default", "resources": {"limits": {"cpu": 2, "memory": "1536Mi"}}}
    )
    return system


@pytest.fixture(autouse=True)
def at_work(both: System) -> None:
    """Both answer, whatever the test before did to them."""
    for name in ("r1", "r2"):
        wait_for(f"{name} to answer", lambda name=name: answers(both, name), both.log)


def answers(system: System, replica: str) -> bool:
    """Asked itself: after a kill its status goes on saying that it is well for a while."""
    count = ("query", "SELECT count(*) FROM tpch.orders", "--replica", replica, "-n", system.namespace)
    return system.tidemark(*count).returncode == 0


def pid_of(system: System, replica: str) -> int:
    """The replica's process; homes are named by uid."""
    uid = system.get("computereplica", replica)["metadata"]["uid"]
    (pid,) = (pid for home, pid in system.replica_pids().items() if uid in home)
    return pid


def contents(system: System, table: str, at: int, *columns: str) -> Counter[Row]:
    """Off the Delta table."""
    rows = system.contents("tpch", table, at).to_pylist()
    total: Counter[Row] = Counter()
    for row in rows:
        total[tuple(str(row[c]) if c == "o_totalprice" else row[c] for c in columns)] += row["__diff"]
    return total


def test_crash_a_subscribe_goes_on_without_gap_or_duplicate_when_replicas_are_killed(both: System) -> None:
    """SIGKILL, first to one, and when that is back, to the other: the changes add up to the table all the same."""
    with following(both, ORDERS, "--progress") as followed:
        for replica in ("r1", "r2"):
            seen = len(followed.progress)
            wait_for("changes", lambda seen=seen: len(followed.progress) > seen + 3, both.log)
            os.kill(pid_of(both, replica), signal.SIGKILL)
            seen = len(followed.progress)
            wait_for("more changes", lambda seen=seen: len(followed.progress) > seen + 5, both.log)
            wait_for("it to be back", lambda replica=replica: answers(both, replica), both.log)
        wait_for("times enough", lambda: len({t for t, _, _ in [*followed.changes]}) > 5, both.log)
        upper = followed.progress[-1]
        assert upper is not None
        expected = contents(both, "orders", upper - 1, "o_orderkey", "o_orderstatus", "o_totalprice")
        assert followed.end() == 130

    assert followed.before(upper) == expected


def test_crash_of_the_leader_within_a_snapshot_repeats_no_row_of_a_subscribe(both: System) -> None:
    """The snapshot is in many batches; a replica is killed after the first of its lines."""
    at = both.query("SELECT count(*) AS n FROM tpch.lineitem")["as_of"]
    with following(both, WIDE, "--as-of", str(at), "--up-to", str(at + 1)) as followed:
        wait_for("the first rows", lambda: followed.changes or followed.process.poll() is not None, both.log)
        os.kill(pid_of(both, "r1"), signal.SIGKILL)
        assert followed.wait() == 0, both.log()

    lines = contents(both, "lineitem", at, "l_orderkey", "l_linenumber", "l_comment")
    reported = followed.before(at + 1)
    assert sum(reported.values()) == 12 * sum(lines.values())
    assert Counter({row[:3]: 0 for row in reported}).keys() == lines.keys()
    assert {t for t, _, _ in followed.changes} == {at}


def test_a_subscribe_that_one_replica_tells_ends_with_it(both: System) -> None:
    """Though another could go on: whoever asked for it wanted to know what that replica says."""
    with following(both, ORDERS, "--progress", "--replica", "r2") as followed:
        wait_for("progress", lambda: followed.progress or followed.process.poll() is not None, both.log)
        os.kill(pid_of(both, "r2"), signal.SIGKILL)
        assert followed.wait() == 1, both.log()
    assert "replica r2, which alone serves this subscribe, was lost" in followed.said()


def test_subscribes_end_where_and_why_they_should(both: System) -> None:
    """At up_to, at an error of the data, at a text that is refused; without the snapshot only changes are told."""
    at = both.query("SELECT count(*) AS n FROM tpch.orders")["as_of"]
    with following(both, "tpch.nation", "--as-of", str(at), "--up-to", str(at + 1)) as followed:
        assert followed.wait() == 0
        assert sum(followed.before(at + 1).values()) == 25
    with following(both, ORDERS, "--no-snapshot", "--as-of", str(at), "--up-to", str(at + 3000)) as followed:
        assert followed.wait() == 0, both.log()
        assert all(at < t < at + 3000 for t, _, _ in followed.changes)
    for subject, options, message in (
        ("SELECT 1 / (n_regionkey - 1) AS x FROM tpch.nation", (), "the subscribe is in error: EXPRESSION_FAILED"),
        ("SELECT n_nam FROM tpch.nation", (), "n_nam"),
        ("nowhere", (), "nowhere"),
        ("tpch.nation", ("--up-to", "5"), "choose a later end"),
    ):
        done = both.tidemark("subscribe", subject, "-n", both.namespace, *options)
        assert (done.returncode, message in done.stderr) == (1, True), done.stderr
    at = both.query("SELECT count(*) AS n FROM tpch.orders")["as_of"]
    shown = both.tidemark("subscribe", "tpch.region", "-n", both.namespace, "--as-of", str(at), "--up-to", str(at + 1))
    assert shown.stdout.splitlines()[0].split()[:3] == ["__time", "__diff", "r_regionkey"]
    assert len(shown.stdout.splitlines()) == 6


def test_a_cancelled_subscribe_leaves_nothing_on_replicas(both: System) -> None:
    """Ctrl-C, of a subscribe and of a copy: the folders of their dataflows go, and no file comes to be."""
    wait_for("earlier ones to go", lambda: not scratch(both), both.log)
    with following(both, ORDERS, "--progress") as followed:
        wait_for("progress", lambda: followed.progress, both.log)
        assert scratch(both)
        assert followed.end() == 130
    wait_for("its files to go", lambda: not scratch(both), both.log)

    copying = copy_under_way(both, FOREVER)
    copying.send_signal(signal.SIGINT)
    assert copying.wait(PATIENCE_SECONDS) == 130
    wait_for("its files to go", lambda: not scratch(both), both.log)
    assert not (both.shards / both.namespace / "_copies" / "never").exists()


def copy_under_way(system: System, sql: str) -> subprocess.Popen[str]:
    """One that runs on a replica; asked for again where the planner had no time for it."""
    command = [*CLI, "copy", sql, "--to", "never", "--format", "csv"]
    command += ["-n", system.namespace, "--gateway-file", str(system.home / "gateway.json")]
    while True:
        asked = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        wait_for("the copy to run", lambda asked=asked: scratch(system) or asked.poll() is not None, system.log)
        if asked.poll() is None:
            return asked
        output = asked.communicate()[1]
        assert is_to_be_asked_again(output), output


def scratch(system: System) -> set[str]:
    """The folders of dataflows in the replicas' scratch."""
    return {str(p) for p in matching(system.home / "operator" / "replicas", "*/scratch/*/dataflows/*")}


def test_a_copy_is_the_table_at_one_time(both: System) -> None:
    """Parquet and CSV, the same rows; what exists is not touched; nothing is left of what failed."""
    sql = "SELECT o_orderkey, o_orderstatus, o_clerk FROM tpch.orders WHERE o_orderkey < 500"
    copied = both.tidemark("copy", sql, "--to", "day/one", "--format", "parquet", "-o", "json", "-n", both.namespace)
    assert copied.returncode == 0, copied.stderr + both.log()
    document = json.loads(copied.stdout)
    rows = [
        tuple(r.values()) for f in Path(document["location"]).glob("*.parquet") for r in pq.read_table(f).to_pylist()
    ]
    expected = contents(both, "orders", document["as_of"], "o_orderkey", "o_orderstatus", "o_clerk")
    assert Counter(rows) == Counter({row: n for row, n in expected.items() if row[0] < 500})
    assert document["rows"] == len(rows)

    at = ("--as-of", str(document["as_of"]))
    text = both.tidemark("copy", sql, "--to", "day/two", "--format", "csv", "-o", "json", *at, "-n", both.namespace)
    assert text.returncode == 0, text.stderr + both.log()
    folder = Path(json.loads(text.stdout)["location"])
    lines = [line for f in folder.glob("*.csv") for line in f.read_text().splitlines()[1:]]
    assert sorted(lines) == sorted(",".join(map(str, row)) for row in rows)

    for options, subject, why in (
        (("--to", "day/one"), sql, "exists"),
        (("--to", "/etc/x"), sql, "is outside the folder for copies"),
        (("--to", "s3://bucket/x"), sql, "s3:// is not supported"),
        (("--to", "../x"), sql, "is not a location for a copy"),
        (("--to", "bad"), "SELECT 1 / (n_regionkey - 1) AS x FROM tpch.nation", "is in error: EXPRESSION_FAILED"),
    ):
        done = both.tidemark("copy", subject, *options, "--format", "parquet", "-n", both.namespace)
        assert (done.returncode, why in done.stderr) == (1, True), done.stderr
    folder = both.shards / both.namespace / "_copies"
    wait_for("attempts to end", lambda: not matching(folder, ".staging/*"), both.log)
    assert sorted(str(p.relative_to(folder)) for p in folder.glob("*/*")) == ["day/one", "day/two"]
