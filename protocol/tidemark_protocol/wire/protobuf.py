"""Commands and responses to protobuf and back, most of them field by field (fields.py).

    command_to_proto(Schedule("u1")) ──► pb.Command(schedule=...) ──► command_from_proto

A message from the wire that is not a valid command or response is refused here (MalformedFrame, MalformedPlan), so all
other code works on checked values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tidemark_protocol.check.command import check_command
from tidemark_protocol.errors import MalformedFrame
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.messages import commands, responses
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_protocol.wire.fields import Codec, fields_of, from_fields, global_id


def command_to_proto(command: commands.Command) -> pb.Command:
    field, encode = _ENCODERS[type(command)]
    message: dict[str, Any] = {field: encode(command)}
    return pb.Command(**message)


def command_from_proto(message: pb.Command) -> commands.Command:
    result: commands.Command = _decode(message, _COMMAND_DECODERS, "command")
    check_command(result)
    return result


def response_to_proto(response: responses.Response) -> pb.Response:
    field, encode = _ENCODERS[type(response)]
    message: dict[str, Any] = {field: encode(response)}
    return pb.Response(**message)


def response_from_proto(message: pb.Response) -> responses.Response:
    result: responses.Response = _decode(message, _RESPONSE_DECODERS, "response")
    return result


def _decode(message: Any, table: dict[str, Callable[[Any], Any]], what: str) -> Any:
    kind = message.WhichOneof("kind")
    if kind is None:
        raise MalformedFrame(f"a {what} of no known kind")
    try:
        return table[kind](getattr(message, kind))
    except ValueError as error:
        raise MalformedFrame(f"{what} {kind}: {error}") from None


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


def _kinds(message: Any, classes: Any) -> dict[type, Any]:
    """The fields of the oneof `kind`, by the dataclasses that have the names of their messages."""
    return {getattr(classes, f.message_type.name): f for f in message.DESCRIPTOR.oneofs_by_name["kind"].fields}


_COMMANDS, _RESPONSES = _kinds(pb.Command, commands), _kinds(pb.Response, responses)
_OWN_FORMS: dict[type, Codec] = {
    commands.CreateDataflow: (
        lambda c: pb.CreateDataflow(description=c.dataflow.encoded),
        lambda m: commands.CreateDataflow(codec.decode(m.description, DataflowDescription)),
    ),
    # beside the canonical bytes, which an older replica could not decode with another field
    commands.Peek: (_peek_to_proto, _peek_from_proto),
    responses.Frontiers: (_frontiers_to_proto, _frontiers_from_proto),
    responses.PeekResponse: (_peek_response_to_proto, _peek_response_from_proto),
    responses.SubscribeResponse: (_subscribe_to_proto, _subscribe_from_proto),
    responses.CopyToResponse: (_copy_to_proto, _copy_from_proto),
}
"""Messages whose fields are not those of their dataclasses, or that are too many to be read field by field."""


def _codec_of(cls: Any, field: Any) -> Codec:
    return _OWN_FORMS.get(
        cls, (lambda value: fields_of(value, field.message_type), lambda message: from_fields(message, cls))
    )


_ENCODERS = {cls: (field.name, _codec_of(cls, field)[0]) for cls, field in (*_COMMANDS.items(), *_RESPONSES.items())}
_COMMAND_DECODERS = {field.name: _codec_of(cls, field)[1] for cls, field in _COMMANDS.items()}
_RESPONSE_DECODERS = {field.name: _codec_of(cls, field)[1] for cls, field in _RESPONSES.items()}
MESSAGE_NAMES: Mapping[type, str] = {cls: cls.__name__ for cls in _ENCODERS}
"""The names of the protobuf messages of commands and responses, which are labels of metrics."""
