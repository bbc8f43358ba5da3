"""The Iceberg table of a published view names exactly the files of its Delta table, at each of its snapshots.

The catalogue is a real server over REST; the rows are read by pyiceberg, with nothing of Tidemark's.
"""

from __future__ import annotations

import random
import uuid
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.table import Table

from tests.published.iceberg.rest_catalogue import RestCatalogue, counted
from tests.published.test_publication import View, contents
from tidemark_persist import Storage, create_or_open
from tidemark_protocol.ids import ShardId, Time
from tidemark_replica.sinks.destinations.destination import DestinationStopped
from tidemark_replica.sinks.published import iceberg_mirror
from tidemark_replica.sinks.published.iceberg_catalogue import IcebergFailed, StorageCatalogue
from tidemark_replica.sinks.published.iceberg_mirror import SNAPSHOTS_MAX, IcebergMirror
from tidemark_replica.sinks.published.iceberg_notes import note_tables, noted_tables
from tidemark_replica.sinks.published.iceberg_removal import drop_tables, remove_unused_files
from tidemark_replica.sinks.published.iceberg_schema import iceberg_schema
from tidemark_replica.sinks.published.publication import TablePublication
from tidemark_replica.sinks.published.published_table import (
    PublishedByAnother,
    PublishedByLater,
    TableOptions,
    open_table,
)
from tidemark_replica.sinks.published.table_removal import remove_published
from tidemark_replica.storage.source_secrets import SourceSecrets

pytestmark = pytest.mark.iceberg
NO_SECRETS = SourceSecrets(None)


class Mirrored:
    """A view, its Delta table, and the Iceberg table of a name of its own."""

    def __init__(self, catalogue: RestCatalogue, folder: Path, seed: int = 1) -> None:
        self.catalogue, self.folder = catalogue, folder
        self.view = View(folder, seed)
        self.name = f"sales.s{uuid.uuid4().hex}"
        self.options = TableOptions(str(folder / "published"), "shop.flow.view", uid="u-1", term=1)

    def publication(self, file_bytes: int = 500) -> TablePublication:
        return TablePublication(self.view.shard, self.options, file_bytes)

    def mirror(self, **others: object) -> IcebergMirror:
        options = replace(self.options, **others)  # type: ignore[arg-type]
        return IcebergMirror(self.catalogue.settings, self.name, options, NO_SECRETS)

    @property
    def contents(self) -> ShardId:
        return ShardId(self.view.shard.contents_id)

    def publish(self, changes: int = 20) -> Time:
        """A step of the view, published and mirrored."""
        at = Time(self.view.step(changes))
        self.publication().publish(at)
        assert self.mirror().mirror(self.contents) == at
        return at

    def check(self, at: int) -> None:
        """Check that both tables have the view's rows of the time."""
        assert counted(self.catalogue.rows(self.name)) == self.view.at[at] == contents(self.folder)

    @property
    def table(self) -> Table:
        return self.catalogue.load(self.name)


@pytest.fixture
def mirrored(iceberg_catalogue: RestCatalogue, tmp_path: Path) -> Mirrored:
    return Mirrored(iceberg_catalogue, tmp_path)


@pytest.mark.parametrize("seed", range(4))
def test_each_snapshot_has_the_rows_of_its_time(iceberg_catalogue: RestCatalogue, tmp_path: Path, seed: int) -> None:
    """Random histories: small files that divide and merge, steps of the mirror that are left out, contents that are
    written anew."""
    of, chance = Mirrored(iceberg_catalogue, tmp_path, seed), random.Random(seed)
    file_bytes = chance.choice([500, 2_500, 1 << 20])
    for _ in range(8):
        at = Time(of.view.step(chance.choice([0, 1, 5, 40]), chance.choice([1, 3])))
        if chance.random() < 0.2:
            of.view.shard.downgrade_since(at)
        published = of.publication(file_bytes).publish(at)
        if chance.random() < 0.7:
            assert of.mirror().mirror(of.contents) == published.time
            of.check(published.time)
    of.mirror().mirror(of.contents)
    snapshots = of.table.metadata.snapshots
    assert len(snapshots) > 1
    for each in snapshots:
        assert each.summary is not None
        at = int(each.summary["tidemark.time"])
        rows = counted(of.catalogue.rows(of.name, each.snapshot_id))
        assert rows == of.view.at[at] == contents(tmp_path, int(each.summary["tidemark.version"]))
        assert int(each.summary["total-records"]) == rows.total()


def test_files_that_stay_keep_their_snapshot(mirrored: Mirrored) -> None:
    """Readers of changes see the files that came and those that went, and no others."""
    mirrored.publish(200)
    before = {task.file.file_path for task in mirrored.table.scan().plan_files()}
    mirrored.publish(1)
    table = mirrored.table
    after = {task.file.file_path for task in table.scan().plan_files()}
    snapshot = table.current_snapshot()
    assert snapshot is not None
    assert snapshot.summary is not None
    assert int(snapshot.summary["added-data-files"]) == len(after - before) > 0
    assert int(snapshot.summary["deleted-data-files"]) == len(before - after)
    entries = table.inspect.entries(snapshot.snapshot_id).to_pylist()
    kinds = {kind: {e["data_file"]["file_path"] for e in entries if e["status"] == kind} for kind in range(3)}
    assert kinds == {0: before & after, 1: after - before, 2: before - after}


def test_an_equal_table_is_left_alone(mirrored: Mirrored) -> None:
    at = mirrored.publish()
    before = mirrored.table.metadata_location
    assert mirrored.mirror().mirror(mirrored.contents) == at
    assert mirrored.table.metadata_location == before


def test_what_others_commit_is_taken_back(mirrored: Mirrored) -> None:
    """Rows that another program adds, a rollback, columns that it renames, rows that it deletes."""
    first = mirrored.publish()
    at = mirrored.publish()
    added = mirrored.table.scan(limit=3).to_arrow()
    mirrored.table.append(added)
    assert len(mirrored.catalogue.rows(mirrored.name)) == mirrored.view.at[at].total() + 3
    mirrored.mirror().mirror(mirrored.contents)
    mirrored.check(at)
    mirrored.table.manage_snapshots().rollback_to_snapshot(mirrored.table.metadata.snapshots[0].snapshot_id).commit()
    assert counted(mirrored.catalogue.rows(mirrored.name)) == mirrored.view.at[first]
    mirrored.mirror().mirror(mirrored.contents)
    mirrored.check(at)
    with mirrored.table.update_schema() as update:
        update.rename_column("name", "other")
    mirrored.mirror().mirror(mirrored.contents)
    mirrored.check(at)
    mirrored.table.delete("k < 20")
    mirrored.mirror().mirror(mirrored.contents)
    mirrored.check(at)
    mirrored.check(mirrored.publish())


def test_other_columns_replace_the_table(mirrored: Mirrored, tmp_path: Path) -> None:
    """A name of before with another type, in one commit. No earlier snapshot stays, under no name: the old files'
    columns would be found by the new names."""
    mirrored.publish()
    old = mirrored.table
    assert old.metadata.current_snapshot_id is not None
    old.manage_snapshots().create_tag(old.metadata.current_snapshot_id, "kept").commit()
    schema = pa.schema([pa.field("name", pa.int64()), pa.field("new", pa.string())])
    shard = create_or_open(str(tmp_path / "second"), schema, shard_id="u2")
    row = {"name": [7], "new": ["x"], "__time": [0], "__diff": [2]}
    shard.compare_and_append(pa.table(row), expected_upper=0, new_upper=1, term=1)
    TablePublication(shard, mirrored.options).publish(Time(0))
    mirrored.mirror().mirror(ShardId(shard.contents_id))
    assert mirrored.catalogue.rows(mirrored.name) == [{"name": 7, "new": "x"}] * 2
    metadata = mirrored.table.metadata
    assert len(metadata.snapshots) == 1
    assert list(metadata.refs) == ["main"]


def test_another_location_replaces_the_table(mirrored: Mirrored, tmp_path: Path) -> None:
    mirrored.publish()
    mirrored.options = replace(mirrored.options, location=str(tmp_path / "moved"), term=2)
    at = Time(mirrored.view.step(5))
    mirrored.publication().publish(at)
    mirrored.mirror().mirror(mirrored.contents)
    assert counted(mirrored.catalogue.rows(mirrored.name)) == mirrored.view.at[at]
    assert mirrored.table.metadata.location == f"file://{tmp_path}/moved"
    old = replace(mirrored.mirror().options, location=str(tmp_path / "published"), term=1)
    with pytest.raises(PublishedByLater):  # a publisher of before the edit
        IcebergMirror(mirrored.catalogue.settings, mirrored.name, old, NO_SECRETS).mirror(mirrored.contents)


def test_two_publishers(mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another step comes between the reading and the commit of one: that is refused, and made anew."""
    mirrored.publish()
    commit, others = StorageCatalogue.commit_table, [1, 1]

    def late(*of: object) -> object:
        if others:
            others.pop()
            mirrored.publication().publish(Time(mirrored.view.step(5)))
            mirrored.mirror().mirror(mirrored.contents)
        return commit(*of)  # type: ignore[arg-type]

    mirrored.publication().publish(Time(mirrored.view.step(5)))
    monkeypatch.setattr(StorageCatalogue, "commit_table", late)
    at = mirrored.mirror().mirror(mirrored.contents)
    assert at == mirrored.view.upper - 1
    mirrored.check(at)
    referred = {path.name for path in (mirrored.folder / "published/_iceberg").glob("*.avro")}
    assert len(referred) == 2 * len(mirrored.table.metadata.snapshots)


def test_a_table_that_is_not_ours_is_refused(mirrored: Mirrored) -> None:
    at = mirrored.publish()
    with pytest.raises(IcebergFailed, match=r"of view shop\.flow\.view") as refused:
        mirrored.mirror(owner="shop.other.view").mirror(mirrored.contents)
    assert refused.value.reason == "IcebergTableTaken"
    other = RestCatalog("tests", uri=mirrored.catalogue.settings.uri)
    name = f"{mirrored.name}2"
    other.create_table(name, pa.schema([pa.field("a", pa.int64())]), location=f"file://{mirrored.folder}/theirs")
    with pytest.raises(IcebergFailed, match="not Tidemark's"):
        replace(mirrored.mirror(), table=name).mirror(mirrored.contents)
    mirrored.check(at)


def test_terms(mirrored: Mirrored) -> None:
    """A Dataflow of the same name in another cluster, with a place of its own, takes the table over; the first one does
    not take it back."""
    mirrored.publish()
    here = mirrored.options
    mirrored.options = replace(here, location=f"{here.location}2", uid="u-2")
    mirrored.publish()
    with pytest.raises(PublishedByAnother):
        mirrored.mirror(location=here.location, uid="u-1").mirror(mirrored.contents)


def test_types(mirrored: Mirrored, tmp_path: Path) -> None:
    """All types that a view has, through pyiceberg; small integers are int there."""
    fields = {
        "a": (pa.bool_(), True),
        "b": (pa.int8(), -5),
        "c": (pa.int16(), 300),
        "d": (pa.int32(), 7),
        "e": (pa.float32(), 0.5),
        "f": (pa.decimal128(38, 4), None),
        "g": (pa.date32(), None),
        "h": (pa.binary(), b"\x00\xff"),
        "i": (pa.timestamp("us"), None),
        "j": (pa.timestamp("us", "UTC"), None),
        "k": (pa.list_(pa.struct([pa.field("x", pa.int8())])), [{"x": 1}, None]),
        "l": (pa.map_(pa.string(), pa.list_(pa.int64())), [("ü", [1, None])]),
        "m": (pa.struct([pa.field("p", pa.struct([pa.field("q", pa.string())]))]), {"p": {"q": "r"}}),
    }
    schema = pa.schema([pa.field(name, kind) for name, (kind, _) in fields.items()])
    shard = create_or_open(str(tmp_path / "types"), schema, shard_id="u2")
    columns = {name: pa.array([value, None], kind) for name, (kind, value) in fields.items()}
    table = pa.table({**columns, "__time": [0, 0], "__diff": [1, 1]})
    shard.compare_and_append(table, expected_upper=0, new_upper=1, term=1)
    TablePublication(shard, mirrored.options).publish(Time(0))
    mirrored.mirror().mirror(ShardId(shard.contents_id))
    # pyiceberg reads a NULL array of structs as an empty one
    wanted = [{name: value for name, (_, value) in fields.items()}, {**dict.fromkeys(fields), "k": []}]
    assert sorted(mirrored.catalogue.rows(mirrored.name), key=str) == sorted(wanted, key=str)


@pytest.mark.parametrize(
    ("field", "why"),
    [
        (pa.field("a.b", pa.int64()), "column a.b has a dot"),
        (pa.field("_pos", pa.int64()), "column _pos has a name that readers"),
        (pa.field("t", pa.struct([pa.field("u", pa.duration("us"))])), r"column t\.u is of type duration"),
    ],
)
def test_columns_that_no_iceberg_table_has(field: pa.Field, why: str) -> None:
    with pytest.raises(DestinationStopped, match=why) as refused:
        iceberg_schema(pa.schema([field]))
    assert refused.value.reason == "IcebergNotPossible"


def test_old_snapshots_and_files_go(mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshots of before the retention, the oldest of very many, and files that none refers to any more. The clean-up
    of the Delta table leaves the folder alone."""
    monkeypatch.setattr(iceberg_mirror, "SNAPSHOTS_MAX", 4)
    for _ in range(8):
        at = mirrored.publish(3)
    assert 4 <= len(mirrored.table.metadata.snapshots) <= SNAPSHOTS_MAX // 20
    folder = mirrored.folder / "published/_iceberg"
    before = len(list(folder.glob("*.avro")))
    assert remove_unused_files(mirrored.mirror()) == 0  # still young
    mirrored.options = replace(mirrored.options, retention_hours=0)
    monkeypatch.setattr("tidemark_replica.sinks.published.iceberg_removal.time.time", lambda: 4e9)
    assert remove_unused_files(mirrored.mirror()) > 0
    assert len(list(folder.glob("*.avro"))) < before
    table = open_table(mirrored.options)
    assert table is not None
    table.remove_unused()
    mirrored.check(at)
    monkeypatch.undo()
    mirrored.check(mirrored.publish())
    assert len(mirrored.table.metadata.snapshots) == 2  # the new one, and that of the moment before


def test_the_table_is_dropped_with_the_view(mirrored: Mirrored) -> None:
    mirrored.publish()
    storage = Storage.at(mirrored.options.location)
    note_tables(storage, [mirrored.name])
    drop_tables(storage, "shop.other.view", mirrored.catalogue.settings, NO_SECRETS)
    assert mirrored.table.metadata.snapshots
    note_tables(storage, [mirrored.name])
    drop_tables(storage, mirrored.options.owner, mirrored.catalogue.settings, NO_SECRETS, but=mirrored.name)
    assert mirrored.table.metadata.snapshots
    drop_tables(storage, mirrored.options.owner, mirrored.catalogue.settings, NO_SECRETS)
    assert noted_tables(storage) == ()
    with pytest.raises(NoSuchTableError):
        mirrored.catalogue.load(mirrored.name)
    remove_published(mirrored.options.location, mirrored.options.owner)
    assert not (mirrored.folder / "published").exists()


def test_a_table_that_is_made_while_the_view_is_deleted(mirrored: Mirrored, monkeypatch: pytest.MonkeyPatch) -> None:
    mirrored.publication().publish(Time(mirrored.view.step(5)))
    commit = StorageCatalogue.commit_table

    def late(*of: object) -> object:
        table = open_table(mirrored.options)
        assert table is not None
        table.take_all_away()
        return commit(*of)  # type: ignore[arg-type]

    monkeypatch.setattr(StorageCatalogue, "commit_table", late)
    mirrored.mirror().mirror(mirrored.contents)
    with pytest.raises(NoSuchTableError):
        mirrored.catalogue.load(mirrored.name)
