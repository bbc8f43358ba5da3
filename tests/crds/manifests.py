"""The least manifest of each kind that is valid, and ways to bend it."""

from __future__ import annotations

import copy
from typing import Any

API_VERSION = "compute.tidemark.dev/v1alpha1"

SPECS: dict[str, dict[str, Any]] = {
    "ComputeInstance": {"storage": {"location": "/data"}},
    "ComputeReplica": {"instance": "default"},
    "DataSource": {"instance": "default", "loadGenerator": {"tpch": {}}},
    "Dataflow": {"instance": "default", "sql": "SELECT 1 AS a", "index": {}},
}

ABSENT = object()
"""A value of `bent` that removes the field."""


def manifest(kind: str, spec: dict[str, Any] | None = None, name: str = "x") -> dict[str, Any]:
    return {
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {"name": name},
        "spec": copy.deepcopy(SPECS[kind]) if spec is None else spec,
    }


def bent(kind: str, changes: dict[str, Any], name: str = "x") -> dict[str, Any]:
    """The least manifest with some fields of spec, by dotted path, set or removed."""
    document = manifest(kind, name=name)
    for path, value in changes.items():
        *parents, last = path.split(".")
        place = document["spec"]
        for parent in parents:
            place = place.setdefault(parent, {})
        if value is ABSENT:
            place.pop(last, None)
        else:
            place[last] = copy.deepcopy(value)  # a later path may lead into it
    return document


def files(**table: Any) -> dict[str, Any]:
    """A DataSource with a files source of one csv table."""
    entry = {"name": "t", "format": "csv", **table}
    spec = {"instance": "default", "files": {"path": "/in", "tables": [entry]}}
    return manifest("DataSource", spec)


def files_in(path: str) -> dict[str, Any]:
    """The same, of another directory."""
    document = files()
    document["spec"]["files"]["path"] = path
    return document


def bucket(**spec: Any) -> dict[str, Any]:
    """The same, of a bucket."""
    document = files_in("s3://bucket/in")
    document["spec"]["files"] |= spec
    return document


def delta(**table: Any) -> dict[str, Any]:
    """A DataSource of one Delta table."""
    entry = {"name": "t", "path": "/lake/t", **table}
    return manifest("DataSource", {"instance": "default", "delta": {"tables": [entry]}})


def written(**table: Any) -> dict[str, Any]:
    """A DataSource of one table that clients write."""
    entry = {"name": "t", "columns": [{"name": "id", "type": "BIGINT"}], **table}
    return manifest("DataSource", {"instance": "default", "table": {"tables": [entry]}})


def postgres(table: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A DataSource of one table of a PostgreSQL database."""
    entry = {"name": "t", "table": "T", **(table or {})}
    least = {"host": "db.shop", "database": "shop", "secret": "db", "publication": "tidemark", "tables": [entry]}
    given = {name: value for name, value in (least | spec).items() if value is not ABSENT}
    return manifest("DataSource", {"instance": "default", "postgres": given})


def postgres_sink(**sink: Any) -> dict[str, Any]:
    """A Dataflow with a view that is kept in a table of a PostgreSQL database."""
    least = {"host": "db.shop", "database": "shop", "secret": "db", "table": "kept", "key": ["a"]}
    return bent("Dataflow", {"index": ABSENT, "materializedView": {"postgresSink": least | sink}})


def kafka_sink(**sink: Any) -> dict[str, Any]:
    """A Dataflow with a view that is written to a topic."""
    least = {"brokers": ["kafka:9092"], "topic": "spent", "key": ["a"]}
    return bent("Dataflow", {"index": ABSENT, "materializedView": {"kafkaSink": least | sink}})


def kafka(**table: Any) -> dict[str, Any]:
    """A DataSource of one topic."""
    entry = {"name": "t", "topic": "shop.T_1", "format": "text", **table}
    return manifest("DataSource", {"instance": "default", "kafka": {"brokers": ["kafka:9092"], "tables": [entry]}})


def followed(transactions: str, **table: Any) -> dict[str, Any]:
    """A DataSource of one topic of Debezium, whose transactions are followed."""
    columns = [{"name": "n", "type": "STRING"}]
    key = {"format": "json", "columns": [{"name": "id", "type": "BIGINT"}]}
    given = {"envelope": "debezium", "format": "json", "columns": columns, "key": key} | table
    made = kafka(**{name: value for name, value in given.items() if value is not ABSENT})
    made["spec"]["kafka"]["transactions"] = {"topic": transactions}
    return made


def long_form(views: list[str], exports: list[dict[str, Any]], **spec: Any) -> dict[str, Any]:
    """A Dataflow with views of these names."""
    named = [{"name": v, "sql": "SELECT 1 AS a"} for v in views]
    return manifest("Dataflow", {"instance": "default", "views": named, "exports": exports, **spec})


def refreshed(refresh: dict[str, Any]) -> dict[str, Any]:
    """A Dataflow with a materialized view, brought up to date at these times."""
    return bent("Dataflow", {"index": ABSENT, "materializedView": {}, "refresh": refresh})
