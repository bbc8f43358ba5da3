"""Plans as canonical JSON: equal values have equal bytes, so a digest of the bytes is an identity.

Protobuf's encoding is not canonical across releases, so plans travel inside protobuf messages as these bytes, and
the operator stores them as they are (docs/decisions/0002). A dataclass becomes an object tagged with its wire name
(vocabulary.py) in `"@"`; fields that hold their default are left out, so that a new field with a default changes no
old digest:

    {"@":"ColumnRef","index":3,"type":"bigint"}

Decoding follows the annotations of the classes and refuses everything else: unknown classes and fields, missing fields,
wrong kinds, too much depth or size. Untrusted bytes are checked here and nowhere else.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import types
import typing
from collections import OrderedDict
from collections.abc import Set
from typing import Any, NamedTuple, TypeVar

from tidemark_protocol.errors import MalformedPlan
from tidemark_protocol.ids import Digest
from tidemark_protocol.types import SqlType
from tidemark_protocol.vocabulary import entry_of, wire_name_of

MAX_PLAN_BYTES = 16 * 1024 * 1024
MAX_PLAN_DEPTH = 250
LEAVES_KEPT, LEAF_CHARACTERS_MAX, LEAF_DEPTH_MAX = 4096, 256, 100
"""Objects that are decoded once. A deep one is decoded as any other: each level takes frames of Python's stack."""
FIELDS_KEPT, FIELD_CHARACTERS_MIN, FIELD_CHARACTERS_MAX = 512, 100, 8192
"""Texts of fields of commands that repeat, in each direction."""
_TAG = "@"
_PLAIN = (str, int)
T = TypeVar("T")


def encode(value: Any, depth: int = 0) -> bytes:
    """Canonical bytes of a tree of dataclasses that have wire names.

    Raises:
        MalformedPlan: the tree is nested deeper than `decode` takes it, also within `depth` levels of something else.
        TypeError: the tree holds a dataclass without a wire name, or a value of a kind that plans do not have.
    """
    try:
        raw = _to_json(value, depth)
    except RecursionError:
        raise _too_deep() from None
    return json.dumps(raw, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def decode(data: bytes, expected: type[T]) -> T:
    """The value that `encode` wrote. `expected`: a dataclass, or a union of some.

    Raises:
        MalformedPlan: the bytes are not the encoding of an `expected`; the message says where.
    """
    if len(data) > MAX_PLAN_BYTES:
        raise MalformedPlan(f"plan of {len(data)} bytes is larger than the limit of {MAX_PLAN_BYTES}")
    try:
        parsed = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise MalformedPlan(f"plan is not JSON: {error}") from None
    kinds = _allowed(typing.cast(Any, expected)).classes
    return typing.cast(T, _from_json(parsed, expected, "|".join(kinds), 0))


def encode_alike(value: Any, kept: Set[str]) -> bytes:
    """The bytes of `encode`, of an object whose fields `kept` are those of many others: their texts are made once.

    Raises: as `encode`.
    """
    name, members = entry_of(type(value))
    texts = {_TAG: json.dumps(name)}
    for attribute, field, default in members:
        held = getattr(value, attribute)
        if attribute in kept:
            texts[field] = _TEXTS.of(held)
        elif held != default:
            texts[field] = encode(held, 1).decode()
    return ("{" + ",".join(f'"{field}":{texts[field]}' for field in sorted(texts)) + "}").encode()


def decode_alike(data: bytes, expected: type[T]) -> T:
    """The value of `decode`, of an object with fields that repeat: each text of one is decoded once.

    Raises: as `decode`.
    """
    found, kind = _field_texts(data) if len(data) <= MAX_PLAN_BYTES else None, typing.cast(Any, expected)
    cls = _allowed(kind).classes.get(found[_TAG][1]) if found is not None and _TAG in found else None
    if found is None or cls is None:
        return decode(data, expected)
    tag, fields = found.pop(_TAG)[1], _fields(cls)
    if found.keys() - fields.keys():
        return decode(data, expected)  # it says what is wrong
    arguments = dict[str, Any]()
    for field, (text, raw) in found.items():
        attribute, hint = fields[field]
        repeats = FIELD_CHARACTERS_MIN <= len(text) <= FIELD_CHARACTERS_MAX
        made = _kept_field(cls, field, text) if repeats else _from_json(raw, hint, f"{tag}.{field}", 1)
        arguments[attribute] = made
    try:
        return typing.cast(T, cls(**arguments))
    except (TypeError, ValueError) as error:
        raise MalformedPlan(f"{tag}: {error}") from None


def digest(value: Any) -> Digest:
    """SHA-256 of the canonical bytes, in hex."""
    return Digest(hashlib.sha256(encode(value)).hexdigest())


class _KeptTexts:
    """The texts of values, by identity; plans are immutable, and what is kept keeps its number."""

    def __init__(self) -> None:
        self._texts: OrderedDict[int, tuple[Any, str]] = OrderedDict()

    def of(self, value: Any) -> str:
        found = self._texts.get(id(value))
        if found is None or found[0] is not value:
            found = self._texts[id(value)] = value, encode(value, 1).decode()
            if len(self._texts) > FIELDS_KEPT or len(found[1]) > FIELD_CHARACTERS_MAX:
                self._texts.popitem(last=len(found[1]) > FIELD_CHARACTERS_MAX)
        return found[1]


_TEXTS = _KeptTexts()
_scan = json.JSONDecoder().raw_decode


def _field_texts(data: bytes) -> dict[str, tuple[str, Any]] | None:
    """The text and the value of each field of a JSON object without blanks; None: it is none, or has a field twice."""
    try:
        text, at, found = data.decode(), 1, dict[str, tuple[str, Any]]()
        if text[0] != "{" or text[-1] != "}":
            return None
        while at < len(text):
            name, at = _scan(text, at)
            value, end = _scan(text, at + 1)
            if text[at] != ":" or text[end] not in ",}" or not isinstance(name, str) or name in found:
                return None
            found[name] = text[at + 1 : end], value
            if text[end] == "}" and end + 1 != len(text):
                return None
            at = end + 1
    except (ValueError, IndexError, RecursionError):
        return None
    return found


@functools.lru_cache(FIELDS_KEPT)
def _kept_field(cls: Any, field: str, text: str) -> Any:
    """Raises MalformedPlan."""
    return _from_json(json.loads(text), _fields(cls)[field][1], f"{wire_name_of(cls)}.{field}", 1)


def _too_deep() -> MalformedPlan:
    return MalformedPlan(f"plan is nested deeper than {MAX_PLAN_DEPTH}")


def _to_json(value: Any, depth: int) -> Any:
    if depth > MAX_PLAN_DEPTH:
        raise _too_deep()
    if value is None or isinstance(value, _PLAIN):
        return value
    if isinstance(value, SqlType):
        return str(value)
    if isinstance(value, tuple):
        return [_to_json(item, depth + 1) for item in value]
    if dataclasses.is_dataclass(value):
        name, members = entry_of(type(value))
        tagged = {_TAG: name}
        for attribute, field, default in members:
            held = getattr(value, attribute)
            if held != default:
                tagged[field] = _to_json(held, depth + 1)
        return tagged
    raise TypeError(f"a plan cannot hold {type(value).__name__}")


def _from_json(raw: Any, expected: Any, where: str, depth: int) -> Any:
    if depth > MAX_PLAN_DEPTH:
        raise _too_deep()
    choices, classes = _allowed(expected)
    if isinstance(raw, dict):
        cls = _class_of(raw, classes, where)
        if depth < LEAF_DEPTH_MAX and all(map(_is_short, raw.values())):
            with contextlib.suppress(MalformedPlan):  # the decoder below says where
                return _leaf(cls, tuple(raw.items()), tuple(map(type, raw.values())))
        return _object(raw, cls, where, depth)
    for choice in choices:
        if isinstance(raw, list) and typing.get_origin(choice) is tuple:
            return _array(raw, choice, where, depth)
        if choice is SqlType and isinstance(raw, str):
            return _sql_type(raw, where)
        if choice in (str, int, bool, type(None)) and type(raw) is choice:
            return _checked(raw, where)
    raise MalformedPlan(f"{where}: did not expect {type(raw).__name__}")


def _checked(raw: str | int | bool | None, where: str) -> str | int | bool | None:
    """JSON can express numbers and texts that neither a column nor a message can hold."""
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


def _class_of(raw: dict[str, Any], classes: dict[str, Any], where: str) -> Any:
    tag = raw.get(_TAG)
    cls = classes.get(tag) if isinstance(tag, str) else None
    if cls is None:
        raise MalformedPlan(f"{where}: {tag!r} is not allowed here")
    return cls


def _is_short(value: Any) -> bool:
    return len(value) <= LEAF_CHARACTERS_MAX if isinstance(value, str) else not isinstance(value, list | dict)


@functools.lru_cache(LEAVES_KEPT)
def _leaf(cls: Any, items: tuple[tuple[str, Any], ...], kinds: tuple[type, ...]) -> Any:
    """An object without parts, such as a column: a plan has the same one many times, and so have plans of one view.
    `kinds`: of the values, since `1 == True`."""
    return _object(dict(items), cls, "", 0)


def _object(raw: dict[str, Any], cls: Any, where: str, depth: int) -> Any:
    tag, fields = raw[_TAG], _fields(cls)
    unknown = raw.keys() - fields.keys() - {_TAG}
    if unknown:
        raise MalformedPlan(f"{where}: {tag} has no field {min(unknown)!r}")
    arguments = {
        attribute: _from_json(raw[field], hint, f"{where}.{field}", depth + 1)
        for field, (attribute, hint) in fields.items()
        if field in raw
    }
    try:
        return cls(**arguments)
    except (TypeError, ValueError) as error:
        raise MalformedPlan(f"{where}: {error}") from None


@functools.cache
def _fields(cls: Any) -> dict[str, tuple[str, Any]]:
    """The attribute and the annotation of each field, by wire name."""
    hints = typing.get_type_hints(cls)
    return {member.wire_name: (member.attribute, hints[member.attribute]) for member in entry_of(cls).members}


class _Allowed(NamedTuple):
    """The kinds of values that an annotation allows, and dataclasses by their wire names."""

    choices: tuple[Any, ...]
    classes: dict[str, Any]


@functools.cache
def _allowed(expected: Any) -> _Allowed:
    choices = _choices(expected)
    classes = [c for c in choices if dataclasses.is_dataclass(c) and c is not SqlType]
    return _Allowed(choices, {wire_name_of(typing.cast(type, c)): c for c in classes})


def _choices(expected: Any) -> tuple[Any, ...]:
    if typing.get_origin(expected) in (typing.Union, types.UnionType):
        return tuple(c for arm in typing.get_args(expected) for c in _choices(arm))
    if isinstance(expected, typing.NewType):
        return _choices(expected.__supertype__)
    return (expected,)
