"""Plans as canonical JSON: the same value always gives the same bytes, so bytes can be identity.

Protobuf's encoding is not canonical across releases, so plans travel inside protobuf messages as these bytes, and
the operator stores them as they are (docs/decisions/0002). A dataclass becomes an object tagged with its class in
`"@"`; fields that hold their default are left out, so that a new field with a default changes no old digest:

    {"@":"ColumnRef","index":3,"type":"bigint"}

Decoding is driven by the classes' own annotations and refuses what they do not allow: unknown classes and fields,
missing fields, wrong kinds, depth and size past the limits. Untrusted bytes never reach further than this file.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import types
import typing
from typing import Any, TypeVar

from tidemark_protocol.errors import MalformedPlan
from tidemark_protocol.ids import Digest
from tidemark_protocol.types import SqlType

MAX_PLAN_BYTES = 16 * 1024 * 1024
MAX_PLAN_DEPTH = 250
_TAG = "@"
T = TypeVar("T")


def encode(value: Any, depth: int = 0) -> bytes:
    """Canonical bytes of a tree of the protocol's dataclasses; raises MalformedPlan where it is nested deeper than
    `decode` takes it, also within `depth` levels of something else."""
    try:
        raw = _to_json(value, depth)
    except RecursionError:
        raise _too_deep() from None
    return json.dumps(raw, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def decode(data: bytes, expected: type[T]) -> T:
    """The value that `encode` wrote; raises MalformedPlan, saying where."""
    if len(data) > MAX_PLAN_BYTES:
        raise MalformedPlan(f"plan of {len(data)} bytes is larger than the limit of {MAX_PLAN_BYTES}")
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedPlan(f"plan is not JSON: {error}") from None
    return typing.cast(T, _from_json(parsed, expected, expected.__name__, 0))


def digest(value: Any) -> Digest:
    """Sha-256 of the canonical bytes, in hex."""
    return Digest(hashlib.sha256(encode(value)).hexdigest())


def _too_deep() -> MalformedPlan:
    return MalformedPlan(f"plan is nested deeper than {MAX_PLAN_DEPTH}")


def _to_json(value: Any, depth: int) -> Any:
    if depth > MAX_PLAN_DEPTH:
        raise _too_deep()
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, SqlType):
        return str(value)
    if isinstance(value, tuple):
        return [_to_json(item, depth + 1) for item in value]
    if dataclasses.is_dataclass(value):
        fields = {
            field.name: _to_json(getattr(value, field.name), depth + 1)
            for field in dataclasses.fields(value)
            if getattr(value, field.name) != field.default
        }
        return {_TAG: type(value).__name__, **fields}
    raise TypeError(f"a plan cannot hold {type(value).__name__}")


def _from_json(raw: Any, expected: Any, where: str, depth: int) -> Any:
    if depth > MAX_PLAN_DEPTH:
        raise _too_deep()
    choices = _choices(expected)
    if isinstance(raw, dict):
        return _object(raw, choices, where, depth)
    for choice in choices:
        if isinstance(raw, list) and typing.get_origin(choice) is tuple:
            return _array(raw, choice, where, depth)
        if choice is SqlType and isinstance(raw, str):
            return _sql_type(raw, where)
        if choice in (str, int, bool, type(None)) and type(raw) is choice:
            return _checked(raw, where)
    raise MalformedPlan(f"{where}: did not expect {type(raw).__name__}")


def _checked(raw: str | int | bool | None, where: str) -> str | int | bool | None:
    """JSON can spell numbers and texts that neither a column nor a message can hold."""
    if isinstance(raw, int) and not -(2**63) <= raw < 2**63:
        raise MalformedPlan(f"{where}: a number of more than 64 bits")
    if isinstance(raw, str):
        try:
            raw.encode()
        except UnicodeEncodeError:
            raise MalformedPlan(f"{where}: half of a surrogate pair is no text") from None
    return raw


def _array(raw: list[Any], expected: Any, where: str, depth: int) -> tuple[Any, ...]:
    item = typing.get_args(expected)[0]
    return tuple(_from_json(entry, item, f"{where}[{i}]", depth + 1) for i, entry in enumerate(raw))


def _sql_type(raw: str, where: str) -> SqlType:
    try:
        return SqlType.parse(raw)
    except ValueError as error:
        raise MalformedPlan(f"{where}: {error}") from None


def _object(raw: dict[str, Any], choices: tuple[Any, ...], where: str, depth: int) -> Any:
    tag = raw.get(_TAG)
    cls: Any = next((c for c in map(_dataclass, choices) if c is not None and c.__name__ == tag), None)
    if cls is None:
        raise MalformedPlan(f"{where}: {tag!r} is not allowed here")
    hints, fields = _fields(cls)
    unknown = raw.keys() - fields.keys() - {_TAG}
    if unknown:
        raise MalformedPlan(f"{where}: {tag} has no field {min(unknown)!r}")
    arguments = {n: _from_json(raw[n], hints[n], f"{where}.{n}", depth + 1) for n in fields if n in raw}
    try:
        return cls(**arguments)
    except (TypeError, ValueError) as error:
        raise MalformedPlan(f"{where}: {error}") from None


def _dataclass(choice: Any) -> Any:
    return choice if dataclasses.is_dataclass(choice) else None


@functools.cache
def _fields(cls: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    return typing.get_type_hints(cls), {f.name: f for f in dataclasses.fields(cls)}


@functools.cache
def _choices(expected: Any) -> tuple[Any, ...]:
    if typing.get_origin(expected) in (typing.Union, types.UnionType):
        return tuple(c for arm in typing.get_args(expected) for c in _choices(arm))
    if isinstance(expected, typing.NewType):
        return _choices(expected.__supertype__)
    return (expected,)
