"""Records without their envelopes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Opened:
    """The values of a batch of records, without their envelopes: None where the row is deleted. `bad`: why envelopes
    are malformed, `ignored`: records that change nothing; both by position."""

    values: Sequence[bytes | None]
    bad: Mapping[int, str] = field(default_factory=dict)
    ignored: frozenset[int] = frozenset()


Open = Callable[[Sequence[Any]], Opened]


def open_upsert(records: Sequence[Any]) -> Opened:
    """The value is the row; without a value the row is deleted."""
    return Opened([record.value() for record in records])
