"""Bodies become columns as fastavro reads them one by one, and a garbled body changes none of its neighbours."""

from __future__ import annotations

import datetime
import json
import random
from decimal import Decimal
from typing import Any

import pytest

from tests.avro.samples import Schemas, read, value_of, written
from tidemark_replica.storage.avro import nodes
from tidemark_replica.storage.avro.resolution import BodyDecoder
from tidemark_replica.storage.avro.schema import parse_schema

EPOCH = datetime.datetime(1970, 1, 1)
UTC = datetime.UTC
SEEDS = 40
NUMBERS = (b"\xff" * 11, b"\x80" * 9 + b"\x02", b"\x01", b"\xff\xff\xff\xff\x0f")


def expected(type: Any, value: Any) -> Any:
    """The value of a table that a value of Avro is."""
    if isinstance(type, list):
        (inner,) = [branch for branch in type if branch != "null"]
        return None if value is None else expected(inner, value)
    if isinstance(type, str):
        return value
    kind, logical = type["type"], type.get("logicalType", "")
    if kind == "record":
        return {field["name"]: expected(field["type"], value[field["name"]]) for field in type["fields"]}
    if kind == "array":
        return [expected(type["items"], each) for each in value]
    if logical == "decimal":
        return Decimal(int.from_bytes(value, "big", signed=True)).scaleb(-type["scale"])
    if logical == "date":
        return datetime.date(1970, 1, 1) + datetime.timedelta(days=value)
    if "timestamp" in logical:
        time = EPOCH + datetime.timedelta(microseconds=value * (1000 if logical.endswith("millis") else 1))
        return time if logical.startswith("local") else time.replace(tzinfo=UTC)
    return value


def decoded(writer: Any, bodies: list[bytes], reader: Any = None) -> tuple[list[Any], dict[int, str]]:
    """The rows of the good bodies as dicts, and the bad ones."""
    decode = BodyDecoder(parse_schema(json.dumps(writer)), parse_schema(json.dumps(reader or writer)))
    columns, bad = decode(bodies)
    for column in columns:
        column.validate(full=True)
        assert len(column) == len(bodies) - len(bad)
    names = decode.schema.names
    return [dict(zip(names, row, strict=True)) for row in zip(*(c.to_pylist() for c in columns), strict=True)], bad


@pytest.fixture(params=[1, 64], ids=["walked", "in steps"])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists are read both ways."""
    monkeypatch.setattr(nodes, "STEPS_MAX", request.param)


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_agree_with_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    schema = Schemas(rng).record()
    values = [value_of(schema, rng) for _ in range(rng.choice([1, 2, 30]))]
    bodies = [written(schema, value) for value in values]
    rows, bad = decoded(schema, bodies)
    assert not bad
    assert rows == [expected(schema, read(body, schema)) for body in bodies]


def garbled(body: bytes, rng: random.Random) -> bytes:
    kind = rng.randrange(6)
    at = rng.randrange(len(body)) if body else 0
    if kind == 0:
        return body[:at]
    if kind == 1:
        return body + rng.randbytes(rng.randint(1, 3))
    if kind == 2:
        return body[:at] + rng.randbytes(1) + body[at + 1 :]
    if kind == 3:
        return body[:at] + rng.choice(NUMBERS) + body[at:]
    if kind == 4:
        return rng.randbytes(rng.randint(0, 40))
    return body[:at] + body[at + 1 :]


STRICTER = (
    "range",
    "too many bytes",
    "boolean",
    "decimal",
    "date or time",
    "no such symbol",
    "negative",
    "no such branch",
)
"""Words of reasons for which fastavro takes what Avro's own reader refuses, or does not look at logical types."""


WALKED = ("a list has no end",)
"""A walk gives one reason for what steps give several for."""


@pytest.mark.parametrize("seed", range(SEEDS))
def test_agree_on_lists_in_steps_and_walked(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(2000 + seed)
    schema = {"type": "record", "name": "L", "fields": [{"name": "l", "type": {"type": "array", "items": None}}]}
    schema["fields"][0]["type"]["items"] = Schemas(rng).type(1)  # type: ignore[index]
    bodies = [garbled(written(schema, value_of(schema, rng)), rng) for _ in range(60)]
    found = []
    for steps in (1, 2, 1000):
        monkeypatch.setattr(nodes, "STEPS_MAX", steps)
        rows, bad = decoded(schema, bodies)
        found.append((rows, set(bad)))
    assert found[0] == found[1] == found[2]


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize("seed", range(SEEDS))
def test_garbled_bodies_are_found_and_hide_no_neighbour(seed: int) -> None:
    rng = random.Random(1000 + seed)
    schema = Schemas(rng).record()
    good = [written(schema, value_of(schema, rng)) for _ in range(40)]
    bodies = [garbled(body, rng) if rng.random() < 0.4 else body for body in good]
    rows, bad = decoded(schema, bodies)
    left = iter(rows)
    for i, body in enumerate(bodies):
        try:
            value = read(body, schema)
        except ValueError:
            assert i in bad, f"body {i} is {body!r} of {schema}"
            continue
        if i in bad:
            assert body != good[i]
            assert any(word in bad[i] for word in (*STRICTER, *WALKED)), (bad[i], body, schema)
        else:
            assert next(left) == expected(schema, value)
    assert next(left, None) is None


@pytest.mark.usefixtures("steps")
def test_elements_without_bytes_end_a_walk() -> None:
    """A branch that the reader does not have: a count of 2^62 of them would be walked without an end."""
    nothing = {"type": "array", "items": "null"}
    writer, reader = (
        {"type": "record", "name": "L", "fields": [{"name": "l", "type": {"type": "array", "items": items}}]}
        for items in ([nothing, "int"], ["null", "int"])
    )
    many = b"\x80" * 8 + b"\x80\x01"
    rows, bad = decoded(writer, [b"\x04\x02\x0a\x00" + many + b"\x00\x00", b"\x02\x02\x0a\x00"], reader)
    assert rows == [{"l": [5]}]
    assert list(bad) == [0]
