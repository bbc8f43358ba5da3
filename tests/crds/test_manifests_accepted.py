"""Manifests that the API server accepts; its defaults are those of the operator's views."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.crds.kubectl import Kubectl
from tests.crds.manifests import (
    ABSENT,
    SPECS,
    bent,
    delta,
    files,
    files_in,
    followed,
    kafka,
    kafka_sink,
    long_form,
    manifest,
    postgres,
    postgres_sink,
    refreshed,
    written,
)
from tidemark_operator.resources.manifest.data_source import DataSource
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.instance import ComputeInstance
from tidemark_operator.resources.manifest.refresh import RefreshPolicy
from tidemark_operator.resources.manifest.replica import ComputeReplica

pytestmark = pytest.mark.cluster

ROOT = Path(__file__).parents[2]
VIEWS: dict[str, Any] = {
    "ComputeInstance": ComputeInstance,
    "ComputeReplica": ComputeReplica,
    "DataSource": DataSource,
    "Dataflow": Dataflow,
}


@pytest.mark.parametrize("kind", SPECS)
def test_defaults_of_schema_and_view_agree(kind: str, kubectl: Kubectl) -> None:
    """The view of what the API server completed is the view of the least manifest."""
    completed = kubectl.create(manifest(kind))
    least = {**completed, "spec": SPECS[kind]}

    assert VIEWS[kind].parse(completed) == VIEWS[kind].parse(least)


def test_defaults_of_a_kafka_sink_agree(kubectl: Kubectl) -> None:
    sink = {"brokers": ["kafka:9092"], "topic": "spent", "key": ["a"], "create": {"partitions": 6}}
    spec = {"instance": "default", "sql": "SELECT 1 AS a", "materializedView": {"kafkaSink": sink}}
    completed = kubectl.create(manifest("Dataflow", spec))
    least = {**completed, "spec": spec}

    assert completed["spec"]["materializedView"]["kafkaSink"]["envelope"] == "upsert"
    assert Dataflow.parse(completed) == Dataflow.parse(least)


def test_defaults_of_a_kafka_sink_of_avro_agree(kubectl: Kubectl) -> None:
    least = kafka_sink(format="avro", registry={"url": "https://registry:8081"})
    completed = kubectl.create(least)

    assert Dataflow.parse(completed) == Dataflow.parse({**completed, "spec": least["spec"]})


def test_defaults_of_a_file_table_agree(kubectl: Kubectl) -> None:
    """The same for what lies deeper."""
    completed = kubectl.create(files())
    least = {**completed, "spec": files()["spec"]}

    assert DataSource.parse(completed) == DataSource.parse(least)


def test_defaults_of_a_delta_table_agree(kubectl: Kubectl) -> None:
    """In an object store, too."""
    least = delta(path="s3://bucket/lake/t", columns=["a", "B c"], primaryKey=["B c"])
    completed = kubectl.create(least)

    assert DataSource.parse(completed) == DataSource.parse({**completed, "spec": least["spec"]})


def test_defaults_of_a_written_table_agree(kubectl: Kubectl) -> None:
    """With a primary key, a column that is NOT NULL, and a pointer into JSON objects."""
    least = written(
        columns=[
            {"name": "id", "type": "BIGINT", "jsonPointer": "/a/b c/0"},
            {"name": "n", "type": "DECIMAL(9,2)", "nullable": False},
        ],
        primaryKey=["id"],
    )
    completed = kubectl.create(least)

    assert DataSource.parse(completed) == DataSource.parse({**completed, "spec": least["spec"]})


def test_defaults_of_a_postgres_sink_agree(kubectl: Kubectl) -> None:
    """The defaults of the API server are those of the operator."""
    least = postgres_sink()
    completed = kubectl.create(least)

    assert Dataflow.parse(completed).sinks == Dataflow.parse({**completed, "spec": least["spec"]}).sinks


def test_defaults_of_a_postgres_source_agree(kubectl: Kubectl) -> None:
    """The test compares the defaults of the source and of its tables."""
    for name, least in {
        "named": postgres(),
        "whole": postgres(allTables=True, exceptTables=[{"table": "audit"}], tables=ABSENT),
    }.items():
        least["metadata"]["name"] = name
        completed = kubectl.create(least)

        assert DataSource.parse(completed) == DataSource.parse({**completed, "spec": least["spec"]})


@pytest.mark.parametrize(
    "table",
    [
        {},
        {"format": "json", "columns": [{"name": "_a", "type": "ARRAY<INT>"}], "start": {"at": "latest"}},
        {"start": {"offsets": [{"partition": 0, "offset": 5}]}, "metadata": [{"name": "k", "from": "keyText"}]},
        {"start": {"timestamp": "2026-01-31T12:00:00Z"}, "onGap": "skip", "onBadRecord": "deadLetter"},
        {"envelope": "upsert", "key": {"format": "text"}},
        {
            "envelope": "debezium",
            "format": "json",
            "columns": [{"name": "n", "type": "STRING"}],
            "key": {"format": "json", "columns": [{"name": "id", "type": "BIGINT"}]},
        },
        {
            "envelope": "debezium",
            "format": "avro",
            "schema": {"inline": "{}"},
            "key": {"format": "avro", "schema": {"inline": "{}"}},
        },
        {"envelope": "upsert", "key": {"format": "json", "columns": [{"name": "id", "type": "BIGINT"}]}},
        {"format": "avro", "schema": {"inline": '"int"'}},
        {"format": "avro", "schema": {"configMap": {"name": "schemas", "key": "order.avsc"}}},
        {"envelope": "upsert", "key": {"format": "avro", "schema": {"inline": '"int"'}}},
        {
            "envelope": "upsert",
            "key": {"format": "protobuf", "schema": {"secret": {"name": "schemas", "key": "k.pb"}, "message": "K"}},
        },
        {
            "envelope": "upsert",
            "key": {"format": "json", "columns": [{"name": "id", "type": "BIGINT"}], "framed": True},
        },
        {"format": "protobuf", "schema": {"secret": {"name": "schemas", "key": "order.pb"}, "message": "shop.Order"}},
        {"format": "json", "columns": [{"name": "a", "type": "INT"}], "framed": True},
    ],
)
def test_defaults_of_a_topic_agree(table: dict[str, Any], kubectl: Kubectl) -> None:
    least = kafka(**table)
    completed = kubectl.create(least)

    assert DataSource.parse(completed) == DataSource.parse({**completed, "spec": least["spec"]})


def test_topics_whose_transactions_are_followed_agree(kubectl: Kubectl) -> None:
    least = followed("shop.transaction", start={"at": "earliest"})
    completed = kubectl.create(least)
    source = DataSource.parse(completed)

    assert source == DataSource.parse({**completed, "spec": least["spec"]})
    assert source.source.transactions == "shop.transaction"  # type: ignore[union-attr]


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.name)
def test_examples_are_taken_and_understood(path: Path, kubectl: Kubectl) -> None:
    """The API server and the operator's views take them as they stand."""
    for document in yaml.safe_load_all(path.read_text()):
        VIEWS[document["kind"]].parse(kubectl.create(document))


def test_scratch_in_a_bucket_as_the_page_has_it_is_taken(dry_kubectl: Kubectl) -> None:
    """Its kinds and fields are known, and the replica names the claim, whose class has the Secret."""
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    (text,) = re.findall(r"## Scratch in a bucket\n.*?```yaml\n(.*?)```", page, re.DOTALL)
    documents = {document["kind"]: document for document in yaml.safe_load_all(text)}
    for document in documents.values():
        document["metadata"].pop("namespace", None)
        dry_kubectl.create(document, dry_run=True)
    claim, storage, secret = (documents[k] for k in ("PersistentVolumeClaim", "StorageClass", "Secret"))
    assert documents["ComputeReplica"]["spec"]["scratch"]["claimName"] == claim["metadata"]["name"]
    assert claim["spec"]["storageClassName"] == storage["metadata"]["name"]
    assert secret["metadata"]["name"] in storage["parameters"].values()


def test_a_continual_task_at_its_limits_is_taken(kubectl: Kubectl) -> None:
    """In both forms; what is declared comes back as it was."""
    columns = [{"name": "c" * 120 + str(i), "type": "decimal(38,18)"} for i in range(256)]
    short = bent(
        "Dataflow", {"index": ABSENT, "continualTask": {"watch": "s" * 63 + "." + "t" * 63, "columns": columns}}
    )
    task = {"from": "a", "delete": "b", "watch": "s.t", "columns": columns}
    long = long_form(["a", "b"], [{"name": "log", "continualTask": task}])
    long["metadata"]["name"] = "long"

    assert kubectl.create(short)["spec"]["continualTask"]["columns"] == columns
    assert kubectl.create(long)["spec"]["exports"][0]["continualTask"] == task


def test_the_largest_manifests_fit_the_cost_of_their_rules(kubectl: Kubectl) -> None:
    """Rules have a budget at run time too; a Dataflow at all its limits, edited, stays in it."""
    views = [f"{'v' * 60}{i}" for i in range(32)]
    exports = [{"name": f"e{i}", "index": {"from": view, "key": ["k" * 128]}} for i, view in enumerate(views)]
    document = long_form(views, exports)
    document["spec"]["views"][0]["sql"] = "x" * 131072
    kubectl.create(document)
    document["spec"]["suspend"] = True
    kubectl.replace(document)


def test_a_wide_files_source_fits_the_cost_of_its_rules(kubectl: Kubectl) -> None:
    """64 tables of 100 columns: its immutability compares them all."""
    columns = [{"name": f"column_{i}", "type": "DECIMAL(38, 10)"} for i in range(100)]
    document = files(columns=columns)
    [table] = document["spec"]["files"]["tables"]
    document["spec"]["files"]["tables"] = [{**table, "name": f"t{i}"} for i in range(64)]
    kubectl.create(document)
    document["spec"]["suspend"] = True
    kubectl.replace(document)


@pytest.mark.parametrize(
    "changes",
    [
        {"tick": "100ms"},
        {"tick": "1h"},
        {"tick": "59m60s"},
        {"loadGenerator.tpch": {"scaleFactor": 1, "transactionsPerSecond": 0, "seed": 2**62}},
        {"loadGenerator": {"nexmark": {"eventsPerSecond": 1, "seed": 2**62}}},
        {"loadGenerator": {"nexmark": {"eventsPerSecond": 100_000}}},
        {"loadGenerator": ABSENT, "introspection": {}, "tick": "1s"},
        {"loadGenerator": ABSENT, "introspection": {"relations": ["frontiers", "wallclock_lag"]}},
    ],
)
def test_values_at_the_edge_are_taken(changes: dict[str, Any], kubectl: Kubectl) -> None:
    """And read back by the view, whatever they are."""
    DataSource.parse(kubectl.create(bent("DataSource", changes)))


@pytest.mark.parametrize("type_", ["array<int>", "STRUCT<a: DECIMAL(10,2), b: array<struct<c:int>>>", "Decimal(38,2)"])
def test_declared_types_are_taken_and_read(type_: str, kubectl: Kubectl) -> None:
    """By schema and view alike, in any case; arrays and structs inside each other."""
    DataSource.parse(kubectl.create(files(columns=[{"name": "a", "type": type_}])))


@pytest.mark.parametrize(
    "path", ["s3://bucket/in", "/tmp/in", "/data/etc", "/etcetera", "/running", "file:///var/lib/run"]
)
def test_a_path_that_only_looks_like_the_pods_own_is_taken(path: str, kubectl: Kubectl) -> None:
    """By schema and view alike."""
    DataSource.parse(kubectl.create(files_in(path)))


def test_every_form_of_a_refresh_schedule_is_taken_and_read(kubectl: Kubectl) -> None:
    """To the millisecond, at its limits, in the short form and in the long one; the order of times means nothing."""
    times = [f"2026-{month:02}-{day:02}T23:00:00.007+02:00" for month in range(1, 9) for day in range(1, 5)]
    refresh = {"every": "8784h", "alignedTo": "1970-01-01T00:00:01Z", "at": times[::-1]}
    completed = kubectl.create(refreshed(refresh))
    long = long_form(["a"], [{"name": f"e{i}", "materializedView": {"from": "a"}} for i in range(32)], refresh=refresh)
    long["metadata"]["name"] = "long"

    first = int(datetime(2026, 1, 1, 21, tzinfo=UTC).timestamp() * 1000) + 7
    assert Dataflow.parse(completed).refresh_policy is RefreshPolicy.INCREMENTAL
    assert "refreshPolicy" not in completed["spec"]
    always = bent("Dataflow", {"index": ABSENT, "materializedView": {}, "refreshPolicy": "auto"}, name="always")
    assert Dataflow.parse(kubectl.create(always)).refresh_policy is RefreshPolicy.AUTO
    long["spec"]["refreshPolicy"] = "full"
    found = Dataflow.parse(completed).refresh
    assert found is not None
    found.check()
    assert (found.every_ms, found.aligned_to, found.at[0], len(found.at)) == (8784 * 3_600_000, 1000, first, 32)
    assert Dataflow.parse(kubectl.create(long)).refresh == found


def test_as_of_is_exact_to_the_last_millisecond(kubectl: Kubectl) -> None:
    """Times are 64 bits wide: none may pass through a float."""
    completed = Dataflow.parse(kubectl.create(bent("Dataflow", {"asOf": 2**63 - 3, "until": 2**63 - 2})))

    assert (completed.as_of, completed.until) == (2**63 - 3, 2**63 - 2)
