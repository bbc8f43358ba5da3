"""Records without their envelopes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tidemark_replica.storage.kafka.values.decoded import Decoded, Decoder


@dataclass(frozen=True)
class Opened:
    """A batch of records without their envelopes. `rows`: the records that have a row; the others delete it. `decode`:
    the columns of some of these, in order. `bad`: why envelopes are malformed, `ignored`: records that change nothing.
    Records by their positions in the batch."""

    rows: frozenset[int]
    decode: Callable[[Sequence[int]], Decoded]
    bad: Mapping[int, str] = field(default_factory=dict)
    ignored: frozenset[int] = frozenset()


Open = Callable[[Sequence[Any]], Opened]


def decoded_later(
    values: Sequence[bytes | None],
    decoder: Decoder,
    bad: Mapping[int, str] | None = None,
    ignored: frozenset[int] = frozenset(),
) -> Opened:
    """Records whose values are known, and not decoded yet: None where the row is deleted."""
    rows = frozenset(i for i, value in enumerate(values) if value is not None)
    return Opened(rows, lambda wanted: decoder([values[i] for i in wanted]), bad or {}, ignored)


def open_upserts(decoder: Decoder) -> Open:
    """The value is the row; without a value the row is deleted. `decoder`: of values."""
    return lambda records: decoded_later([record.value() for record in records], decoder)
