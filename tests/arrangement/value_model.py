"""The order of values and the first rows of groups in plain Python, as a model for value-ordered kernels."""

from collections import Counter
from collections.abc import Sequence
from functools import cmp_to_key

from tests.arrangement.histories import plain
from tidemark_protocol.plan.reductions import OrderKey

Row = tuple


def comparable(value: object) -> object:
    """A `plain` value as Python compares it: NaN is the greatest, strings go by their UTF-8 bytes."""
    if isinstance(value, tuple):
        return tuple((v is not None, None if v is None else comparable(v)) for v in value)
    if value == "NaN" or isinstance(value, float):
        return (value == "NaN", 0.0 if value == "NaN" else value)
    return value.encode() if isinstance(value, str) else value


def compare(order: Sequence[OrderKey], one: Row, other: Row) -> int:
    """-1, 0, 1 by `order`, then by all columns from the left, ascending, NULL first."""
    for key in [*order, *(OrderKey(i) for i in range(len(one)))]:
        a, b = one[key.column], other[key.column]
        if a is None or b is None:
            if (a is None) != (b is None):
                return -1 if (a is None) != key.nulls_last else 1
        elif (x := comparable(a)) != (y := comparable(b)):
            return -1 if (x < y) != key.descending else 1
    return 0


def first_rows(rows: Counter, key: Sequence[int], order: Sequence[OrderKey], offset: int, end: int | None) -> Counter:
    """{row: how often it is shown}, and {"negative": in how many groups such a row stands before the last place}."""
    groups: dict[Row, list[Row]] = {}
    for row in rows:
        groups.setdefault(tuple(row[k] for k in key), []).append(row)
    result: Counter = Counter()
    for members in groups.values():
        place, negative = 0, False
        for row in sorted(members, key=cmp_to_key(lambda a, b: compare(order, a, b))):
            looked_at = end is None or place < end
            negative |= rows[row] < 0 and looked_at
            after = place + max(rows[row], 0)
            result[row] += max(0, min(after, after if end is None else end) - max(place, offset))
            place = after
        result["negative"] += negative
    return result


def at(history: Sequence[tuple], time: int) -> Counter:
    """{row, its values plain: multiplicity}."""
    counts: Counter = Counter()
    for row, when, diff in history:
        counts[tuple(map(plain, row))] += diff * (when <= time)
    return Counter({row: n for row, n in counts.items() if n})
