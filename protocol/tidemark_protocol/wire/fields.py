"""Dataclasses as protobuf messages that have fields of the same names, in both directions.

    AllowCompaction(id: GlobalId, frontier: Frontier)    ◄──►   AllowCompaction { string id; int64 frontier; }
    RunIngestion(ingestion: IngestionDescription, ...)   ◄──►   RunIngestion { bytes ingestion; ... }
    IngestionStatus(files: tuple[SourceFile, ...], ...)  ◄──►   IngestionStatus { repeated SourceFile files; ... }

The annotation of a field says how its value travels. A dataclass inside `bytes` has the canonical form of plans
(plan/codec.py). A field that is None is absent; in a field of a message without presence, an empty text means None.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from types import NoneType
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

from tidemark_protocol.check.command import check_id
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.responses import FailureKind
from tidemark_protocol.plan import codec
from tidemark_protocol.types import SqlType

T = TypeVar("T")
Codec = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""The functions from a value to that of a message's field, and back; the latter raises ValueError."""


class _Member(NamedTuple):
    """A field of a dataclass. `encode` takes its value, `decode` the whole message."""

    name: str
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def fields_of(value: Any, message: Any) -> dict[str, Any]:
    """The fields of a dataclass as keywords for the class of a message. `message`: the message's descriptor."""
    cls: Any = type(value)
    held = ((member, getattr(value, member.name)) for member in _members(cls, message))
    return {member.name: member.encode(each) for member, each in held if each is not None}


def from_fields(message: Any, cls: type[T]) -> T:
    """The dataclass of a message's fields; those that the message does not have keep their defaults.

    Raises:
        ValueError: a field has a value that its annotation does not take.
        MalformedPlan: the bytes of a field are not the canonical form of its class.
    """
    of: Any = cls
    return cls(**{member.name: member.decode(message) for member in _members(of, message.DESCRIPTOR)})


def global_id(text: str) -> GlobalId:
    check_id(text)
    return GlobalId(text)


def _failure_kind(word: str) -> FailureKind:
    """A newer replica has further kinds: they are failures of a step here."""
    return FailureKind(word) if word in set(FailureKind) else FailureKind.STEP


def _unchanged(value: Any) -> Any:
    return value


_BY_ANNOTATION: dict[Any, Codec] = {
    GlobalId: (_unchanged, global_id),
    ShardId: (_unchanged, global_id),
    Frontier: (Frontier.encode, Frontier.decode),
    FailureKind: (str, _failure_kind),
    SqlType: (str, SqlType.parse),
}


@cache
def _members(cls: Any, message: Any) -> tuple[_Member, ...]:
    hints, known = get_type_hints(cls), message.fields_by_name
    return tuple(_member(hints[f.name], known[f.name]) for f in dataclasses.fields(cls) if f.name in known)


def _member(hint: Any, field: Any) -> _Member:
    arms, name = get_args(hint), field.name
    is_optional = NoneType in arms
    encode, read = _codec(arms[0] if is_optional else hint, field)

    def decode_optional(message: Any) -> Any:
        is_there = message.HasField(name) if field.has_presence else bool(getattr(message, name))
        return read(getattr(message, name)) if is_there else None

    return _Member(name, encode, decode_optional if is_optional else lambda message: read(getattr(message, name)))


def _codec(hint: Any, field: Any) -> Codec:
    if not field.is_repeated:
        return _codec_of_one(hint, field)
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        return dict, dict
    encode, read = _codec_of_one(get_args(hint)[0], field)
    return lambda held: [*map(encode, held)], lambda held: tuple(map(read, held))


def _codec_of_one(hint: Any, field: Any) -> Codec:
    if hint in _BY_ANNOTATION or not dataclasses.is_dataclass(hint):
        return _BY_ANNOTATION.get(hint, (_unchanged, _unchanged))
    cls: Any = hint
    if field.message_type is None:
        return codec.encode, lambda data: codec.decode(data, cls)
    return lambda held: fields_of(held, field.message_type), lambda message: from_fields(message, cls)
