"""The replication slot of a deleted DataSource is dropped, whoever asks how often."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres.databases import CREDENTIALS, Database, ingester, source_of, tick
from tests.storage.ingestion_samples import description
from tidemark_persist import delete_shard
from tidemark_protocol.plan.ingestion import IngestionDescription, PostgresSource, PostgresTable, SourceTable
from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.storage.postgres.release import release

B = PostgresTable("b", "public", "b", ("k",))
SLOTS = "select count(*) from pg_replication_slots"

pytestmark = pytest.mark.postgres


def described(root: Path, spec: PostgresSource) -> IngestionDescription:
    return description(root, spec, tuple(SourceTable(t.name, t.columns or ()) for t in spec.tables))


def drop(root: Path, spec: PostgresSource) -> None:
    release(described(root, spec), spec, lambda: CREDENTIALS)


def test_it_is_dropped_once_its_reader_has_ended(database: Database, tmp_path: Path) -> None:
    spec = database.spec(B)
    one = ingester(tmp_path, spec)
    one.recover()
    tick(one, 1000)
    tick(one, 1100)
    with pytest.raises(IngestionError, match="replication slot tidemark_src is in use by process"):
        drop(tmp_path, spec)
    source_of(one).close()
    for attempt in range(100):
        try:
            drop(tmp_path, spec)
            break
        except IngestionError:  # the server has not noticed yet that the connection ended
            assert attempt < 99
    assert database.value(SLOTS) == 0
    drop(tmp_path, spec)


def test_the_slot_of_adopted_tables_is_dropped_too(database: Database, tmp_path: Path) -> None:
    """The bindings name it, as long as there are any."""
    spec = database.spec(B)
    one = ingester(tmp_path, spec)
    source = source_of(one)
    source._slot = "tidemark_of_another"
    one.recover()
    tick(one, 1000)
    source.close()
    database.value("select pg_create_logical_replication_slot('tidemark_src', 'pgoutput')")
    assert database.value(SLOTS) == 2
    drop(tmp_path, spec)
    assert database.value(SLOTS) == 0
    of = described(tmp_path, spec)
    delete_shard(of.remap_location, of.remap_id)
    drop(tmp_path, spec)
