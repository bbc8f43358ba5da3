"""The allow-list of window functions: their arguments, and the types of their results.

    row_number, rank, dense_rank, ntile(n)     ->  int        no arguments, no frame
    percent_rank, cume_dist                    ->  double     no arguments, no frame
    lag(x [, default]), lead                   ->  type of x  `parameters`: the offset, an int; no frame
    first_value(x), last_value, nth_value(n)   ->  type of x  over the frame; `parameters` of nth_value: n, from 1
    count, sum, avg, min, max ...              ->  as in aggregates.py, over the frame

The rows of a partition are in the window's order, and ties are broken by the whole row. So row_number, ntile, lag,
lead, frames in rows, and the first, last and n-th value of a frame are definite. Peers (rows that are equal in the
order columns) have equal rank, dense_rank, percent_rank, cume_dist and frames in ranges. With `ignore nulls`, rows
whose argument is NULL are skipped. `default` is read on the current row where the row at the offset does not exist; the
offset may be negative. Order-dependent aggregates (string_agg) read the rows of the frame in the window's order.
`WindowFrame` describes frames; a bound of 0 (an int) is the current row, in ranges with its peers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_protocol.functions.aggregates import AGGREGATES, result_type
from tidemark_protocol.types import DOUBLE, INT, SqlType

FRAME_UNITS = frozenset({"rows", "range"})
_RANKS = {
    **dict.fromkeys(("row_number", "rank", "dense_rank", "ntile"), INT),
    **dict.fromkeys(("percent_rank", "cume_dist"), DOUBLE),
}
_SHIFTS = ("lag", "lead")
_PICKS = ("first_value", "last_value", "nth_value")
IGNORES_NULLS = frozenset((*_SHIFTS, *_PICKS))


@dataclass(frozen=True)
class WindowSignature:
    """The type of the result, whether the function has a frame, and the types of its parameters.

    `nullable`: True, False, or None: where one of its arguments is.
    """

    result: SqlType
    framed: bool
    parameters: tuple[SqlType, ...] = ()
    nullable: bool | None = True


def signature(function: str, arguments: Sequence[SqlType]) -> WindowSignature | None:
    """The signature of the function over columns of these types; None where there is none."""
    if function in _RANKS:
        parameters = (INT,) if function == "ntile" else ()
        return None if arguments else WindowSignature(_RANKS[function], False, parameters, nullable=False)
    if function in _SHIFTS:
        return _shift(arguments)
    if function in _PICKS:
        return _pick(function, arguments)
    return _aggregate(function, arguments)


def _shift(arguments: Sequence[SqlType]) -> WindowSignature | None:
    if not 1 <= len(arguments) <= 2 or len(set(arguments)) != 1:
        return None
    return WindowSignature(arguments[0], False, (INT,), nullable=None if len(arguments) == 2 else True)


def _pick(function: str, arguments: Sequence[SqlType]) -> WindowSignature | None:
    if len(arguments) != 1:
        return None
    return WindowSignature(arguments[0], True, (INT,) if function == "nth_value" else ())


def _aggregate(function: str, arguments: Sequence[SqlType]) -> WindowSignature | None:
    entry = AGGREGATES.get(function)
    if entry is None or len(arguments) > 1 or function == "first":
        return None
    result = result_type(function, arguments[0] if arguments else None)
    return None if result is None else WindowSignature(result, True, entry.parameters, not entry.never_null)
