"""Parsing: an object of the API server becomes a typed view with defaults; errors name the wrong field."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.resources.manifests import body, csv_table, data_source, dataflow
from tidemark_operator.resources.manifest.data_source import DataSource, DeletionPolicy
from tidemark_operator.resources.manifest.dataflow import CONTINUAL_TASK, INDEX, MATERIALIZED_VIEW, Dataflow
from tidemark_operator.resources.manifest.digest import spec_digest
from tidemark_operator.resources.manifest.errors import InvalidValue, ResourceError
from tidemark_operator.resources.manifest.instance import ComputeInstance
from tidemark_operator.resources.manifest.replica import ComputeReplica
from tidemark_protocol.forbidden_source_folders import FORBIDDEN_FOLDERS
from tidemark_protocol.ids import Time
from tidemark_protocol.messages.planning import ExportRequest, TaskRequest, ViewRequest
from tidemark_protocol.messages.replica_settings import LogLevel
from tidemark_protocol.plan.ingestion import (
    DeltaSource,
    DeltaTable,
    FilesSource,
    FilesTable,
    NexmarkSource,
    Option,
    PostgresSource,
    PostgresTable,
    TpchSource,
    WrittenSource,
    WrittenTable,
)
from tidemark_protocol.plan.kafka import KafkaSchema, KafkaSource, KafkaTable
from tidemark_protocol.plan.refresh import RefreshSchedule
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_protocol.types import STRING, Column, SqlType


def test_short_form_is_one_view_and_one_export_of_the_dataflows_name() -> None:
    """`sql` + `index` reads as the long form, named after the Dataflow."""
    view = Dataflow.parse(dataflow({"sql": "SELECT 1 AS a", "index": {"key": ["a"]}}, name="one"))

    assert view.views == (ViewRequest("one", "SELECT 1 AS a"),)
    assert view.exports == (ExportRequest("one", INDEX, "one", ("a",)),)


def test_long_form_keeps_views_in_order_and_what_each_export_is_from() -> None:
    """Views may read earlier ones, so their order stays; a key that is not given is None, not empty."""
    view = Dataflow.parse(
        dataflow(
            {
                "views": [{"name": "b", "sql": "B"}, {"name": "a", "sql": "A"}],
                "exports": [
                    {"name": "i", "index": {"from": "a"}},
                    {"name": "m", "materializedView": {"from": "b"}},
                ],
            }
        )
    )

    assert [v.name for v in view.views] == ["b", "a"]
    assert view.exports == (ExportRequest("i", INDEX, "a"), ExportRequest("m", MATERIALIZED_VIEW, "b"))


def test_a_continual_task_says_what_it_watches() -> None:
    """In the short form it adds what the SQL gives; in the long one it may also delete."""
    declared = [{"name": "a", "type": "decimal(9,2)"}, {"name": "b", "type": "ARRAY<INT>"}]
    short = Dataflow.parse(dataflow({"sql": "S", "continualTask": {"watch": "s.t", "columns": declared}}, name="log"))
    columns = (Column("a", SqlType("decimal", 9, 2)), Column("b", SqlType.array(SqlType("int"))))
    task = {"from": "new", "delete": "old", "watch": "s.t"}
    views = [{"name": "new", "sql": "N"}, {"name": "old", "sql": "O"}]
    long = Dataflow.parse(dataflow({"views": views, "exports": [{"name": "log", "continualTask": task}]}))

    assert short.exports == (ExportRequest("log", CONTINUAL_TASK, "log", task=TaskRequest("s.t", None, columns)),)
    assert long.exports == (ExportRequest("log", CONTINUAL_TASK, "new", task=TaskRequest("s.t", "old")),)
    assert spec_digest(short) != spec_digest(replace(short, exports=long.exports))


def test_defaults_are_those_of_the_schema() -> None:
    """An object stored before a field existed has no default from the API server; the view supplies it."""
    flow = Dataflow.parse(dataflow({"sql": "S", "materializedView": {}}))
    instance = ComputeInstance.parse(body("ComputeInstance", {"storage": {"location": "/data"}}))
    replica = ComputeReplica.parse(body("ComputeReplica", {"instance": "default"}))
    source = DataSource.parse(data_source({"loadGenerator": {"tpch": {}}}))

    assert (flow.as_of, flow.until, flow.refresh, flow.read_policy, flow.suspend) == (None, None, None, None, False)
    assert flow.deletion_policy is DeletionPolicy.RETAIN
    assert instance.read_policy.lag_ms == 60_000
    assert (instance.hydration_concurrency, instance.log_level) == (4, LogLevel.INFO)
    assert (replica.resources.cores, replica.resources.memory_bytes) == (2, 2 << 30)
    assert (source.tick_ms, source.source) == (1000, TpchSource("0.01", 10, 1))
    assert DataSource.parse(data_source({"loadGenerator": {"nexmark": {}}})).source == NexmarkSource(1000, 1)


def test_metadata_tells_an_object_that_is_being_deleted() -> None:
    """deletionTimestamp and finalizers are what the reconciler asks first."""
    flow = Dataflow.parse(
        dataflow(
            {"sql": "S", "index": {}}, deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["compute.tidemark.dev/f"]
        )
    )

    assert flow.meta.deleting
    assert flow.meta.finalizers == ("compute.tidemark.dev/f",)


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("/data/shards", "/data/shards"),
        ("/data/shards/", "/data/shards"),
        ("file:///data/shards", "/data/shards"),
        ("file:///data/a%20b/", "/data/a b"),
        ("s3://bucket/shards/", "s3://bucket/shards"),
        ("s3://my.bucket", "s3://my.bucket"),
    ],
)
def test_location_becomes_a_plain_path(text: str, path: str) -> None:
    """Shard addresses are built on it: two ways to write a place must give one path."""
    instance = ComputeInstance.parse(body("ComputeInstance", {"storage": {"location": text}}))

    assert instance.location == path


@pytest.mark.parametrize(("text", "ms"), [("100ms", 100), ("1s", 1000), ("1m30s", 90_000), ("1h", 3_600_000)])
def test_tick_is_milliseconds(text: str, ms: int) -> None:
    """Compound durations add up."""
    assert DataSource.parse(data_source({"tick": text, "loadGenerator": {"tpch": {}}})).tick_ms == ms


def test_files_become_what_the_replica_is_told() -> None:
    """Paths are joined, types parsed, options turned to text: the protocol's own words."""
    source = DataSource.parse(
        csv_table(
            path="flights",
            pattern="*.csv",
            columns=[{"name": "Day", "type": "DATE"}, {"name": "price", "type": "DECIMAL(15, 2)"}],
            options={"nullValue": "NA", "header": False},
            onBadRecord="deadLetter",
            maxFilesPerTick=1,
            compression="zstd",
        )
    )

    assert source.source == FilesSource(
        (
            FilesTable(
                name="t",
                format="csv",
                path="/in/flights",
                pattern="*.csv",
                columns=(Column("Day", SqlType("date")), Column("price", SqlType("decimal", 15, 2))),
                options=(Option("escape", '"'), Option("header", "false"), Option("nullValue", "NA")),
                on_bad_record="deadLetter",
                max_files_per_tick=1,
                compression="zstd",
            ),
        )
    )


def test_a_table_without_a_path_reads_the_sources_own_directory() -> None:
    """And every file in it, with columns to be inferred."""
    assert DataSource.parse(csv_table(format="json")).source == FilesSource((FilesTable("t", "json", "/in"),))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"header": "true", "escape": '"'}),
        ({"quote": "'"}, {"header": "true", "quote": "'", "escape": "'"}),
        ({"header": True, "delimiter": ";"}, {"header": "true", "delimiter": ";", "escape": '"'}),
    ],
)
def test_csv_defaults_reach_the_reader(given: dict[str, Any], expected: dict[str, str]) -> None:
    """A header and doubled quotes, as the schema's descriptions promise: Spark by itself takes neither."""
    source = DataSource.parse(csv_table(columns=[{"name": "a", "type": "INT"}], options=given)).source
    assert isinstance(source, FilesSource)

    assert {option.name: option.value for option in source.tables[0].options} == expected


def delta_table(**table: Any) -> dict[str, Any]:
    return data_source({"delta": {"tables": [{"name": "t", "path": "/lake/t"} | table]}})


@pytest.mark.parametrize(
    ("given", "path"),
    [("/lake/t/", "/lake/t"), ("file:///lake/a%20b", "/lake/a b"), ("s3://bucket/lake/t/", "s3://bucket/lake/t")],
)
def test_a_delta_table_is_on_a_disk_or_in_a_bucket(given: str, path: str) -> None:
    """All of its columns are taken, unless some are named."""
    assert DataSource.parse(delta_table(path=given)).source == DeltaSource((DeltaTable("t", path),))
    keys = {"secret": "keys", "endpoint": "https://store"}
    lake = {"tables": [{"name": "t", "path": given}], **keys}
    assert DataSource.parse(data_source({"delta": lake})).source == DeltaSource(
        (DeltaTable("t", path),), *keys.values()
    )
    named = DataSource.parse(delta_table(columns=["b", "A"], onGap="resnapshot")).source
    assert named == DeltaSource((DeltaTable("t", "/lake/t", ("b", "A"), None, "resnapshot"),))
    keyed = DataSource.parse(delta_table(primaryKey=["b", "a"])).source
    assert keyed == DeltaSource((DeltaTable("t", "/lake/t", primary_key=("b", "a")),))


def written_table(**table: Any) -> dict[str, Any]:
    columns = [{"name": "id", "type": "BIGINT"}, {"name": "x", "type": "DOUBLE", "jsonPointer": "/a"}]
    return data_source({"table": {"tables": [{"name": "t", "columns": columns} | table]}})


def test_a_written_table_has_columns_and_perhaps_a_key() -> None:
    columns = (Column("id", SqlType("bigint")), Column("x", SqlType("double")))
    pointers = (Option("x", "/a"),)
    assert DataSource.parse(written_table()).source == WrittenSource((WrittenTable("t", columns, (), False, pointers),))
    parsed = DataSource.parse(written_table(primaryKey=["id"], appendOnly=True, unknownFields="ignore")).source
    assert parsed == WrittenSource((WrittenTable("t", columns, ("id",), True, pointers, "ignore"),))
    declared = [{"name": "id", "type": "BIGINT", "nullable": False}, {"name": "x", "type": "DOUBLE", "nullable": True}]
    strict = replace(columns[0], nullable=False), columns[1]
    assert DataSource.parse(written_table(columns=declared)).source == WrittenSource((WrittenTable("t", strict),))


def test_a_postgres_source_is_read_with_its_defaults() -> None:
    """The defaults are those that the API server would complete."""
    given = {"host": "db", "database": "d", "secret": "s", "publication": "p", "tables": [{"name": "t", "table": "T"}]}
    table = PostgresTable("t", "public", "T")
    assert DataSource.parse(data_source({"postgres": given})).source == PostgresSource(
        "db", 5432, "d", "s", "p", (table,)
    )

    more = {"port": 5433, "sslMode": "require", "onGap": "resnapshot", "maxTransactionBytes": "1Mi"}
    tables = [{"name": "t", "schema": "S", "table": "T", "columns": ["b", "A"]}]
    named = DataSource.parse(data_source({"postgres": given | more | {"tables": tables}})).source
    table = PostgresTable("t", "S", "T", ("b", "A"))
    assert named == PostgresSource("db", 5433, "d", "s", "p", (table,), "require", "resnapshot", 1 << 20)


def read_from(path: str, below: str) -> dict[str, Any]:
    return data_source({"files": {"path": path, "tables": [{"name": "t", "format": "csv", "path": below}]}})


def test_files_are_read_from_a_bucket_too() -> None:
    """With an order of names there alone; a table's path must be one that every tool takes."""
    tables = [{"name": "t", "format": "json", "path": "day=1", "order": "name", "primaryKey": ["a"]}]
    source = DataSource.parse(data_source({"files": {"path": "s3://bucket/in/", "tables": tables}})).source
    assert source == FilesSource((FilesTable("t", "json", "s3://bucket/in/day=1", order="name", primary_key=("a",)),))
    for path, table, message in (
        ("/in", {"order": "name"}, "spec.files.tables[0].order: is for files in a bucket"),
        ("s3://bucket/in", {"path": "a b"}, "spec.files.tables[0].path: must be s3://bucket/prefix"),
        ("s3://k:s@bucket/in", {}, "spec.files.path: must name a bucket"),
    ):
        files = {"path": path, "tables": [{"name": "t", "format": "json", **table}]}
        with pytest.raises(ResourceError) as error:
            DataSource.parse(data_source({"files": files}))
        assert message in str(error.value)


@pytest.mark.parametrize("path", ["/tmp/x", "/etcetera", "/data/etc", "/var/lib/tidemark", "/runs"])
def test_files_are_read_from_anywhere_else(path: str) -> None:
    """Names are compared whole, and from the root on."""
    source = DataSource.parse(read_from(path, "etc")).source

    assert isinstance(source, FilesSource)
    assert source.tables[0].path == f"{path}/etc"


@pytest.mark.parametrize(
    ("path", "below", "message"),
    [
        *(
            (f"{folder}/a", "b", f"spec.files.path: '{folder}/a' is in {folder}, whose files")
            for folder in FORBIDDEN_FOLDERS
        ),
        ("/etc", "b", "spec.files.path: '/etc' is in /etc"),
        ("//etc//x", "b", "spec.files.path: '//etc//x' is in /etc"),
        ("file:///%65tc/x/", "b", "spec.files.path: '/etc/x' is in /etc"),
        ("/var", "run/secrets", "spec.files.tables[0].path: '/var/run/secrets' is in /var/run"),
        ("/var/", "/run/", "spec.files.tables[0].path: '/var//run' is in /var/run"),
    ],
)
def test_must_never_read_the_pods_own_files(path: str, below: str, message: str) -> None:
    """A namespace's editor would have the keys of certificates as rows."""
    with pytest.raises(ResourceError) as error:
        DataSource.parse(read_from(path, below))

    assert message in str(error.value)


TIME = "2026-01-01T00:00:00Z"


def refreshed(refresh: dict[str, Any]) -> dict[str, Any]:
    return dataflow({"sql": "S", "materializedView": {}, "refresh": refresh})


@pytest.mark.parametrize(
    ("refresh", "schedule"),
    [
        ({"every": "1h30m"}, RefreshSchedule(5_400_000)),
        ({"every": "24h", "alignedTo": "1970-01-02T01:00:00.250+01:00"}, RefreshSchedule(86_400_000, Time(86_400_250))),
        (
            {"at": ["1970-01-01T00:00:09Z", "1970-01-01T02:00:07+02:00", "1970-01-01T00:00:07.000Z"]},
            RefreshSchedule(at=(Time(7_000), Time(9_000))),
        ),
    ],
)
def test_a_refresh_schedule_is_read_to_the_millisecond(refresh: dict[str, Any], schedule: RefreshSchedule) -> None:
    """In any zone; times in order, each once, however they were written."""
    assert Dataflow.parse(refreshed(refresh)).refresh == schedule


BAD: list[tuple[type, dict[str, Any], str]] = [
    (Dataflow, dataflow({"sql": 3, "index": {}}), "spec.sql: must be a string, not int 3"),
    (Dataflow, dataflow({"index": {}}), "spec.sql: is required"),
    (Dataflow, dataflow({"sql": "S", "index": {}, "dialect": "mysql"}), "spec.dialect: must be one of spark"),
    (Dataflow, dataflow({"sql": "S", "index": {}, "asOf": True}), "spec.asOf: must be an integer"),
    (Dataflow, dataflow({"sql": "S", "index": {"key": [1]}}), "spec.index.key[0]: must be a string"),
    (DataSource, data_source({"tick": "1.5s", "loadGenerator": {"tpch": {}}}), "spec.tick: must be a duration"),
    (DataSource, written_table(primaryKey=["y"]), "spec.table.tables[0].primaryKey: 'y' is not among the columns"),
    (DataSource, written_table(primaryKey=["x"]), "spec.table.tables[0].primaryKey: 'x' is double"),
    (DataSource, delta_table(path="/etc/x"), "spec.delta.tables[0].path: '/etc/x' is in /etc"),
    (DataSource, delta_table(path="gs://b/x"), "tables[0].path: must be an absolute path, a file:/// URL or"),
    (DataSource, delta_table(columns=["a", "A"]), "spec.delta.tables[0].columns: 'a' is there twice"),
    (
        DataSource,
        csv_table(columns=[{"name": "a", "type": "INT"}, {"name": "A", "type": "INT"}]),
        "spec.files.tables[0].columns[1].name: 'A' is there already",
    ),
    (
        DataSource,
        csv_table(columns=[{"name": "a", "type": "MAP<INT,INT>"}]),
        "spec.files.tables[0].columns[0].type: type 'map' is not supported",
    ),
    (
        ComputeInstance,
        body("ComputeInstance", {"storage": {"location": "gs://bucket/x"}}),
        "must be an absolute path, a file:/// URL or s3://bucket/prefix, not 'gs://bucket/x'",
    ),
    (ComputeInstance, body("ComputeInstance", {"storage": {"location": "s3://B/x"}}), "must name a bucket"),
    (ComputeInstance, body("ComputeInstance", {"storage": {"location": "s3://k:s@bucket/x"}}), "'s3://***@bucket/x'"),
    (
        ComputeInstance,
        body("ComputeInstance", {"storage": {"location": "s3://bucket/a/../b"}}),
        "the prefix of letters",
    ),
    (ComputeInstance, body("ComputeInstance", {"storage": {"location": "s3://bucket/a?x=y"}}), "the prefix of letters"),
    (ComputeInstance, body("ComputeInstance", {"storage": {"location": "/a/../b"}}), "must not contain '.' or '..'"),
    (ComputeInstance, body("ComputeInstance", {"storage": {"location": "file:///a/%2E%2E/b"}}), "must not contain"),
    (ComputeInstance, body("ComputeInstance", {"storage": {"location": "file:///"}}), "must not be the root"),
]


@pytest.mark.parametrize(("kind", "manifest", "problem"), BAD, ids=[problem for _, _, problem in BAD])
def test_a_wrong_field_is_refused_by_name(kind: Any, manifest: dict[str, Any], problem: str) -> None:
    """One table: the manifest, and the beginning of what is said about it."""
    with pytest.raises(ResourceError) as error:
        kind.parse(manifest)

    assert problem in str(error.value)


def topic(**table: Any) -> dict[str, Any]:
    entry = {"name": "t", "topic": "T", "format": "text"} | table
    return data_source({"kafka": {"brokers": ["k:9092"], "tables": [entry]}})


def test_a_topic_has_columns_and_a_place_to_start() -> None:
    value = (Column("value", STRING),)
    least = KafkaTable("t", "T", "text", value)
    assert DataSource.parse(topic()).source == KafkaSource(("k:9092",), (least,))
    starts = {
        "latest": ({"at": "latest"}, (), 0),
        "offsets": ({"offsets": [{"partition": 1, "offset": 5}]}, ((1, 5),), 0),
        "timestamp": ({"timestamp": "1970-01-01T00:00:02.5Z"}, (), 2500),
    }
    for name, (start, offsets, ms) in starts.items():
        source = DataSource.parse(topic(start=start)).source
        assert source == KafkaSource(("k:9092",), (replace(least, start=name, start_offsets=offsets, start_ms=ms),))


def test_a_topic_with_an_envelope_has_a_key() -> None:
    key = {"format": "json", "columns": [{"name": "id", "type": "BIGINT"}]}
    keyed = KafkaTable("t", "T", "text", (Column("value", STRING),), envelope="upsert", key_format="json")
    keyed = replace(keyed, key_columns=(Column("id", SqlType("bigint")),))
    assert DataSource.parse(topic(envelope="upsert", key=key)).source == KafkaSource(("k:9092",), (keyed,))
    text = replace(keyed, key_format="text", key_columns=(Column("key", STRING),))
    assert DataSource.parse(topic(envelope="upsert", key={"format": "text"})).source == KafkaSource(
        ("k:9092",), (text,)
    )


def test_a_key_has_a_schema_and_a_frame_of_its_own() -> None:
    """A key of a schema is framed where the source has a registry, unless the spec says otherwise."""
    value = KafkaTable("t", "T", "text", (Column("value", STRING),), envelope="upsert", key_format="avro")
    for framed, is_framed in (({}, True), ({"framed": False}, False)):
        key = {"format": "avro", "schema": {"subject": "T-key", "version": 2}, **framed}
        resource = topic(envelope="upsert", key=key)
        resource["spec"]["kafka"]["registry"] = {"url": "https://registry:8081"}
        source = DataSource.parse(resource).source
        assert isinstance(source, KafkaSource)
        (table,) = source.tables
        assert table == replace(value, key_schema=KafkaSchema(subject="T-key", version=2), key_framed=is_framed)
    plain = topic(envelope="upsert", key={"format": "avro", "schema": {"inline": '"int"'}})
    expected = replace(value, key_schema=KafkaSchema('"int"'))
    assert DataSource.parse(plain).source == KafkaSource(("k:9092",), (expected,))


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        ({"metadata": [{"name": "VALUE", "from": "key"}]}, "'VALUE' is there already"),
        ({"key": {"format": "json", "columns": [{"name": "Value", "type": "INT"}]}}, "'value' is there already"),
        (
            {"key": {"format": "json", "columns": [{"name": "k", "type": "DOUBLE"}]}},
            "'k' is double: a key has no floating numbers",
        ),
        (
            {"key": {"format": "json", "columns": [{"name": "k", "type": "ARRAY<INT>"}]}},
            "'k' is array<int>: a key has no floating numbers",
        ),
    ],
)
def test_columns_of_a_topic_that_are_refused(table: dict[str, Any], problem: str) -> None:
    with pytest.raises(InvalidValue, match=problem):
        DataSource.parse(topic(**table))


def test_a_kafka_sink_has_its_topic_of_progress_and_keeps_history() -> None:
    sink = {"brokers": ["kafka:9092"], "topic": "spent", "key": ["name"]}
    view = {"sql": "SELECT 1 AS name", "materializedView": {"kafkaSink": sink}}
    parsed = Dataflow.parse(dataflow(view, name="one"))

    owner = f"{parsed.meta.namespace}.one.one"
    expected = KafkaSink(("kafka:9092",), "spent", ("name",), owner, "spent-tidemark-progress")
    assert parsed.sinks["one"].all == (expected,)
    assert parsed.history_ms == 3_600_000
    expected.check()

    given = {
        "envelope": "debezium",
        "progressTopic": "p",
        "create": {"partitions": 6, "replication": 3},
        "history": "2h",
    }
    view["materializedView"] = {"kafkaSink": {**sink, **given, "secret": "kafka"}}
    other = Dataflow.parse(dataflow(view, name="one"))
    assert other.sinks["one"].all == (
        KafkaSink(("kafka:9092",), "spent", ("name",), owner, "p", "debezium", "json", "kafka", 6, 3, 7_200_000),
    )
    assert spec_digest(other) != spec_digest(parsed)
    registry = {"url": "https://registry:8081", "secret": "registry"}
    view["materializedView"] = {"kafkaSink": {**sink, "format": "avro", "registry": registry}}
    (avro,) = Dataflow.parse(dataflow(view, name="one")).sinks["one"].all
    assert avro == replace(expected, format="avro", registry="https://registry:8081", registry_secret="registry")
    expected.check()
    for wrong in (replace(expected, format="avro"), replace(expected, registry="http://r"), replace(avro, format="x")):
        with pytest.raises(ValueError, match="Kafka sink"):
            wrong.check()
    with pytest.raises(ResourceError, match="kafkaSink"):
        Dataflow.parse(dataflow({"sql": "SELECT 1 AS name", "materializedView": {"kafkaSink": {}}}))
