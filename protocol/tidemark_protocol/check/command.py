"""The check of every command that arrives from the wire, before anything acts on it.

    times      0 .. 2^63-2, inside plans too, where they are plain numbers
    ids        1 to MAX_ID_LENGTH characters; those of a dataflow distinct, and at least one export among them
    numbers    terms, limits and epochs are not negative
    views      schedules of refreshes (plan/refresh.py), and how a view is published (plan/sinks/publish.py), are valid

Settings are not checked: a newer operator may send more of them (messages/replica_settings.py). `check.plan` checks
what a plan computes: a dataflow that fails there is installed as refused, while a command that fails here ends its
connection before any part of it has been done.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemark_protocol.errors import MalformedFrame
from tidemark_protocol.ids import MAX_TIME, MIN_TIME, Time
from tidemark_protocol.messages.commands import (
    AllowWrites,
    CancelPeek,
    Command,
    CreateDataflow,
    CreateTimely,
    Hello,
    Peek,
    RunIngestion,
    UpdateConfiguration,
)
from tidemark_protocol.plan.dataflow import DataflowDescription, MaterializedViewSink, OutsideSink, SubscribeSink
from tidemark_protocol.plan.refresh import RefreshSchedule
from tidemark_protocol.plan.sinks.publish import PublishedView

MAX_ID_LENGTH = 1024


def check_command(command: Command) -> None:
    """Raise MalformedFrame where the command is not valid; the message names the field."""
    what = type(command).__name__
    match command:
        case Hello(epoch=epoch) | CreateTimely(epoch=epoch):
            _check_ids(what, (command.nonce,) if isinstance(command, Hello) else ())
            _check_counts(what, epoch=epoch.leader_term, connection=epoch.connection)
        case CancelPeek(uuid):
            _check_ids(what, (uuid,))
        case UpdateConfiguration():
            sizes = {"max_result_bytes": command.max_result_bytes, "stash_above_bytes": command.stash_above_bytes}
            _check_counts(what, **{name: size or 0 for name, size in sizes.items()})
        case AllowWrites():
            _check_counts(what, term=command.term)
        case CreateDataflow(description):
            _check_dataflow(description)
        case Peek():
            _check_ids(what, (command.uuid, command.target.id))
            _check_times(what, command.timestamp)
            _check_counts(what, limit=command.finishing.limit or 0, offset=command.finishing.offset)
        case RunIngestion():
            _check_ids(what, (command.ingestion.id, *(t.id for t in command.ingestion.tables)))
            _check_times(what, command.controller_now)
            _check_counts(what, term=command.term, max_ahead_ms=command.max_ahead_ms)
            if command.ingestion.tick_ms < 1:
                raise MalformedFrame(f"{what}: a tick of {command.ingestion.tick_ms} ms")


def check_id(id: str) -> None:
    """Raise ValueError where the length of the id is not allowed."""
    if not id or len(id) > MAX_ID_LENGTH:
        raise ValueError(f"an id of {len(id)} characters (1 to {MAX_ID_LENGTH} are allowed)")


def _check_dataflow(dataflow: DataflowDescription) -> None:
    what = f"CreateDataflow of {dataflow.name[:MAX_ID_LENGTH]!r}"
    if not dataflow.export_ids:
        raise MalformedFrame(f"{what}: it exports nothing, so it could never be scheduled or dropped")
    _check_ids(what, (*dataflow.import_ids, *(o.id for o in dataflow.objects), *dataflow.export_ids))
    if len(set(dataflow.export_ids)) < len(dataflow.export_ids):
        raise MalformedFrame(f"{what}: it exports an id twice")
    _check_times(what, dataflow.as_of, *_set_times(dataflow.until, *_subscribe_ends(dataflow)))
    for export in dataflow.sink_exports:
        if isinstance(export.sink, MaterializedViewSink):
            parts = export.sink, export.sink.refresh, export.sink.publish, *export.sink.outside
            _check_parts(f"{what}: {export.id[:MAX_ID_LENGTH]}", *parts)


def _subscribe_ends(dataflow: DataflowDescription) -> Iterator[Time | None]:
    return (e.sink.up_to for e in dataflow.sink_exports if isinstance(e.sink, SubscribeSink))


def _check_parts(
    what: str, *parts: MaterializedViewSink | RefreshSchedule | PublishedView | OutsideSink | None
) -> None:
    for part in parts:
        try:
            if part is not None:
                part.check()
        except ValueError as error:
            raise MalformedFrame(f"{what}: {error}") from None


def _set_times(*times: Time | None) -> Iterator[Time]:
    return (time for time in times if time is not None)


def _check_ids(what: str, ids: Iterable[str]) -> None:
    for id in ids:
        try:
            check_id(id)
        except ValueError as error:
            raise MalformedFrame(f"{what}: {error}") from None


def _check_times(what: str, *times: int) -> None:
    for time in times:
        if not MIN_TIME <= time <= MAX_TIME:
            raise MalformedFrame(f"{what}: time {time} is outside {MIN_TIME}..{MAX_TIME}")


def _check_counts(what: str, **numbers: int) -> None:
    for name, number in numbers.items():
        if number < 0:
            raise MalformedFrame(f"{what}: {name} is {number}, which is less than 0")
