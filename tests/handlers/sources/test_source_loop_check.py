"""Directories that a source may read beside Tidemark's own tables."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.handlers.harness import READABLE, OperatorHarness
from tests.resources.manifests import body
from tidemark_operator.handlers.reconcile.data_source import DataSourceReconciler
from tidemark_operator.handlers.reconcile.source_loop_check import reads_own_tables
from tidemark_operator.handlers.status.statuses import status_of
from tidemark_operator.kube.cache import key_of
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.plan.ingestion import DeltaSource, DeltaTable, FilesSource, FilesTable, SourceSpec, TpchSource


def files(*paths: str) -> SourceSpec:
    return FilesSource(tuple(FilesTable(f"t{n}", "csv", path, "*", None, ()) for n, path in enumerate(paths)))


REFUSED = [
    ("/data", "/data"),
    ("/data", "/data/ns/tpch/orders/v1"),
    ("/data/", "//data//other/d/v/v1"),
    ("/data", "/data/ns/_copies"),
    ("/data", "/data/ns/_copies/.staging/x"),
    ("/data", "/data/other/_copies/x"),
    ("/data", "/data/incoming"),
    ("s3://bucket/data/", "s3://bucket/data/ns/tpch/orders/v1"),
    ("s3://bucket/data", "s3://bucket/data/ns/_copies/x"),
]
READ = [
    ("/data", "/database"),
    ("/data/tables", "/data"),
    ("/data/tables", "/data/incoming"),
    ("/data", "/data/ns/_copies/x"),
    ("s3://bucket/data", "/bucket/data"),
    ("s3://bucket/data", "s3://bucket/database"),
    ("/data", "s3://data/x"),
]


@pytest.mark.parametrize(("location", "path"), REFUSED)
def test_a_directory_among_the_instances_tables_is_refused(location: str, path: str) -> None:
    """Whichever table of the source it is of."""
    refused = reads_own_tables(files("/elsewhere", path), location, "ns")

    assert refused is not None
    assert (refused.reason, refused.message.partition(":")[0]) == ("ReadsOwnTables", "table t1")


@pytest.mark.parametrize(("location", "path"), READ)
def test_a_directory_beside_the_instances_tables_is_read(location: str, path: str) -> None:
    """Above them too: only files that are directly in a directory are read. And what was copied for it."""
    assert reads_own_tables(files(path), location, "ns") is None
    assert reads_own_tables(TpchSource("1", 1, 1), location, "ns") is None


@pytest.mark.parametrize(
    ("location", "path", "refused"),
    [
        ("/data", "/data/ns/d/v/v1", True),
        ("/data/", "//data", True),
        ("/data", "/database/t", False),
        ("s3://bucket/data", "s3://bucket/data/ns/d/v/v1", True),
        ("s3://bucket/data", "s3://bucket/lake/t", False),
        ("s3://bucket/data", "/data/t", False),
    ],
)
def test_a_delta_table_of_the_instance_is_refused(location: str, path: str, refused: bool) -> None:
    """Dataflows read such tables by their names."""
    source = DeltaSource((DeltaTable("a", "/elsewhere/a"), DeltaTable("t", path)))
    failure = reads_own_tables(source, location, "ns")

    assert (failure is not None) == refused
    assert failure is None or failure.message.startswith("table t: ")


def test_a_source_that_reads_tables_says_so() -> None:
    """No replica is asked about it, though one is there."""
    table = {"name": "t", "format": "csv", "columns": [{"name": "a", "type": "INT"}]}
    spec = {"instance": "default", "files": {"path": "/data/ns/d/v/v1", "tables": [table]}}

    async def scenario() -> None:
        harness = OperatorHarness()
        harness.put(READABLE, {"instance": "default"})
        running = harness.context.running("ns", "default")
        assert running is not None
        running.replicas[ReplicaId("r1")].online = True
        written = body("DataSource", spec, "s", uid="u-s")
        key = key_of(DATA_SOURCES, written)
        harness.cache.put(key, written)
        reconciler = DataSourceReconciler(harness.context, cast(Any, None), cast(Any, None), lambda _: None)
        harness.context.revisions = cast(Any, Nothing())
        again = await reconciler.reconcile(key, written)
        status = status_of(harness.context, key, written, 0)
        await harness.fleet.close()

        assert again is None
        assert status is not None
        settings = {condition["type"]: condition["reason"] for condition in status["conditions"]}
        assert (settings["Ingesting"], settings["Ready"]) == ("ReadsOwnTables", "ReadsOwnTables")

    asyncio.run(scenario())


class Nothing:
    """An API server on which nothing is stored of a source."""

    async def all(self, *_: object) -> dict[int, object]:
        return {}
