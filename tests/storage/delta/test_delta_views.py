"""Views of another Tidemark, followed as what they are: updates with diffs, and not rows that are only added."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from tests.storage.delta.delta_tables import bound_versions, ingester, spec_of, tick
from tests.storage.ingestion_samples import contents
from tidemark_persist import DIFF, ERROR, TIME, MaintenancePolicy, Shard, create_or_open, open_shard
from tidemark_protocol.plan.ingestion import DeltaSource, DeltaTable
from tidemark_replica.storage.delta.inspect import tables_of
from tidemark_replica.storage.errors import SourceUnusable

Row = tuple[int | None, str | None, str | None]
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])
DIVISION = json.dumps({"code": "DIVIDE_BY_ZERO", "expression": "a / 0"})


class View:
    """A shard that another instance writes at random: rows come, go, and are errors. `rows`: how often each is there,
    with its error."""

    def __init__(self, path: Path, seed: int) -> None:
        self.draw = random.Random(seed)
        self.shard: Shard = create_or_open(str(path), SCHEMA, shard_id="view", policy=MaintenancePolicy(compact_runs=2))
        self.rows: dict[Row, int] = {}
        self.now = 0

    def step(self) -> None:
        rows: list[Row] = [*((i, n, None) for i in range(4) for n in "ab"), (None, None, DIVISION)]
        changes = []
        for row in self.draw.sample(rows, 4):
            count = self.draw.randrange(3)
            if change := count - self.rows.get(row, 0):
                changes.append((*row, change))
            self.rows[row] = count
        fields = [*SCHEMA, pa.field(ERROR, pa.string()), pa.field(DIFF, pa.int64())]
        updates = {f.name: pa.array([change[i] for change in changes], f.type) for i, f in enumerate(fields)}
        updates[TIME] = pa.array([self.now + i % 3 for i in range(len(changes))], pa.int64())
        self.shard.compare_and_append(
            pa.table(updates) if changes else None, expected_upper=self.now, new_upper=self.now + 3, term=0
        )
        self.now += 3
        if self.draw.random() < 0.3:
            self.shard.downgrade_since(self.now - 1)
            for work in self.shard.maintenance_due():
                self.shard.run_maintenance(work)


def counted(table: pa.Table) -> dict[tuple[object, ...], int]:
    return {(row["id"], row["name"], row[ERROR]): row[DIFF] for row in table.to_pylist()}


def test_oracle_a_view_is_its_contents_at_each_version(tmp_path: Path) -> None:
    """Retractions, multiplicities, errors, several times in a commit, compactions; ingesters that begin anew."""
    view = View(tmp_path / "view", 3)
    view.step()
    spec = spec_of(DeltaTable("t", str(tmp_path / "view")))
    assert [column.name for column in spec.tables[0].columns or ()] == ["id", "name"]
    one = ingester(tmp_path, spec)
    one.recover()
    for at in range(100, 3000, 100):
        tick(one, at)
        assert one._source.stop_reasons() == {}
        expected = {row: count for row, count in view.rows.items() if count}
        assert counted(contents(tmp_path, "t")) == expected
        assert counted(open_shard(str(tmp_path / "view")).snapshot(view.now - 1)) == expected
        for _ in range(view.draw.randrange(4)):
            view.step()
        if view.draw.random() < 0.3:
            one = ingester(tmp_path, spec)
            one.recover()
    assert len(bound_versions(tmp_path, "t")) > 15


def test_some_columns_of_a_view_are_followed_with_its_diffs(tmp_path: Path) -> None:
    """The columns that are named; `__time` and `__diff` are none of them."""
    view = View(tmp_path / "view", 4)
    for _ in range(5):
        view.step()
    spec = spec_of(DeltaTable("t", str(tmp_path / "view"), ("name",)))
    one = ingester(tmp_path, spec)
    one.recover()
    tick(one, 100)
    expected: dict[object, int] = {}
    for (_, name, error), count in view.rows.items():
        expected[(name, error)] = expected.get((name, error), 0) + count
    found = {(row["name"], row[ERROR]): row[DIFF] for row in contents(tmp_path, "t").to_pylist()}
    assert found == {row: count for row, count in expected.items() if count}
    with pytest.raises(SourceUnusable, match="the table has no column '__diff'"):
        tables_of(DeltaSource((DeltaTable("t", str(tmp_path / "view"), ("name", "__diff")),)))


@pytest.mark.parametrize("view_first", [True, False])
def test_a_table_in_place_of_a_view_and_the_other_way_round(tmp_path: Path, view_first: bool) -> None:
    """The view has errors; with `onGap: resnapshot` these come and go with it."""

    def view() -> dict[tuple[object, ...], int]:
        made = View(tmp_path / "up", 5)
        while (None, None, DIVISION) not in {row for row, count in made.rows.items() if count}:
            made.step()
        return {row: count for row, count in made.rows.items() if count}

    def table() -> dict[tuple[object, ...], int]:
        write_deltalake(str(tmp_path / "up"), pa.table({"id": [1, 1, 2], "name": ["a", "a", None]}, SCHEMA))
        return {(1, "a", None): 2, (2, None, None): 1}

    makers = [view, table] if view_first else [table, view]
    rows = makers[0]()
    one = ingester(tmp_path, spec_of(DeltaTable("t", str(tmp_path / "up"), on_gap="resnapshot")))
    one.recover()
    tick(one, 100)
    assert counted(contents(tmp_path, "t")) == rows
    shutil.rmtree(tmp_path / "up")
    rows = makers[1]()
    for at in (200, 300):
        tick(one, at)

    assert one._source.stop_reasons() == {}
    assert counted(contents(tmp_path, "t")) == rows
