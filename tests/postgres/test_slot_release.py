"""The replication slot of a deleted DataSource is dropped, whoever asks how often."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.postgres.databases import CREDENTIALS, Database, connect, ingester, read_everything, source_of, tick
from tests.postgres.test_stops import ingesting, rows
from tests.storage.ingestion_samples import description
from tests.waiting import until
from tidemark_persist import ShardWriters, delete_shard
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.messages.commands import RunIngestion
from tidemark_protocol.plan.ingestion import IngestionDescription, PostgresSource, PostgresTable, SourceTable
from tidemark_replica.storage.clock import ControllerClock
from tidemark_replica.storage.ingestion_threads import IngestionThreads
from tidemark_replica.storage.postgres.slots import release
from tidemark_replica.storage.source_secrets import SourceSecrets

B = PostgresTable("b", "public", "b", ("k",))
SLOTS = "select count(*) from pg_replication_slots"

pytestmark = [pytest.mark.postgres, pytest.mark.broad]


def described(root: Path, spec: PostgresSource) -> IngestionDescription:
    return description(root, spec, tuple(SourceTable(t.name, t.columns or ()) for t in spec.tables))


def drop(root: Path, spec: PostgresSource) -> None:
    release(described(root, spec), spec, lambda: CREDENTIALS)


def stopped_sender(database: Database, seconds: float) -> threading.Timer:
    """Stops the server's process that has the slot, and lets it go on after so long."""
    sender = database.value("select active_pid from pg_replication_slots")
    os.kill(sender, signal.SIGSTOP)
    timer = threading.Timer(seconds, os.kill, (sender, signal.SIGCONT))
    timer.start()
    return timer


def test_it_is_dropped_also_where_its_reader_has_not_ended(database: Database, tmp_path: Path) -> None:
    """The server notices late that a connection ended."""
    spec = database.spec(B)
    one = ingester(tmp_path, spec)
    one.recover()
    tick(one, 1000)
    tick(one, 1100)
    assert database.value("select count(*) from pg_replication_slots where active") == 1
    drop(tmp_path, spec)
    assert database.value(SLOTS) == 0
    source_of(one).close()
    drop(tmp_path, spec)


@pytest.mark.parametrize("wait", ["for its slot", "for a lock"])
def test_a_source_that_is_dropped_while_it_waits_ends(database: Database, tmp_path: Path, wait: str) -> None:
    """And leaves no slot, while the transaction that it waits for runs on."""
    spec = database.spec(B)
    (tmp_path / "secrets" / spec.secret).mkdir(parents=True)
    for name, value in CREDENTIALS.items():
        (tmp_path / "secrets" / spec.secret / name).write_text(value)
    secrets = SourceSecrets(tmp_path / "secrets")
    manager = IngestionThreads(None, ShardWriters(), tmp_path / "cache", secrets)
    now, of = Time(int(time.time() * 1000)), described(tmp_path, spec)
    with connect(database.server, database.name) as blocking:
        blocking.execute("insert into b values (1)" if wait == "for its slot" else "lock table b")
        manager.run(RunIngestion(of, WriterTerm(1), now, 30_000), ControllerClock(now, 30_000))
        try:
            waits = "select count(*) from pg_stat_activity where wait_event_type = 'Lock'"
            until(lambda: database.value(waits) == 1)
            assert database.value(SLOTS) == 1
            manager.drop(of.id)
            until(lambda: not manager.is_alive(of.id))
            release(of, spec, lambda: CREDENTIALS)
            assert database.value(SLOTS) == 0
        finally:
            manager.close()
        assert blocking.execute("select count(*) from b").fetchone() is not None


def test_a_slot_that_an_ended_connection_still_holds_is_waited_for(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy server notices late that a replica ended."""
    read_everything(database, monkeypatch)
    database.run("insert into b values (1)")
    spec = database.spec(B)
    with ingesting(tmp_path, spec) as one:
        tick(one, 1000)  # makes the slot
        tick(one, 1100)
        slot = source_of(one)._slot
        goes_on = stopped_sender(database, 1.5)
    database.run("insert into b values (2)")
    with ingesting(tmp_path, spec) as one:
        tick(one, 2000)
        assert not goes_on.is_alive()
        assert rows(tmp_path, "b") == Counter([(1,), (2,)])
        stopped_sender(database, 0.5)
    database.drop_slot(slot)
    assert database.value(SLOTS) == 0


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
