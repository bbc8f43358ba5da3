"""Objects as the API server gives them, in the fewest words."""

from __future__ import annotations

from typing import Any


def body(kind: str, spec: dict[str, Any], name: str = "x", **metadata: Any) -> dict[str, Any]:
    """An object of the first generation in namespace `ns`."""
    return {
        "apiVersion": "compute.tidemark.dev/v1alpha1",
        "kind": kind,
        "metadata": {
            "namespace": "ns",
            "name": name,
            "uid": "u-1",
            "generation": 1,
            "resourceVersion": "7",
            **metadata,
        },
        "spec": spec,
    }


def dataflow(spec: dict[str, Any], name: str = "revenue", **metadata: Any) -> dict[str, Any]:
    return body("Dataflow", {"instance": "default", **spec}, name, **metadata)


def data_source(spec: dict[str, Any]) -> dict[str, Any]:
    return body("DataSource", {"instance": "default", **spec}, "source")


def csv_table(**fields: Any) -> dict[str, Any]:
    """A DataSource with one csv table `t`, with these fields beside name and format."""
    return data_source({"files": {"path": "/in", "tables": [{"name": "t", "format": "csv", **fields}]}})
