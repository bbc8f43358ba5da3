"""Edge values of every type, the same for all tests of expressions."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

EDGES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [0, 1, -1, 127, -128],
    "smallint": [0, 1, -1, 32767, -32768],
    "int": [0, 1, -1, 2, 2**31 - 1, -(2**31)],
    "bigint": [0, 1, -1, 3, 2**63 - 1, -(2**63)],
    "float": [0.0, -0.0, 1.5, 3.4e38, -3.4e38, float("nan"), float("inf"), float("-inf")],
    "double": [0.0, -0.0, 1.5, 1e300, -1e300, 9.3e18, float("nan"), float("inf"), float("-inf")],
    "string": ["", "1", "-7.5", "abc", "2020-01-31", "a\\", "%_", "ß Ω 数 🙂", "NaN", " x ", '{"a":[1]}', "[1,2]"],
    "binary": [b"", b"\x00\xff", b"abc"],
    "date": [date(1, 1, 1), date(1970, 1, 1), date(2020, 2, 29), date(9999, 12, 31)],
    "timestamp": [datetime(1, 1, 2, tzinfo=UTC), datetime(2020, 2, 29, 23, 59, 59, 1, tzinfo=UTC)],
    "timestamp_ntz": [datetime(1, 1, 1), datetime(2020, 2, 29, 23, 59, 59, 999999), datetime(9999, 12, 31, 23)],
    "decimal(15,2)": [Decimal("0.00"), Decimal("9999999999999.99"), Decimal("-9999999999999.99"), Decimal("0.05")],
    "decimal(38,10)": [Decimal("0"), Decimal("9" * 28 + "." + "9" * 10), Decimal("-1E-10")],
    "array<int>": [[], [None], [1, 2, 1], [0, -1, 2**31 - 1], list(range(9))],
    "array<string>": [[], ["", None], ["a", "ß", "a"], ["x,y"]],
    "array<array<int>>": [[], [None], [[]], [[1, None], [2]], [[1], [1]]],
    "array<struct<x:string>>": [[], [None], [("a",), (None,)], [("",)]],
    "struct<a:int,`b c`:double>": [(1, 0.5), (None, None), (-1, float("nan")), (0, -0.0)],
    "decimal(5,0)": [Decimal("0"), Decimal("99999"), Decimal("-99999"), Decimal("3")],
}
