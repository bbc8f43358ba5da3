"""Window functions that cannot be computed over a partition: an error until they can, and its rows alone."""

from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.reduce.regrouping import run, spec_of
from tests.arrangement.windows.test_window import RUNNING, WHOLE, call, run_once
from tidemark_replica.arrangement.errors import UnsupportedType
from tidemark_replica.arrangement.rows.ordering import Order
from tidemark_replica.kernels.groups import group_versions
from tidemark_replica.kernels.window import window
from tidemark_replica.kernels.window.calls import WindowColumn
from tidemark_replica.kernels.window.frames import Frame
from tidemark_replica.kernels.window.window import WindowFunction


def test_a_frame_with_an_overflowing_sum_is_an_error_until_it_fits(tmp_path: Path) -> None:
    """The partition's rows give way to one error row; other partitions keep theirs."""
    types = [pa.int64()]
    calls = (WindowColumn("sum", (0,), pa.int64(), "sum(c0) OVER", RUNNING),)
    rows = [((2**63 - 1,), 2, 1), ((1,), 3, 1), ((1,), 4, -1)]
    result = run_once(tmp_path, WindowFunction(tuple(types), (Order(0),), calls), types, rows)
    error = '{"code":"ARITHMETIC_OVERFLOW","expression":"sum(c0) OVER"}'
    row = ((2**63 - 1, 2**63 - 1), None)
    assert result == {
        (*row, 2): 1,
        (*row, 3): -1,
        ((None, None), error, 3): 1,
        ((None, None), error, 4): -1,
        (*row, 4): 1,
    }


def test_an_average_over_a_frame_is_there_though_its_sum_does_not_fit(tmp_path: Path) -> None:
    """The result is that of a batch, whose frames add up decimals of any size; a sum of them is an error."""
    t, frame = pa.decimal128(38, 38), Frame(True, -1, 0)
    value, error = Decimal("0.9"), '{"code":"ARITHMETIC_OVERFLOW","expression":"sum(c0) OVER"}'
    for function, expected in (("avg", {((value, value), None, 2): 2}), ("sum", {((None, None), error, 2): 1})):
        calls = (WindowColumn(function, (0,), t, f"{function}(c0) OVER", frame),)
        result = run_once(tmp_path / function, WindowFunction((t,), (Order(0),), calls), [t], [((value,), 2, 2)])
        assert result == expected


def test_a_row_there_a_billion_times_is_an_error_not_a_dead_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of its copies would need a number."""
    monkeypatch.setattr(window, "MAX_ROWS", 10)
    function = WindowFunction((pa.int64(),), (), (call("row_number"),))
    result = run_once(tmp_path, function, [pa.int64()], [((1,), 2, 10**9), ((1,), 3, 1 - 10**9)])
    error = '{"code":"TOO_MANY_ROWS","expression":"count(*)"}'
    assert result == {((None, None), error, 2): 1, ((None, None), error, 3): -1, ((1, 1), None, 3): 1}


@pytest.mark.parametrize(
    ("function", "t"), [("sum", pa.string()), ("nothing", pa.int64()), ("row_number2", pa.int64())]
)
def test_an_unknown_function_is_refused_by_name(function: str, t: pa.DataType) -> None:
    """When the plan is rendered, not when the first row comes."""
    with pytest.raises(UnsupportedType, match=function):
        WindowFunction((t,), (), (WindowColumn(function, (0,), t, f"{function}(c0) OVER", RUNNING),))


def test_values_that_are_too_large_together_are_an_error_until_they_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every row would show the longest text; a partition that fits is shown, whatever else the step holds."""
    monkeypatch.setattr(group_versions, "MAX_BYTES", 8)
    types = [pa.string(), pa.string()]
    function = WindowFunction(
        tuple(types), (Order(1),), (WindowColumn("first_value", (1,), types[1], "first OVER", WHOLE),)
    )
    rows = [(("x", "aaaa"), 2, 1), (("x", "b"), 3, 2), (("x", "b"), 4, -2), (("y", "cc"), 2, 1), (("y", "cc"), 4, 1)]
    result = run(tmp_path, np.random.default_rng(0), spec_of(function, types, (0,), always=False), rows, [2, 6])
    error, x, y = ((None, None, None), '{"code":"RESULT_TOO_LARGE","expression":"first OVER"}'), "aaaa", "cc"
    assert result == {
        (("x", x, x), None, 2): 1,
        (("x", x, x), None, 3): -1,
        (*error, 3): 1,
        (*error, 4): -1,
        (("x", x, x), None, 4): 1,
        (("y", y, y), None, 2): 1,
        (("y", y, y), None, 4): 1,
    }
