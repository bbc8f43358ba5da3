"""The Iceberg table of a partitioned view has its partitions: readers take the values that no file has from the
manifests, and find rows by them.
"""

from __future__ import annotations

import datetime
import random
from collections import Counter
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.expressions import EqualTo, IsNull
from pyiceberg.transforms import IdentityTransform

from tests.published.iceberg.rest_catalogue import RestCatalogue, counted
from tests.published.iceberg.test_iceberg_mirror import Mirrored
from tests.published.test_oracle_partitions import PartitionedView
from tidemark_persist import DIFF, TIME, create_or_open
from tidemark_protocol.ids import ShardId, Time
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.published.iceberg_partitions import PARTITION_BY, partition_spec
from tidemark_replica.sinks.published.iceberg_schema import iceberg_schema
from tidemark_replica.sinks.published.publication import TablePublication

pytestmark = pytest.mark.iceberg
TIMES = [
    datetime.datetime(1, 1, 1),
    datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999),
    datetime.datetime(2026, 11, 29, 8),
    datetime.datetime(9999, 12, 31, 23, 59, 59, 999_999),
]


class Partitioned(Mirrored):
    """A view of few keys and no empty text."""

    def __init__(self, catalogue: RestCatalogue, folder: Path, by: tuple[str, ...], seed: int = 1) -> None:
        super().__init__(catalogue, folder, seed)
        self.view = PartitionedView(folder / "partitioned", seed, keys=5)
        self.by(*by)

    def by(self, *columns: str) -> None:
        """An edit."""
        self.options = replace(self.options, partition_by=columns, term=self.options.term + 1)

    @property
    def columns(self) -> list[str]:
        """The columns of the table's identity transforms."""
        spec, schema = self.table.spec(), self.table.schema()
        assert all(isinstance(each.transform, IdentityTransform) for each in spec.fields)
        return [schema.find_column_name(each.source_id) or "" for each in spec.fields]


@pytest.mark.parametrize("by", [("name",), ("k", "name"), ("k",)], ids=",".join)
def test_each_snapshot_has_the_rows_of_its_time(
    iceberg_catalogue: RestCatalogue, tmp_path: Path, by: tuple[str, ...]
) -> None:
    """Random histories, some times not mirrored, some contents written anew. A reader that asks for a partition finds
    its rows, and those without a value."""
    of, chance = Partitioned(iceberg_catalogue, tmp_path, by, len(by)), random.Random(len(by))
    for _ in range(7):
        at = Time(of.view.step(chance.choice([1, 5, 40])))
        if chance.random() < 0.2:
            of.view.shard.downgrade_since(at)
        of.publication(chance.choice([500, 1 << 20])).publish(at)
        if chance.random() < 0.7:
            assert of.mirror().mirror(of.contents) == at
            of.check(at)
    of.mirror().mirror(of.contents)
    assert of.columns == list(by)
    table = of.table
    assert len(table.metadata.snapshots) > 1
    for each in table.metadata.snapshots:
        assert each.summary is not None
        assert counted(of.catalogue.rows(of.name, each.snapshot_id)) == of.view.at[int(each.summary["tidemark.time"])]
    rows = of.view.at[at]
    for name in {row[1] for row in rows}:
        only = IsNull("name") if name is None else EqualTo("name", name)  # type: ignore[arg-type, call-arg]
        found = table.scan(row_filter=only).to_arrow().to_pylist()
        assert counted(found) == Counter({row: count for row, count in rows.items() if row[1] == name})
        if "name" in by:
            tasks = table.scan(row_filter=only).plan_files()
            assert {task.file.partition[by.index("name")] for task in tasks} == {name}
    names = table.scan(selected_fields=("name",)).to_arrow().column("name").to_pylist()
    assert Counter(names) == Counter(row[1] for row in rows.elements())


def test_values_of_each_type_are_found_again(iceberg_catalogue: RestCatalogue, tmp_path: Path) -> None:
    """NULL, first and last dates and timestamps, booleans, the ends of integers and decimals, texts with characters
    that paths do not have; also when files go, and others stay. A reader finds them by a filter."""
    texts = [None, "a/b", "a=b", "%41", " ", "ü\n", "__HIVE_DEFAULT_PARTITION__", "../x", "null"]
    types: list[tuple[str, pa.DataType, list[Any]]] = [
        ("day", pa.date32(), [None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(1969, 12, 31)]),
        ("yes", pa.bool_(), [None, True, False]),
        ("tiny", pa.int8(), [None, -128, 7]),
        ("large", pa.int64(), [None, -(1 << 63), (1 << 63) - 1]),
        ("text", pa.string(), texts),
        ("small", pa.int16(), [None, -32768, 32767]),
        ("plain", pa.int32(), [None, -(1 << 31), 0]),
        ("price", pa.decimal128(10, 2), [None, Decimal("0.00"), Decimal("-0.01"), Decimal("99999999.99")]),
        ("wide", pa.decimal128(38, 18), [Decimal("0E-18"), Decimal("-1E-18"), Decimal("1.500000000000000000")]),
        ("at", pa.timestamp("us", "UTC"), [None, *(each.replace(tzinfo=datetime.UTC) for each in TIMES)]),
        ("local", pa.timestamp("us"), [None, *TIMES]),
    ]
    schema = pa.schema([*((name, type) for name, type, _ in types), ("n", pa.int32())])
    chance = random.Random(1)
    rows = [tuple(chance.choice(values) for _, _, values in types) for _ in range(60)]
    for few in (types[:4], types[4:7], types[7:]):  # four partition columns are the most
        of = Mirrored(iceberg_catalogue, tmp_path / few[0][0])
        of.options = replace(of.options, partition_by=tuple(name for name, _, _ in few))
        shard = create_or_open(str(of.folder / "types"), schema, shard_id="u2")
        for time, diff in ((0, 1), (1, -1)):
            some = rows if not time else rows[:30]
            columns = [pa.array(c, t) for c, (_, t, _) in zip(zip(*some, strict=True), types, strict=True)]
            more = [pa.array(range(len(some)), pa.int32()), np.full(len(some), time), np.full(len(some), diff)]
            updates = pa.table([*columns, *more], [*schema.names, TIME, DIFF])
            shard.compare_and_append(updates, expected_upper=time, new_upper=time + 1, term=1)
            TablePublication(shard, of.options).publish(Time(time))
            of.mirror().mirror(ShardId(shard.contents_id))
            found = sorted(of.catalogue.rows(of.name), key=lambda row: row["n"])
            assert [tuple(row.values())[:-1] for row in found] == rows[30 * time :]
        for at, name, values in ((types.index(each), each[0], each[2]) for each in few):
            for value in values:
                only = IsNull(name) if value is None else EqualTo(name, value)  # type: ignore[arg-type, call-arg]
                found = of.table.scan(row_filter=only).to_arrow().to_pylist()
                assert sorted(row["n"] for row in found) == [
                    30 + n for n, row in enumerate(rows[30:]) if row[at] == value
                ]


def test_an_edit_of_the_partition_columns_replaces_the_table(iceberg_catalogue: RestCatalogue, tmp_path: Path) -> None:
    """In one commit. No snapshot of before stays; those that follow do."""
    of = Partitioned(iceberg_catalogue, tmp_path, ())
    for by in ((), ("k",), ("k", "name"), (), ("k",)):
        of.by(*by)
        of.publish()
        assert len(of.table.metadata.snapshots) == 1
        of.check(of.publish(3))
        assert of.columns == list(by)
        assert len(of.table.metadata.snapshots) == 2


def test_other_columns_of_a_partitioned_view(iceberg_catalogue: RestCatalogue, tmp_path: Path) -> None:
    """The partition column has another type, and is not the first one any more."""
    of = Partitioned(iceberg_catalogue, tmp_path, ("name",))
    of.publish()
    schema = pa.schema([pa.field("new", pa.string()), pa.field("name", pa.int64())])
    shard = create_or_open(str(tmp_path / "second"), schema, shard_id="u2")
    row = {"new": ["x", "y"], "name": [7, None], "__time": [0, 0], "__diff": [2, 1]}
    shard.compare_and_append(pa.table(row), expected_upper=0, new_upper=1, term=1)
    of.by("name")
    TablePublication(shard, of.options).publish(Time(0))
    of.mirror().mirror(ShardId(shard.contents_id))
    found = sorted(of.catalogue.rows(of.name), key=lambda row: str(row["new"]))
    assert found == [{"new": "x", "name": 7}] * 2 + [{"new": "y", "name": None}]
    assert (of.columns, len(of.table.metadata.snapshots)) == (["name"], 1)


def test_partitions_that_another_program_changes_are_taken_back(
    iceberg_catalogue: RestCatalogue, tmp_path: Path
) -> None:
    """History stays where the files are partitioned as before."""
    of = Partitioned(iceberg_catalogue, tmp_path, ("name",))
    of.publish()
    with of.table.update_spec() as update:
        update.add_identity("k")
    with of.table.update_spec() as update:
        update.remove_field("name_1000")
    of.check(of.publish())
    assert of.columns == ["name"]
    assert len(of.table.metadata.snapshots) == 2
    of.table.append(of.table.scan().to_arrow().slice(0, 3))
    of.mirror().mirror(of.contents)
    of.check(of.view.upper - 1)


def test_a_table_of_before_there_were_partitions_keeps_its_history(
    iceberg_catalogue: RestCatalogue, tmp_path: Path
) -> None:
    of = Partitioned(iceberg_catalogue, tmp_path, ())
    of.publish()
    with of.table.transaction() as transaction:
        transaction.remove_properties(PARTITION_BY)
    of.check(of.publish())
    assert of.table.metadata.properties[PARTITION_BY] == "[]"
    assert len(of.table.metadata.snapshots) == 2


@pytest.mark.parametrize("type", [pa.float32(), pa.float64(), pa.binary()], ids=str)
def test_a_type_without_exact_values_is_refused_by_name(type: pa.DataType) -> None:
    """Delta tables are not partitioned by these types either."""
    schema = iceberg_schema(pa.schema([pa.field("n", pa.int64()), pa.field("at", type)]))
    with pytest.raises(DestinationStopped, match=r"column at is of type .* take it out of partitionBy") as refused:
        partition_spec(schema, ("n", "at"))
    assert refused.value.reason == "IcebergNotPossible"
