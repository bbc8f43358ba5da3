"""Runbooks followed word for word: on a control plane, with an operator and replicas that are processes.

A backup is restored into a namespace that was deleted: no time that was readable is lost, nothing is ingested twice.
"""

from __future__ import annotations

import re
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from tests.e2e.oracle import by_duckdb, expanded, rows_of
from tests.e2e.system import System, running, wait_for
from tests.runbooks.guides import GUIDES, Shell
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_persist import open_shard

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.cluster,
    pytest.mark.slow,
    pytest.mark.timeout(3600),  # whole runbooks, with a namespace lost and restored
]
REVENUE = """SELECT c.c_nationkey, count(*) AS orders, sum(o.o_totalprice) AS total
    FROM tpch.orders o JOIN tpch.customer c ON c.c_custkey = o.o_custkey GROUP BY c.c_nationkey"""


@dataclass(frozen=True)
class Followed:
    system: System
    shell: Shell


@pytest.fixture(scope="module")
def followed(control_plane: ControlPlane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Followed]:
    """A system with a view and its source. Its Lease is elsewhere: the namespace is deleted and made anew."""
    namespace, lease = (f"run-{secrets.token_hex(4)}" for _ in range(2))
    for name in (namespace, lease):
        control_plane.kubectl("create", "namespace", name)
    home = tmp_path_factory.mktemp("runbooks")
    environ = {"TIDEMARK_GATEWAY_FILE": str(home / "gateway.json"), "LOCATION": str(home / "shards")}
    environ |= {"BACKUP": str(home / "backup"), "NEW_KEY": "key", "NEW_SECRET": "secret"}
    (home / "backup").mkdir()
    shell = Shell(control_plane.layout.kubectl, control_plane.kubeconfig, namespace, home, environ)
    shell.prepare()
    with running(control_plane, namespace, home, "--lease-namespace", lease) as system:
        system.base(readPolicy={"lag": "30m"})
        system.tpch()
        system.dataflow("revenue", REVENUE)
        system.wait_hydrated("revenue")
        yield Followed(system, shell)
    for name in (namespace, lease):
        control_plane.kubectl("delete", "namespace", name, "--wait=false")


def test_a_slow_view_is_looked_into(followed: Followed) -> None:
    """Each statement has an answer that names the view."""
    system = followed.system
    wait_for("operators to be told", lambda: system.query("SELECT * FROM tidemark_introspection.operators")["rows"])

    outputs = followed.shell.follow("slow-views")

    assert "revenue" in outputs["Is it behind?"]
    assert "revenue" in outputs["What holds it back?"]
    assert "join" in outputs["Which operator is it?"]


def test_the_page_about_cost(followed: Followed) -> None:
    """By Dataflow and replica."""
    assert "revenue" in followed.shell.follow("cost")["What it costs"]


def test_a_view_that_is_refreshed_daily_is_ended(followed: Followed) -> None:
    """The page's own manifest, and its commands."""
    system = followed.system
    (text,) = re.findall(r"```yaml\n(.*?)```", (GUIDES / "refreshes-and-ends.md").read_text(), re.DOTALL)
    system.apply("Dataflow", "daily", yaml.safe_load(text)["spec"])
    system.wait_hydrated("daily")

    outputs = followed.shell.follow("refreshes-and-ends")

    assert "dataflow.compute.tidemark.dev/daily condition met" in outputs["Ends"]
    system.wait_condition("dataflow", "daily", "Ready")
    assert system.query("SELECT sum(orders) > 0 AS any FROM daily")["rows"]


def test_the_page_about_operations(followed: Followed) -> None:
    """The commands work for a view without problems, too, and for its instance."""
    outputs = followed.shell.follow("operations") | followed.shell.follow("object-stores")

    assert "revenue" in outputs["What holds a view back"]
    assert "dataflow.compute.tidemark.dev/revenue annotated" in outputs["A Dataflow that kills its replicas"]
    assert "Progressing" in outputs["Editing a Dataflow that others read"]
    assert outputs["What is wrong"]
    followed.system.wait_condition("dataflow", "revenue", "Ready")


def test_an_upgrade_begins_and_ends_with_everything_ready(followed: Followed) -> None:
    """The CustomResourceDefinitions as they are now go over themselves."""
    outputs = followed.shell.follow("upgrade")

    assert (
        "customresourcedefinition.apiextensions.k8s.io/dataflows.compute.tidemark.dev serverside-applied"
        in (outputs["The upgrade"])
    )
    assert "dataflow.compute.tidemark.dev/revenue condition met" in outputs["After"]


def test_credentials_are_replaced(followed: Followed) -> None:
    """The Secret is made, and made again."""
    store = "Credentials of the object store"
    for headings in ((), (store,)):
        outputs = followed.shell.follow("secrets", *headings)[store]
        assert "computeinstance.compute.tidemark.dev/default condition met" in outputs


def contents(system: System, at: int) -> list[tuple[object, ...]]:
    return rows_of(expanded(system.contents("revenue", "revenue", at)))


def lose(system: System) -> None:
    """The namespace, with all that is in it, and the processes of its replicas."""
    pids = system.replica_pids().values()
    system.plane.kubectl("delete", "namespace", system.namespace, "--timeout=230s")
    wait_for("its replicas to end", lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids), system.log)


def later_than(system: System, time: int) -> int:
    """A time past this one at which the view is complete."""
    return int(wait_for("the view to move on", lambda: (now := system.frontier("revenue")) > time + 1 and now)) - 1


def is_right(system: System, at: int) -> None:
    """The view has what a batch over its inputs' contents at that time answers."""
    tables = {f"tpch.{name}": expanded(system.contents("tpch", name, at)) for name in ("orders", "customer")}
    assert contents(system, at) == by_duckdb(REVENUE, tables) != []


def test_a_backup_is_restored_into_a_fresh_namespace_without_a_lost_time(followed: Followed) -> None:
    """Tables are gone on with where they end: contents at earlier times are as they were, later ones are right."""
    system, shell = followed.system, followed.shell
    shell.follow("backup-and-restore", "Save the manifests", "Save the bucket")
    assert (system.home / "backup" / system.namespace / "revenue" / "revenue" / "v1" / "_delta_log").is_dir()
    system.wait_condition("computereplica", "r1", "Online")
    system.wait_hydrated("revenue")
    earlier = wait_for("a time", lambda: system.frontier("revenue")) - 1
    before = contents(system, earlier)
    assert before
    upper, uid = system.frontier("revenue"), system.get("dataflow", "revenue")["metadata"]["uid"]

    lose(system)
    shell.follow("backup-and-restore", "Restore")

    assert system.get("dataflow", "revenue")["metadata"]["uid"] != uid
    later = later_than(system, upper)
    assert contents(system, earlier) == before
    for name, part in (("revenue", "revenue"), ("tpch", "orders"), ("tpch", "__remap")):
        shard = open_shard(str(system.shard(name, part)))
        assert shard.shard_id.startswith(uid) == (name == "revenue")
        assert not system.shard(name, part, version=2).exists()
    is_right(system, later)


def test_a_lost_bucket_is_put_back_from_its_copy(followed: Followed) -> None:
    """Newer rows than the copy are ingested again, at later times; the view is right at each of its own."""
    system, shell = followed.system, followed.shell
    shutil.rmtree(system.home / "backup" / system.namespace, ignore_errors=True)
    shell.follow("backup-and-restore", "Save the manifests", "Save the bucket")
    copied = open_shard(str(system.home / "backup" / system.namespace / "revenue" / "revenue" / "v1"))
    earlier = copied.refresh().upper - 1
    before = rows_of(expanded(copied.snapshot(earlier)))
    lose(system)
    shutil.rmtree(system.shards / system.namespace)
    shutil.copytree(system.home / "backup" / system.namespace, system.shards / system.namespace)

    shell.follow("backup-and-restore", "Restore")

    assert contents(system, earlier) == before
    is_right(system, later_than(system, earlier))


def test_replicas_come_go_and_grow(followed: Followed) -> None:
    """The view can be read after each change."""
    outputs = followed.shell.follow("resize")

    assert "\nr2 " in outputs["One less"]
    assert "\nr1 " not in outputs["One less"]
    assert "computereplica.compute.tidemark.dev/r2 condition met" in outputs["More memory, more cores"]
    followed.system.wait_condition("dataflow", "revenue", "Ready")
    assert followed.system.query("SELECT count(*) AS n FROM revenue")["rows"]


def test_uninstalling_in_good_order_leaves_no_object_and_no_table_that_was_to_go(followed: Followed) -> None:
    """A source and its view on `Delete` go with their tables; those of others stay."""
    system = followed.system
    generator = {"tpch": {"scaleFactor": 0.001, "transactionsPerSecond": 5}}
    passing = {"instance": "default", "deletionPolicy": "Delete"}
    system.apply("DataSource", "passing", {**passing, "loadGenerator": generator})
    sql = "SELECT n_regionkey, count(*) AS nations FROM passing.nation GROUP BY n_regionkey"
    system.apply("Dataflow", "regions", {**passing, "sql": sql, "materializedView": {}})
    system.wait_hydrated("regions")
    kept = system.shards / system.namespace
    assert {path.name for path in kept.iterdir()} >= {"passing", "regions", "revenue", "tpch"}

    followed.shell.follow("uninstall", "Uninstalling")

    kinds = "dataflows,datasources,computereplicas,computeinstances"
    assert system.kubectl("get", kinds, "-o", "name") == ""
    assert system.shard("revenue", "revenue").exists()
    assert [path for name in ("passing", "regions") for path in (kept / name).rglob("*") if path.is_file()] == []
    # stored plans are collected a little later; a tombstone would stay
    wait_for(
        "stored plans to go",
        lambda: system.kubectl("get", "controllerrevisions", "-o", "name") == "",
        lambda: system.kubectl("get", "controllerrevisions", "-o", "yaml"),
    )
