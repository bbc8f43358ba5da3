"""The schema accepts statuses of wide tables and of many replicas."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tidemark_operator.handlers.publish.status_documents import (
    ExportStatus,
    Now,
    ReplicaExport,
    TableStatus,
    data_source_status,
    dataflow_status,
)
from tidemark_operator.resources.conditions.condition import yes
from tidemark_protocol.types import BIGINT, Column, SqlType

CRDS = Path(__file__).parents[2] / "crds"
NOW, VERDICTS = Now({}, 1, 1_700_000_000_000), [yes("Ready", "Ready")]


def schema_of(plural: str) -> Any:
    crd = yaml.safe_load((CRDS / f"{plural}.yaml").read_text())
    return crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"]


def beyond(document: Any, schema: Any, path: str = "status") -> Iterator[str]:
    """Lists and texts that are longer than the schema takes."""
    if isinstance(document, dict):
        for name, value in document.items():
            if value is not None:
                yield from beyond(value, schema["properties"][name], f"{path}.{name}")
    elif isinstance(document, list):
        if len(document) > schema.get("maxItems", len(document)):
            yield path
        for value in document:
            yield from beyond(value, schema["items"], f"{path}[]")
    elif isinstance(document, str) and len(document) > schema.get("maxLength", len(document)):
        yield path


def test_as_much_is_told_as_the_schema_takes() -> None:
    """With more nothing would be written: neither that it is ready, nor that it is not any more."""
    labels = tuple(f"field{n}" for n in range(200))
    wide = SqlType("struct", children=(BIGINT,) * len(labels), labels=labels)
    columns = tuple(Column(f"c{n}{'x' * 200}", wide, True) for n in range(1100))
    replicas = tuple(ReplicaExport(f"r{n}", True) for n in range(50))
    one = ExportStatus("e", "index", "u1", None, columns, tuple(c.name for c in columns), replicas=replicas)
    pending = {"exports": [one.document(NOW.ms)]}
    dataflow = dataflow_status(NOW, VERDICTS, [one], None, pending)
    tables = [TableStatus("t", columns=columns), *(TableStatus(f"t.{n}") for n in range(200))]
    source = data_source_status(NOW, VERDICTS, tables, 0, "r1")

    assert list(beyond(dataflow, schema_of("dataflows"))) == []
    assert list(beyond(source, schema_of("datasources"))) == []
    assert len(dataflow["exports"][0]["replicas"]) == 16
    assert len(source["tables"][0]["columns"]) == 256
