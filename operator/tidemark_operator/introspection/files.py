"""The files of a DataSource, as its ingester reported them last, and requests about them."""

from __future__ import annotations

from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.errors import QueryNotReady, QueryRefused
from tidemark_operator.handlers.reconcile.data_source import DataSourceReconciler
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES, ApiError
from tidemark_protocol.messages.commands import RELEASE, REREAD
from tidemark_protocol.pb.gateway_pb2 import FileChange, FilesReply, ListedFile
from tidemark_protocol.plan.ingestion import FilesSource
from tidemark_protocol.plan.successors import spec_name

MAX_NAME = 255


def files(context: ReconcileContext, namespace: str, name: str) -> FilesReply:
    """The reply to a client. Raises QueryRefused where there is no such DataSource, or it has no files."""
    state = _source(context, namespace, name)
    report = state.report
    listed = [ListedFile(**vars(file)) for file in (report.files if report else ())]
    changes = [FileChange(**vars(r.request), outcome=r.outcome, message=r.message) for r in state.requests]
    return FilesReply(files=listed, bound=report.counters.get("files", 0) if report else 0, changes=changes)


async def change_file(
    context: ReconcileContext, sources: DataSourceReconciler, namespace: str, source: str, action: str, file: str
) -> int:
    """Store a request about a bound file, as its name or TABLE/NAME; return its id.

    Raises:
        QueryRefused: the request names no DataSource with files, no table, or an action that does not exist.
        QueryNotReady: another request about the file is unfinished, or the request could not be stored.
    """
    state = _source(context, namespace, source)
    if action not in (RELEASE, REREAD):
        raise QueryRefused(f"there is no action {action!r} for files: release or reread")
    table, name = _table_and_name(state, file)
    if not 0 < len(name) <= MAX_NAME:
        raise QueryRefused(f"a file has a name of 1 to {MAX_NAME} characters, not {len(name)}")
    try:
        return await sources.request_file(state.key, action, table, name)
    except ApiError as error:
        raise QueryNotReady(f"the request about file {file} could not be stored: {error}; ask again") from None


def _table_and_name(state: SourceState, file: str) -> tuple[str, str]:
    """The table of a file, and its name: the table is given, or the only one with such a file, or the only one."""
    if state.pinned is None or not isinstance(state.pinned.source, FilesSource):
        raise QueryNotReady(f"the tables of DataSource {state.key.name} are not known yet: ask again")
    tables = list(dict.fromkeys(spec_name(table.name) for table in state.pinned.source.tables))
    given, slash, name = file.partition("/")
    if slash:
        if given not in tables:
            raise QueryRefused(f"DataSource {state.key.name} has no table {given} of files: {', '.join(tables)}")
        return given, name
    found = {f.table for f in (state.report.files if state.report else ()) if f.file == file}
    candidates = sorted(found) or tables
    if len(candidates) > 1:
        raise QueryRefused(
            f"file {file} may be of several tables: write one of them first, as in {candidates[0]}/{file}"
        )
    return candidates[0], file


def _source(context: ReconcileContext, namespace: str, name: str) -> SourceState:
    """The state of a DataSource with files. Raises QueryRefused where there is none of this name."""
    state = context.registry.source(Key(DATA_SOURCES, namespace, name))
    if state is None:
        raise QueryRefused(f"there is no DataSource {name} in namespace {namespace}")
    if state.pinned is not None and not isinstance(state.pinned.source, FilesSource):
        raise QueryRefused(f"DataSource {name} has no files to list: only a source of kind files has")
    return state
