"""The definition of a reduce: exact arithmetic in Python, for every group at every time."""

import json
import math
from collections import Counter, defaultdict
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pyarrow as pa

from tests.arrangement.histories import DEC15, DEC38, colliding, plain, unscaled
from tests.arrangement.numbers.exact import exactly, spark_average
from tidemark_replica.kernels.reduce.accumulate import AccumulatorLayout
from tidemark_replica.kernels.reduce.aggregates import ColumnAggregate

# group by (string, bigint) over columns of every accumulable type, and a filter
TYPES = [pa.string(), pa.int64(), pa.int64(), pa.int8(), DEC15, DEC38, pa.float64(), pa.float32(), pa.bool_()]
VARIANCES = frozenset({"var_pop", "var_samp", "stddev_pop", "stddev_samp"})
KEYS = ["x", "y", "a long name of a group", None]
POOLS = {
    2: [0, 1, -7, 2**63 - 1, -(2**63), 3 * 2**40, None],
    3: [0, 127, -128, None],
    4: [Decimal("0.01"), Decimal("-3.50"), unscaled(10**15 - 1, 2), None],
    5: [Decimal("0.0001"), unscaled(10**38 - 1, 4), unscaled(1 - 10**38, 4), Decimal(12345), None],
    6: [0.1, 0.2, -0.3, 1e308, -1e308, 5e-324, 2.0**60, math.nan, math.inf, -math.inf, -0.0, None],
    7: [0.5, 0.1, -3.0, 3e38, math.nan, None],
    8: [True, False, None],
}
AGGREGATES = [
    ColumnAggregate("count", None, "count(*)"),
    ColumnAggregate("count", 4, "count(p)"),
    ColumnAggregate("count", None, "count(*) FILTER (WHERE b)", filter=8),
    *(ColumnAggregate(f, c, f"{f}(c{c})") for f in ("sum", "avg") for c in range(2, 8)),
    *(ColumnAggregate(f, 6, f"{f}(d)") for f in ("var_pop", "var_samp", "stddev_pop", "stddev_samp")),
    ColumnAggregate("var_samp", 6, "var_samp(d) FILTER (WHERE b)", filter=8),
    ColumnAggregate("sum", 4, "sum(p) FILTER (WHERE b)", filter=8),
    ColumnAggregate("avg", 6, "avg(d) FILTER (WHERE b)", filter=8),
]


def shape_of(rng: np.random.Generator | None, key: tuple[int, ...] = (0, 1)) -> AccumulatorLayout:
    if rng is None:
        return AccumulatorLayout(tuple(TYPES), key, tuple(AGGREGATES))
    chosen = rng.choice(len(AGGREGATES), int(rng.integers(0, 5)), replace=False)
    return AccumulatorLayout(tuple(TYPES), key, tuple(AGGREGATES[i] for i in chosen))


def history(rng: np.random.Generator, upper: int, n: int) -> list[tuple]:
    """Inserts and later retractions, sometimes too many or of another value; errs rows; keys whose hashes collide."""
    numbers = [*colliding(pa.array(KEYS[:-1])), None]
    rows: list[tuple] = []
    for _ in range(n):
        i = int(rng.integers(0, len(KEYS)))
        row = (KEYS[i], numbers[i], *(pool[rng.integers(0, len(pool))] for pool in POOLS.values()))
        time = int(rng.integers(0, upper))
        if rng.integers(0, 15) == 0:
            rows.append(("boom", time, 1))
            continue
        diff = int(rng.choice([1, 1, 1, 2, -1] if rng.integers(0, 10) == 0 else [1]))
        rows.append((row, time, diff))
        if rng.integers(0, 8) == 0:
            row = (*row[:2], *(pool[rng.integers(0, len(pool))] for pool in POOLS.values()))
        if rng.integers(0, 3):
            rows.append((row, int(rng.integers(time, upper)), -diff))
    return sorted(rows, key=lambda u: u[1])


def expected_output(shape: AccumulatorLayout, rows: list[tuple], as_of: int) -> Counter:
    """The output by its definition: what each group shows at every time, taken apart into changes."""
    output: Counter = Counter()
    groups: dict[tuple, list[tuple]] = defaultdict(list)
    for row, time, diff in rows:
        if isinstance(row, str):
            output[(None,) * len(shape.output_types), row, time] += diff
        else:
            groups[tuple(plain(row[k]) for k in shape.key)].append((row, time, diff))
    if not shape.key and shape.aggregates:
        groups.setdefault((), [])
        groups[()].append((None, as_of, 0))
    for key, history in groups.items():
        shown = None
        for time in sorted({t for _, t, _ in history}):
            present = [(r, d) for r, t, d in history if t <= time and d]
            now = shows(shape, key, present)
            if now != shown:
                for what, diff in ((shown, -1), (now, 1)):
                    if what is not None:
                        output[(*what, time)] += diff
            shown = now
    return Counter({k: d for k, d in output.items() if d})


def shows(shape: AccumulatorLayout, key: tuple, present: list[tuple]) -> tuple | None:
    """(row, None) or (NULLs, error) or nothing."""
    count = sum(d for _, d in present)
    left: Counter = Counter()
    for row, diff in present:
        left[row] += diff
    if count < 0:
        return failure(shape, "NEGATIVE_MULTIPLICITY", "count(*)")
    results = [aggregate_of(shape, a, present) for a in shape.aggregates]
    if count == 0 and any(left_over(a, present) for a in shape.aggregates):
        return failure(shape, "ACCUMULATION_NOT_ZERO", "count(*)")
    for aggregate, result in zip(shape.aggregates, results, strict=True):
        taking = participants(aggregate, present)
        if aggregate.expression != "count(*)" and not 0 <= sum(d for _, d in taking) <= count:
            return failure(shape, "NEGATIVE_MULTIPLICITY", aggregate.expression)
        if isinstance(result, str) and result.isupper():
            return failure(shape, result, aggregate.expression)
    if count == 0 and (shape.key or not shape.aggregates):
        return None
    return (*key, *map(plain, results)), None


def failure(shape: AccumulatorLayout, code: str, expression: str) -> tuple:
    text = json.dumps({"code": code, "expression": expression}, separators=(",", ":"))
    return (None,) * len(shape.output_types), text


def participants(aggregate: ColumnAggregate, present: list[tuple]) -> list[tuple]:
    taking = [(r, d) for r, d in present if aggregate.filter is None or r[aggregate.filter]]
    if aggregate.argument is None:
        return taking
    return [(r[aggregate.argument], d) for r, d in taking if r[aggregate.argument] is not None]


def left_over(aggregate: ColumnAggregate, present: list[tuple]) -> bool:
    """Whether a group without rows still has contributions: counts, sums, or counts of NaN and infinities."""
    taking = participants(aggregate, present)
    if sum(d for _, d in taking):
        return True
    if aggregate.argument is None or aggregate.function == "count":
        return False
    special: Counter = Counter()
    for value, diff in taking:
        special[plain(value) if isinstance(value, float) and not math.isfinite(value) else ""] += diff
    del special[""]
    squares = aggregate.function in VARIANCES and exact_squares(taking) != 0
    return any(special.values()) or exact_sum(taking) != 0 or squares


def exact_sum(taking: list[tuple]) -> Fraction:
    finite = [(v, d) for v, d in taking if not isinstance(v, float) or math.isfinite(v)]
    return sum((Fraction(v) * d for v, d in finite), Fraction(0))


def exact_squares(taking: list[tuple]) -> Fraction:
    return sum((Fraction(v) ** 2 * d for v, d in taking if math.isfinite(v)), Fraction(0))


def aggregate_of(shape: AccumulatorLayout, aggregate: ColumnAggregate, present: list[tuple]) -> object:
    """The value, or an error code."""
    taking = participants(aggregate, present)
    count = sum(d for _, d in taking)
    if aggregate.function == "count":
        return count
    t = shape.types[aggregate.argument]
    if pa.types.is_floating(t):
        return float_aggregate(aggregate, [(as_type(v, t), d) for v, d in taking], count)
    total = exact_sum(taking)
    if pa.types.is_decimal(t):
        return decimal_aggregate(aggregate, t, int(total * 10**t.scale), count)
    if aggregate.function == "avg":
        return float(int(total)) / count if count else None
    if not -(2**63) <= total < 2**63:
        return "ARITHMETIC_OVERFLOW"
    return int(total) if count else None


def as_type(value: float, t: pa.DataType) -> float:
    return float(np.float32(value)) if t == pa.float32() else value


def float_aggregate(aggregate: ColumnAggregate, taking: list[tuple], count: int) -> object:
    if not count:
        return None
    special: Counter = Counter()
    for value, diff in taking:
        special[plain(value)] += diff
    if aggregate.function in VARIANCES:
        return variance(aggregate.function, taking, count, any(special[v] for v in ("NaN", math.inf, -math.inf)))
    if special["NaN"] or (special[math.inf] and special[-math.inf]):
        total = math.nan
    elif special[math.inf] or special[-math.inf]:
        total = math.inf if special[math.inf] else -math.inf
    else:
        values = [v * (1 if d > 0 else -1) for v, d in taking for _ in range(abs(d)) if math.isfinite(v)]
        total = exactly(values)
    return total / count if aggregate.function == "avg" else total


def variance(function: str, taking: list[tuple], count: int, special: bool) -> object:
    divisor = count - 1 if function.endswith("samp") else count
    if divisor <= 0:
        return None
    if special:
        return math.nan
    exact = (count * exact_squares(taking) - exact_sum(taking) ** 2) / (count * divisor)
    if exact < 0:
        return "NEGATIVE_MULTIPLICITY"
    try:
        result = float(exact)
    except OverflowError:
        result = math.inf
    return math.sqrt(result) if function.startswith("stddev") else result


def decimal_aggregate(aggregate: ColumnAggregate, t: pa.DataType, total: int, count: int) -> object:
    if abs(total) >= 10 ** min(t.precision + 10, 38):
        return "ARITHMETIC_OVERFLOW"
    if count <= 0:
        return None
    if aggregate.function == "sum":
        return unscaled(total, t.scale)
    precision, scale = min(t.precision + 4, 38), min(t.scale + 4, 38)
    average = spark_average(total, count, t.scale, scale)
    return average if average.copy_abs() < Decimal(10) ** (precision - scale) else "NUMERIC_VALUE_OUT_OF_RANGE"
