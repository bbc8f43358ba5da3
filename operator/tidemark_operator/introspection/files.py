"""The files of a DataSource, as its ingester reported them last."""

from __future__ import annotations

from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.errors import QueryRefused
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_protocol.pb.gateway_pb2 import FilesReply, ListedFile
from tidemark_protocol.plan.ingestion import FilesSource


def files(context: ReconcileContext, namespace: str, name: str) -> FilesReply:
    """The reply to a client. Raises QueryRefused where there is no such DataSource, or it has no files."""
    report = files_source(context, namespace, name).report
    listed = [
        ListedFile(
            table=f.table,
            file=f.file,
            size=f.size,
            rows=f.rows,
            errors=f.errors,
            state=f.state,
            reason=f.reason,
            time=f.time,
        )
        for f in (report.files if report else ())
    ]
    return FilesReply(files=listed, bound=report.counters.get("files", 0) if report else 0)


def files_source(context: ReconcileContext, namespace: str, name: str) -> SourceState:
    """The state of a DataSource with files. Raises QueryRefused where there is none of this name."""
    state = context.registry.source(Key(DATA_SOURCES, namespace, name))
    if state is None:
        raise QueryRefused(f"there is no DataSource {name} in namespace {namespace}")
    if state.pinned is not None and not isinstance(state.pinned.source, FilesSource):
        raise QueryRefused(f"DataSource {name} has no files: it is a load generator")
    return state
