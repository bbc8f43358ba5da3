"""The errors of a sink whose server cannot be used. None of them has a secret in its text."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest

from tests.ports import free_port
from tests.postgres.databases import Database, connect
from tests.postgres_sink.views import COLUMNS, View, progress_and_rows, secrets_in, sink_to
from tests.replica.process import wait_until
from tests.waiting import BOUND
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_replica.events.jobs import Done, Failed, Job, Jobs, Outcome
from tidemark_replica.events.mailbox import Mailbox
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.destinations.destination import DestinationFailed, DestinationStopped
from tidemark_replica.sinks.destinations.publisher import Publisher
from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.storage.source_secrets import SourceSecrets

pytestmark = pytest.mark.postgres
WRONG = "a-wrong-password"
T = TypeVar("T")


def test_a_wrong_password_is_told_without_the_secret(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The Secret is read anew: the right password is used at the next attempt."""
    database.run(f"create role writer{database.name} login password 'right-password'")
    database.run(f"grant create, usage on schema public to writer{database.name}")
    hba = database.server.folder / "data" / "pg_hba.conf"
    before = hba.read_text()
    hba.write_text(f"local all writer{database.name} scram-sha-256\n{before}")
    database.run("select pg_reload_conf()")
    view, sink = View(tmp_path), sink_to(database)
    time = view.step(3)
    secrets = secrets_in(tmp_path, username=f"writer{database.name}", password=WRONG)
    with caplog.at_level(logging.DEBUG), pytest.raises(DestinationFailed, match="password authentication") as failed:
        view.destination(sink, secrets=secrets).publish(time, WriterTerm(1))
    assert WRONG not in str(failed.value) + caplog.text
    (tmp_path / "secrets/db/password").write_text("right-password")
    view.destination(sink, secrets=secrets).publish(time, WriterTerm(1))
    assert progress_and_rows(database, sink) == (time, view.rows())
    hba.write_text(before)


def test_a_secret_that_is_not_mounted(database: Database, tmp_path: Path) -> None:
    view = View(tmp_path)
    view.step(3)
    destination = view.destination(sink_to(database), secrets=SourceSecrets(None))
    with pytest.raises((DestinationFailed, IngestionError), match="Secret db is not mounted"):
        destination.publish(Time(0), WriterTerm(1))


def test_a_server_that_is_away_and_comes_back(database: Database, tmp_path: Path) -> None:
    view, sink = View(tmp_path), sink_to(database)
    view.deliver(sink, view.step(5))
    view.step(5)
    with pytest.raises(DestinationFailed, match=r"127\.0\.0\.1"):
        view.deliver(replace(sink, host="127.0.0.1", port=free_port()))
    database.server.stop()
    try:
        with pytest.raises(DestinationFailed, match="Is the server running"):
            view.deliver(sink)
    finally:
        database.server.start()
    assert view.deliver(sink).anew_because == ""
    assert progress_and_rows(database, sink) == (1, view.rows())


def test_a_user_without_the_right_is_told_by_name(database: Database, tmp_path: Path) -> None:
    """It needs CREATE on the schema at first, and then only what the guide lists."""
    user = f"least{database.name}"
    database.run(f"create role {user} login", "revoke create on schema public from public")
    view, sink = View(tmp_path), sink_to(database)
    time, secrets = view.step(3), secrets_in(tmp_path, username=user)
    destination = view.destination(sink, secrets=secrets)
    with pytest.raises(DestinationStopped, match="permission denied for schema public") as stopped:
        destination.publish(time, WriterTerm(1))
    assert stopped.value.reason == "PermissionDenied"
    View(tmp_path / "first").deliver(sink, View(tmp_path / "first").step(0))
    database.run(
        "delete from tidemark_sinks",
        f"grant select, insert, update on tidemark_sinks to {user}",
        f"grant select, insert, update, delete on kept to {user}",
    )
    destination.publish(time, WriterTerm(1))
    destination.publish(view.step(20), WriterTerm(1))
    assert progress_and_rows(database, sink) == (1, view.rows())


def test_a_schema_that_is_not_there(database: Database, tmp_path: Path) -> None:
    view = View(tmp_path)
    view.step(3)
    with pytest.raises(DestinationStopped, match="nowhere") as stopped:
        view.deliver(sink_to(database, schema="nowhere"))
    assert stopped.value.reason == "SchemaMissing"


class RecordingJobs(Jobs):
    """A pool that keeps the outcomes."""

    def __init__(self) -> None:
        super().__init__(Mailbox(), "publish", 1)
        self.outcomes: queue.Queue[Outcome[Any]] = queue.Queue()

    def submit(self, name: str, work: Callable[[], T], done: Callable[[Outcome[T]], None]) -> Job:
        def recorded() -> T:
            try:
                value = work()
            except Exception as error:
                self.outcomes.put(Failed(error))
                raise
            self.outcomes.put(Done(value))
            return value

        return super().submit(name, recorded, done)


def test_the_end_of_a_view_ends_its_delivery(database: Database, tmp_path: Path) -> None:
    """A delivery that waits for a lock of another session: the server gives it up, and rolls it back."""
    view, sink, jobs = View(tmp_path), sink_to(database), RecordingJobs()
    view.deliver(sink, view.step(5))
    view.step(5)
    shard = ShardMetadata(ShardId("u1"), str(tmp_path / "u1"), COLUMNS)
    publisher = Publisher(
        GlobalId("u/view/1"), shard, 0, view.destination(sink), ShardHandles(), jobs, lambda response: None
    )
    waiting = "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()"
    with connect(database.server, database.name) as other:
        other.execute("select from tidemark_sinks for update")
        publisher.appended(view.upper)
        publisher.advance(view.upper, WriterTerm(1))
        wait_until(lambda: database.value(waiting) == 1)
        publisher.stop()
        outcome = jobs.outcomes.get(timeout=BOUND)
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, DestinationFailed)
        assert "the delivery was ended" in str(outcome.error)
    sessions = "select count(*) from pg_stat_activity where application_name = 'tidemark'"
    wait_until(lambda: database.value(sessions) == 0)
    jobs.shutdown()
    assert progress_and_rows(database, sink) == (0, view.rows(0))
