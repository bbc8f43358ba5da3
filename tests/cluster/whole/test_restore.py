"""A namespace is lost and restored under another name, from its manifests and a copy of its tables.

The commands are those of docs/guides/backup-and-restore.md; only the copy, which is the store's own matter, is not.

bucket   <root>/<lost>/...  ─ copied while nothing writes ─►  <root>/<again>/...  ◄─ adopted, under the ids they have
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from pyarrow.fs import FileSelector, FileType

from tests.cluster import pods
from tests.cluster.waiting import wait_for
from tests.cluster.whole.system import CREDENTIALS, SMALL, System
from tests.cluster.whole.test_replica_on_pods import REVENUE
from tests.e2e.oracle import expanded, rows_of
from tests.runbooks.guides import Block, Shell, blocks
from tidemark_devcluster.images.build import image_name
from tidemark_persist import open_shard
from tidemark_persist.storage.storage import Storage

GUIDE = "backup-and-restore"
JOB = Path(__file__).parents[1] / "jobs" / "copy_objects.py"
INPUTS = ("customer", "orders", "lineitem", "nation")
BINDINGS = ("tpch", "__remap")
"""The bindings, which say how far the source was read: the source keeps no more of its history than it needs."""
PARTS = (("revenue", "revenue"), ("tpch", "orders"), ("tpch", "lineitem"), BINDINGS)
DELETION_SECONDS = 600.0


@dataclass(frozen=True)
class Kept:
    """The contents of a table and its owner, which must be found again."""

    id: str
    upper: int
    rows: list[tuple[object, ...]]


def test_a_lost_namespace_comes_back_under_another_name(ready: System, tmp_path: Path) -> None:
    """Each time that was readable is, with the same rows; tables have their ids, and go on where they ended; nothing is
    ingested a second time.
    """
    root = f"{ready.team}-kept"
    lost, again = (replace(ready, team=f"{ready.team}-{name}", root=root) for name in ("lost", "again"))
    shell = Shell(ready.node.layout.kubectl, ready.node.layout.kubeconfig, lost.team, tmp_path)
    shell.prepare()
    begin(lost)
    earlier = int(wait_for("a time", lambda: max(lost.frontier("revenue") - 1, 0), lost.explain))

    shell.follow(GUIDE, "Save the manifests")
    suspend, _ = commands("Save the bucket")
    shell.run(suspend)
    goes_on_elsewhere(lost, again, shell, earlier)


def goes_on_elsewhere(lost: System, again: System, shell: Shell, earlier: int) -> None:
    """Nothing writes to what is lost, and its manifests are saved."""
    with lost.bucket() as settings:
        # of bindings no history is promised: an ingestion compacts them every minute
        kept = {part: what_is_kept(lost.shard(*part), 0 if part == BINDINGS else earlier, settings) for part in PARTS}
    copy(lost, f"{lost.location}/{lost.team}", f"{again.location}/{again.team}")
    lost.node.kubectl("delete", "namespace", lost.team, seconds=DELETION_SECONDS)

    make_namespace, *restore = commands("Restore")
    elsewhere = replace(shell, namespace=again.team)
    elsewhere.run(make_namespace)
    prepare(again)
    for command in restore:
        elsewhere.run(command)

    again.right_at_a_new_frontier("revenue", REVENUE, *INPUTS)
    again.wait_progress("regions")
    with again.bucket() as settings:
        for part, before in kept.items():
            shard = open_shard(again.shard(*part), settings)
            assert shard.shard_id == before.id
            assert shard.refresh().upper >= before.upper
            assert part == BINDINGS or rows_of(expanded(shard.snapshot(earlier))) == before.rows
            assert not files(again.shard(*part, version=2), settings)
        keys = expanded(open_shard(again.shard("tpch", "orders"), settings).snapshot(again.frontier("revenue") - 1))
        assert len(set(keys.column("o_orderkey").to_pylist())) == keys.num_rows, "orders were ingested twice"
    again.node.kubectl("delete", "namespace", again.team, seconds=DELETION_SECONDS)


def begin(system: System) -> None:
    """A namespace like that of the other tests, but that Spark runs in the driver."""
    system.node.kubectl("create", "namespace", system.team)
    prepare(system)
    storage = {"location": system.location, "secretName": CREDENTIALS}
    system.apply("ComputeInstance", "default", {"storage": storage, "readPolicy": {"lag": "30m"}})
    system.apply("ComputeReplica", "r1", {"instance": "default", "resources": SMALL})
    for example in ("20-tpch.yaml", "40-revenue.yaml", "41-regions.yaml"):
        system.example(example)
    for dataflow in ("revenue", "regions"):
        system.wait_condition("dataflow", dataflow, "Ready")


def prepare(system: System) -> None:
    """The objects that are there before any manifest of ours: unprivileged pods alone, and the store's credentials."""
    system.node.kubectl("apply", "--filename=-", stdin=pods.restricted_namespace(system.team))
    pods.apply(system.node, system.team, system.store.secret(CREDENTIALS))


def commands(heading: str) -> list[Block]:
    """The commands of the guide that are run as they stand."""
    return [block for block in blocks(GUIDE) if (block.heading, block.kind) == (heading, "sh")]


def what_is_kept(location: str, at: int, settings: Mapping[str, str]) -> Kept:
    """With the rows of that time; 0: without any."""
    shard = open_shard(location, settings)
    return Kept(shard.shard_id, shard.refresh().upper, rows_of(expanded(shard.snapshot(at))) if at else [])


def files(location: str, settings: Mapping[str, str]) -> list[str]:
    """All that is below, however deep."""
    found = Storage.at(location, settings).fs.get_file_info(FileSelector("", recursive=True, allow_not_found=True))
    return [str(each.path) for each in found if each.type == FileType.File]


def copy(system: System, source: str, target: str) -> None:
    """In the cluster, as the store's own tools would."""
    where = [{"name": "SOURCE", "value": source}, {"name": "TARGET", "value": target}]
    secret = [{"secretRef": {"name": CREDENTIALS}}]
    made = pods.pod("copy", image_name("replica"), ["copy_job"], env=where, envFrom=secret)
    pods.apply(system.node, system.team, pods.config_map("job", {"copy_job.py": JOB.read_text()}))
    output = pods.run(system.node, system.team, pods.with_files(made, "job"), seconds=DELETION_SECONDS)
    assert "copied" in output


def test_the_guide_has_the_commands_that_are_followed() -> None:
    """Suspend and resume; make the namespace, take what was saved, create."""
    assert [len(commands(heading)) for heading in ("Save the bucket", "Restore")] == [2, 3]
