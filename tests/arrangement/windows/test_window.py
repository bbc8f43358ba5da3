"""Window functions against plain Python over every partition at every time, however a history is cut."""

import datetime
import math
from collections import Counter
from collections.abc import Callable
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import plain, seeds, unscaled
from tests.arrangement.numbers.exact import exactly
from tests.arrangement.reduce.groups_model import expected_output, in_order, rank
from tests.arrangement.reduce.regrouping import check_all_cuts, history, run, spec_of
from tidemark_replica.arrangement.rows.ordering import Order
from tidemark_replica.kernels.window.calls import WindowColumn
from tidemark_replica.kernels.window.frames import DAY_MICROS, Distance, Frame, _moved
from tidemark_replica.kernels.window.window import WindowFunction

DEC = pa.decimal128(10, 2)
# partition by c0 over a bigint to order by, a double, a decimal and a text
TYPES = [pa.string(), pa.int64(), pa.float64(), DEC, pa.string()]
POOLS = [
    ["x", "y", None],
    [0, 1, 2, 5, None],
    [0.5, -0.0, 1e16, -1e16, math.inf, math.nan, None],
    [Decimal("1.25"), Decimal("-3.00"), None],
    ["a", "b", None],
]
ROWS_TWO = Frame(True, -1, 0)
RUNNING, WHOLE = Frame(False, None, 0), Frame(True, None, None)
BEHIND, REST = Frame(True, 1, 2), Frame(True, 0, None)


def call(
    function: str, *arguments: int, frame: Frame | None = None, t: pa.DataType | None = None, **more
) -> WindowColumn:
    ranks = {"percent_rank": pa.float64(), "cume_dist": pa.float64(), "count": pa.int64(), "avg": pa.float64()}
    t = t or ranks.get(function) or (TYPES[arguments[0]] if arguments else pa.int32())
    return WindowColumn(function, arguments, t, f"{function} OVER", frame, **more)


CALLS = (
    call("row_number"),
    call("rank"),
    call("dense_rank"),
    call("percent_rank"),
    call("cume_dist"),
    call("ntile", parameters=(3,)),
    call("lag", 4, parameters=(1,)),
    call("lag", 2, parameters=(2,), ignore_nulls=True),
    call("lead", 1, parameters=(2,)),
    call("lead", 4, 0, parameters=(1,), ignore_nulls=True),
    call("lag", 3, parameters=(0,)),
    call("lag", 3, parameters=(-1,)),
    call("first_value", 4, frame=RUNNING),
    call("first_value", 4, frame=BEHIND, ignore_nulls=True),
    call("last_value", 2, frame=RUNNING),
    call("last_value", 4, frame=ROWS_TWO, ignore_nulls=True),
    call("nth_value", 1, frame=WHOLE, parameters=(2,)),
    call("nth_value", 1, frame=REST, parameters=(2,), ignore_nulls=True),
    call("count", frame=RUNNING),
    call("count", 4, frame=BEHIND),
    call("sum", 1, frame=RUNNING),
    call("sum", 2, frame=ROWS_TWO),
    call("sum", 2, frame=RUNNING),
    call("sum", 3, frame=REST, t=pa.decimal128(20, 2)),
    call("avg", 2, frame=BEHIND),
    call("min", 2, frame=RUNNING),
    call("max", 4, frame=BEHIND),
    call("max", 1, frame=WHOLE),
    call("string_agg", 4, frame=ROWS_TWO, parameters=(",",)),
    call("mode", 4, frame=RUNNING),
    call("percentile_disc", 2, frame=REST, parameters=(0.5,)),
)
BY_VALUE = (
    call("count", frame=Frame(False, Distance(-1), 0)),
    call("count", frame=Frame(False, Distance(1), Distance(3))),
    call("sum", 1, frame=Frame(False, Distance(-3), Distance(-1))),
    call("first_value", 4, frame=Frame(False, None, Distance(1))),
    call("count", frame=Frame(False, 0, None)),
)


def shown(order: tuple[Order, ...], calls: tuple[WindowColumn, ...]) -> Callable[[tuple, Counter], Counter]:
    def of(_: tuple, contents: Counter) -> Counter:
        rows = in_order(contents, *((o.column, o.descending, o.nulls_last) for o in order))
        columns = [column_of(c, rows, order) for c in calls]
        return Counter((((*row, *(c[i] for c in columns)), None)) for i, row in enumerate(rows))

    return of


def column_of(c: WindowColumn, rows: list[tuple], order: tuple[Order, ...]) -> list:
    peers = [[rank(r[o.column]) for o in order] for r in rows]
    if c.function in ("lag", "lead"):
        return [shifted(c, rows, i) for i in range(len(rows))]
    if c.frame is None:
        return [place(c, peers, i) for i in range(len(rows))]
    return [
        frame_value(c, [rows[j] for j in range(len(rows)) if inside(c.frame, rows, peers, order, i, j)])
        for i in range(len(rows))
    ]


def place(c: WindowColumn, peers: list, i: int) -> object:
    first, n = peers.index(peers[i]), len(peers)
    last = n - 1 - peers[::-1].index(peers[i])
    match c.function:
        case "row_number":
            return i + 1
        case "rank":
            return first + 1
        case "dense_rank":
            return len({str(p) for p in peers[: i + 1]})
        case "percent_rank":
            return first / (n - 1) if n > 1 else 0.0
        case "cume_dist":
            return (last + 1) / n
    parts = np.array_split(range(n), c.parameters[0])
    return next(k for k, part in enumerate(parts) if i in part) + 1


def shifted(c: WindowColumn, rows: list[tuple], i: int) -> object:
    by = c.parameters[0] * (1 if c.function == "lead" else -1)
    if by == 0:
        return rows[i][c.arguments[0]]
    candidates = rows[i + 1 :] if by > 0 else rows[:i][::-1]
    values = [r[c.arguments[0]] for r in candidates]
    values = [v for v in values if v is not None or not c.ignore_nulls]
    default = rows[i][c.arguments[1]] if len(c.arguments) > 1 else None
    return values[abs(by) - 1] if len(values) >= abs(by) else default


def inside(frame: Frame, rows: list, peers: list, order: tuple[Order, ...], i: int, j: int) -> bool:
    return (
        beyond(frame.lower, frame.in_rows, rows, peers, order, i, j)
        >= 0
        >= beyond(frame.upper, frame.in_rows, rows, peers, order, i, j)
    )


def beyond(bound: Any, in_rows: bool, rows: list, peers: list, order: tuple[Order, ...], i: int, j: int) -> float:
    """Negative: row j is before the bound of row i; positive: after it."""
    if bound is None:
        return 0
    if in_rows:
        return j - i - bound
    if peers[i] == peers[j] and (bound == 0 or rows[i][order[0].column] is None):
        return 0
    if bound == 0:
        return j - i
    value, own = rows[j][order[0].column], rows[i][order[0].column]
    if value is None or own is None:
        return j - i
    return (own - value if order[0].descending else value - own) - bound.amount


def frame_value(c: WindowColumn, rows: list[tuple]) -> object:
    if c.function == "count" and not c.arguments:
        return len(rows)
    values = [r[c.arguments[0]] for r in rows]
    if c.function in ("first_value", "last_value", "nth_value"):
        values = [v for v in values if v is not None or not c.ignore_nulls]
        at = {"first_value": 0, "last_value": len(values) - 1}.get(c.function, (c.parameters or (1,))[0] - 1)
        return values[at] if 0 <= at < len(values) else None
    values = [v for v in values if v is not None]
    if c.function == "count":
        return len(values)
    return aggregate(c, values) if values else None


def aggregate(c: WindowColumn, values: list) -> object:
    match c.function:
        case "min":
            return min(values, key=rank)
        case "max":
            return max(values, key=rank)
        case "string_agg":
            return c.parameters[0].join(values)
        case "mode":
            return min(values, key=lambda v: (-values.count(v), rank(v)))
        case "percentile_disc":
            return sorted(values, key=rank)[max(math.ceil(len(values) * c.parameters[0]) - 1, 0)]
    if c.arguments[0] == 1:
        return sum(values)
    if c.arguments[0] == 3:
        return sum(values, Decimal(0))
    special = [v for v in values if v == "NaN" or math.isinf(v)]
    total = "NaN" if "NaN" in special else math.inf if special else exactly(list(values))
    return total / len(values) if c.function == "avg" and total != "NaN" else total


@pytest.mark.parametrize("key", [(0,), ()], ids=str)
@pytest.mark.parametrize("seed", seeds(2, 8))
def test_split_every_cut_gives_what_the_definition_says(
    seed: int, key: tuple, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All calls at once over an order with ties; rows that are there several times, errors, emptied partitions."""
    rng = np.random.default_rng(seed)
    order = (Order(1, True, True), Order(4)) if seed % 2 else (Order(1),)
    function = WindowFunction(tuple(TYPES), order, CALLS)
    check(rng, function, key, tmp_path, monkeypatch)


@pytest.mark.parametrize("seed", seeds(2, 8))
def test_split_frames_by_distance(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """RANGE with offsets, ascending and descending; rows whose value is NULL see their peers."""
    rng = np.random.default_rng(seed)
    function = WindowFunction(tuple(TYPES), (Order(1, bool(seed % 2), bool(seed % 3)),), BY_VALUE)
    check(rng, function, (0,), tmp_path, monkeypatch)


def check(
    rng: np.random.Generator, function: WindowFunction, key: tuple, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = history(rng, POOLS, 14, 25)
    expected = expected_output(
        [(r, max(t, 2), d) for r, t, d in rows],
        key,
        2,
        shown(function.order, function.calls),
        width=len(function.output_types),
    )
    check_all_cuts(folder, rng, monkeypatch, spec_of(function, TYPES, key, always=False), rows, expected)


DAYS = [datetime.date(2024, 1, 30), datetime.date(2024, 1, 31), datetime.date(2024, 2, 29), datetime.date(2024, 3, 31)]
MOMENTS = [datetime.datetime(2024, 1, 31, 12, 0, 0, n) for n in (0, 1, 3)]
FLOATS = [float(np.float32(value)) for value in (0.1, 0.2)]
MONTHS, MICROS, DAYS_APART = (lambda n, u=u: Distance(n, u) for u in ("months", "micros", "days"))


@pytest.mark.parametrize(
    ("t", "values", "bound", "descending", "sizes"),
    [
        (pa.date32(), DAYS, DAYS_APART(-1), False, [1, 2, 1, 1]),
        (pa.date32(), DAYS, MONTHS(-1), False, [1, 2, 3, 2]),
        (pa.date32(), DAYS, MICROS(-29 * 86_400_000_000), False, [1, 2, 2, 1]),
        (pa.date32(), DAYS[::-1], DAYS_APART(-1), True, [1, 1, 1, 2]),
        (pa.timestamp("us"), MOMENTS, MICROS(-1), False, [1, 2, 1]),
        (DEC, [Decimal("-0.01"), Decimal("0.00"), Decimal("99999999.99")], Distance(-1), False, [1, 2, 1]),
        (
            pa.decimal128(38, 0),
            [unscaled(1 - 10**38, 0), Decimal(0), unscaled(10**38 - 1, 0)],
            Distance(1 - 10**38),
            False,
            [1, 2, 2],
        ),
        (pa.int64(), [-(2**63), 0, 2**63 - 1], Distance(-(2**63)), False, [1, 2, 2]),
        (pa.float64(), [-math.inf, 1.0, 1.5, math.inf, math.nan], Distance(-0.5), False, [1, 1, 2, 1, 1]),
        (pa.float32(), FLOATS, Distance(-0.1), False, [1, 2]),
        (pa.float32(), FLOATS[::-1], Distance(-0.1), True, [1, 2]),
    ],
    ids=str,
)
def test_distances_are_those_of_the_type(
    t: pa.DataType, values: list, bound: Distance, descending: bool, sizes: list[int], tmp_path: Path
) -> None:
    """The number of rows between the bound and the row itself: dates by days and months, at the ends of the range."""
    frame = Frame(False, bound, 0)
    function = WindowFunction(
        (t,), (Order(0, descending),), (WindowColumn("count", (), pa.int64(), "count(*) OVER", frame),)
    )
    output = run_once(tmp_path, function, [t], [((v,), 2, 1) for v in values])
    found = {plain(row[0]): row[1] for row, _, _ in output}
    assert [found[plain(v)] for v in values] == sizes


@pytest.mark.parametrize("unit", ["days", "micros", "months"])
def test_distances_reach_to_the_ends_of_all_dates(unit: str) -> None:
    """Dates go to the year 5,881,580, which is beyond what microseconds in 64 bits can say."""
    days = [-(2**31), -106_751_992, -1, 0, 1, 106_751_992, 2**31 - 1]
    column = pa.array(days, pa.int32()).cast(pa.date32())
    for amount in (-(2**31), -40, 0, 1, 2**31 - 1):
        values, targets = _moved(column, Distance(amount, unit), 1)
        before = [d * DAY_MICROS + t for d, t in zip(*(w.tolist() for w in values), strict=True)]
        after = [d * DAY_MICROS + t for d, t in zip(*(w.tolist() for w in targets), strict=True)]
        assert before == [d * DAY_MICROS for d in days]
        if unit == "months":
            assert all(a < b for a, b in pairwise(after))
            moved = [(a - b) / DAY_MICROS for a, b in zip(after, before, strict=True)]
            assert all(min(28 * amount, 31 * amount) <= m <= max(28 * amount, 31 * amount) for m in moved)
        else:
            assert after == [b + amount * (DAY_MICROS if unit == "days" else 1) for b in before]


def run_once(folder: Path, function: WindowFunction, types: list, rows: list) -> Counter:
    spec = spec_of(function, types, (), always=False)
    return run(folder, np.random.default_rng(0), spec, rows, list(range(2, 2 + max(t for _, t, _ in rows))))
