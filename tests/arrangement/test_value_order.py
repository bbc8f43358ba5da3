"""Sorting by value, and merging value-ordered runs in pieces that fit memory."""

from functools import cmp_to_key
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import TYPES, colliding, plain, pool, random_column, seeds, updates
from tests.arrangement.value_model import at, compare
from tidemark_protocol.plan.reductions import OrderKey
from tidemark_replica.arrangement.batches.batch import Segment
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.value_order import row_keys, sort_rows
from tidemark_replica.arrangement.spines.spine import merge_segments
from tidemark_replica.kernels.ranking.ranking import value_ordered_rows


@pytest.mark.parametrize("t", TYPES, ids=str)
def test_rows_sort_as_in_a_comparison_of_values(t: pa.DataType) -> None:
    """Each type, both directions, NULL at either end, with ties broken by another column."""
    rng = np.random.default_rng(1)
    columns = [random_column(rng, t, 60), random_column(rng, pa.int8(), 60)]
    rows = [tuple(map(plain, row)) for row in zip(*(c.to_pylist() for c in columns), strict=True)]
    for key in (OrderKey(0, d, n) for d in (False, True) for n in (False, True)):
        ordered = sort_rows(np.zeros(60, np.uint64), row_keys(columns, [key]))
        found = [rows[i] for i in ordered.order.tolist()]
        assert [compare([key], a, b) < 0 for a, b in pairwise(found)] == ordered.begins[1:].tolist()
        assert all(compare([key], a, b) <= 0 for a, b in pairwise(found))


@pytest.mark.parametrize("seed", seeds(4, 20))
def test_split_a_merge_in_small_ranges_keeps_order_and_contents(seed: int) -> None:
    """Runs of a few large groups, two of one hash, merged a few rows at a time: sorted, whole, each row once."""
    rng = np.random.default_rng(seed)
    t = TYPES[rng.integers(len(TYPES))]
    layout = Layout.by_value((pa.int64(), pa.int64(), t, pa.int8()), (0, 1), (OrderKey(2, bool(seed % 2)),))
    second, values = colliding(pa.array([1, 2])), pool(t)
    keys = [(1, second[0]), (2, second[1]), (3, None)]
    rows = [
        ((*keys[rng.integers(3)], values[rng.integers(len(values))], int(rng.integers(9))), int(rng.integers(9)), 1)
        for _ in range(400)
    ]
    rows += [(row, time + 1, -1) for row, time, _ in rows[::5]]
    runs = [Segment.of(value_ordered_rows(updates(list(layout.types), rows[i::5]), layout)) for i in range(5)]

    merged = list(merge_segments(runs, layout, 4, range_rows=16))

    assert max(m.num_rows for m in merged) < 100
    stored = [tuple(map(plain, row)) for m in merged for row in zip(*(c.to_pylist() for c in m.columns), strict=True)]
    assert at([(row[1:5], row[5], row[7]) for row in stored], 20) == at(rows, 20)
    order = [OrderKey(0), OrderKey(1), *(layout.order or ())]
    by_hash = cmp_to_key(lambda a, b: (a[0] > b[0]) - (a[0] < b[0]) or compare(order, a[1:5], b[1:5]) or a[5] - b[5])
    assert all(by_hash(one) < by_hash(next_) for one, next_ in pairwise(stored))


def test_a_layout_survives_being_written_down() -> None:
    """The order too: a manifest travels to tasks as JSON."""
    by = Layout.by_value((pa.int64(), pa.string()), (0,), (OrderKey(1, True, True),))
    assert Layout.from_text(by.text) == by
    assert Layout.from_text(Layout.of_rows(by.types, by.key).text).order is None
