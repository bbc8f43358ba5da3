"""A partitioned table has the view's rows at each version, each of them in a file of its partition and its prefix."""

from __future__ import annotations

import datetime
import json
import random
from collections import Counter
from dataclasses import replace
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.published.test_oracle_change_data_feed import check
from tests.published.test_publication import SCHEMA, Row, View, contents, times_of_versions
from tidemark_persist import DIFF, TIME, create_or_open
from tidemark_protocol.ids import Time
from tidemark_replica.sinks.published import changed_files, partitions, publication
from tidemark_replica.sinks.published.hash_prefix import hashes, have_prefix
from tidemark_replica.sinks.published.partitions import PartitionLayout, PartitionsNotSupported
from tidemark_replica.sinks.published.publication import TablePublication
from tidemark_replica.sinks.published.published_table import open_table


class PartitionedView(View):
    """A view without empty texts."""

    def row(self) -> Row:
        k, name, price, tags = super().row()
        return k, name or None, price, tags

    def partitioned(self, folder: Path, by: tuple[str, ...], file_bytes: int, feed: bool = False) -> TablePublication:
        of = self.publication(folder, file_bytes)
        return replace(of, options=replace(of.options, partition_by=by, change_data_feed=feed))


def check_files(of: TablePublication) -> set[str]:
    """Each live file has rows of its partition alone, without the columns of it. Returns the prefixes."""
    table = open_table(of.options)
    assert table is not None
    by = of.options.partition_by
    for file in table.files:
        rows = pq.read_table(f"{of.options.location}/{file.path}", partitioning=None)
        assert rows.column_names == [name for name in SCHEMA.names if name not in by]
        assert rows.num_rows == file.rows
        whole = partitions.with_partition(rows, by, file.partition, SCHEMA)
        assert have_prefix(hashes(whole), file.prefix).all(), file
    return {file.prefix for file in table.files}


@pytest.mark.parametrize("by", [("name",), ("k", "name"), ("k",)], ids=",".join)
@pytest.mark.parametrize("seed", range(4))
def test_each_version_has_the_rows_of_its_time(
    tmp_path: Path, seed: int, by: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random histories, with a change data feed and without one; all contents are written anew now and then."""
    view, chance = PartitionedView(tmp_path, seed, keys=5), random.Random(seed)
    monkeypatch.setattr(changed_files, "FILES_PER_PREFIX_MAX", chance.choice([1, 3]))
    monkeypatch.setattr(publication, "REBUILD_ROWS", chance.choice([20, 1_000_000]))
    feed, rebuilt = bool(seed % 2), set[int]()
    for _ in range(7):
        of = view.partitioned(tmp_path, by, chance.choice([500, 2_500, 1 << 20]), feed)
        published = of.publish(Time(view.step(chance.choice([1, 5, 40]))))
        if published.anew_because:
            rebuilt.add(published.time)
        assert published.rows == view.at[published.time].total()
        check_files(of)
    if feed:
        check(tmp_path, view.at, rebuilt)
    for version, time in times_of_versions(tmp_path).items():
        assert contents(tmp_path, version) == view.at[time], f"version {version}, time {time}"


def test_a_large_partition_is_divided_and_small_ones_are_not(tmp_path: Path) -> None:
    view = PartitionedView(tmp_path, 1)
    names = ["large"] * 20_000 + [f"small {n}" for n in range(50)]
    rows: list[tuple[Row, int, int]] = [((k, name, k / 3, None), 0, 1) for k, name in enumerate(names)]
    view.append(rows, 1)
    view.at[0] = Counter(row for row, _, _ in rows)
    of = view.partitioned(tmp_path, ("name",), 20_000)
    first = of.publish(Time(0))
    assert max(map(len, check_files(of))) >= 2
    files = Counter(each["partition.name"] for each in actions(tmp_path))
    assert files.pop("large") >= 8
    assert set(files.values()) == {1}
    assert contents(tmp_path) == view.at[0]
    view.append([((20_001, "small 1", 20_001 / 3, None), 1, -1)], 2)
    second = of.publish(Time(1))
    assert (second.removed, second.added, second.anew_because) == (1, 0, "")
    assert second.rows == first.rows - 1


def actions(folder: Path) -> list[dict[str, Any]]:
    table = pa.table(DeltaTable(folder / "published").get_add_actions(flatten=True))
    return list(table.to_pylist())


def test_values_of_each_type_are_found_again(tmp_path: Path) -> None:
    """NULL, dates, booleans, negative numbers, texts with characters that paths and URLs do not have."""
    texts = [None, "a/b", "a=b", "%41", " ", "ü\n", "__HIVE_DEFAULT_PARTITION__", "../x"]
    types: list[tuple[str, pa.DataType, list[Any]]] = [
        ("day", pa.date32(), [None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
        ("yes", pa.bool_(), [None, True, False]),
        ("small", pa.int8(), [None, -128, 7]),
        ("large", pa.int64(), [None, -(1 << 63), 0]),
        ("text", pa.string(), texts),
    ]
    schema = pa.schema([*((name, type) for name, type, _ in types), ("n", pa.int32())])
    shard = create_or_open(str(tmp_path / "shard"), schema, shard_id="u1")
    chance = random.Random(1)
    rows = [tuple(chance.choice(values) for _, _, values in types) for _ in range(60)]
    columns = [pa.array(column, type) for column, (_, type, _) in zip(zip(*rows, strict=True), types, strict=True)]
    number = pa.array(range(60), pa.int32())
    for time, diff in ((0, 1), (1, -1)):
        some = slice(0, 60 if not time else 30)
        arrays = [*(column[some] for column in columns), number[some]]
        count = len(arrays[0])
        more = [pa.array(np.full(count, time)), pa.array(np.full(count, diff))]
        updates = pa.table([*arrays, *more], [*schema.names, TIME, DIFF])
        shard.compare_and_append(updates, expected_upper=time, new_upper=time + 1, term=1)
        options = PartitionedView(tmp_path / str(time), 1).publication(tmp_path).options
        by = tuple(name for name, _, _ in types)
        assert TablePublication(shard, replace(options, partition_by=by)).publish(Time(time)).rows == 60 - 30 * time
        table = DeltaTable(tmp_path / "published")
        found = pa.table(QueryBuilder().register("t", table).execute("SELECT * FROM t ORDER BY n").read_all())
        assert [tuple(row.values())[:-1] for row in found.select(schema.names).to_pylist()] == rows[30 * time :]


def test_an_empty_text_is_refused(tmp_path: Path) -> None:
    """It would become NULL. The table keeps its rows."""
    view = PartitionedView(tmp_path, 1)
    of = view.partitioned(tmp_path, ("name",), 1000)
    time = Time(view.step(10))
    of.publish(time)
    view.append([((1, "", None, None), view.upper, 1)], view.upper + 1)
    with pytest.raises(PartitionsNotSupported, match=r"nullif\(name, ''\)"):
        of.publish(Time(view.upper - 1))
    assert contents(tmp_path) == view.at[time]


def test_a_row_that_is_corrected_is_not_refused(tmp_path: Path) -> None:
    """An empty text, and a date without a text: the history has them, the view does not any more."""
    schema = pa.schema([pa.field("name", pa.string()), pa.field("day", pa.date32()), pa.field("n", pa.int32())])
    shard = create_or_open(str(tmp_path / "shard"), schema, shard_id="u1")
    options = replace(
        PartitionedView(tmp_path / "other", 1).publication(tmp_path).options, partition_by=("name", "day")
    )
    of, day, beyond = TablePublication(shard, options), 20_000, 3_000_000

    def append(rows: list[tuple[str, int, int]]) -> Time:
        upper = shard.refresh().upper
        names, days, diffs = zip(*rows, strict=True)
        columns = [pa.array(names), pa.array(days, pa.int32()).cast(pa.date32()), pa.array([1] * len(rows), pa.int32())]
        more = [pa.array([upper] * len(rows)), pa.array(diffs)]
        updates = pa.table([*columns, *more], [*schema.names, TIME, DIFF])
        shard.compare_and_append(updates, expected_upper=upper, new_upper=upper + 1, term=1)
        return Time(upper)

    with pytest.raises(PartitionsNotSupported, match="day has a date beyond the years"):
        of.publish(append([("a", beyond, 1), ("b", day, 1)]))
    with pytest.raises(PartitionsNotSupported, match="name has an empty text"):
        of.publish(append([("a", beyond, -1), ("", day, 1)]))
    assert not list((tmp_path / "published").rglob("*.parquet"))
    assert of.publish(append([("", day, -1), ("a", day, 1)])).rows == 2
    table = open_table(of.options)
    assert table is not None
    assert {file.partition for file in table.files} == {("a", "2024-10-04"), ("b", "2024-10-04")}


NUMBERS = ["0", "1.5", "-1.5", "-0.000000000000000001", "99999999999999999999.999999999999999999", "1E+3"]
MICROS = [0, -1, 1_717_245_015_123_456, 1_717_245_015_000_000, -62_135_596_800_000_000, 253_402_300_799_999_999]
EXACT = pa.schema(
    [
        pa.field("price", pa.decimal128(38, 18)),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("n", pa.int32()),
    ]
)


DATAFUSION_TYPES = {
    "price": "Decimal128(38, 18)",
    "at": 'Timestamp(Microsecond, Some("UTC"))',
    "local": "Timestamp(Microsecond, None)",
}


@pytest.mark.parametrize("by", [("price",), ("at",), ("local", "price", "at")], ids=",".join)
def test_decimals_and_timestamps_are_found_again(tmp_path: Path, by: tuple[str, ...]) -> None:
    """Random histories: delta-rs's engine reads the rows of each version, from a checkpoint too, and finds those of a
    value. Equal values are one partition."""
    shard, chance = create_or_open(str(tmp_path / "shard"), EXACT, shard_id="u1"), random.Random(len(by))
    options = replace(PartitionedView(tmp_path / "other", 1).publication(tmp_path).options, partition_by=by)
    now, at = Counter[tuple[Any, ...]](), dict[int, Counter[tuple[Any, ...]]]()
    for time in range(6):
        updates = []
        for _ in range(20):
            row = (
                chance.choice([None, *NUMBERS]),
                *(chance.choice([None, *MICROS]) for _ in "ab"),
                chance.randrange(3),
            )
            gone = bool(now) and chance.random() < 0.4
            updates.append((*(chance.choice([*now]) if gone else row), time, -1 if gone else 1))
            now[updates[-1][:4]] += updates[-1][5]
            now = +now
        columns = list(zip(*updates, strict=True))
        numbers = pa.array([None if n is None else Decimal(n) for n in columns[0]], EXACT.field("price").type)
        arrays = [numbers, *(pa.array(c, f.type) for c, f in zip(columns[1:4], [*EXACT][1:], strict=True))]
        table = pa.table([*arrays, *map(pa.array, columns[4:])], [*EXACT.names, TIME, DIFF])
        shard.compare_and_append(table, expected_upper=time, new_upper=time + 1, term=1)
        at[time] = Counter(now)
        assert TablePublication(shard, options, chance.choice([500, 1 << 20])).publish(Time(time)).rows == now.total()
        if time == 3:
            DeltaTable(options.location).create_checkpoint()
    for version, time in times_of_versions(tmp_path).items():
        assert exact_rows(DeltaTable(options.location, version=version)) == at[time]
    live = open_table(options)
    assert live is not None
    texts = [dict(zip(by, file.partition, strict=True)) for file in live.files]
    wanted = {tuple(exact_texts(row)[name] for name in by) for row in now}
    assert {tuple(each.values()) for each in texts} == wanted
    for row in now:
        told = exact_texts(row)
        only = " AND ".join(equality(name, told[name]) for name in by)
        found = exact_rows(DeltaTable(options.location), only)
        assert found == Counter({r: c for r, c in now.items() if all(exact_texts(r)[n] == told[n] for n in by)})


def exact_rows(table: DeltaTable, only: str = "true") -> Counter[tuple[Any, ...]]:
    """The rows of the table, with the numbers as in NUMBERS, and microseconds."""
    query = f"SELECT price, at, local, n FROM t WHERE {only}"
    found = pa.table(QueryBuilder().register("t", table).execute(query).read_all())
    texts = {Decimal(number): number for number in NUMBERS}
    columns = [[None if n is None else texts[n] for n in found.column("price").to_pylist()]]
    columns += [found.column(name).cast(pa.int64()).to_pylist() for name in ("at", "local")]
    return Counter(zip(*columns, found.column("n").to_pylist(), strict=True))


def exact_texts(row: tuple[Any, ...]) -> dict[str, str | None]:
    """The canonical texts of a row's values."""
    number = None if row[0] is None else format(Decimal(row[0]).quantize(Decimal("1E-18"), context=Context(50)), "f")
    start = datetime.datetime(1970, 1, 1)
    times = (None if m is None else start + datetime.timedelta(microseconds=m) for m in row[1:3])
    at, local = (None if t is None else t.isoformat(timespec="microseconds") for t in times)
    return {"price": number, "at": at and f"{at}Z", "local": local and local.replace("T", " ")}


def equality(name: str, text: str | None) -> str:
    if text is None:
        return f"{name} IS NULL"
    return f"{name} = arrow_cast('{text}', '{DATAFUSION_TYPES[name]}')"


@pytest.mark.parametrize("zone", [None, "UTC"])
@pytest.mark.parametrize("micros", [-62_135_596_800_000_001, 253_402_300_800_000_000])
def test_a_timestamp_beyond_the_years_of_dates_is_refused(tmp_path: Path, micros: int, zone: str | None) -> None:
    schema = pa.schema([pa.field("at", pa.timestamp("us", zone)), pa.field("n", pa.int32())])
    shard = create_or_open(str(tmp_path / "shard"), schema, shard_id="u1")
    options = replace(PartitionedView(tmp_path / "other", 1).publication(tmp_path).options, partition_by=("at",))
    times = pa.array([micros, 0], pa.int64()).cast(schema.field("at").type)
    updates = pa.table([times, pa.array([1, 2], pa.int32()), [0, 0], [1, 1]], [*schema.names, TIME, DIFF])
    shard.compare_and_append(updates, expected_upper=0, new_upper=1, term=1)
    with pytest.raises(PartitionsNotSupported, match="column at has a timestamp beyond the years 1 to 9999"):
        TablePublication(shard, options).publish(Time(0))


def test_partitions_that_are_gone_do_not_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "PARTITIONS_MAX", 5)
    view = PartitionedView(tmp_path, 1)
    rows: list[Row] = [(k, None, None, None) for k in range(9)]
    view.append([(row, 0, 1) for row in rows], 1)
    view.append([(row, 1, -1) for row in rows[5:]], 2)
    assert view.partitioned(tmp_path, ("k",), 1000).publish(Time(1)).rows == 5
    monkeypatch.setattr(publication, "HISTORY_PARTITIONS_MAX", 8)
    with pytest.raises(PartitionsNotSupported, match="its history more than 8"):
        view.partitioned(tmp_path, ("name", "k"), 1000).publish(Time(1))


def test_an_update_does_not_make_too_many_partitions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is refused when it comes, and not at the next time that all contents are written anew."""
    monkeypatch.setattr(publication, "PARTITIONS_MAX", 5)
    view = PartitionedView(tmp_path, 1)
    view.append([((k, None, None, None), 0, 1) for k in range(5)], 1)
    of = view.partitioned(tmp_path, ("k",), 1000)
    of.publish(Time(0))
    view.append([((0, None, None, None), 1, -1), ((5, None, None, None), 1, 1)], 2)
    assert of.publish(Time(1)).anew_because == "there may be more than 5 partitions"
    view.append([((6, None, None, None), 2, 1)], 3)
    with pytest.raises(PartitionsNotSupported, match="more than 5 partitions by k"):
        of.publish(Time(2))
    view.append([((6, None, None, None), 3, -1), ((1, None, None, None), 3, 1)], 4)
    assert of.publish(Time(3)).anew_because == ""


def test_too_many_partitions_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publication, "PARTITIONS_MAX", 5)
    view = PartitionedView(tmp_path, 1)
    with pytest.raises(PartitionsNotSupported, match="more than 5 partitions by k"):
        view.partitioned(tmp_path, ("k",), 1000).publish(Time(view.step(40)))
    assert not list((tmp_path / "published").rglob("*.parquet"))


def test_other_partition_columns_write_the_table_anew(tmp_path: Path) -> None:
    view = PartitionedView(tmp_path, 1)
    for by in ((), ("k",), ("k", "name"), ()):
        time = Time(view.step(10))
        of = view.partitioned(tmp_path, by, 1000)
        assert of.publish(time).anew_because
        assert contents(tmp_path) == view.at[time]
        assert DeltaTable(tmp_path / "published").metadata().partition_columns == list(by)
        check_files(of)


@pytest.mark.parametrize(("before", "after"), [((), ("name",)), (("name",), ())], ids=["on", "off"])
def test_the_feed_begins_anew_with_other_partition_columns(
    tmp_path: Path, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    """A follower takes the rows of the version that the history names so, and the feed from the next one on; the feed
    before it is read by the table before it."""
    view = PartitionedView(tmp_path, 3)
    view.partitioned(tmp_path, before, 1000, feed=True).publish(Time(view.step(20)))
    old = Time(view.step(20))
    view.partitioned(tmp_path, before, 1000, feed=True).publish(old)
    new, last = Time(view.step(20)), Time(view.step(20))
    view.partitioned(tmp_path, after, 1000, feed=True).publish(new)
    view.partitioned(tmp_path, after, 1000, feed=True).publish(last)
    operations = {each["version"]: each["operation"] for each in DeltaTable(tmp_path / "published").history()}
    (anew,) = (version for version, name in operations.items() if name == "CREATE OR REPLACE TABLE")
    assert contents(tmp_path, anew) == view.at[new]
    there = view.at[new].copy()
    there.update(folded(tmp_path, anew + 1))
    assert +there == view.at[last]
    assert +folded(tmp_path, 0, anew - 1) == view.at[old]


def folded(folder: Path, start: int, version: int | None = None) -> Counter[Row]:
    """The sum of the feed of a version of the table. A row's count may be negative."""
    table = DeltaTable(folder / "published", version=version)
    found = pa.table(table.load_cdf(starting_version=start, ending_version=version).read_all())
    sums = Counter[Row]()
    for row in found.to_pylist():
        values = (row["k"], row["name"], row["price"], None if row["tags"] is None else tuple(row["tags"]))
        sums[values] += 1 if row["_change_type"] == "insert" else -1
    return sums


@pytest.mark.parametrize("seed", range(20))
def test_a_layout_has_few_shares_and_every_row_has_one(seed: int) -> None:
    chance = random.Random(seed)
    counts = {(str(n),): int(chance.paretovariate(0.5)) for n in range(chance.choice([1, 3, 400]))}
    size = sum(counts.values()) * 10
    layout = PartitionLayout.of(("p",), counts, size, chance.choice([1, 1000, size * 2]))
    assert layout.shares <= 4 * partitions.SHARES
    some = [p for (p,), count in counts.items() for _ in range(min(count, 50))]
    rows = pa.table({"p": some, "n": list(range(len(some)))})
    shares = layout.share_of(rows)
    for share in np.unique(shares):
        for partition, of in partitions.partitions(rows.filter(pa.array(shares == share)), ("p",)):
            assert have_prefix(hashes(of), layout.prefix(partition, int(share))).all()
    assert 0 <= shares.min() <= shares.max() < layout.shares
    assert json.dumps(sorted(counts)) == json.dumps(sorted(layout._first))
