"""Values that are stored or hashed beside the codec, under their own names: `stored.json` holds each."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.golden.values import INGESTIONS, REVISION
from tests.orchestrator.pods import LARGE, SETTINGS, SMALL
from tidemark_operator.catalogue.dataflow_state import PendingRevision, ReplacementId
from tidemark_operator.controller.hydration.quarantine import Death, Suspicion
from tidemark_operator.handlers.publish.status_documents import (
    ExportStatus,
    Now,
    TableStatus,
    data_source_status,
    suspects_status,
)
from tidemark_operator.handlers.revisions.revision_marks import document, pending_document
from tidemark_operator.handlers.status.replica_statuses import process_document
from tidemark_operator.handlers.status.statuses import file_counters
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS
from tidemark_operator.kube.revisions import RevisionOwner, build_revision
from tidemark_operator.orchestrator.interface import Exit, Observation, Phase
from tidemark_operator.orchestrator.kubernetes.names import shape_of
from tidemark_operator.orchestrator.local import launch
from tidemark_operator.orchestrator.local.process_record import Attempts, Home
from tidemark_operator.planning.revision import ActiveRevision
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.digest import spec_digest
from tidemark_operator.resources.manifest.meta import Meta, Namespace, Uid
from tidemark_persist.log.entry import Change, DataFile
from tidemark_persist.times import Term
from tidemark_persist.times import Time as PersistTime
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import ReplicaId
from tidemark_protocol.plan.reductions import OrderKey
from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.storage.files.source import FilesIngestion
from tidemark_replica.storage.nexmark.source import NexmarkIngestion
from tidemark_replica.storage.tpch.source import TpchIngestion
from tidemark_replica.values.error_text import error_text

META = Meta(Namespace("ns"), "revenue", Uid("0a1b2c3d-4e5f"), 1, "7", False, ())
DATAFLOW_OWNER = RevisionOwner(DATAFLOWS.api_version, DATAFLOWS.kind, META)
SOURCE_OWNER = RevisionOwner(DATA_SOURCES.api_version, DATA_SOURCES.kind, META)
MARK = ActiveRevision("revenue-0a1b2c3d-r4", 4, 9, "sha256:0", REVISION)
PENDING = PendingRevision(MARK, ReplacementId("sales", "sales-77-r2"))
SUSPICION = Suspicion("revenue-r4", (Death(ReplicaId("r1"), "12-34"),), "again")
ATTEMPTS = Attempts(3, 2, Exit(137, 1_700_000_000_000))
PROCESS: dict[str, Any] = {"pid": 12, "startTime": 34, "digest": "0a1b", "startedAt": 1_700_000_000_000}
COUNTERS = {"files": 5, "waiting_files": 1, "changed_files": 2, "bad_files": 3}
FRONTIER = Frontier.at(1_700_000_000_000)
LAYOUT = Layout((pa.int64(), pa.string()), (1,), order=(OrderKey(0, True, True),))
BATCH = BatchRef("r/1-0-0.arrow", 2, 5, 3, 100, 4, 2, 4, 4096, 11, 99)
MANIFEST = Manifest(ArrangementId("revenue.o"), LAYOUT, 1, 5, 3, (BATCH,))
FILE = DataFile("a.parquet", 2048, 10, PersistTime(1), PersistTime(4))
CHANGE = Change("c1", PersistTime(5), PersistTime(2), Term(7), (FILE,))
DATAFLOW = {
    "metadata": {"name": "revenue", "namespace": "ns", "uid": "u", "generation": 1, "resourceVersion": "1"},
    "spec": {
        "instance": "default",
        "views": [{"name": "new", "sql": "SELECT 1"}, {"name": "old", "sql": "SELECT 2"}],
        "exports": [
            {
                "name": "log",
                "continualTask": {
                    "from": "new",
                    "delete": "old",
                    "watch": "s.t",
                    "columns": [{"name": "a", "type": "int"}],
                },
            }
        ],
    },
}


def plan_of(body: dict[str, Any]) -> dict[str, Any]:
    """A ControllerRevision with its plan's bytes as they were before they were compressed."""
    data = body["data"]
    plan = zlib.decompress(base64.b64decode(data["plan"])).decode()
    return {**body, "data": {**data, "plan": plan}}


def attempts() -> Any:
    with tempfile.TemporaryDirectory() as folder:
        Home(Path(folder)).write_attempts(ATTEMPTS)
        return json.loads((Path(folder) / "attempts.json").read_text())


def source_status() -> Any:
    table = TableStatus("orders", "s1/a", "s3://bucket/s1", (), FRONTIER, FRONTIER)
    status = data_source_status(Now({}, 3, 0), (), (table,), 7, "r1", file_counters(COUNTERS))
    return {name: status[name] for name in ("files", "ingester", "writeFrontier", "tables")}


def export_status() -> Any:
    return ExportStatus(
        "i", "index", "d/i", "s3://bucket/v", (), ("a",), FRONTIER, FRONTIER, FRONTIER, FRONTIER, True
    ).document(0)


def incarnation() -> Any:
    last = Exit(137, 1_700_000_000_000, "OOMKilled")
    return process_document(Observation(Phase.RUNNING, "", "12-34", 1_700_000_000_000, 2, last))


def manifest() -> Any:
    """The layout's types are Arrow's bytes, which are Arrow's to change."""
    value = MANIFEST.to_json()
    layout = json.loads(value["layout"])
    return {**value, "layout": {name: held for name, held in layout.items() if name != "types"}}


def commit() -> Any:
    properties = CHANGE.properties("t1")
    moved = {each.app_id: each.version for each in properties.app_transactions or ()}
    return {"commitInfo": properties.custom_metadata, "txn": moved, "stats": json.loads(FILE.stats)}


def process() -> Any:
    """The process record that a child writes, with numbers that are always the same."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, launch.__file__, folder, PROCESS["digest"], "true"], check=True)
        written = json.loads((Path(folder) / "process.json").read_text())
    return {name: PROCESS.get(name) for name in written}


STORED: dict[str, Callable[[], Any]] = {
    "ControllerRevision of a Dataflow": lambda: plan_of(build_revision(DATAFLOW_OWNER, 4, REVISION)),
    "ControllerRevision of a DataSource": lambda: plan_of(build_revision(SOURCE_OWNER, 1, INGESTIONS[0])),
    "status.revision": lambda: document(MARK),
    "status.pending": lambda: pending_document(PENDING),
    "status.suspects": lambda: suspects_status((SUSPICION,)),
    "status.exports[]": export_status,
    "status of a DataSource": source_status,
    "status.process": incarnation,
    "spec digest": lambda: spec_digest(Dataflow.parse(DATAFLOW)),
    "shape of a small replica": lambda: shape_of(SMALL, SETTINGS),
    "shape of a large replica": lambda: shape_of(LARGE, SETTINGS),
    "attempts.json": attempts,
    "process.json": process,
    "Delta commit": commit,
    "remap columns of files": lambda: FilesIngestion.remap_schema.names,
    "remap columns of TPC-H": lambda: TpchIngestion.remap_schema.names,
    "remap columns of Nexmark": lambda: NexmarkIngestion.remap_schema.names,
    "__error": lambda: error_text("DIVIDE_BY_ZERO", "a / b"),
    "arrangement manifest": manifest,
}
