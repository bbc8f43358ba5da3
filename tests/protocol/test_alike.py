"""Peeks of one statement are encoded and decoded by their parts: the bytes and the values are those of the whole."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from tests.golden.values import PEEKS
from tidemark_protocol.errors import MalformedPlan
from tidemark_protocol.ids import Time
from tidemark_protocol.messages.commands import Peek
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.types import BIGINT, STRING, Column
from tidemark_protocol.wire import protobuf

OF_PLAN = frozenset(("mfp", "finishing", "columns"))
CHANGES = 4000


def peeks(number: int = 200) -> list[Peek]:
    """The peeks are of a few plans, with other keys and times."""
    rng = random.Random(7)
    plans = [*PEEKS, *(replace(peek, finishing=Finishing(limit=3), columns=(Column("é", STRING),)) for peek in PEEKS)]
    keys = [((Literal(str(rng.randrange(10**9)), BIGINT),),) * rng.randrange(3) for _ in range(number)]
    return [
        replace(rng.choice(plans), uuid=f"u-{n}", timestamp=Time(n), literals=key or None) for n, key in enumerate(keys)
    ]


def test_peeks_have_the_bytes_of_the_whole() -> None:
    for peek in peeks():
        data = codec.encode(peek)
        assert codec.encode_alike(peek, OF_PLAN) == data
        assert codec.decode_alike(data, Peek) == codec.decode(data, Peek) == peek


def test_values_that_are_equal_and_not_the_same_have_their_own_texts() -> None:
    """An address may be used again by another value."""
    for limit in range(3 * codec.FIELDS_KEPT):
        peek = replace(PEEKS[0], finishing=Finishing(limit=limit))
        assert codec.encode_alike(peek, OF_PLAN) == codec.encode(peek)


def test_what_is_kept_is_bounded() -> None:
    for n in range(3 * codec.FIELDS_KEPT):
        codec.encode_alike(replace(PEEKS[0], columns=(Column(f"c{n}", STRING),)), OF_PLAN)
    large = replace(PEEKS[0], columns=tuple(Column(f"c{n}", STRING) for n in range(1000)))
    assert codec.decode_alike(codec.encode_alike(large, OF_PLAN), Peek) == large
    kept = codec._TEXTS._texts
    assert len(kept) <= codec.FIELDS_KEPT
    assert max(len(text) for _, text in kept.values()) <= codec.FIELD_CHARACTERS_MAX
    assert codec._kept_field.cache_info().maxsize == codec.FIELDS_KEPT


def outcome(decode: object, data: bytes) -> object:
    try:
        return decode(data, Peek)  # type: ignore[operator]
    except MalformedPlan as error:
        return str(error)


def test_spoiled_bytes_have_the_outcome_of_the_whole() -> None:
    """Fields that are missing, unknown, twice or of another kind; blanks; bytes that are no JSON."""
    rng, given = random.Random(11), [codec.encode(peek) for peek in peeks(20)]
    pieces = (b'"', b"{", b"}", b",", b":", b" ", b"[", b"]", b"1", b"\\ud800", b'"uuid":"x",', b"null", b"\xff", b"\0")
    refused = 0
    for _ in range(CHANGES):
        data = rng.choice(given)
        at, to = sorted(rng.sample(range(len(data)), 2))
        spoiled = rng.choice(
            (
                data[:at] + rng.choice(pieces) + data[at:],
                data[:at] + data[min(to, at + rng.randrange(1, 12)) :],
                data[:at] + data[at : at + 9] + data[at:],
                data.replace(b'"uuid"', rng.choice((b'"uuie"', b'"mfp"', b'"timestamp"')), 1),
                data[at:to],
            )
        )
        expected = outcome(codec.decode, spoiled)
        assert outcome(codec.decode_alike, spoiled) == expected
        refused += isinstance(expected, str)
    assert refused > CHANGES // 4


@pytest.mark.parametrize(
    "more", [{}, {"skip_errors": True}, {"trace_context": "00-" + "a" * 32 + "-" + "b" * 16 + "-01"}]
)
def test_the_wire_has_what_is_beside_the_plan(more: dict[str, object]) -> None:
    for peek in peeks(10):
        sent = replace(peek, **more)  # type: ignore[arg-type]
        assert protobuf.command_from_proto(protobuf.command_to_proto(sent)) == sent
