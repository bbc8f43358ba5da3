"""Changes whose files are read twice: the table is what the Delta table is, also where rows have much in common."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.storage.delta.delta_logs import VECTORS, data_file, entry, field, metadata, removal, with_vector
from tests.storage.delta.delta_tables import check, ingester, spec_of, tick
from tests.storage.ingestion_samples import oks
from tidemark_protocol.plan.ingestion import DeltaTable
from tidemark_replica.storage.delta import changes, reading
from tidemark_replica.storage.delta.cancellation import SumsWrong, uncancelled

ROWS = 2000


@pytest.fixture(autouse=True)
def read_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small files are read twice, as large ones are."""
    monkeypatch.setattr(changes, "TWICE_BYTES", 0)
    monkeypatch.setattr(reading, "BATCH_ROWS", 500)


def vectors(sign: int) -> list[Any]:
    values = np.random.default_rng(1).normal(size=(ROWS, 16)).astype(np.float32)
    return [pa.array([(values[i] * (sign if i % 100 == 0 else 1)).tobytes() for i in range(ROWS)], pa.binary())]


def pairs(sign: int) -> list[Any]:
    """Two integers, of which both halves change their signs."""
    flips = np.where(np.arange(ROWS) % 100 == 0, 0 if sign > 0 else -0x7FFFFFFF80000000, 0)
    numbers = np.random.default_rng(1).integers(0, 2**62, (2, ROWS))
    return [pa.array(numbers[0] ^ flips), pa.array(numbers[1] ^ flips)]


def doubles(sign: int) -> list[Any]:
    signs = np.where(np.arange(ROWS) % 100 == 0, sign, 1)
    return [pa.array(each * signs) for each in np.random.default_rng(1).normal(size=(2, ROWS))]


def texts(sign: int) -> list[Any]:
    """With a period of four bytes, different ones for each row."""
    return [pa.array([f"{i:03}{'p' if sign < 0 and i % 100 == 0 else '0'}"[-4:] * 4 for i in range(ROWS)])]


@pytest.mark.parametrize("made", [vectors, pairs, doubles, texts])
def test_rows_that_change_alike(made: Any, tmp_path: Path) -> None:
    path = str(tmp_path / "up")

    def table(sign: int) -> pa.Table:
        columns = made(sign)
        return pa.table([pa.array(range(ROWS)), *columns], ["id", *"ab"[: len(columns)]])

    write_deltalake(path, table(1))
    spec = spec_of(DeltaTable("t", path, tuple(table(1).column_names)))
    one = ingester(tmp_path, spec)
    one.recover()
    tick(one, 1000)
    write_deltalake(path, table(-1), mode="overwrite")
    tick(one, 2000)

    check(tmp_path, spec)


def test_a_table_whose_reads_differ_stops_by_name_until_it_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other table goes on."""
    paths = {name: str(tmp_path / f"up-{name}") for name in ("good", "bad")}

    def write(sign: int) -> None:
        for name, path in paths.items():
            rows = pa.table({"id": range(ROWS), name: [i if i % 100 else i * sign for i in range(ROWS)]})
            write_deltalake(path, rows, mode="overwrite")

    def differing(parts: Any, columns: Any, rows: int) -> Any:
        yield from uncancelled(parts, columns, rows)
        if "bad" in columns:
            raise SumsWrong("other rows")

    write(1)
    spec = spec_of(*(DeltaTable(name, path, ("id", name)) for name, path in paths.items()))
    one = ingester(tmp_path, spec)
    one.recover()
    tick(one, 1000)
    write(-1)
    with monkeypatch.context() as patched:
        patched.setattr(changes, "uncancelled", differing)
        tick(one, 2000)
        assert dict(one._source.stop_reasons()) == {"bad": "FilesDiffer: table bad: version 1: other rows"}
        assert sum(row[1] < 0 for row in oks(tmp_path, "good")) == ROWS // 100 - 1  # type: ignore[operator]
        assert all(row[1] >= 0 for row in oks(tmp_path, "bad"))  # type: ignore[operator]
        assert one._source.retries()
    again = ingester(tmp_path, spec, term=2)
    again.recover()
    tick(again, 3000)

    check(tmp_path, spec)


DECIMAL = pa.decimal128(18, 2)
ARRAY = {"type": "array", "elementType": "decimal(18,2)", "containsNull": True}


@pytest.mark.parametrize("value", ["decimal", "no array", "empty array"])
def test_a_deletion_vector_that_changes_one_batch(value: str, tmp_path: Path) -> None:
    """The other batches have no rows that change; arrays without elements have no decimals."""
    path = tmp_path / "up"
    if value == "decimal":
        type, values = "decimal(18,2)", pa.array([Decimal(i) for i in range(ROWS)], DECIMAL)
    else:
        type = ARRAY
        values = pa.array([None if value == "no array" else []] * ROWS, pa.list_(DECIMAL))
    add = data_file(path, "f.parquet", pa.table({"id": pa.array(range(ROWS)), "d": values}))
    entry(path, 0, VECTORS, metadata("x", [field("id", "long"), field("d", type)]), add)
    one = ingester(tmp_path, spec_of(DeltaTable("t", str(path), ("id", "d"))))
    one.recover()
    tick(one, 1000)
    entry(path, 1, removal(add), with_vector(add, [1, 3]))
    tick(one, 2000)

    assert sorted(row[0] for row in oks(tmp_path, "t")) == [0, 2, *range(4, ROWS)]
