"""Texts of ISO 8601 as dates and times, as Debezium writes them.

2020-02-03Z                                          a date
2020-02-03T04:05:06.123456Z, 2020-02-03T04:05:06+02:00    a time: an instant
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_replica.storage.avro import bodies as why
from tidemark_replica.storage.avro.bodies import Bodies
from tidemark_replica.storage.avro.nodes import Texts
from tidemark_replica.values.calendar import FIRST_US, LAST_US

_DAY = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}"
_DATE = _DAY + "Z?$"
_ZONE = r"(?:Z|[+-][0-9]{2}:[0-9]{2})$"
_TIME = _DAY + r"T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,6}0*)?" + _ZONE
_INSTANT = pa.timestamp("us", "UTC")


class IsoTexts(Texts):
    """A writer's text as a value of `type`: a date, or a timestamp of microseconds."""

    def read(self, bodies: Bodies) -> pa.Array:
        texts = bodies.texts(*self._spans(bodies))
        found = iso_values(texts, self._type)
        bodies.fail(pc.is_null(found).to_numpy(zero_copy_only=False) & (bodies.why == 0), why.ISO)
        return found


def iso_value(text: Any, type: pa.DataType) -> Any:
    """The value of one text. Raises ValueError where it is none."""
    found = iso_values(pa.array([text], pa.string()), type)
    if found.null_count:
        raise ValueError("no date or time of ISO 8601")
    return found[0].as_py()


def iso_values(texts: pa.Array, type: pa.DataType) -> pa.Array:
    """The dates or times; NULL where a text is none."""
    is_date = pa.types.is_date(type)
    fits = pc.match_substring_regex(texts, _DATE if is_date else _TIME)
    fits = pc.and_(fits, pc.invert(pc.starts_with(texts, "0000-")))
    if is_date:
        return _cast(pc.utf8_slice_codeunits(texts, 0, 10), fits, pa.date32())
    # Arrow takes no more than six digits of a fraction
    short = pc.replace_substring_regex(texts, r"(\.[0-9]{6})0+", r"\1")
    found = _cast(short, fits, _INSTANT)
    us = found.cast(pa.int64())
    within = pc.and_(pc.greater_equal(us, FIRST_US), pc.less_equal(us, LAST_US))
    return pc.if_else(within, found, pa.scalar(None, _INSTANT)).cast(type)


def _cast(texts: pa.Array, fits: pa.Array, type: pa.DataType) -> pa.Array:
    """The texts that fit, as values; NULL where one is none after all, such as the 30th of February."""
    given = pc.if_else(fits, texts, pa.scalar(None, pa.string()))
    try:
        return given.cast(type)
    except pa.ArrowInvalid:
        return pa.concat_arrays([_one(given.slice(i, 1), type) for i in range(len(given))])


def _one(text: pa.Array, type: pa.DataType) -> pa.Array:
    try:
        return text.cast(type)
    except pa.ArrowInvalid:
        return pa.nulls(1, type)
