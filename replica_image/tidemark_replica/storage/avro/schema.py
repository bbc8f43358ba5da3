"""Avro schemas, parsed: those of Avro 1.12, but for recursive types.

Names of types are resolved, so that a schema is a tree. A recursive type is refused: no column has such a type, and a
garbled value could nest without end.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

PRIMITIVES = frozenset("null boolean int long float double bytes string".split())
NAMED = frozenset({"record", "error", "enum", "fixed"})
TEXT_LENGTH_MAX, TYPES_MAX, DEPTH_MAX = 1 << 20, 20_000, 64
"""Characters of a schema; types in it, and how deep they nest, with those that names stand for."""
LOGICAL = {
    "date": ({"int"}, "date"),
    "decimal": ({"bytes", "fixed"}, "decimal"),
    "timestamp-millis": ({"long"}, "timestamp"),
    "timestamp-micros": ({"long"}, "timestamp"),
    "local-timestamp-millis": ({"long"}, "timestamp_ntz"),
    "local-timestamp-micros": ({"long"}, "timestamp_ntz"),
}
"""Logical types that make another type of SQL: the Avro types that they annotate, and the SQL type. Other logical types
are ignored."""
NAMED_LOGICAL = LOGICAL | {
    "iso-date": ({"string"}, "date"),
    "iso-timestamp": ({"string"}, "timestamp"),
    "iso-local-timestamp": ({"string"}, "timestamp_ntz"),
}
"""The same for types that a name of Kafka Connect's gives: also texts of ISO 8601."""
_DIGITS_MAX = 38
"""Digits of a decimal of Kafka Connect's at most: converters write 64 where Connect knows no precision."""
_NO_TYPE = (set[str](), "")
_NONE = object()
_SURROGATE = re.compile("[\ud800-\udfff]")


class SchemaRefused(ValueError):
    """A text is no schema, or one that is not supported. The message names the place in it."""


@dataclass(frozen=True)
class AvroField:
    """A field of a record. `default`: its JSON; only if `has_default`."""

    name: str
    type: AvroType
    default: Any = field(default=None, compare=False)
    has_default: bool = False
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True)
class AvroType:
    """A type. `children`: the branches of a union, the element of an array, the value of a map. `logical`: a logical
    type that makes another type of SQL, or empty; a decimal has `precision` and `scale`. `unnamed`: the logical type
    without the name that Kafka Connect gave, where this made `logical`; else None. `default`: the symbol that stands
    for unknown ones."""

    kind: str
    name: str = ""
    aliases: tuple[str, ...] = ()
    logical: str = ""
    unnamed: str | None = None
    precision: int = 0
    scale: int = 0
    size: int = 0
    symbols: tuple[str, ...] = ()
    default: str | None = None
    fields: tuple[AvroField, ...] = ()
    children: tuple[AvroType, ...] = ()

    def __str__(self) -> str:
        if self.logical == "decimal":
            return f"decimal({self.precision},{self.scale})"
        named = f" {self.name}" if self.name else ""
        return self.logical or self.kind + named


def parse_schema(text: str, connect_names: Mapping[str, str] | None = None) -> AvroType:
    """The schema that the text is. `connect_names`: logical types by the names that Kafka Connect gives to types
    (`connect.name`); they win over logical types. Raises SchemaRefused."""
    if len(text) > TEXT_LENGTH_MAX:
        raise SchemaRefused(f"the schema is longer than {TEXT_LENGTH_MAX} characters")
    try:
        raw = json.loads(text)
        all_texts = json.dumps(raw, ensure_ascii=False)
    except (ValueError, RecursionError):
        raise SchemaRefused("the schema is no JSON: give the text of an .avsc file") from None
    if _SURROGATE.search(all_texts):
        raise SchemaRefused("a text of the schema is no Unicode: it has half of a pair of surrogates")
    return _Parser(connect_names or {}).type(raw, "", "$", 0)


class _Parser:
    """Builds types; knows the named ones so far."""

    def __init__(self, connect_names: Mapping[str, str]) -> None:
        self._connect_names = connect_names
        self._named: dict[str, AvroType | None] = {}
        """The types, by full name; None while the type is being defined."""
        self._count = 0

    def type(self, raw: Any, space: str, at: str, depth: int) -> AvroType:
        self._count += 1
        if self._count > TYPES_MAX or depth > DEPTH_MAX:
            raise SchemaRefused(f"{at}: the schema has more than {TYPES_MAX} types, or nests deeper than {DEPTH_MAX}")
        if isinstance(raw, list):
            return self._union(raw, space, at, depth)
        if isinstance(raw, str):
            return self._reference(raw, space, at, depth)
        if not isinstance(raw, dict):
            raise SchemaRefused(f"{at}: a type is a text, an object or a list")
        kind = raw.get("type")
        if isinstance(kind, str) and kind in NAMED:
            return self._with_logical(self._definition(kind, raw, space, at, depth), raw)
        if kind == "array":
            return AvroType("array", children=(self.type(raw.get("items"), space, at + "[]", depth + 1),))
        if kind == "map":
            return AvroType("map", children=(self.type(raw.get("values"), space, at + "{}", depth + 1),))
        return self._with_logical(self.type(kind, space, at, depth + 1), raw)

    def _reference(self, name: str, space: str, at: str, depth: int) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full = _full_name(name, space)
        if full not in self._named and name not in self._named:
            raise SchemaRefused(f"{at}: type {name[:100]!r} is unknown")
        found = self._named.get(full, self._named.get(name))
        if found is None:
            raise SchemaRefused(f"{at}: type {name} contains itself; recursive types are not supported")
        levels = list(_levels(found))
        if depth + max(levels) > DEPTH_MAX:
            raise SchemaRefused(f"{at}: the schema nests deeper than {DEPTH_MAX}, with the types that names stand for")
        self._count += len(levels)
        if self._count > TYPES_MAX:
            raise SchemaRefused(f"{at}: the schema has more than {TYPES_MAX} types, with those that names stand for")
        return found

    def _union(self, raw: list[Any], space: str, at: str, depth: int) -> AvroType:
        branches = tuple(self.type(each, space, at, depth + 1) for each in raw)
        kinds = [branch.name or branch.kind for branch in branches]
        if not branches or len(set(kinds)) != len(kinds) or "union" in kinds:
            raise SchemaRefused(f"{at}: the branches of a union must differ, and be no unions")
        return AvroType("union", children=branches)

    def _definition(self, kind: str, raw: Mapping[str, Any], space: str, at: str, depth: int) -> AvroType:
        name = raw.get("name")
        if not isinstance(name, str) or not name:
            raise SchemaRefused(f"{at}: a {kind} needs a name")
        given = raw.get("namespace")
        full = _full_name(name, given if isinstance(given, str) else space)
        if full in self._named:
            raise SchemaRefused(f"{at}: type {full} is defined twice")
        self._named[full] = None
        inner, aliases = full.rpartition(".")[0], _texts(raw.get("aliases"), at)
        aliases = tuple(_full_name(alias, inner) for alias in aliases)
        if kind == "enum":
            symbols = _texts(raw.get("symbols"), at)
            default = raw.get("default")
            if not symbols or len(set(symbols)) != len(symbols) or (default is not None and default not in symbols):
                raise SchemaRefused(f"{at}: enum {full} needs symbols that differ, and a default that is one of them")
            found = AvroType("enum", full, aliases, symbols=symbols, default=default)
        elif kind == "fixed":
            size = raw.get("size")
            if not isinstance(size, int) or isinstance(size, bool) or not 0 <= size <= 1 << 20:
                raise SchemaRefused(f"{at}: fixed {full} needs a size up to 1 MiB")
            found = AvroType("fixed", full, aliases, size=size)
        else:
            found = AvroType("record", full, aliases, fields=self._fields(raw, inner, at, depth))
        self._named[full] = self._with_logical(found, raw)
        return found

    def _fields(self, raw: Mapping[str, Any], space: str, at: str, depth: int) -> tuple[AvroField, ...]:
        fields, given = [], raw.get("fields")
        for each in given if isinstance(given, list) else [None]:
            if not isinstance(each, dict) or not isinstance(name := each.get("name"), str) or "type" not in each:
                raise SchemaRefused(f"{at}: a record needs fields, each with a name and a type")
            place = f"{at}.{name}"
            default = each.get("default", _NONE)
            type, has = self.type(each["type"], space, place, depth + 1), default is not _NONE
            fields.append(AvroField(name, type, default if has else None, has, _texts(each.get("aliases"), place)))
        if len({each.name for each in fields}) != len(fields):
            raise SchemaRefused(f"{at}: two fields have the same name")
        return tuple(fields)

    def _with_logical(self, type: AvroType, raw: Mapping[str, Any]) -> AvroType:
        """The type with its annotations."""
        found, name = _with_logical(type, raw), raw.get("connect.name")
        named = self._connect_names.get(name, "") if isinstance(name, str) else ""
        if type.kind not in NAMED_LOGICAL.get(named, _NO_TYPE)[0]:
            return found
        if named == "decimal":
            return replace(found, precision=min(found.precision, max(_DIGITS_MAX, found.scale)))
        return replace(found, logical=named, unnamed=found.logical)


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _texts(raw: Any, at: str) -> tuple[str, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list) or not all(isinstance(each, str) for each in raw):
        raise SchemaRefused(f"{at}: aliases and symbols are lists of texts")
    return tuple(raw)


def _with_logical(type: AvroType, raw: Mapping[str, Any]) -> AvroType:
    """The type with its logical type. By Avro's rules an annotation that does not fit is none."""
    logical = raw.get("logicalType")
    if not isinstance(logical, str) or type.kind not in LOGICAL.get(logical, _NO_TYPE)[0]:
        return type
    if logical != "decimal":
        return replace(type, logical=logical)
    precision, scale = raw.get("precision", 0), raw.get("scale", 0)
    if not (_is_count(precision) and _is_count(scale)) or not 0 <= scale <= precision or precision == 0:
        return type
    return replace(type, logical=logical, precision=precision, scale=scale)


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _levels(type: AvroType) -> Iterator[int]:
    """For each type of the tree, the number of types above it."""
    waiting = [(0, type)]
    while waiting:
        depth, each = waiting.pop()
        yield depth
        waiting += [(depth + 1, child) for child in (*each.children, *(f.type for f in each.fields))]
