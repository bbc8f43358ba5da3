"""Values of answers as a terminal and JSON show them: also those that Python, or JSON, has no form for."""

from __future__ import annotations

import io
import json
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tidemark.answers import read_header
from tidemark.errors import GatewayFailed
from tidemark_cli.commands.query import _print
from tidemark_cli.output.values import cell
from tidemark_protocol.pb.gateway_pb2 import QueryHeader, QueryReply
from tidemark_protocol.rows.values import plain, values

AFTER_9999 = 253_402_300_800_000_000
UTC = pa.timestamp("us", "UTC")


def rows_as_json(names: list[str], *columns: pa.Array) -> Any:
    out = io.StringIO()
    header = QueryHeader(column_names=names, column_types=[str(column.type) for column in columns])
    _print(header, iter([pa.record_batch(list(columns), names=names)]), "json", out)

    def no_json(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(out.getvalue(), parse_constant=no_json)["rows"]


def test_places_in_the_queue_come_before_the_header() -> None:
    """Each replaces the one before."""
    places = [f"waiting at place {at} of 8" for at in (8, 5, 1)]
    replies = (*(QueryReply(waiting=place) for place in places), QueryReply(header=QueryHeader(as_of=7)))
    shown: list[str] = []
    header = read_header(iter(replies), shown.append)
    assert (header.as_of, shown) == (7, places)
    with pytest.raises(GatewayFailed, match="no header"):
        read_header(iter(replies[:2]), shown.append)


@pytest.mark.parametrize(
    ("value", "shown", "as_json"),
    [
        (float("nan"), "NaN", "NaN"),
        (float("-inf"), "-Infinity", "-Infinity"),
        (0.5, "0.5", 0.5),
        (Decimal("0E-8"), "0.00000000", "0.00000000"),
        (Decimal("1E-7"), "0.0000001", "0.0000001"),
        (b"\x00\xff", "00ff", "00ff"),
        ([{"a": float("inf")}, None], '[{"a": "Infinity"}, null]', [{"a": "Infinity"}, None]),
        (True, "true", True),
        (None, "NULL", None),
    ],
    ids=str,
)
def test_values_without_a_json_form_are_text(value: Any, shown: str, as_json: Any) -> None:
    """Also within arrays and structs."""
    assert (cell(value), plain(value)) == (shown, as_json)
    json.dumps(plain(value), allow_nan=False)


@pytest.mark.parametrize("micros", [AFTER_9999, -62_135_596_800_000_001, 2**62])
@pytest.mark.parametrize("type", [pa.timestamp("us"), UTC], ids=str)
def test_times_of_any_year_are_shown(micros: int, type: pa.DataType) -> None:
    """Python has the years from 1 to 9999, and Spark more; those beside them are none the worse."""
    at = pa.array([micros, None], type)
    assert len({shown for shown in values(at) if isinstance(shown, str)}) == 1
    listed = pa.array([[micros]], pa.list_(type))
    struct = pa.array([{"at": micros, "n": 1}], pa.struct({"at": type, "n": "int32"}))
    (row,) = rows_as_json(["a", "b"], listed, struct)
    assert row == {"a": [values(at)[0]], "b": {"at": values(at)[0], "n": 1}}


def test_a_date_after_all_that_python_knows_is_shown() -> None:
    """To the day."""
    assert values(pa.array([2_932_897], pa.date32())) == ["10000-01-01"]
    assert values(pa.array([AFTER_9999], pa.timestamp("us"))) == ["10000-01-01 00:00:00"]


@pytest.mark.parametrize(
    ("type", "first", "far"),
    [
        (pa.timestamp("us"), "1970-01-01 00:00:00", "10000-01-01 00:00:00"),
        (UTC, "1970-01-01 00:00:00+00:00", "10000-01-01 00:00:00+00:00"),
    ],
    ids=str,
)
def test_the_text_of_a_time_does_not_depend_on_its_neighbours(type: pa.DataType, first: str, far: str) -> None:
    """A time of both batches of an answer has one text; fractions are printed where there are some."""
    times = pa.array([0, AFTER_9999, None, AFTER_9999 + 1, 1], type)
    zone = first[19:]
    shown = [first, far, None, f"{far[:20]}.000001{zone}", f"{first[:19]}.000001{zone}"]
    assert plain(values(times)) == shown
    assert plain(values(times.slice(0, 1))) == [first]
    struct = pa.StructArray.from_arrays([times, pa.array([1, 2, 3, 4, 5])], ["at", "n"])
    assert plain(values(struct)) == [{"at": text, "n": at} for at, text in enumerate(shown, 1)]
    lists = pa.ListArray.from_arrays([0, 5], times)
    assert plain(values(lists)) == [shown]


def test_json_loses_no_column() -> None:
    """JSON could have one of two columns of one name; a table shows both."""
    one, two = pa.array([1]), pa.array([2])
    assert rows_as_json(["a", "b"], one, two) == [{"a": 1, "b": 2}]
    with pytest.raises(GatewayFailed, match="two columns are called a: rename one with AS"):
        rows_as_json(["a", "a"], one, two)


def test_an_answer_without_rows_is_a_line_of_names(capsys: pytest.CaptureFixture[str]) -> None:
    """In however many batches nothing comes."""
    out, batch = io.StringIO(), pa.record_batch([pa.array([], pa.int64())], names=["a"])
    _print(QueryHeader(column_names=["a"], column_types=["bigint"]), iter([batch, batch]), "table", out)
    assert out.getvalue() == "a\n"
