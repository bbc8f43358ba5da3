"""Dates as days since 1970, in the proleptic Gregorian calendar, for every day that 32 bits hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_protocol.plan.expr import Call
from tidemark_replica.arrangement.rows.columns import fixed
from tidemark_replica.arrangement.rows.updates import Ints
from tidemark_replica.evaluator.result import Result, column, in_order, valid


def date_part(call: Call, arguments: list[Result]) -> Result:
    """The year, month, day, quarter or day of the week (1 is Sunday) of each date."""
    values = arguments[0].values
    made = _PARTS[call.function](fixed(values).astype(np.int64))
    return Result(column(made.astype(np.int32), pa.int32(), valid(values)), arguments[0].failed)


def moved(call: Call, arguments: list[Result]) -> Result:
    """date_add and date_sub in 32 bits, wrapping around as in Java."""
    days, by = (a.values for a in arguments)
    a, b = fixed(days).astype(np.int32), fixed(by).astype(np.int32)
    with np.errstate(all="ignore"):
        made = a + b if call.function == "date_add" else a - b
    return Result(column(made, pa.date32(), valid(days) & valid(by)), in_order(arguments))


def difference(call: Call, arguments: list[Result]) -> Result:
    """datediff: days from the second to the first."""
    later, earlier = (a.values for a in arguments)
    with np.errstate(all="ignore"):
        made = fixed(later).astype(np.int32) - fixed(earlier).astype(np.int32)
    return Result(column(made, pa.int32(), valid(later) & valid(earlier)), in_order(arguments))


def civil(days: Ints) -> tuple[Ints, Ints, Ints]:
    """(year, month, day); Howard Hinnant's algorithm (chrono-compatible low-level date algorithms)."""
    shifted = days + 719_468
    era = shifted // 146_097
    of_era = shifted - era * 146_097
    year = (of_era - of_era // 1460 + of_era // 36_524 - of_era // 146_096) // 365
    of_year = of_era - (365 * year + year // 4 - year // 100)
    shifted_month = (5 * of_year + 2) // 153
    day = of_year - (153 * shifted_month + 2) // 5 + 1
    month = np.where(shifted_month < 10, shifted_month + 3, shifted_month - 9)
    return year + era * 400 + (month <= 2), month, day


_PARTS: dict[str, Callable[[Ints], Any]] = {
    "year": lambda days: civil(days)[0],
    "month": lambda days: civil(days)[1],
    "day": lambda days: civil(days)[2],
    "quarter": lambda days: (civil(days)[1] - 1) // 3 + 1,
    "dayofweek": lambda days: (days + 4) % 7 + 1,
}
