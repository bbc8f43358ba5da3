"""Pruning skips only rows that do not meet a condition; all other rows and every error row are read."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from operator import eq, ge, gt, le, lt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark_persist import EMPTY, Condition, FilePart, Time, condition, read_part, write_staged
from tidemark_persist.files import staging

MEETS: dict[str, Callable[[Any, Any], bool]] = {"=": eq, "<": lt, "<=": le, ">": gt, ">=": ge}
DAY, MOMENT = date(1969, 12, 30), datetime(1969, 12, 31, 23, 59, 59, tzinfo=UTC)
VALUES: dict[pa.DataType, Callable[[int], Any]] = {
    pa.int8(): lambda n: n,
    pa.int16(): lambda n: n * 900,
    pa.int32(): lambda n: n * 10**8,
    pa.int64(): lambda n: n * (2**63 // 21),
    pa.date32(): lambda n: DAY + timedelta(days=n),
    pa.timestamp("us", "UTC"): lambda n: MOMENT + timedelta(microseconds=n),
    pa.timestamp("us"): lambda n: (MOMENT + timedelta(microseconds=n)).replace(tzinfo=None),
    pa.string(): lambda n: chr(0x1F600 + n) if n % 3 == 0 else "é" * (n + 11) if n % 3 == 1 else str(n),
    pa.decimal128(9, 2): lambda n: Decimal(n).scaleb(-1),
    pa.decimal128(38, 10): lambda n: Decimal(n * 10**27).scaleb(-10),
}
ONLY_EQUAL = (pa.string(), pa.decimal128(9, 2), pa.decimal128(38, 10))
AT, UNTIL = Time(3), Time(7)


def staged(folder: Path, columns: dict[str, pa.Array], errors: Sequence[bool], times: Sequence[int]) -> FilePart:
    """Rows in groups of three; where there is an error the columns are NULL."""
    rows = len(errors)
    blank = {
        n: pa.array([None if e else v for e, v in zip(errors, c.to_pylist(), strict=True)], c.type)
        for n, c in columns.items()
    }
    error = pa.array(['{"code": "E"}' if e else None for e in errors], pa.string())
    table = pa.table({**blank, "__time": pa.array(times, pa.int64()), "__diff": pa.array([1] * rows), "__error": error})
    folder.mkdir(exist_ok=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(staging, "ROW_GROUP_ROWS", 3)
        file = write_staged(str(folder), table)
    assert file is not None
    return FilePart(str(folder), file.path, AT, UNTIL, file.rows, file.size)


def read(part: FilePart, conditions: Sequence[Condition], turn: tuple[int, int] = (0, 1)) -> list[tuple[Any, ...]]:
    """Few rows are read whole: these are many."""
    batches = read_part(part, batch_rows=1, conditions=conditions, turn=turn)
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


@pytest.mark.parametrize("type", VALUES, ids=str)
@pytest.mark.parametrize("is_sorted", [True, False])
def test_agree_rows_that_meet_a_condition_are_read(tmp_path: Path, type: pa.DataType, is_sorted: bool) -> None:
    """Every row that meets it and every error, of the times asked for; of sorted rows, others are not."""
    rng, spared = random.Random(f"{type}{is_sorted}"), 0
    for case in range(12):
        numbers = (
            sorted(rng.choices(range(-10, 11), k=30), key=VALUES[type])
            if is_sorted
            else rng.choices(range(-10, 11), k=30)
        )
        values = [None if rng.random() < 0.2 else VALUES[type](n) for n in numbers]
        if case % 3 == 0:
            values[3:6] = [None] * 3
        errors = [rng.random() < 0.03 * (case % 2) for _ in values]
        part = staged(tmp_path / str(case), {"c": pa.array(values, type)}, errors, rng.choices(range(1, 9), k=30))
        whole = read(part, ())
        for operator, meets in MEETS.items():
            if operator != "=" and type in ONLY_EQUAL:
                continue
            value = VALUES[type](rng.randint(-11, 10)) if type != pa.int64() else rng.choice([-(2**63), 0, 2**63 - 1])
            pushed = condition("c", type, operator, value)
            assert pushed is not None
            found = [row for turn in range(2) for row in read(part, (pushed,), (turn, 2))]
            wanted = [row for row in whole if row[3] is not None or (row[0] is not None and meets(row[0], value))]
            assert sorted(map(str, wanted)) == sorted(
                str(row) for row in found if row[3] is not None or (row[0] is not None and meets(row[0], value))
            )
            assert set(map(str, found)) <= set(map(str, whole))
            spared += len(whole) - len(found)
    assert not is_sorted or spared > (50 if type in ONLY_EQUAL else 100)


def test_several_conditions_are_met_together(tmp_path: Path) -> None:
    """A group that one of them excludes is not read."""
    low, high = pa.array(range(30), pa.int32()), pa.array(range(100, 130), pa.int32())
    part = staged(tmp_path, {"a": low, "b": high}, [False] * 30, [5] * 30)
    conditions = [condition("a", pa.int32(), ">", 11), condition("b", pa.int32(), "<=", 117)]
    assert {row[0] for row in read(part, [c for c in conditions if c])} == set(range(12, 18))


@pytest.mark.parametrize(
    ("type", "operator", "value"),
    [
        (pa.float64(), ">", 1.0),
        (pa.string(), ">", "a"),
        (pa.decimal128(9, 2), ">", 1),
        (pa.bool_(), "=", True),
        (pa.binary(), "=", b""),
        (pa.int64(), "!=", 1),
        (pa.int64(), "<=>", 1),
    ],
)
def test_where_statistics_do_not_surely_tell_is_no_condition(type: pa.DataType, operator: str, value: Any) -> None:
    """NaN is in none, texts may be cut short; other operators are true of NULL, or of almost all."""
    assert condition("c", type, operator, value) is None


def test_a_column_of_another_type_is_read(tmp_path: Path) -> None:
    """The file's statistics are of its own type: a date's days are no microseconds."""
    part = staged(tmp_path, {"c": pa.array(range(30), pa.int32())}, [False] * 30, [5] * 30)
    pushed = condition("c", pa.date32(), ">", date(2000, 1, 1))
    absent = condition("d", pa.int32(), ">", 100)
    assert pushed is not None
    assert absent is not None
    assert len(read(part, (pushed, absent))) == 30


def test_a_field_of_a_struct_is_not_taken_for_a_column(tmp_path: Path) -> None:
    """Both have the path `a.b` in the file."""
    structs = pa.array([{"b": n} for n in range(30)], pa.struct([("b", pa.int32())]))
    for name, columns in {
        "before": {"a": structs, "a.b": pa.array(range(100, 130), pa.int32())},
        "behind": {"a.b": pa.array(range(100, 130), pa.int32()), "a": structs},
    }.items():
        part = staged(tmp_path / name, columns, [False] * 30, [5] * 30)
        for operator, value in ((">", 99), ("<", 50)):
            pushed = condition("a.b", pa.int32(), operator, value)
            assert pushed is not None
            assert len(read(part, (pushed,))) == 30


def test_rows_outside_the_times_are_not_read(tmp_path: Path) -> None:
    """Times are looked at besides: before the first and from the last on nothing is read."""
    part = staged(tmp_path, {"c": pa.array(range(30), pa.int32())}, [False] * 30, list(range(10)) * 3)
    pushed = condition("c", pa.int32(), ">=", 0)
    assert pushed is not None
    assert read(part, (pushed,)) == read(part, ())
    assert {row[1] for row in read(part, (pushed,))} == set(range(AT, UNTIL))
    assert AT < EMPTY
