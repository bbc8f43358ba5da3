"""All shards in an object store: ingested, hydrated, stepped and deleted there, by replicas that are killed, and that
are known to the store by a Secret which changes under them."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import obstore
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
import yaml

from tests.directory_listing import matching
from tests.e2e.oracle import by_duckdb, expanded, rows_of
from tests.e2e.sources.secrecy import check_secrecy
from tests.e2e.system import CHECKOUT, System, new_namespace, running, wait_for
from tests.s3_server import S3Server, server_beside
from tidemark_devcluster.control_plane.control_plane import ControlPlane
from tidemark_persist.storage.object_reader import open_store
from tidemark_replica.storage.source_secrets import VARIABLE

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.cluster, pytest.mark.broad]

PER_NATION = """
SELECT n.n_name, count(*) AS orders
FROM tpch.orders o
JOIN tpch.customer c ON c.c_custkey = o.o_custkey
JOIN tpch.nation n ON n.n_nationkey = c.c_nationkey
GROUP BY n.n_name
"""
TABLES = ("orders", "customer", "nation")


@dataclass(frozen=True)
class Stored:
    """A system whose shards are reached by the server `first`, until that is closed."""

    system: System
    first: S3Server
    closing: ExitStack


@pytest.fixture(scope="module")
def stored(control_plane: ControlPlane, s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stored]:
    """The operator is told nothing: a Secret says where the store is, and who the replicas are there."""
    home = tmp_path_factory.mktemp("stored")
    with (
        ExitStack() as closing,
        new_namespace(control_plane) as namespace,
        running(control_plane, namespace, home, location=s3.location("shards"), store=s3.environ) as system,
    ):
        first = closing.enter_context(server_beside(s3))
        keep_secret(system, "store", first.environ)
        storage = {"location": system.location, "secretName": "store"}
        system.base(storage=storage, readPolicy={"lag": "10m"})
        yield Stored(system, first, closing)


def keep_secret(system: System, name: str, settings: Mapping[str, str]) -> None:
    body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": dict(settings)}
    system.kubectl("apply", "-f", "-", stdin=yaml.safe_dump(body))


def test_a_problem_of_the_store_is_a_condition_that_ends_with_it(stored: Stored, s3: S3Server) -> None:
    """No Secret, one without a key, a wrong key, no bucket; each is told as what it is, in its turn."""
    system, wrong = stored.system, {"AWS_SECRET_ACCESS_KEY": "x" * 40}
    for name, location in (("other", s3.location("other")), ("lost", "s3://no-such-bucket/x")):
        spec = {"storage": {"location": location, "secretName": name}}
        system.apply("ComputeInstance", name, spec)
        limits = {"resources": {"limits": {"cpu": 1, "memory": "1Gi"}}}
        system.apply("ComputeReplica", f"of-{name}", {"instance": name, **limits})
    keep_secret(system, "lost", s3.environ)

    def told(name: str, reason: str) -> str:
        return system.wait_condition("computeinstance", name, "Ready", "False", reason)

    assert f"there is no Secret {system.namespace}/other" in told("other", "SecretNotFound")
    keep_secret(system, "other", {k: v for k, v in s3.environ.items() if k != "AWS_SECRET_ACCESS_KEY"})
    assert "has no AWS_SECRET_ACCESS_KEY" in told("other", "SecretIncomplete")
    keep_secret(system, "other", {**s3.environ, **wrong})
    assert "check AWS_ACCESS_KEY_ID" in told("other", "StorageAccessDenied")
    assert "create the bucket" in told("lost", "StorageBucketNotFound")
    keep_secret(system, "other", s3.environ)
    system.wait_condition("computeinstance", "other", "Ready")
    system.kubectl("delete", "computereplica", "of-other", "of-lost")
    system.kubectl("delete", "computeinstance", "other", "lost")
    wait_for("their processes to go", lambda: len(system.replica_pids()) <= 1, system.log)
    wait_for("their credentials to go", lambda: _folders(system) <= {f"{system.namespace}.store"}, system.log)


def test_oracle_views_over_an_object_store_are_right_before_and_after_a_kill(stored: Stored, s3: S3Server) -> None:
    """A view, and an index on it: the rows of a batch at the same time, also with other credentials, and also when
    another process went on. Then all of it is deleted, and nothing is left in the store but a copy; and the credentials
    are nowhere that users can see."""
    system = stored.system
    generator = {"tpch": {"scaleFactor": 0.001, "transactionsPerSecond": 20, "seed": 7}}
    source = {"instance": "default", "tick": "1s", "loadGenerator": generator, "deletionPolicy": "Delete"}
    system.apply("DataSource", "tpch", source)
    view = {"instance": "default", "sql": PER_NATION, "materializedView": {}, "deletionPolicy": "Delete"}
    system.apply("Dataflow", "per-nation", view)
    system.dataflow("busy", "SELECT n_name, orders FROM `per-nation` WHERE orders > 50", index={"key": ["n_name"]})
    system.wait_hydrated("per-nation", "busy")
    at = _right_at_a_frontier_after(system, 0)
    pids = system.replica_pids()

    keep_secret(system, "store", s3.environ)
    wait_for(
        "the new credentials", lambda: s3.secret_key == _store_settings(system, "AWS_SECRET_ACCESS_KEY"), system.log
    )
    stored.closing.close()
    at = _right_at_a_frontier_after(system, at)
    assert system.replica_pids() == pids

    check_secrecy(system, *secrets_of(s3, stored.first))
    system.kill_replica()
    wait_for("another process", lambda: system.replica_pids() not in ({}, pids), system.log)
    # nobody has written more than this but the one that was killed
    _right_at_a_frontier_after(system, max(at, system.upper("per-nation", "per-nation")))

    _copies_hold_the_rows(system, s3)
    system.kubectl("delete", "dataflow", "busy", "per-nation")
    system.kubectl("delete", "datasource", "tpch")
    wait_for("the tables to go", lambda: _objects(s3) == [], lambda: f"{_objects(s3)}{system.log()}")


def test_a_bucket_is_ingested_by_an_instance_of_its_own(stored: Stored, s3: S3Server) -> None:
    """examples/bucket, at a server with other keys, which alone are in its Secret: wrong ones are a condition, and
    mended ones count without a restart. They reach the replica that ingests, not the one that computes."""
    system = stored.system
    with server_beside(s3) as store:
        apply_example(system, store)
        put(store, "2026-01-31T22-00.json", {"page": "/", "visitor": 1}, {"page": "/", "visitor": 2})
        put(store, "2026-01-31T23-00.json.gz", {"page": "/", "visitor": 1}, {"page": "/docs", "visitor": 1})
        system.wait_hydrated("visits")
        expected = {"/": (3, 2), "/docs": (1, 1)}
        wait_for("the objects", lambda: visits(system) == expected, system.log)

        pids = system.replica_pids()
        keep_secret(system, "exports-keys", keys_of(store, AWS_SECRET_ACCESS_KEY="x" * 40))
        wait_for("the wrong keys to be told", lambda: tells_of_keys(system), system.log)
        put(store, "2026-02-01T00-00.json", {"page": "/docs", "visitor": 2})
        keep_secret(system, "exports-keys", keys_of(store))
        system.wait_condition("datasource", "exports", "Ingesting")
        wait_for("the object after them", lambda: visits(system) == expected | {"/docs": (2, 2)}, system.log)
        assert system.replica_pids() == pids

        environs = [Path(f"/proc/{pid}/environ").read_text().split("\0") for pid in pids.values()]
        folders = [each.removeprefix(f"{VARIABLE}=") for environ in environs for each in environ if VARIABLE in each]
        assert (len(environs), [Path(folder).name for folder in folders]) == (2, [f"{system.namespace}.ingest"])
        check_secrecy(system, *secrets_of(store))
    for kind, names in (("dataflow", ["visits"]), ("datasource", ["exports"]), ("computereplica", ["ingest"])):
        system.kubectl("delete", kind, *names)
    system.kubectl("delete", "computeinstance", "ingest")


def secrets_of(*servers: S3Server) -> list[str]:
    return [secret for server in servers for secret in (server.secret_key, server.access_key)]


def tells_of_keys(system: System) -> bool:
    """Whether the source does not ingest, and its condition names the keys as the reason."""
    found = system.condition("datasource", "exports", "Ingesting")
    return found.get("status") == "False" and "check AWS_ACCESS_KEY_ID" in found["message"]


def apply_example(system: System, store: S3Server) -> None:
    """Its documents, with the test's stores, ticking faster; tables go with their objects."""
    text = (CHECKOUT / "examples" / "bucket" / "exports.yaml").read_text().replace("tick: 1s", "tick: 200ms")
    for document in yaml.safe_load_all(text):
        kind, name, spec = document["kind"], document["metadata"]["name"], document.get("spec", {})
        if kind == "Secret":
            keep_secret(system, name, keys_of(store))
            continue
        if kind == "ComputeInstance":
            spec["storage"] = {"location": system.location, "secretName": "store"}
        if kind == "DataSource":
            spec["files"] |= {"path": store.location("landing"), "endpoint": store.environ["AWS_ENDPOINT_URL"]}
        if kind in ("DataSource", "Dataflow"):
            spec["deletionPolicy"] = "Delete"
        system.apply(kind, name, spec)


def keys_of(store: S3Server, **others: str) -> dict[str, str]:
    return {name: store.environ[name] for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")} | others


def put(store: S3Server, name: str, *events: dict[str, object]) -> None:
    data = "".join(json.dumps({"at": "2026-01-31T22:00:00Z", **event}) + "\n" for event in events).encode()
    folder = open_store(store.location("landing/events"), store.environ)
    obstore.put(folder, name, gzip.compress(data) if name.endswith(".gz") else data)


def visits(system: System) -> dict[str, tuple[int, int]]:
    rows = system.query("SELECT page, visits, visitors FROM visits")["rows"]
    return {row["page"]: (row["visits"], row["visitors"]) for row in rows}


def _right_at_a_frontier_after(system: System, after: int) -> int:
    at = wait_for("a new frontier", lambda: _complete(system, after), system.log) - 1
    tables = {f"tpch.{t}": expanded(system.contents("tpch", t, at)) for t in TABLES}
    expected = by_duckdb(PER_NATION, tables)
    assert rows_of(expanded(system.contents("per-nation", "per-nation", at))) == expected
    busy = {r["n_name"]: r["orders"] for r in system.query("SELECT n_name, orders FROM busy", as_of=at)["rows"]}
    assert busy == {name: int(orders) for name, orders in expected if int(orders) > 50}
    assert len(expected) > 10
    return int(at)


def _copies_hold_the_rows(system: System, s3: S3Server) -> None:
    """Copies of one time, in both formats, hold the rows; a second one to the same place is refused."""
    for format in ("parquet", "csv"):
        asked = ("copy", "per-nation", "-n", system.namespace, "--to", f"day/{format}", "--format", format)
        done = system.tidemark(*asked)
        assert done.returncode == 0, done.stderr + system.log()
        again = system.tidemark(*asked)
        assert (again.returncode, "exists" in again.stderr) == (1, True)
        place = s3.on_disk(f"{system.location}/{system.namespace}/_copies/day/{format}")
        manifest = json.loads((place / "_manifest.json").read_text())
        read = {"parquet": pq.read_table, "csv": csv.read_csv}[format]
        copied = pa.concat_tables([read(place / name) for name in manifest["files"]])
        held = expanded(system.contents("per-nation", "per-nation", manifest["as_of"]))
        assert rows_of(copied) == rows_of(held.select(copied.column_names))
        assert manifest["rows"] == copied.num_rows > 10


def _complete(system: System, after: int) -> int:
    """A time before which both are complete, if it is beyond `after`."""
    live = system.live_frontiers()
    names = ("per-nation.per-nation", "busy.busy")
    complete = min((int(live.get(name, {}).get("write", -1)) for name in names), default=-1)
    return complete if complete > after + 1 else 0


def _folders(system: System) -> set[str]:
    return {path.name for path in (system.home / "operator" / "stores").iterdir()}


def _store_settings(system: System, name: str) -> str:
    """The settings that replicas of the instance get now."""
    return (system.home / "operator" / "stores" / f"{system.namespace}.store" / name).read_text()


def _objects(s3: S3Server) -> list[str]:
    folder = s3.on_disk(s3.location("shards"))
    found = [str(path.relative_to(folder)) for path in matching(folder, "**/*") if path.is_file()]
    return [path for path in found if "/_copies/day/" not in path]
