"""Random Avro schemas, values of them, and what they are as values of a table."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import fastavro

PRIMITIVES = ("boolean", "int", "long", "float", "double", "bytes", "string")
LOGICAL = (
    {"type": "int", "logicalType": "date"},
    {"type": "long", "logicalType": "timestamp-millis"},
    {"type": "long", "logicalType": "timestamp-micros"},
    {"type": "long", "logicalType": "local-timestamp-micros"},
    {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 3},
    {"type": "string", "logicalType": "uuid"},
)


class Schemas:
    """Makes schemas of records."""

    def __init__(self, rng: random.Random) -> None:
        self._rng, self._count = rng, 0

    def _name(self) -> str:
        self._count += 1
        return f"N{self._count}"

    def record(self, depth: int = 0) -> dict[str, Any]:
        name, count = self._name(), self._rng.randint(1, 5)
        return {
            "type": "record",
            "name": name,
            "fields": [{"name": f"f{i}", "type": self.type(depth + 1)} for i in range(count)],
        }

    def type(self, depth: int) -> Any:
        rng = self._rng
        choice = rng.randrange(12 if depth < 4 else 7)
        if choice < 4:
            return rng.choice(PRIMITIVES)
        if choice < 5:
            return dict(rng.choice(LOGICAL))
        if choice == 5:
            return {"type": "enum", "name": self._name(), "symbols": ["A", "B", "C"]}
        if choice == 6:
            if rng.random() < 0.5:
                return {"type": "fixed", "name": self._name(), "size": rng.randint(1, 20)}
            name, size = self._name(), rng.randint(5, 20)
            return {"type": "fixed", "name": name, "size": size, "logicalType": "decimal", "precision": 9, "scale": 2}
        if choice < 10:
            other = self.type(depth + 1)
            return other if isinstance(other, list) else rng.choice([["null", other], [other, "null"]])
        return self.record(depth) if choice == 10 else {"type": "array", "items": self.type(depth + 1)}


def value_of(type: Any, rng: random.Random) -> Any:
    """A value, as what a logical type annotates."""
    if isinstance(type, list):
        return value_of(rng.choice(type), rng)
    kind = type if isinstance(type, str) else type["type"]
    logical = "" if isinstance(type, str) else type.get("logicalType", "")
    if kind == "null":
        return None
    if logical == "decimal":
        return _decimal(type, rng)
    if kind == "int":
        return rng.randint(-700_000, 2_900_000) if logical else _number(rng, 31)
    if kind == "long":
        return rng.randint(-62_000_000_000_000, 250_000_000_000_000) if logical else _number(rng, 63)
    if kind == "record":
        return {field["name"]: value_of(field["type"], rng) for field in type["fields"]}
    if kind == "array":
        return [value_of(type["items"], rng) for _ in range(rng.choice([0, 0, 1, 2, 5]))]
    simple = {
        "boolean": lambda: rng.random() < 0.5,
        "float": lambda: rng.randint(-1000, 1000) / 8,
        "double": rng.random,
        "bytes": lambda: rng.randbytes(rng.choice([0, 1, 5, 200])),
        "string": lambda: rng.choice(["", "a", "größe", "x" * 150, "\x00"]),
        "enum": lambda: rng.choice(type["symbols"]),
        "fixed": lambda: rng.randbytes(type["size"]),
    }
    return simple[kind]()


def _number(rng: random.Random, bits: int) -> int:
    bound = 1 << rng.choice([1, 6, 7, 13, 14, bits])
    return rng.randint(-bound, bound - 1)


def _decimal(type: Any, rng: random.Random) -> bytes:
    bound = 10 ** rng.randint(1, type["precision"])
    number = rng.randint(1 - bound, bound - 1)
    size = type.get("size") or (number.bit_length() // 8 + 1)
    return number.to_bytes(size, "big", signed=True)


def plain(raw: Any) -> Any:
    """The schema without logical types, which fastavro would turn into Python's."""
    if isinstance(raw, dict):
        gone = ("logicalType", "precision", "scale")
        return {key: value if key == "default" else plain(value) for key, value in raw.items() if key not in gone}
    return [plain(each) for each in raw] if isinstance(raw, list) else raw


def written(schema: Any, value: Any) -> bytes:
    """The body, by fastavro."""
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(json.loads(json.dumps(plain(schema)))), value)
    return out.getvalue()


def read(body: bytes, writer: Any, reader: Any = None) -> Any:
    """The value by fastavro, as what logical types annotate. Raises ValueError where it is malformed."""
    data = io.BytesIO(body)
    parsed = fastavro.parse_schema(json.loads(json.dumps(plain(writer))))
    other = None if reader is None else fastavro.parse_schema(json.loads(json.dumps(plain(reader))))
    try:
        value = fastavro.schemaless_reader(data, parsed, other)
    except Exception as error:
        raise ValueError(str(error)) from None
    if data.tell() != len(body):
        raise ValueError("bytes are left")
    return value
