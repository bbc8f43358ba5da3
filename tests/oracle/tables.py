"""The tables of the cases. Values are few, so that rows meet, groups fill up and empty, and rows come twice."""

from __future__ import annotations

import math
from decimal import Decimal

from tests.oracle.histories import Table

INTS = [0, 1, 2, 3, None]
T = Table((("a", "bigint"), ("b", "bigint"), ("s", "string")), (INTS, [0, 1, 5, -7, None], ["x", "y", "", None]))
U = Table((("a", "bigint"), ("d", "decimal(12,2)")), (INTS, [Decimal("0.00"), Decimal("1.25"), Decimal("-3.10"), None]))
N = Table((("a", "int"), ("f", "double")), ([1, 2, None], [0.0, -0.0, 1.5, 0.1, 1e16, -1e16, math.nan, math.inf, None]))
EXACT = Table(N.columns, (N.values[0], [0.0, -0.0, 1.5, 0.25, math.nan, math.inf, None]))
TU = {"t": T, "u": U}
TEXT = Table((("k", "bigint"), ("t", "string")), ([1, 2, 3], ["1", "22", "no number", "", None]))
