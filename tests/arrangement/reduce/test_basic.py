"""Aggregates over all values of a group, against plain Python at every time, however a history is cut."""

import math
import operator
from collections import Counter
from functools import reduce
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import A, Driver, contents, seeds
from tests.arrangement.reduce.groups_model import expected_output, in_order
from tests.arrangement.reduce.regrouping import check_all_cuts, history, run, spec_of
from tidemark_replica.arrangement.errors import MalformedUpdates, UnsupportedType
from tidemark_replica.arrangement.rows.ordering import Order
from tidemark_replica.arrangement.rows.task_share import TaskShare
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.kernels.groups import basic
from tidemark_replica.kernels.groups.basic import BasicAggregate, BasicFunction
from tidemark_replica.kernels.groups.reevaluated_groups import reevaluate_groups

# group by c0 over a double, a text, a bigint and a filter
TYPES = [pa.string(), pa.float64(), pa.string(), pa.int64(), pa.bool_()]
POOLS = [
    ["x", "y", None],
    [0.0, -0.0, 1.5, -2.25, 1e300, math.inf, math.nan, None],
    ["a", "b", "", "é", None],
    [0, 1, 2, 2**62, None],
    [True, False, None],
]


def aggregate(function: str, argument: int, *parameters: object, **more) -> BasicAggregate:
    t = pa.float64() if function.startswith("percentile") else TYPES[argument]
    t = pa.list_(t) if function == "array_agg" else t
    return BasicAggregate(function, argument, t, f"{function}(c{argument})", parameters=parameters, **more)


AGGREGATES = (
    aggregate("first", 1),
    aggregate("first", 2, order=(Order(3, True, True),)),
    aggregate("first", 3, order=(Order(2, False, True), Order(1, True)), filter=4),
    aggregate("string_agg", 2, ", "),
    aggregate("string_agg", 2, "", order=(Order(1, True), Order(3))),
    aggregate("string_agg", 2, "é", order=(Order(2, True),), distinct=True, filter=4),
    aggregate("array_agg", 1),
    aggregate("array_agg", 2, order=(Order(3, True),), filter=4),
    aggregate("array_agg", 3, order=(Order(3, True),), distinct=True),
    aggregate("mode", 1),
    aggregate("mode", 2, order=(Order(2, True),)),
    aggregate("mode", 3, distinct=True),
    aggregate("percentile_cont", 1, 0.5),
    aggregate("percentile_cont", 1, 0.3, order=(Order(1, True),), filter=4),
    aggregate("percentile_cont", 1, 1.0, distinct=True),
    aggregate("percentile_disc", 1, 0.5),
    aggregate("percentile_disc", 1, 0.0, order=(Order(1, True),)),
    aggregate("percentile_disc", 1, 0.75, filter=4),
    aggregate("bit_and", 3),
    aggregate("bit_or", 3, filter=4),
    aggregate("bit_xor", 3),
    aggregate("bit_xor", 3, distinct=True),
)


BITS = {"bit_and": operator.and_, "bit_or": operator.or_, "bit_xor": operator.xor}


def shown(key: tuple, contents: Counter) -> Counter:
    return Counter({((*key, *(value_of(a, contents) for a in AGGREGATES)), None): 1})


def value_of(aggregate: BasicAggregate, contents: Counter) -> object:
    order = [(o.column, o.descending, o.nulls_last) for o in aggregate.order]
    if not order and aggregate.function not in ("first", "string_agg", "array_agg"):
        order = [(aggregate.argument, False, False)]
    rows = in_order(contents, *order)
    rows = [r for r in rows if aggregate.filter is None or r[aggregate.filter]]
    values = [r[aggregate.argument] for r in rows]
    if aggregate.function == "first":
        return values[0] if values else None
    values = [v for v in values if v is not None]
    values = list(dict.fromkeys(values)) if aggregate.distinct else values
    if aggregate.function == "array_agg":
        return tuple(values)
    if not values:
        return None
    if aggregate.function == "string_agg":
        return aggregate.parameters[0].join(values)
    if aggregate.function in BITS:
        return reduce(BITS[aggregate.function], values)
    if aggregate.function == "mode":
        return max(values, key=lambda v: (values.count(v), -values.index(v)))
    return percentile(values, aggregate)


def percentile(values: list, aggregate: BasicAggregate) -> object:
    numbers, fraction = [math.nan if v == "NaN" else v for v in values], aggregate.parameters[0]
    if aggregate.function == "percentile_disc":
        return values[max(math.ceil(len(values) * fraction) - 1, 0)]
    position = (len(values) - 1) * fraction
    below, above = math.floor(position), math.ceil(position)
    low, high = numbers[below], numbers[above]
    result = low if values[below] == values[above] else low + (high - low) * (position - below)
    return "NaN" if math.isnan(result) else result


@pytest.mark.parametrize("key", [(0,), (), (0, 3)], ids=str)
@pytest.mark.parametrize("seed", seeds(3, 12))
def test_split_every_cut_gives_what_the_definition_says(
    seed: int, key: tuple, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All aggregates at once; negative multiplicities, errors, groups emptied and refilled."""
    rng = np.random.default_rng(seed)
    rows = history(rng, POOLS, 14, 40)
    function = BasicFunction(tuple(TYPES), key, AGGREGATES)
    expected = expected_output(
        [(r, max(t, 2), d) for r, t, d in rows], key, 2, shown, always=not key, width=len(function.output_types)
    )
    check_all_cuts(tmp_path, rng, monkeypatch, spec_of(function, TYPES, key, always=not key), rows, expected)


@pytest.mark.parametrize(
    ("values", "skewness", "kurtosis"),
    [
        ([1.0, 1.0, 4.0], 1 / math.sqrt(2), -1.5),
        ([-10.0, -20.0, 100.0, 1000.0], 1.1135657469022011, -0.7014368047529627),
        ([0.1, 0.1, 0.1], None, None),
        ([7.0], None, None),
        ([], None, None),
        ([math.inf], "NaN", "NaN"),
        ([math.nan, 1.0], "NaN", "NaN"),
    ],
    ids=str,
)
def test_the_shape_of_a_distribution(values: list, skewness: object, kurtosis: object, tmp_path: Path) -> None:
    """The values are those of Spark's documentation; NULL where nothing differs, however sums of it round."""
    types = [pa.float64()]
    aggregates = tuple(BasicAggregate(n, 0, pa.float64(), n) for n in ("skewness", "kurtosis"))
    function = BasicFunction(tuple(types), (), aggregates)
    rows = [((v,), 2, 1) for v in values]
    result = run(tmp_path, np.random.default_rng(0), spec_of(function, types, (), always=True), rows, [1, 3])
    found = [shown for (shown, _, _), diff in result.items() if diff > 0][-1]

    for one, alive_file in zip(found, (skewness, kurtosis), strict=True):
        assert one == alive_file or one == pytest.approx(alive_file, rel=1e-12)


def test_a_text_that_grows_too_long_is_an_error_until_it_shrinks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row of a great multiplicity must not fill the memory."""
    monkeypatch.setattr(basic, "MAX_BYTES", 10)
    types = [pa.string()]
    function = BasicFunction(
        tuple(types), (), (BasicAggregate("string_agg", 0, pa.string(), "string_agg(s)", parameters=("-",)),)
    )
    rows = [(("ab",), 2, 2), (("c",), 3, 10**12), (("c",), 4, -(10**12))]
    error = '{"code":"RESULT_TOO_LARGE","expression":"string_agg(s)"}'
    result = run(tmp_path, np.random.default_rng(0), spec_of(function, types, (), always=True), rows, [2, 5])
    assert result == {
        (("ab-ab",), None, 2): 1,
        (("ab-ab",), None, 3): -1,
        ((None,), error, 3): 1,
        ((None,), error, 4): -1,
        (("ab-ab",), None, 4): 1,
    }


def test_only_the_share_of_the_only_group_emits_the_global_row(tmp_path: Path) -> None:
    """One of eight tasks over an empty input emits the row of an empty group."""
    function = BasicFunction(tuple(TYPES), (), (aggregate("array_agg", 2), aggregate("first", 2)))
    spec = spec_of(function, TYPES, (), always=True)
    driver = Driver(tmp_path, Manifest.empty(A, spec.layout, 0))
    outputs = [
        contents(reevaluate_groups(driver.context(0, 1, hydration=True, share=TaskShare(b, 8)), spec, []))
        for b in range(8)
    ]
    assert sorted(outputs, key=len)[7] == {(((), None), None, 0): 1}
    assert sorted(map(len, outputs)) == [0] * 7 + [1]


def test_another_operators_rows_are_refused(tmp_path: Path) -> None:
    """A plan change needs a new arrangement; the old rows would be misread."""
    spec = spec_of(BasicFunction(tuple(TYPES), (0,), AGGREGATES), TYPES, (0,), always=False)
    driver = Driver(tmp_path, Manifest.empty(A, spec_of(spec.function, TYPES, (1,), always=False).layout, 0))
    with pytest.raises(MalformedUpdates, match="does not hold the groups"):
        list(reevaluate_groups(driver.context(0, 1), spec, []))


def test_an_unknown_function_is_refused_by_name() -> None:
    """When the plan is rendered, not when the first row comes."""
    with pytest.raises(UnsupportedType, match="sum"):
        BasicFunction(tuple(TYPES), (0,), (aggregate("sum", 3),))
