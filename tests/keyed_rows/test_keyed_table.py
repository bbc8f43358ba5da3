"""Changes of keyed rows against a dictionary: the table's shard always has the last row of each key, once."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark_persist import DIFF, ERROR, TIME, Shard, create_or_open
from tidemark_replica.storage.keyed_rows import table as keyed_table
from tidemark_replica.storage.keyed_rows.changes import GONE, KEPT
from tidemark_replica.storage.keyed_rows.table import KeyedTable

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("x", pa.float64()), ("tags", pa.list_(pa.string()))])
KEYS = ("id", "part")
CHANGES = pa.schema([*SCHEMA, pa.field(GONE, pa.bool_()), pa.field(f"{KEPT}tags", pa.bool_())])
FLOATS = (0.0, -0.0, 1.5, math.nan, None)
Row = tuple[int, str, float | None, tuple[str, ...] | None]


def test_random_histories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small shares, a new index now and then (another process), ticks that no binding names, errors in the shard."""
    monkeypatch.setattr(keyed_table, "SHARE_BYTES", 1000)
    random_ = random.Random(7)
    shard = create_or_open(str(tmp_path / "t"), SCHEMA, shard_id="t")
    table, expected = KeyedTable(shard, KEYS), dict[tuple[int, str], Row]()
    for time in range(60):
        changes, after = history(random_, expected)
        pieces = [pa.Table.from_pylist(changes[i : i + 7], CHANGES) for i in range(0, len(changes), 7)]
        updates = list(table.updates(pieces, 50 * len(changes), unexpected))
        if random_.random() < 0.2:
            table.discard()
            continue
        table.bound(time + 1)
        append(shard, time, [*updates, *([error(time)] if time % 9 == 0 else [])])
        expected = after
        if random_.random() < 0.2:
            table.close()
            table = KeyedTable(shard, KEYS)
        assert contents(shard) == sorted(map(repr, expected.values()))
    table.close()


def test_the_index_is_built_again_where_the_shard_is_elsewhere(tmp_path: Path) -> None:
    shard = create_or_open(str(tmp_path / "t"), SCHEMA, shard_id="t")
    table = KeyedTable(shard, KEYS)
    append(shard, 0, list(table.updates([change(1, 1.0)], 10, unexpected)))
    table.bound(1)
    append(shard, 1, list(KeyedTable(shard, KEYS).updates([change(1, 2.0)], 10, unexpected)))  # another process
    append(shard, 2, list(table.updates([change(1, 3.0)], 10, unexpected)))
    assert contents(shard) == [repr((1, "a", 3.0, None))]


def test_kept_columns_of_a_row_that_is_not_there(tmp_path: Path) -> None:
    """It never was there; or a change before deleted it, whether it was in the shard or came in the same tick."""
    shard = create_or_open(str(tmp_path / "t"), SCHEMA, shard_id="t")
    table = KeyedTable(shard, KEYS)
    append(shard, 0, list(table.updates([change(1, 1.0)], 10, unexpected)))
    table.bound(1)
    gone, kept = row_change((0, "a", None, None)) | {GONE: True}, row_change((0, "a", 2.0, None), kept=True)
    rows = [kept | {"id": 3}, gone | {"id": 1}, kept | {"id": 1}, row_change((2, "a", 1.0, ("v",)))]
    rows += [gone | {"id": 2}, kept | {"id": 2}]
    changes = pa.Table.from_pylist(rows, CHANGES)
    without: list[pa.Table] = []
    append(shard, 1, list(table.updates([changes], 10, without.append)))
    assert sorted(pa.concat_tables(without).column("id").to_pylist()) == [1, 2, 3]
    assert contents(shard) == []


def unexpected(without: pa.Table) -> None:
    raise AssertionError(f"{without.num_rows} changes keep columns of rows that are not there")


def history(
    random_: random.Random, before: Mapping[tuple[int, str], Row]
) -> tuple[list[dict[str, Any]], dict[Any, Row]]:
    """Changes of one tick, in order, and the rows after it."""
    rows, changes = dict(before), []
    for _ in range(random_.randrange(1, 80)):
        key = random_.randrange(30), random_.choice("ab")
        tags = random_.choice([None, (), ("u", "v"), (str(random_.random()),)])
        row = (*key, random_.choice(FLOATS), tags)
        if random_.random() < 0.3:
            rows.pop(key, None)
            changes.append(
                dict(zip(SCHEMA.names, (*key, None, None), strict=True)) | {GONE: True, f"{KEPT}tags": False}
            )
        elif key in rows and random_.random() < 0.4:
            changes.append(row_change((*key, row[2], None), kept=True))
            rows[key] = (*key, row[2], rows[key][3])
        else:
            changes.append(row_change(row))
            rows[key] = row
    return changes, {key: (*row[:2], 0.0 if row[2] == 0 else row[2], row[3]) for key, row in rows.items()}


def row_change(row: Row, kept: bool = False) -> dict[str, Any]:
    return dict(zip(SCHEMA.names, row, strict=True)) | {GONE: False, f"{KEPT}tags": kept}


def change(id: int, x: float) -> pa.Table:
    return pa.Table.from_pylist([row_change((id, "a", x, None))], CHANGES)


def error(time: int) -> pa.Table:
    names = SCHEMA.names
    return pa.table({**{n: pa.nulls(1, SCHEMA.field(n).type) for n in names}, DIFF: [1], ERROR: [f"E: {time}"]})


def append(shard: Shard, time: int, tables: list[pa.Table]) -> None:
    timed = pa.concat_tables(
        [t.append_column(TIME, pa.repeat(pa.scalar(time, pa.int64()), t.num_rows)) for t in tables],
        promote_options="default",
    )
    upper = shard.refresh().upper
    shard.compare_and_append(timed, expected_upper=upper, new_upper=time + 1, term=1)


def contents(shard: Shard) -> list[str]:
    def rows() -> Iterator[str]:
        for row in shard.snapshot(shard.refresh().upper - 1).to_pylist():
            if row[ERROR] is None:
                assert row[DIFF] == 1
                tags = None if row["tags"] is None else tuple(row["tags"])
                yield repr((row["id"], row["part"], row["x"], tags))

    return sorted(rows())
