"""Decoded values: their columns, and why some of them are malformed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True)
class Decoded:
    """The columns of the good values, in order. `bad`: why values are malformed, by position."""

    columns: list[pa.Array]
    bad: dict[int, str]


Decoder = Callable[[Sequence[bytes | None]], Decoded]
"""Decodes values of one format. It may keep schemas; a batch leaves nothing else behind. Raises RegistryAway where a
schema that is needed cannot be had."""


class Unreadable(Exception):
    """A value is malformed. The message says how, without the data."""


def body_decoder(
    columns_of: Callable[[Sequence[bytes | None]], list[pa.Array]],
) -> Callable[..., tuple[list[pa.Array], dict[int, str]]]:
    """A `BodyDecoder` (`framing.py`) from a function that gives the columns of values, or raises Unreadable."""

    def decode(values: Sequence[bytes], skip: int = 0) -> tuple[list[pa.Array], dict[int, str]]:
        found = decoded_with(columns_of, [value[skip:] for value in values])
        return found.columns, found.bad

    return decode


def decoded_with(decode: Callable[[Sequence[bytes | None]], list[pa.Array]], values: Sequence[bytes | None]) -> Decoded:
    """All values at once; where that raises Unreadable, the bad ones are found by halving."""
    bad: dict[int, str] = {}
    pieces: list[list[pa.Array]] = []

    def decode_range(begin: int, end: int) -> None:
        """Decode the values from `begin` to `end`; of a range that is unreadable, each half by itself."""
        try:
            pieces.append(decode(values[begin:end]))
        except Unreadable as error:
            if end - begin == 1:
                bad[begin] = str(error)
            else:
                middle = (begin + end) // 2
                decode_range(begin, middle)
                decode_range(middle, end)

    decode_range(0, len(values))
    columns = [pa.concat_arrays(column) for column in zip(*pieces, strict=True)] if pieces else decode([])
    return Decoded(columns, bad)
