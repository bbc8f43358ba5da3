"""Editable and immutable fields, also by removing a field and adding it again."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml

from tests.crds.kubectl import Kubectl
from tests.crds.manifests import ABSENT, bent, bucket, delta, files, followed, kafka, postgres, written
from tests.kinds_fixtures import CRDS
from tidemark_devcluster.errors import KubectlFailed

pytestmark = [pytest.mark.cluster, pytest.mark.broad]

TPCH = {"tick": "5s", "loadGenerator.tpch.scaleFactor": 0.1}
DELTA = {"loadGenerator": ABSENT, "delta": delta()["spec"]["delta"]}
WRITTEN = {"loadGenerator": ABSENT, "table": written()["spec"]["table"]}
ID = {"name": "id", "type": "BIGINT"}
POSTGRES = {"loadGenerator": ABSENT, "postgres": postgres()["spec"]["postgres"]}
KAFKA = {"loadGenerator": ABSENT, "kafka": kafka()["spec"]["kafka"]}
FOLLOWED = {"loadGenerator": ABSENT, "kafka": followed("shop.transaction")["spec"]["kafka"]}
SECRETS = {"loadGenerator": ABSENT, "files": bucket(secret="a", endpoint="http://store")["spec"]["files"]}
FILES = {"loadGenerator": ABSENT, "files": files()["spec"]["files"]}

FILE_TABLE_EDITS: dict[str, Any] = {
    "path": "below",
    "pattern": "*.csv",
    "format": "json",
    "compression": "gzip",
    "columns": [ID],
    "options": {"delimiter": ";"},
    "onBadRecord": "deadLetter",
    "maxFilesPerTick": 7,
    "primaryKey": ["id"],
    "appendOnly": True,
}
"""The new value of each field of a table of csv."""


def files_edited() -> list[list[dict[str, Any]]]:
    [table] = FILES["files"]["tables"]
    return [[table | {field: value}] for field, value in FILE_TABLE_EDITS.items() if field != "columns"]


IMMUTABLE: list[tuple[str, dict[str, Any], dict[str, Any], str]] = [
    ("ComputeInstance", {}, {"storage.location": "/other"}, "spec.storage.location: .* is immutable"),
    ("ComputeReplica", {}, {"instance": "other"}, "spec.instance: .* is immutable"),
    ("ComputeReplica", {}, {"instance": ABSENT}, "spec.instance: Required value"),
    ("DataSource", {}, {"instance": "other"}, "spec.instance: .* is immutable"),
    ("DataSource", TPCH, TPCH | {"tick": "6s"}, "spec.tick: .* is immutable"),
    ("DataSource", TPCH, TPCH | {"tick": ABSENT}, "spec.tick: .* is immutable"),
    ("DataSource", TPCH, TPCH | {"loadGenerator.tpch.scaleFactor": 0.2}, "loadGenerator is immutable"),
    ("DataSource", TPCH, TPCH | {"loadGenerator.tpch": {}}, "loadGenerator is immutable"),
    ("DataSource", TPCH, TPCH | {"loadGenerator": {"nexmark": {}}}, "loadGenerator is immutable"),
    ("DataSource", {}, FILES, "loadGenerator is immutable"),
    ("DataSource", FILES, {}, "files is immutable"),
    ("DataSource", {"loadGenerator": ABSENT, "introspection": {}}, {}, "introspection is immutable"),
    ("DataSource", DELTA, {}, "delta is immutable"),
    ("DataSource", POSTGRES, {}, "postgres is immutable"),
    ("DataSource", POSTGRES, POSTGRES | {"postgres.host": "other"}, "nothing but tables can be changed"),
    ("DataSource", POSTGRES, POSTGRES | {"postgres.onGap": "resnapshot"}, "nothing but tables can be changed"),
    (
        "DataSource",
        POSTGRES,
        POSTGRES | {"postgres.tables": [{"name": "t", "table": "other"}]},
        r"postgres.tables\[0\]: .* is immutable but for columns and evolve",
    ),
    (
        "DataSource",
        DELTA,
        DELTA | {"delta.tables": [{"name": "t", "path": "/other"}]},
        r"delta.tables\[0\]: .* is immutable",
    ),
    (
        "DataSource",
        DELTA,
        DELTA | {"delta.tables": [{"name": "t", "path": "/lake/t", "primaryKey": ["a"]}]},
        r"delta.tables\[0\]: .* is immutable but for columns and evolve",
    ),
    ("DataSource", FILES, FILES | {"files.path": "/other"}, "files.path: .* is immutable"),
    *(
        (
            "DataSource",
            FILES,
            FILES | {"files.tables": table},
            r"files.tables\[0\]: .* is immutable but for columns that",
        )
        for table in files_edited()
    ),
    ("DataSource", SECRETS, SECRETS | {"files.secret": "b"}, "secret is immutable"),
    ("DataSource", SECRETS, SECRETS | {"files.endpoint": "http://other"}, "endpoint is immutable"),
    ("DataSource", WRITTEN, WRITTEN | {"table.maxTransactionBytes": "5Mi"}, "maxTransactionBytes: .* is immutable"),
    (
        "DataSource",
        WRITTEN,
        WRITTEN | {"table.tables": [{"name": "t", "columns": [{"name": "id", "type": "BIGINT", "nullable": False}]}]},
        r"table.tables\[0\].columns\[0\]: .* is immutable: rows have it as it is",
    ),
    (
        "DataSource",
        WRITTEN,
        WRITTEN | {"table.tables": [{"name": "t", "columns": [{"name": "other", "type": "BIGINT"}]}]},
        r"table.tables\[0\]: .* is immutable but for columns that are added",
    ),
    (
        "DataSource",
        WRITTEN,
        WRITTEN | {"table.tables": [{"name": "t", "columns": [ID], "primaryKey": ["id"]}]},
        r"table.tables\[0\]: .* is immutable but for columns that are added",
    ),
    (
        "DataSource",
        WRITTEN,
        WRITTEN | {"table.tables": [{"name": "t", "columns": [ID, {"name": "b", "type": "INT", "nullable": False}]}]},
        r"table.tables\[0\].columns: .* a column that is added must be nullable",
    ),
    ("DataSource", KAFKA, {}, "kafka is immutable"),
    ("DataSource", KAFKA, KAFKA | {"kafka.brokers": ["other:9092"]}, "nothing but tables can be changed"),
    ("DataSource", KAFKA, KAFKA | {"kafka.group": "g"}, "nothing but tables can be changed"),
    ("DataSource", FOLLOWED, FOLLOWED | {"kafka.transactions": ABSENT}, "nothing but tables can be changed"),
    (
        "DataSource",
        KAFKA,
        KAFKA | {"kafka.tables": kafka(topic="u")["spec"]["kafka"]["tables"]},
        r"kafka.tables\[0\]: .* is immutable but for onGap",
    ),
    ("Dataflow", {}, {"instance": "other"}, "spec.instance: .* is immutable"),
]


@pytest.mark.parametrize(("kind", "before", "after", "message"), IMMUTABLE)
def test_immutable_fields_stay(
    kind: str, before: dict[str, Any], after: dict[str, Any], message: str, kubectl: Kubectl
) -> None:
    """Replacing the object without the field is the first half of removing it and adding it again."""
    kubectl.create(bent(kind, before))

    with pytest.raises(KubectlFailed, match=message):
        kubectl.replace(bent(kind, after))


EDITABLE: list[tuple[str, dict[str, Any]]] = [
    ("ComputeInstance", {"readPolicy.lag": "5m", "suspend": True}),
    ("ComputeInstance", {"sourceSecrets": ["brokers.tls", "orders-db"]}),
    (
        "ComputeReplica",
        {"resources.limits.memory": "4Gi", "resources.limits.cpu": "3", "sparkOnly": True, "suspend": True},
    ),
    ("ComputeReplica", {"executors.instances": 2, "scratch.claimName": "c", "updateStrategy": "Surge"}),
    ("ComputeReplica", {"volumes": [{"claimName": "c", "mountPath": "/data"}], "resources.requests.cpu": "500m"}),
    ("DataSource", {"suspend": True, "deletionPolicy": "Delete", "adopt": True}),
    ("Dataflow", {"sql": "SELECT 2 AS b", "index": ABSENT, "materializedView": {}, "asOf": 7}),
    ("Dataflow", {"index": ABSENT, "materializedView": {}, "until": 7, "refresh.every": "1h"}),
    ("Dataflow", {"readPolicy.lag": "0s", "suspend": True, "deletionPolicy": "Delete", "adopt": True}),
]


@pytest.mark.parametrize(("kind", "changes"), EDITABLE)
def test_other_fields_can_be_edited_and_count_a_generation(
    kind: str, changes: dict[str, Any], kubectl: Kubectl
) -> None:
    """The generation is what conditions speak of."""
    assert kubectl.create(bent(kind, {}))["metadata"]["generation"] == 1

    assert kubectl.replace(bent(kind, changes))["metadata"]["generation"] == 2


TABLES: list[tuple[dict[str, Any], str, dict[str, Any]]] = [
    (DELTA, "delta.tables", {"name": "more", "path": "/lake/more"}),
    (FILES, "files.tables", {"name": "more", "format": "json"}),
    (POSTGRES, "postgres.tables", {"name": "more", "table": "more"}),
    (WRITTEN, "table.tables", {"name": "more", "columns": [{"name": "n", "type": "BIGINT"}]}),
]


def test_a_postgres_source_may_name_its_tables_or_follow_all(kubectl: Kubectl) -> None:
    """And change between the two; then nothing but tables is edited."""
    every = postgres(allTables=True, exceptTables=[{"table": "audit"}])
    del every["spec"]["postgres"]["tables"]
    kubectl.create(postgres())

    kubectl.replace(every)
    with pytest.raises(KubectlFailed, match="nothing but tables can be changed"):
        kubectl.replace(postgres(allTables=True, publication="other"))
    for evolve in ({"evolve": "addColumns"}, {}):
        kubectl.replace(postgres(allTables=True, **evolve))
    kubectl.replace(postgres())


@pytest.mark.parametrize(("kind_of_source", "path", "table"), TABLES)
def test_tables_of_a_source_can_be_added_and_removed(
    kind_of_source: dict[str, Any], path: str, table: dict[str, Any], kubectl: Kubectl
) -> None:
    kind, _, field = path.partition(".")
    tables = kind_of_source[kind][field]
    kubectl.create(bent("DataSource", kind_of_source))

    kubectl.replace(bent("DataSource", kind_of_source | {path: [table, *tables]}))
    kubectl.replace(bent("DataSource", kind_of_source | {path: [table]}))


@pytest.mark.parametrize(
    ("kind_of_source", "path", "table"),
    [(DELTA, "delta.tables", {"path": "/lake/t"}), (POSTGRES, "postgres.tables", {"table": "T"})],
)
def test_the_columns_of_a_table_can_be_edited(
    kind_of_source: dict[str, Any], path: str, table: dict[str, Any], kubectl: Kubectl
) -> None:
    """Named ones, or all that come; nothing else of it."""
    kubectl.create(bent("DataSource", kind_of_source))
    for more in ({"columns": ["a"]}, {"columns": ["b", "a"]}, {"evolve": "addColumns"}, {}):
        kubectl.replace(bent("DataSource", kind_of_source | {path: [{"name": "t", **table, **more}]}))


def test_columns_are_added_to_a_written_table(kubectl: Kubectl) -> None:
    """In any place, as rows have them by their names."""
    kubectl.create(bent("DataSource", WRITTEN))
    columns = [ID]
    for name in ("b", "c"):
        columns = [{"name": name, "type": "STRING", "jsonPointer": f"/{name}"}, *columns]
        kubectl.replace(bent("DataSource", WRITTEN | {"table.tables": [{"name": "t", "columns": columns}]}))


@pytest.mark.parametrize("format", ["json", "parquet", "avro", "csv"])
def test_columns_are_added_to_a_table_of_files(format: str, kubectl: Kubectl) -> None:
    """Anywhere, also to those that were inferred, of csv by its header; nothing else changes."""
    table = {"name": "t", "format": format, "path": "below", "primaryKey": ["id"]}
    before = {"loadGenerator": ABSENT, "files": {"path": "/in", "tables": [table]}}
    kubectl.create(bent("DataSource", before))
    columns = [ID]
    for name in ("b", "c"):
        columns = [{"name": name, "type": "STRING"}, *columns]
        kubectl.replace(bent("DataSource", before | {"files.tables": [{**table, "columns": columns}]}))
    if format in ("parquet", "avro"):
        for more in ({"evolve": "addColumns"}, {}):
            kubectl.replace(bent("DataSource", before | {"files.tables": [{**table, **more}]}))
        kubectl.replace(bent("DataSource", before | {"files.tables": [{**table, "columns": columns}]}))
    for field, value in FILE_TABLE_EDITS.items():
        if (
            field in ("format", "columns")
            or (format, field) == ("json", "options")
            or (format in ("parquet", "avro") and field in ("compression", "options"))
        ):
            continue
        value = ["b"] if field == "primaryKey" else "other" if field == "path" else value
        with pytest.raises(KubectlFailed, match="is immutable but for columns that"):
            kubectl.replace(
                bent("DataSource", before | {"files.tables": [{**table, "columns": columns, field: value}]})
            )


KAFKA_TABLE_EDITS: dict[str, dict[str, Any]] = {
    "topic": {"topic": "u"},
    "format": {"format": "json", "columns": [{"name": "n", "type": "INT"}]},
    "columns": {"format": "json", "columns": [{"name": "m", "type": "INT"}]},
    "schema": {"format": "avro", "schema": {"inline": '"int"'}},
    "framed": {"format": "json", "columns": [{"name": "m", "type": "INT"}], "framed": True},
    "envelope": {"envelope": "upsert", "key": {"format": "text"}},
    "key": {"envelope": "upsert", "key": {"format": "bytes"}},
    "metadata": {"metadata": [{"name": "p", "from": "partition"}]},
    "start": {"start": {"at": "latest"}},
    "onBadRecord": {"onBadRecord": "deadLetter"},
}
"""The new value of each field of a table."""


def test_how_a_kafka_table_goes_on_behind_a_gap_can_be_edited(kubectl: Kubectl) -> None:
    """The table has every field that a table may have; an edit also goes back to the default."""
    form = {"format": "avro", "schema": {"inline": '"int"'}, "framed": False}
    rest = {"metadata": [{"name": "p", "from": "partition"}], "start": {"offsets": [{"partition": 0, "offset": 5}]}}
    table = {**form, **rest, "envelope": "upsert", "key": form}
    kubectl.create(kafka(**table))
    for gap in ({"onGap": "skip"}, {"onGap": "stop"}, {"onGap": "skip"}, {}):
        kubectl.replace(kafka(**table, **gap))


def test_columns_are_added_to_a_kafka_table_of_json(kubectl: Kubectl) -> None:
    """In any place; which ones, the operator sees."""
    columns = [{"name": "n", "type": "INT"}]
    kubectl.create(kafka(format="json", columns=columns))
    for name in ("b", "c"):
        columns = [{"name": name, "type": "STRING"}, *columns]
        kubectl.replace(kafka(format="json", columns=columns))


@pytest.mark.parametrize("format", ["avro", "protobuf"])
def test_the_schema_of_a_kafka_table_can_be_edited(kubectl: Kubectl, format: str) -> None:
    """Whether it adds columns, and nothing else, the operator sees. A format with a schema keeps one."""
    kubectl.create(kafka(format=format, schema={"inline": "{}"}))
    for schema in ({"inline": "[]"}, {"configMap": {"name": "m", "key": "k"}}, {"secret": {"name": "s", "key": "k"}}):
        kubectl.replace(kafka(format=format, schema=schema))


def test_a_kafka_table_may_begin_to_evolve(kubectl: Kubectl) -> None:
    documents = [kafka(format="avro", schema={"subject": "s"}, **more) for more in ({}, {"evolve": "addColumns"}, {})]
    for document in documents:
        document["spec"]["kafka"]["registry"] = {"url": "http://registry:8081"}
    kubectl.create(documents[0])
    for document in documents[1:]:
        kubectl.replace(document)


def test_other_fields_of_a_kafka_table_cannot_be_edited_beside_it(kubectl: Kubectl) -> None:
    schema = yaml.safe_load((CRDS / "datasources.yaml").read_text())["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for part in ("spec", "kafka", "tables"):
        schema = schema["properties"][part]
    assert KAFKA_TABLE_EDITS.keys() == schema["items"]["properties"].keys() - {"name", "onGap", "evolve"}
    befores = {"columns": "format", "framed": "columns", "key": "envelope"}
    made, changed = (dict[str, Any](apiVersion="v1", kind="List", items=[]) for _ in range(2))
    refusable = {name: edit for name, edit in KAFKA_TABLE_EDITS.items() if name != "columns"}
    for at, (name, edit) in enumerate(refusable.items()):
        before = KAFKA_TABLE_EDITS[befores[name]] if name in befores else {}
        for documents, document in (made, kafka(**before)), (changed, kafka(**edit, onGap="skip")):
            document["metadata"]["name"] = f"x{at}"
            documents["items"].append(document)
    kubectl.run("create", "-f", "-", stdin=json.dumps(made))
    with pytest.raises(KubectlFailed) as raised:
        kubectl.run("replace", "-f", "-", stdin=json.dumps(changed))
    refused = r'"x([0-9]+)" is invalid: spec.kafka.tables\[0\]: .* is immutable but for onGap'
    assert re.findall(refused, str(raised.value)) == list(map(str, range(len(refusable))))


def test_a_dataflow_can_change_its_form(kubectl: Kubectl) -> None:
    """From the short form to the long one and back."""
    long = {
        "sql": ABSENT,
        "index": ABSENT,
        "views": [{"name": "v", "sql": "SELECT 1 AS a"}],
        "exports": [{"name": "e", "index": {"from": "v"}}],
    }
    kubectl.create(bent("Dataflow", {}))

    kubectl.replace(bent("Dataflow", long))
    assert "views" not in kubectl.replace(bent("Dataflow", {}))["spec"]
