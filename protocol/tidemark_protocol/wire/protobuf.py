"""Commands and responses to protobuf and back: one function per message, and two tables.

    command_to_proto(Schedule("u1")) ──► pb.Command(schedule=...) ──► command_from_proto

A message from the wire that is not a valid command or response is refused here (MalformedFrame, MalformedPlan), so all
other code works on checked values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from tidemark_protocol.check.command import check_command, check_id
from tidemark_protocol.errors import MalformedFrame
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Epoch, GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.messages import commands, responses
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_protocol.plan.ingestion import IngestionDescription

T = TypeVar("T")


def command_to_proto(command: commands.Command) -> pb.Command:
    field, encode, _ = _COMMANDS[type(command)]
    message: dict[str, Any] = {field: encode(command)}
    return pb.Command(**message)


def command_from_proto(message: pb.Command) -> commands.Command:
    result: commands.Command = _decode(message, _COMMAND_FIELDS, "command")
    check_command(result)
    return result


def response_to_proto(response: responses.Response) -> pb.Response:
    field, encode, _ = _RESPONSES[type(response)]
    message: dict[str, Any] = {field: encode(response)}
    return pb.Response(**message)


def response_from_proto(message: pb.Response) -> responses.Response:
    result: responses.Response = _decode(message, _RESPONSE_FIELDS, "response")
    return result


def _decode(message: Any, table: dict[str, Callable[[Any], Any]], what: str) -> Any:
    kind = message.WhichOneof("kind")
    if kind is None:
        raise MalformedFrame(f"a {what} of no known kind")
    try:
        return table[kind](getattr(message, kind))
    except ValueError as error:
        raise MalformedFrame(f"{what} {kind}: {error}") from None


def global_id(text: str) -> GlobalId:
    check_id(text)
    return GlobalId(text)


def _shard_id(text: str) -> ShardId:
    return ShardId(global_id(text))


def epoch_to_proto(epoch: Epoch) -> pb.Epoch:
    return pb.Epoch(leader_term=epoch.leader_term, connection=epoch.connection)


def epoch_from_proto(message: pb.Epoch) -> Epoch:
    return Epoch(message.leader_term, message.connection)


def _configuration_to_proto(c: commands.UpdateConfiguration) -> pb.UpdateConfiguration:
    return pb.UpdateConfiguration(
        max_result_bytes=c.max_result_bytes, settings=c.settings, stash_above_bytes=c.stash_above_bytes
    )


def _configuration_from_proto(m: pb.UpdateConfiguration) -> commands.UpdateConfiguration:
    limit = m.max_result_bytes if m.HasField("max_result_bytes") else None
    above = m.stash_above_bytes if m.HasField("stash_above_bytes") else None
    return commands.UpdateConfiguration(limit, dict(m.settings), above)


def _run_ingestion_to_proto(c: commands.RunIngestion) -> pb.RunIngestion:
    return pb.RunIngestion(
        ingestion=codec.encode(c.ingestion),
        term=c.term,
        controller_now=c.controller_now,
        max_ahead_ms=c.max_ahead_ms,
        requests=[pb.FileRequest(id=r.id, action=r.action, table=r.table, file=r.file) for r in c.requests],
    )


def _run_ingestion_from_proto(m: pb.RunIngestion) -> commands.RunIngestion:
    ingestion = codec.decode(m.ingestion, IngestionDescription)
    requests = tuple(commands.FileRequest(r.id, r.action, r.table, r.file) for r in m.requests)
    return commands.RunIngestion(ingestion, WriterTerm(m.term), Time(m.controller_now), m.max_ahead_ms, requests)


def _ingestion_status_to_proto(r: responses.IngestionStatus) -> pb.IngestionStatus:
    files = [
        pb.SourceFile(
            table=f.table,
            file=f.file,
            size=f.size,
            state=f.state,
            reason=f.reason,
            errors=f.errors,
            rows=f.rows,
            time=f.time,
        )
        for f in r.files
    ]
    outcomes = [pb.FileOutcome(id=o.id, refusal=o.refusal) for o in r.outcomes]
    told = {"id": r.id, "state": r.state, "message": r.message, "activity": r.activity}
    tables = [pb.TableReport(**vars(table)) for table in r.tables]
    return pb.IngestionStatus(**told, counters=r.counters, files=files, outcomes=outcomes, tables=tables)


def _ingestion_status_from_proto(m: pb.IngestionStatus) -> responses.IngestionStatus:
    files = tuple(
        responses.SourceFile(
            f.table,
            f.file,
            f.size,
            f.state,
            f.reason,
            f.errors,
            f.rows if f.HasField("rows") else None,
            Time(f.time) if f.HasField("time") else None,
        )
        for f in m.files
    )
    outcomes = tuple(responses.FileOutcome(o.id, o.refusal) for o in m.outcomes)
    told = (m.state, m.message, dict(m.counters))
    tables = tuple(_table_report_from_proto(t) for t in m.tables)
    return responses.IngestionStatus(global_id(m.id), *told, files, outcomes, m.activity, tables)


def _table_report_from_proto(m: pb.TableReport) -> responses.TableReport:
    return responses.TableReport(
        table=m.table,
        rows=m.rows,
        bytes=m.bytes,
        behind=m.behind if m.HasField("behind") else None,
        unit=m.unit,
        snapshot_percent=m.snapshot_percent if m.HasField("snapshot_percent") else None,
        malformed=m.malformed,
        error=m.error,
        errors=m.errors,
        error_time=Time(m.error_time) if m.HasField("error_time") else None,
        stopped=m.stopped,
    )


def _frontiers_to_proto(r: responses.Frontiers) -> pb.Frontiers:
    kinds = {"write": r.write, "input": r.input, "output": r.output}
    return pb.Frontiers(id=r.id, **{k: f.encode() for k, f in kinds.items() if f is not None})


def _frontiers_from_proto(m: pb.Frontiers) -> responses.Frontiers:
    # a number other than 0 is present: reading it costs half of HasField
    write = Frontier.decode(number) if (number := m.write) or m.HasField("write") else None
    input = Frontier.decode(number) if (number := m.input) or m.HasField("input") else None
    output = Frontier.decode(number) if (number := m.output) or m.HasField("output") else None
    return responses.Frontiers(global_id(m.id), write, input, output)


def _peek_response_to_proto(r: responses.PeekResponse) -> pb.PeekResponse:
    made = pb.PeekResponse(uuid=r.uuid, trace_context=r.trace_context)
    match r.result:
        case responses.PeekRows(data, row_count, skipped):
            made.rows, made.row_count, made.skipped = data, row_count, skipped
        case responses.PeekStashed(row_count, size, skipped):
            made.stashed_bytes, made.row_count, made.skipped = size, row_count, skipped
        case responses.PeekError(message, is_deterministic):
            made.error, made.error_everywhere = message, is_deterministic
        case responses.PeekCanceled():
            made.canceled = True
    return made


def _peek_response_from_proto(m: pb.PeekResponse) -> responses.PeekResponse:
    return responses.PeekResponse(m.uuid, _peek_result(m), _trace_context(m.trace_context))


def _peek_result(m: pb.PeekResponse) -> responses.PeekResult:
    match m.WhichOneof("result"):
        case "rows":
            return responses.PeekRows(m.rows, m.row_count, m.skipped)
        case "stashed_bytes":
            return responses.PeekStashed(m.row_count, m.stashed_bytes, m.skipped)
        case "error":
            return responses.PeekError(m.error, m.error_everywhere)
        case "canceled":
            return responses.PeekCanceled()
    raise ValueError("no result")


def _trace_context(text: str) -> str:
    """Raises ValueError where the text is too long for a context."""
    if len(text) > commands.TRACE_CONTEXT_MAX:
        raise ValueError(f"a trace context of {len(text)} characters")
    return text


_OF_PLAN = frozenset(("mfp", "finishing", "columns"))
"""The fields that a peek has from its plan, as all peeks of a statement have them."""


def _peek_to_proto(c: commands.Peek) -> pb.Peek:
    plain = replace(c, skip_errors=False, trace_context="") if c.skip_errors or c.trace_context else c
    request = codec.encode_alike(plain, _OF_PLAN)
    return pb.Peek(request=request, skip_errors=c.skip_errors, trace_context=c.trace_context)


def _peek_from_proto(m: pb.Peek) -> commands.Peek:
    asked = codec.decode_alike(m.request, commands.Peek)
    if not m.skip_errors and not m.trace_context and not asked.skip_errors and not asked.trace_context:
        return asked
    return replace(asked, skip_errors=m.skip_errors, trace_context=_trace_context(m.trace_context))


def _failure_to_proto(r: responses.Failure) -> pb.Failure:
    told = {"id": r.id, "kind": r.kind, "message": r.message, "reason": r.reason}
    return pb.Failure(**told, attempts=r.attempts, stopped=r.stopped, repeated=r.repeated)


def _failure_from_proto(m: pb.Failure) -> responses.Failure:
    known = {kind.value for kind in responses.FailureKind}
    kind = responses.FailureKind(m.kind if m.kind in known else "step")  # a newer replica has further kinds
    return responses.Failure(global_id(m.id), kind, m.message, m.reason, m.attempts, m.stopped, m.repeated)


def _subscribe_to_proto(r: responses.SubscribeResponse) -> pb.SubscribeResponse:
    result = r.result
    if isinstance(result, responses.SubscribeDropped):
        return pb.SubscribeResponse(id=r.id, lower=result.frontier.encode(), dropped=True)
    message = pb.SubscribeResponse(
        id=r.id,
        lower=result.lower.encode(),
        upper=result.upper.encode(),
        lower_part=result.lower_part,
        upper_part=result.upper_part,
    )
    if result.error is not None:
        message.error, message.is_void = result.error, result.is_void
    else:
        message.updates = result.updates
    return message


def _subscribe_from_proto(m: pb.SubscribeResponse) -> responses.SubscribeResponse:
    kind, lower = m.WhichOneof("result"), Frontier.decode(m.lower)
    if kind is None:
        raise ValueError("no result")
    if kind == "dropped":
        return responses.SubscribeResponse(global_id(m.id), responses.SubscribeDropped(lower))
    error = m.error if kind == "error" else None
    upper = Frontier.decode(m.upper)
    batch = responses.SubscribeBatch(lower, upper, m.updates, error, m.lower_part, m.upper_part, m.is_void)
    return responses.SubscribeResponse(global_id(m.id), batch)


def _copy_to_proto(r: responses.CopyToResponse) -> pb.CopyToResponse:
    if isinstance(r.result, responses.CopyToDone):
        return pb.CopyToResponse(id=r.id, row_count=r.result.row_count)
    if isinstance(r.result, responses.CopyToFailed):
        return pb.CopyToResponse(id=r.id, error=r.result.message)
    return pb.CopyToResponse(id=r.id, dropped=True)


def _copy_from_proto(m: pb.CopyToResponse) -> responses.CopyToResponse:
    kind = m.WhichOneof("result")
    if kind == "row_count":
        return responses.CopyToResponse(global_id(m.id), responses.CopyToDone(m.row_count))
    if kind == "error":
        return responses.CopyToResponse(global_id(m.id), responses.CopyToFailed(m.error))
    if kind == "dropped":
        return responses.CopyToResponse(global_id(m.id), responses.CopyToDropped())
    raise ValueError("no result")


_MessageCodec = tuple[str, Callable[[Any], Any], Callable[[Any], Any]]

_COMMANDS: dict[type, _MessageCodec] = {
    commands.Hello: (
        "hello",
        lambda c: pb.Hello(nonce=c.nonce, epoch=epoch_to_proto(c.epoch)),
        lambda m: commands.Hello(global_id(m.nonce), epoch_from_proto(m.epoch)),
    ),
    commands.CreateTimely: (
        "create_timely",
        lambda c: pb.CreateTimely(epoch=epoch_to_proto(c.epoch)),
        lambda m: commands.CreateTimely(epoch_from_proto(m.epoch)),
    ),
    commands.CreateInstance: (
        "create_instance",
        lambda c: pb.CreateInstance(config=codec.encode(c.config)),
        lambda m: commands.CreateInstance(codec.decode(m.config, commands.InstanceConfig)),
    ),
    commands.InitializationComplete: (
        "initialization_complete",
        lambda c: pb.InitializationComplete(),
        lambda m: commands.InitializationComplete(),
    ),
    commands.UpdateConfiguration: ("update_configuration", _configuration_to_proto, _configuration_from_proto),
    commands.CreateDataflow: (
        "create_dataflow",
        lambda c: pb.CreateDataflow(description=c.dataflow.encoded),
        lambda m: commands.CreateDataflow(codec.decode(m.description, DataflowDescription)),
    ),
    commands.Schedule: (
        "schedule",
        lambda c: pb.Schedule(id=c.id),
        lambda m: commands.Schedule(global_id(m.id)),
    ),
    commands.AllowWrites: (
        "allow_writes",
        lambda c: pb.AllowWrites(id=c.id, term=c.term),
        lambda m: commands.AllowWrites(global_id(m.id), WriterTerm(m.term)),
    ),
    commands.AllowAllWrites: (
        "allow_all_writes",
        lambda c: pb.AllowAllWrites(),
        lambda m: commands.AllowAllWrites(),
    ),
    commands.AllowCompaction: (
        "allow_compaction",
        lambda c: pb.AllowCompaction(id=c.id, frontier=c.frontier.encode()),
        lambda m: commands.AllowCompaction(global_id(m.id), Frontier.decode(m.frontier)),
    ),
    commands.Peek: (
        "peek",
        # beside the canonical bytes, which an older replica could not decode with another field
        _peek_to_proto,
        _peek_from_proto,
    ),
    commands.CancelPeek: (
        "cancel_peek",
        lambda c: pb.CancelPeek(uuid=c.uuid),
        lambda m: commands.CancelPeek(global_id(m.uuid)),
    ),
    commands.RunIngestion: ("run_ingestion", _run_ingestion_to_proto, _run_ingestion_from_proto),
    commands.DropIngestion: (
        "drop_ingestion",
        lambda c: pb.DropIngestion(id=c.id),
        lambda m: commands.DropIngestion(global_id(m.id)),
    ),
    commands.AllowShardCompaction: (
        "allow_shard_compaction",
        lambda c: pb.AllowShardCompaction(id=c.id, location=c.location, frontier=c.frontier.encode()),
        lambda m: commands.AllowShardCompaction(_shard_id(m.id), m.location, Frontier.decode(m.frontier)),
    ),
    commands.DeleteShard: (
        "delete_shard",
        lambda c: pb.DeleteShard(id=c.id, location=c.location),
        lambda m: commands.DeleteShard(_shard_id(m.id), m.location),
    ),
}

_RESPONSES: dict[type, _MessageCodec] = {
    responses.Frontiers: ("frontiers", _frontiers_to_proto, _frontiers_from_proto),
    responses.PeekResponse: ("peek_response", _peek_response_to_proto, _peek_response_from_proto),
    responses.SubscribeResponse: ("subscribe_response", _subscribe_to_proto, _subscribe_from_proto),
    responses.CopyToResponse: ("copy_to_response", _copy_to_proto, _copy_from_proto),
    responses.Status: (
        "status",
        lambda r: pb.Status(id=r.id, kind=r.kind, fields=r.fields),
        lambda m: responses.Status(global_id(m.id), m.kind, dict(m.fields)),
    ),
    responses.Failure: ("failure", _failure_to_proto, _failure_from_proto),
    responses.ShardFrontiers: (
        "shard_frontiers",
        lambda r: pb.ShardFrontiers(id=r.id, upper=r.upper.encode(), since=r.since.encode()),
        lambda m: responses.ShardFrontiers(_shard_id(m.id), Frontier.decode(m.upper), Frontier.decode(m.since)),
    ),
    responses.IngestionStatus: (
        "ingestion_status",
        _ingestion_status_to_proto,
        _ingestion_status_from_proto,
    ),
    responses.ShardDeleted: (
        "shard_deleted",
        lambda r: pb.ShardDeleted(id=r.id, error=r.error or ""),
        lambda m: responses.ShardDeleted(_shard_id(m.id), m.error or None),
    ),
}

_COMMAND_FIELDS = {field: decode for field, _, decode in _COMMANDS.values()}
_RESPONSE_FIELDS = {field: decode for field, _, decode in _RESPONSES.values()}


def _message_name(message: type[pb.Command | pb.Response], field: str) -> str:
    of = message.DESCRIPTOR.fields_by_name[field].message_type
    assert of is not None
    return of.name


MESSAGE_NAMES: Mapping[type, str] = {
    **{kind: _message_name(pb.Command, field) for kind, (field, _, _) in _COMMANDS.items()},
    **{kind: _message_name(pb.Response, field) for kind, (field, _, _) in _RESPONSES.items()},
}
"""The names of the protobuf messages of commands and responses, which are labels of metrics."""
