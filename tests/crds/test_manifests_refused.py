"""Manifests that the API server refuses: a table of a manifest and its message, which names the field first."""

from __future__ import annotations

from typing import Any

import pytest

from tests.crds.kubectl import Kubectl
from tests.crds.manifests import (
    ABSENT,
    bent,
    bucket,
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
from tidemark_devcluster.errors import KubectlFailed

pytestmark = [pytest.mark.cluster, pytest.mark.broad]

COLUMN = {"name": "a", "type": "INT"}
LAKE = {"loadGenerator": ABSENT, "delta": delta()["spec"]["delta"]}
RELATIONS = {"loadGenerator": ABSENT, "introspection": {}}
BUCKETS = {"loadGenerator": ABSENT, "delta": delta(path="s3://lake/t")["spec"]["delta"]}
OWN = ("/etc/tidemark/tls", "//etc", "file:///run/secrets", "/var/run/", "/scratch")

REPLICAS = [
    (manifest("ComputeReplica", name="r" * 41), "metadata.name: .* must be at most 40 characters"),
    (manifest("ComputeReplica", name="a.b"), "metadata.name: .* must be a DNS label"),
    (bent("ComputeReplica", {"instance": ABSENT}), "spec.instance: Required value"),
    (bent("ComputeReplica", {"instance": "Default"}), "spec.instance: .* should match"),
    (bent("ComputeReplica", {"executor": {"instances": 2}}), 'unknown field "spec.executor"'),
    (bent("ComputeReplica", {"resources.limits.cpu": "500m"}), "spec.resources.limits.cpu: .* whole number of cores"),
    (bent("ComputeReplica", {"resources.limits.cpu": 0}), "spec.resources.limits.cpu: .* from 1 to 256"),
    (bent("ComputeReplica", {"resources.limits.memory": "512Mi"}), "spec.resources.limits.memory: .* from 1Gi to 1Ti"),
    (bent("ComputeReplica", {"resources.limits.memory": "2G"}), "spec.resources.limits.memory: .* should match"),
    (bent("ComputeReplica", {"resources.requests.cpu": "1.5"}), "spec.resources.requests.cpu: .* should match"),
    (bent("ComputeReplica", {"executors.instances": 2}), "spec.executors: .* scratch.claimName must name"),
    (
        bent("ComputeReplica", {"volumes": [{"claimName": "c", "mountPath": "/tmp/x"}]}),
        "mountPath: .* is a folder of the pod itself",
    ),
    (
        bent("ComputeReplica", {"volumes": [{"claimName": "c", "mountPath": "/run/secrets"}]}),
        "mountPath: .* is a folder of the pod itself",
    ),
    (bent("ComputeReplica", {"updateStrategy": "Rolling"}), "spec.updateStrategy: Unsupported value"),
]
INSTANCES = [
    (manifest("ComputeInstance", {}), "spec.storage: Required value"),
    (bent("ComputeInstance", {"storage": {}}), "spec.storage.location: Required value"),
    (bent("ComputeInstance", {"storage.location": "s3://b/x"}), "spec.storage.location: .* or s3://bucket/prefix"),
    (
        bent("ComputeInstance", {"storage.location": "s3://k:s@bucket/x"}),
        "spec.storage.location: .* without credentials",
    ),
    (bent("ComputeInstance", {"storage.location": "s3://bucket/a/../b"}), "spec.storage.location: .* '..' segments"),
    (bent("ComputeInstance", {"storage.location": "gs://bucket/x"}), "spec.storage.location: .* or s3://bucket/prefix"),
    (bent("ComputeInstance", {"storage.location": "data"}), "spec.storage.location: .* must be an absolute path"),
    (bent("ComputeInstance", {"storage.location": "/a/../b"}), "spec.storage.location: .* '..' segments"),
    (bent("ComputeInstance", {"storage.location": "/a\nb"}), "spec.storage.location: .* control characters"),
    (bent("ComputeInstance", {"storage.location": "/" + "a" * 1024}), "spec.storage.location: Too long"),
    (bent("ComputeInstance", {"storage.secretName": "s"}), "spec.storage.secretName: .* location in an object store"),
    (
        bent("ComputeInstance", {"storage": {"location": "s3://bucket/x", "secretName": "S_"}}),
        "spec.storage.secretName: .* should match",
    ),
    (bent("ComputeInstance", {"storage.secretRef": {"name": "s"}}), 'unknown field "spec.storage.secretRef"'),
    (bent("ComputeInstance", {"readPolicy.lag": "-1s"}), "spec.readPolicy.lag: .* should match"),
    (bent("ComputeInstance", {"readPolicy.lag": "721h"}), "spec.readPolicy.lag: .* must be at most 720h"),
    (bent("ComputeInstance", {"maxResultSize": "1Ki"}), "spec.maxResultSize: .* should match"),
    (bent("ComputeInstance", {"maxResultSize": "9Gi"}), "spec.maxResultSize: .* must be from 1Mi to 8Gi"),
    (bent("ComputeInstance", {"sourceSecrets": ["a", "a"]}), "spec.sourceSecrets.*: Duplicate value"),
    (bent("ComputeInstance", {"sourceSecrets": ["../a"]}), "spec.sourceSecrets.* should match"),
    (bent("ComputeInstance", {"sourceSecrets": [""]}), "spec.sourceSecrets.*: .* at least 1 chars"),
    (bent("ComputeInstance", {"sourceSecrets": [f"s{n}" for n in range(17)]}), "spec.sourceSecrets: Too many"),
    (bent("ComputeInstance", {"sourceSecrets": ["tidemark-authority"]}), "must not be a Secret that the operator"),
    (bent("ComputeInstance", {"sourceSecrets": ["tidemark-replica-r1-tls"]}), "must not be a Secret that the operator"),
    (
        bent("ComputeInstance", {"publish": {"iceberg": {"uri": "https://c", "secretName": "s"}}}),
        "publish.iceberg.secretName: .* must be one of sourceSecrets",
    ),
    (
        bent(
            "ComputeInstance",
            {"sourceSecrets": ["s"], "publish": {"iceberg": {"uri": "http://c", "secretName": "s"}}},
        ),
        "publish.iceberg.uri: .* must be https",
    ),
    *(
        (bent("ComputeInstance", {"publish": {"iceberg": {"uri": uri}}}), "publish.iceberg.uri: .* should match")
        for uri in ("ftp://c", "https://user:word@c", "https://c?token=x")
    ),
    (manifest("ComputeInstance", name="a.b"), "metadata.name: .* must be a DNS label"),
]
SOURCES = [
    (bent("DataSource", {"loadGenerator": ABSENT}), "spec: .* exactly one kind of source"),
    (bent("DataSource", {"files": files()["spec"]["files"]}), "spec: .* exactly one kind of source"),
    (bent("DataSource", {"delta": delta()["spec"]["delta"]}), "spec: .* exactly one kind of source"),
    (delta(path="lake/t"), "path: .* must be an absolute path, a file:/// URL or s3://bucket/prefix"),
    (delta(path="/lake/../t"), "path: .* must not contain"),
    (delta(path="/etc/t"), "path: .* is a folder of the pod itself"),
    (delta(columns=[]), "columns: .* at least 1"),
    (delta(evolve="all"), "evolve: Unsupported value"),
    (delta(evolve="addColumns", columns=["a"]), "evolve is for tables whose columns are not named"),
    (delta(primaryKey=[]), "primaryKey: .* at least 1"),
    (files(primaryKey=["a", "a"]), "primaryKey.*: Duplicate value"),
    (bucket(secret="../a"), "secret: .* should match"),
    (bucket(endpoint="http://store:9000"), "endpoint needs secret"),
    (bucket(secret="a", endpoint="http://u:p@store"), "endpoint: .* should match"),
    (bucket(secret="a", path="/in"), "secret is for files in a bucket"),
    (bent("DataSource", LAKE | {"delta.secret": "a"}), "secret is for tables in a bucket"),
    (bent("DataSource", BUCKETS | {"delta.endpoint": "http://store"}), "endpoint needs secret"),
    (delta(columns=["a", "a"]), "columns.*: Duplicate value"),
    (delta(onGap="skip"), "onGap: Unsupported value"),
    (bent("DataSource", {"table": written()["spec"]["table"]}), "spec: .* exactly one kind of source"),
    (written(columns=[]), "columns: .* at least 1"),
    (written(columns=[{"name": "__a", "type": "INT"}]), "name: .* must not begin with __"),
    (written(columns=[{"name": "a", "type": "BLOB"}]), "type: .* must be one of BOOLEAN"),
    (written(columns=[{"name": "a", "type": "INT", "jsonPointer": "a"}]), "jsonPointer: .* should match"),
    (written(primaryKey=[]), "primaryKey: .* at least 1"),
    (written(unknownFields="keep"), "unknownFields: Unsupported value"),
    (bent("DataSource", {"postgres": postgres()["spec"]["postgres"]}), "spec: .* exactly one kind of source"),
    (postgres(onGap="skip"), "onGap: Unsupported value"),
    (postgres(sslMode="prefer"), "sslMode: Unsupported value"),
    (postgres(secret="../a"), "secret: .* should match"),
    (postgres(maxTransactionBytes="1k"), "maxTransactionBytes: .* should match"),
    (postgres(exceptTables=[{"table": "t"}]), "exceptTables is for allTables"),
    (postgres(allTables=False, exceptTables=[{"table": "t"}]), "exceptTables is for allTables"),
    (postgres(allTables=True, exceptTables=[]), "exceptTables: .* at least 1"),
    (postgres(evolve="addColumns"), "evolve of the source is for allTables"),
    (postgres(tables=ABSENT), "tables must name a table, unless allTables is true"),
    (postgres(allTables=False, tables=ABSENT), "tables must name a table, unless allTables is true"),
    (postgres(port=0), "port: .* greater than or equal to 1"),
    (postgres({"columns": []}), "columns: .* at least 1"),
    (files(format="parquet", evolve="all"), "evolve: Unsupported value"),
    (files(format="json", evolve="addColumns"), "evolve is for parquet and avro"),
    (
        files(format="parquet", evolve="addColumns", columns=[{"name": "a", "type": "INT"}]),
        "evolve is for tables whose columns are not named",
    ),
    (postgres({"evolve": "all"}), "evolve: Unsupported value"),
    (postgres({"evolve": "addColumns", "columns": ["a"]}), "evolve is for tables whose columns are not named"),
    (bent("DataSource", {"kafka": kafka()["spec"]["kafka"]}), "spec: .* exactly one kind of source"),
    (bent("DataSource", {"introspection": {}}), "spec: .* exactly one kind of source"),
    *(
        (bent("DataSource", RELATIONS | changes), f"spec.{text}")
        for changes, text in (
            ({"tick": "500ms"}, "tick: .* at least 1s with introspection"),
            ({"introspection.relations": []}, "introspection.relations: "),
            ({"introspection.relations": ["retained_tables"]}, r"introspection.relations\[0\]: Unsupported value"),
            ({"introspection.relations": ["steps", "steps"]}, r"introspection.relations\[1\]: Duplicate value"),
        )
    ),
    (kafka(format="json"), "format json needs columns"),
    (kafka(columns=[{"name": "a", "type": "INT"}]), "columns are of format json"),
    (kafka(format="xml"), "format: Unsupported value"),
    (kafka(format="avro"), "schema is of the formats avro and protobuf"),
    (kafka(schema={"inline": "{}"}), "schema is of the formats avro and protobuf"),
    (kafka(format="avro", schema={"inline": "{}", "subject": "s"}), "exactly one of inline, secret, configMap"),
    (kafka(format="avro", schema={"inline": "{}", "version": 1}), "version is of subject"),
    (kafka(format="avro", schema={"subject": "s"}), "needs registry"),
    (kafka(format="avro", schema={"inline": "{}"}, framed=True), "needs registry"),
    (kafka(framed=True), "framed is of the formats"),
    (kafka(format="json", columns=[{"name": "a", "type": "INT"}], evolve="addColumns"), "evolve is for framed values"),
    (kafka(format="avro", schema={"inline": "{}"}, evolve="addColumns"), "evolve is for framed values"),
    (kafka(format="avro", schema={"subject": "s", "version": 1}, evolve="addColumns"), "evolve is for framed values"),
    (kafka(topic="a/b"), "topic: .* should match"),
    (kafka(start={"at": "latest", "offsets": [{"partition": 0, "offset": 1}]}), "start: Too many"),
    (kafka(metadata=[{"name": "__k", "from": "key"}]), "metadata.*name: .* should match"),
    (kafka(metadata=[{"name": "k", "from": "value"}]), "from: Unsupported value"),
    (kafka(envelope="upsert"), "envelopes upsert and debezium need key"),
    (kafka(key={"format": "text"}), "none takes no key"),
    (kafka(envelope="upsert", key={"format": "json"}), "columns are of format json"),
    (kafka(envelope="upsert", key={"format": "xml"}), "key.format: Unsupported value"),
    (kafka(envelope="upsert", key={"format": "avro"}), "key.*schema is of the formats avro and protobuf"),
    (kafka(envelope="upsert", key={"format": "avro", "schema": {}}), "exactly one of inline, secret, configMap"),
    (kafka(envelope="upsert", key={"format": "avro", "schema": {"subject": "s"}}), "needs registry"),
    (
        kafka(envelope="upsert", key={"format": "protobuf", "schema": {"inline": "CgA="}, "framed": True}),
        "needs registry",
    ),
    (kafka(envelope="upsert", key={"format": "text", "framed": True}), "framed is of the formats"),
    (kafka(envelope="debezium", key={"format": "text"}), "envelope debezium is of format avro, or json"),
    (
        kafka(
            envelope="debezium",
            format="protobuf",
            schema={"inline": "CgA="},
            key={"format": "avro", "schema": {"inline": "{}"}},
        ),
        "envelope debezium is of format avro, or json",
    ),
    (kafka(onGap="resnapshot"), "onGap: Unsupported value"),
    (followed("other.transaction"), "begin as that of the transactions"),
    (followed("shop"), "transactions.topic: .* should match"),
    (followed("shop.transaction", start={"at": "latest"}), "start at earliest"),
    (
        followed("shop.transaction", columns=ABSENT, format="avro", schema={"inline": "{}"}),
        "or of avro with the frame of a registry",
    ),
    (followed("shop.transaction", envelope="upsert"), "transactions are followed by tables of envelope debezium"),
    (bent("DataSource", {"kinesis": {}}), 'unknown field "spec.kinesis"'),
    (bent("DataSource", {"loadGenerator": {}}), "spec.loadGenerator: .* exactly one generator"),
    (bent("DataSource", {"loadGenerator.nexmark": {}}), "spec.loadGenerator: .* exactly one generator"),
    (
        bent("DataSource", {"loadGenerator": {"nexmark": {"eventsPerSecond": 0}}}),
        "spec.loadGenerator.nexmark.eventsPerSecond: ",
    ),
    (
        bent("DataSource", {"loadGenerator": {"nexmark": {"eventsPerSecond": 100_001}}}),
        "spec.loadGenerator.nexmark.eventsPerSecond: ",
    ),
    (bent("DataSource", {"loadGenerator": {"nexmark": {"seed": -1}}}), "spec.loadGenerator.nexmark.seed: "),
    (bent("DataSource", {"loadGenerator.tpch.scaleFactor": 0}), "spec.loadGenerator.tpch.scaleFactor: .* from 0.001"),
    (bent("DataSource", {"loadGenerator.tpch.scaleFactor": 101}), "spec.loadGenerator.tpch.scaleFactor: .* to 100"),
    (bent("DataSource", {"loadGenerator.tpch.seed": -1}), "spec.loadGenerator.tpch.seed: "),
    (bent("DataSource", {"tick": "99ms"}), "spec.tick: .* from 100ms to 1h"),
    (bent("DataSource", {"tick": "61m"}), "spec.tick: .* from 100ms to 1h"),
    (bent("DataSource", {"tick": "1.5s"}), "spec.tick: .* should match"),
    (bent("DataSource", {"tick": "9" * 30 + "h"}), "spec.tick: "),
    (bent("DataSource", {"deletionPolicy": "Keep"}), "spec.deletionPolicy: Unsupported value"),
    (bent("DataSource", {"suspend": "yes"}), "spec.suspend: "),
    (manifest("DataSource", name="a.b"), "metadata.name: .* must be a DNS label"),
    (manifest("DataSource", {"instance": "i", "files": {"path": "/in", "tables": []}}), "spec.files.tables: "),
    (files_in("gs://bucket/x"), "spec.files.path: .* must be an absolute path, a file:/// URL or s3://bucket/prefix"),
    (files(order="age"), r"spec.files.tables\[0\].order: Unsupported value"),
    *((files_in(path), "spec.files.path: .* is a folder of the pod itself") for path in OWN),
    (files(name="Flights"), r"spec.files.tables\[0\].name: .* should match"),
    (files(name="a_b"), r"spec.files.tables\[0\].name: .* should match"),
    (files(format="orc"), r"spec.files.tables\[0\].format: Unsupported value"),
    (files(path="../x"), r"spec.files.tables\[0\].path: .* must be relative"),
    (files(path="/x"), r"spec.files.tables\[0\].path: .* must be relative"),
    (files(pattern="a/*.csv"), r"spec.files.tables\[0\].pattern: .* should match"),
    (files(maxFilesPerTick=0), r"spec.files.tables\[0\].maxFilesPerTick: "),
    (files(onBadRecord="skip"), r"spec.files.tables\[0\].onBadRecord: Unsupported value"),
    (files(options={"mode": "PERMISSIVE"}), r'unknown field "spec.files.tables\[0\].options.mode"'),
    (files(options={"delimiter": "::"}), r"spec.files.tables\[0\].options.delimiter: Too long"),
    (files(options={"header": False}), r"spec.files.tables\[0\]: .* columns must be given"),
    (files(format="json", options={"quote": "'"}), r"spec.files.tables\[0\]: .* are for csv alone"),
    (files(format="parquet", options={"dateFormat": "y"}), r"spec.files.tables\[0\]: .* options are for csv and json"),
    (files(compression="lzma"), r"spec.files.tables\[0\].compression: Unsupported value"),
    (files(format="parquet", compression="gzip"), r"spec.files.tables\[0\]: .* compression is for csv and json"),
    (files(format="avro", options={"header": True}), r"spec.files.tables\[0\]: .* options are for csv and json"),
    (files(format="avro", compression="gzip"), r"spec.files.tables\[0\]: .* compression is for csv and json"),
    (files(columns=[]), r"spec.files.tables\[0\].columns: "),
    (files(columns=[COLUMN, COLUMN]), r"spec.files.tables\[0\].columns\[1\]: Duplicate value"),
    (files(columns=[{"name": "__time", "type": "INT"}]), r"columns\[0\].name: .* must not begin with __"),
    (files(columns=[{"name": "a", "type": "MAP<STRING,INT>"}]), r"columns\[0\].type: .* should match"),
    (files(columns=[{"name": "a", "type": "DECIMAL(39,2)"}]), r"columns\[0\].type: .* should match"),
    (files(columns=[{"name": "a"}]), r"columns\[0\].type: Required value"),
]
INDEX_OF_A = {"name": "e", "index": {"from": "a"}}


def followed_by(table: str) -> dict[str, Any]:
    """A materialized view that an Iceberg table of this name follows."""
    return {"publish": {"iceberg": {"table": table}}}


VIEW_OF_A = {"name": "v", "materializedView": {"from": "a"}}
TIME = "2026-01-01T00:00:00Z"


def task(**fields: Any) -> dict[str, Any]:
    return {"name": "e", "continualTask": {"from": "a", "watch": "s.t", **fields}}


TASK_OF_A = {**task(), "name": "t"}
FLOWS = [
    (manifest("Dataflow", {"instance": "default"}), "spec: .* exactly one form"),
    (postgres_sink(key=[]), "key: .* at least 1"),
    (postgres_sink(table="tidemark_sinks"), "table: .* must be another one"),
    (postgres_sink(every="100ms"), "every: .* must be onCommit, or from 1s to 24h"),
    (kafka_sink(format="avro"), "registry: .* goes with format avro"),
    (kafka_sink(registry={"url": "http://r"}), "registry: .* goes with format avro"),
    (kafka_sink(format="avro", registry={"url": "http://u@r"}), "registry.url: "),
    (kafka_sink(format="protobuf"), "format: "),
    (bent("Dataflow", {"index": ABSENT}), "spec: .* exactly one of index, materializedView and"),
    *(
        (bent("Dataflow", {"index": ABSENT, "materializedView": followed_by(table)}), "iceberg.table: .* should match")
        for table in ("spent", "sales.", ".spent", "sales..spent", "sales.sp ent", "sales/spent", "-a.b")
    ),
    (bent("Dataflow", {"materializedView": {}}), "spec: .* exactly one of index, materializedView and"),
    (bent("Dataflow", {"sql": ABSENT}), "spec: .* exactly one form"),
    (bent("Dataflow", {"sql": ""}), "spec.sql: "),
    (bent("Dataflow", {"sql": "x" * 131073}), "spec.sql: Too long"),
    (bent("Dataflow", {"sql": "é" * 65537}), "spec.sql: .* at most 131072 bytes"),
    (bent("Dataflow", {"dialect": "materialize"}), "spec.dialect: Unsupported value"),
    (bent("Dataflow", {"until": 0}), "spec.until: "),
    (bent("Dataflow", {"until": 2**63 - 1}), "spec.until: .* at most 9223372036854775806"),
    (bent("Dataflow", {"until": 5, "asOf": 5}), "spec.until: .* must be after asOf"),
    (bent("Dataflow", {"until": "2026-01-01T00:00:00Z"}), "spec.until: "),
    (bent("Dataflow", {"refresh": {"every": "1h"}}), "spec.refresh: .* goes with materialized views alone"),
    (bent("Dataflow", {"index": ABSENT, "continualTask": {"watch": "s.t"}, "refresh.every": "1h"}), "spec.refresh: "),
    (long_form(["a"], [VIEW_OF_A, INDEX_OF_A], refresh={"every": "1h"}), "spec.refresh: .* views alone"),
    (refreshed({}), "spec.refresh: .* every, at, or both"),
    (refreshed({"at": []}), "spec.refresh.at: "),
    (refreshed({"at": [TIME], "alignedTo": TIME}), "spec.refresh.alignedTo: .* goes with every"),
    (refreshed({"every": "999ms"}), "spec.refresh.every: .* from 1s to 8784h"),
    (refreshed({"every": "8784h1s"}), "spec.refresh.every: .* from 1s to 8784h"),
    (refreshed({"every": "1d"}), "spec.refresh.every: .* should match"),
    (refreshed({"every": 60}), "spec.refresh.every: "),
    (refreshed({"every": "1h", "alignedTo": "yesterday"}), "spec.refresh.alignedTo: "),
    (refreshed({"every": "1h", "alignedTo": "1969-12-31T23:59:59Z"}), "spec.refresh.alignedTo: .* from 1970 on"),
    (refreshed({"at": ["2026-02-30T00:00:00Z"]}), r"spec.refresh.at\[0\]: "),
    (refreshed({"at": ["2026-01-01T00:00:00"]}), r"spec.refresh.at\[0\]: .* should match"),
    (refreshed({"at": ["2026-01-01T00:00:00.1234Z"]}), r"spec.refresh.at\[0\]: .* should match"),
    (refreshed({"at": [1]}), r"spec.refresh.at\[0\]: "),
    (refreshed({"at": [TIME] * 33}), "spec.refresh.at: Too many"),
    (refreshed({"every": "1h", "jitter": "1s"}), 'unknown field "spec.refresh.jitter"'),
    (bent("Dataflow", {"refreshPolicy": "full"}), "spec.refreshPolicy: .* full goes with refresh"),
    (bent("Dataflow", {"refreshPolicy": "auto"}), "spec.refreshPolicy: .* auto goes with materialized views alone"),
    (long_form(["a"], [VIEW_OF_A, INDEX_OF_A], refreshPolicy="auto"), "spec.refreshPolicy: .* an index keeps its"),
    (bent("Dataflow", {"refreshPolicy": "Full"}), "spec.refreshPolicy: Unsupported value"),
    (bent("Dataflow", {"asOf": -1}), "spec.asOf: "),
    (bent("Dataflow", {"asOf": 2**63 - 1}), "spec.asOf: .* at most 9223372036854775806"),
    (bent("Dataflow", {"readPolicy": {}}), "spec.readPolicy.lag: Required value"),
    (bent("Dataflow", {"index.key": []}), "spec.index.key: "),
    (bent("Dataflow", {"index.key": ["a", "a"]}), r"spec.index.key\[1\]: Duplicate value"),
    (manifest("Dataflow", name="a.b"), "metadata.name: .* must be a DNS label"),
    (bent("Dataflow", {"exports": [INDEX_OF_A]}), "spec: .* exactly one form"),
    (bent("Dataflow", {"views": [{"name": "a", "sql": "S"}]}), "spec: .* views and exports go together"),
    (long_form(["a"], []), "spec.exports: "),
    (long_form(["a", "a"], [INDEX_OF_A]), r"spec.views\[1\]: Duplicate value"),
    (long_form(["a"], [INDEX_OF_A, INDEX_OF_A]), r"spec.exports\[1\]: Duplicate value"),
    (long_form(["b"], [INDEX_OF_A]), "spec.exports: .* from must name one of views"),
    (long_form(["a"], [{"name": "e"}]), r"spec.exports\[0\]: .* exactly one of index, materializedView and"),
    (long_form(["a"], [{"name": "e", "index": {}}]), r"spec.exports\[0\].index.from: Required value"),
    (long_form(["a"], [{"name": f"e{i}", "index": {"from": "a"}} for i in range(33)]), "spec.exports: Too many"),
    (long_form(["a"], [TASK_OF_A, INDEX_OF_A]), "spec.exports: .* must be the only export"),
    (long_form(["a"], [task(**{"from": "b"})]), "spec.exports: .* from must name one of views"),
    (long_form(["a"], [task(delete="b")]), "spec.exports: .* delete must name one of views"),
    (long_form(["a"], [task(delete="a")]), r"spec.exports\[0\].continualTask.delete: .* another view than from"),
    (long_form(["a"], [task(watch="a.b.c")]), r"spec.exports\[0\].continualTask.watch: .* should match"),
    (long_form(["a"], [task(columns=[COLUMN, COLUMN])]), r"continualTask.columns\[1\]: Duplicate value"),
    (long_form(["a"], [{"name": "e", "continualTask": {"from": "a"}}]), "continualTask.watch: Required value"),
    (bent("Dataflow", {"continualTask": {"watch": "s.t"}}), "spec: .* exactly one of index, materializedView and"),
    (bent("Dataflow", {"index": ABSENT, "continualTask": {}}), "spec.continualTask.watch: Required value"),
    (long_form(["a_b"], [{"name": "e", "index": {"from": "a_b"}}]), r"spec.views\[0\].name: .* should match"),
]
TABLE: list[tuple[dict[str, Any], str]] = [*INSTANCES, *REPLICAS, *SOURCES, *FLOWS]


@pytest.mark.parametrize(
    ("document", "message"),
    TABLE,
    ids=[f"{document['kind']}-{i}-{message[:40]}" for i, (document, message) in enumerate(TABLE)],
)
def test_an_invalid_manifest_is_refused_with_the_field_named(
    document: dict[str, Any], message: str, dry_kubectl: Kubectl
) -> None:
    """A dry run of `kubectl create`, strict as it is by default."""
    with pytest.raises(KubectlFailed, match=message):
        dry_kubectl.create(document, dry_run=True)
