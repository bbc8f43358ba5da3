"""When a view is published, on a command loop without threads: jobs run when the test says so."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tidemark_persist import DIFF, EMPTY, ERROR, TIME, Shard, StorageError
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.responses import Response, Status
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.sinks.publish import PublishedView, published_location
from tidemark_protocol.types import BIGINT, Column
from tidemark_replica.events.jobs import Done, Failed, Job, Outcome
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.destinations.destination import IDLE_MS, Reached
from tidemark_replica.sinks.destinations.publisher import (
    FIRST_CLEAN_SECONDS,
    SHORT_SECONDS,
    TURN_SECONDS,
    Publisher,
)
from tidemark_replica.sinks.published.table_destination import TableDestination
from tidemark_replica.storage.source_secrets import SourceSecrets
from tidemark_replica.telemetry.status_repeater import StatusRepeater

SCHEMA = pa.schema([pa.field("n", pa.int64())])


class ShortPool:
    """The pool of short publications. `names`: of the jobs that it was given."""

    def __init__(self, replica: Replica) -> None:
        self.replica, self.names = replica, list[str]()

    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> Job:
        self.names.append(name)
        return self.replica.submit(name, work, done)


class Replica:
    """A publisher of a shard, with a clock and a pool that the test drives."""

    def __init__(self, folder: Path, every_ms: int = 1_000, empty_on_error: bool = False) -> None:
        metadata = ShardMetadata(ShardId("u1"), str(folder / "shard"), (Column("n", BIGINT),))
        handles = ShardHandles()
        self.shard: Shard = handles.writer(metadata)
        self.responses: list[Status] = []
        self.jobs: list[Callable[[], None]] = []
        self.now = 0.0
        location = published_location(str(folder), "shop", "flow", "view")
        view = PublishedView(location, "shop.flow.view", every_ms, 24, empty_on_error)
        self.location = location
        id = GlobalId("u/view/1")
        table = TableDestination(id, metadata, view, handles, SourceSecrets(None))
        self.short, clock, self.repeater = ShortPool(self), lambda: self.now, StatusRepeater(self.respond)
        self.publisher = Publisher(id, metadata, every_ms, table, handles, self, self.repeater, self.short, clock)

    def respond(self, response: Response) -> None:
        assert isinstance(response, Status)
        self.responses.append(response)

    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Outcome[Any]], None]) -> Job:
        def run() -> None:
            try:
                outcome: Outcome[Any] = Done(work())
            except Exception as error:
                outcome = Failed(error)
            done(outcome)

        self.jobs.append(run)
        return Job(name)

    def append(self, upper: int, value: int | None = None, error: str | None = None, diff: int = 1) -> None:
        """Moves the shard to `upper`, with a row or an error at the time before that."""
        rows = None
        if value is not None or error is not None:
            rows = pa.table(
                {
                    "n": pa.array([value], pa.int64()),
                    TIME: [upper - 1],
                    DIFF: [diff],
                    ERROR: pa.array([error], "string"),
                }
            )
        self.shard.compare_and_append(rows, expected_upper=self.shard.refresh().upper, new_upper=upper, term=1)

    def advance(self, *, won: bool = True) -> int:
        """Advances the publisher and runs its jobs; returns how many there were."""
        upper = self.shard.refresh().upper
        if won:
            self.publisher.appended(upper)
        self.publisher.advance(upper, WriterTerm(1))
        jobs, self.jobs = self.jobs, []
        for job in jobs:
            job()
        return len(jobs)

    def rows(self) -> list[int]:
        table = DeltaTable(self.location)
        found = pa.table(QueryBuilder().register("t", table).execute("SELECT n FROM t ORDER BY n").read_all())
        return list(found.column("n").to_pylist())


def test_a_commit_at_each_multiple_of_every(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    replica.append(10_500, 1)
    assert replica.advance() == 1
    replica.append(10_900, 2)
    assert replica.advance() == 0
    replica.append(11_001, 3)
    assert replica.advance() == 1
    assert replica.rows() == [1, 2, 3]
    assert [status.fields["time"] for status in replica.responses] == ["10499", "11000"]
    assert replica.responses[-1].fields["rows"] == "3"


def test_each_change_without_an_interval(tmp_path: Path) -> None:
    replica = Replica(tmp_path, every_ms=0)
    for upper in (10, 11, 12):
        replica.append(upper, upper)
        assert replica.advance() == 1
        assert replica.rows()[-1] == upper


def test_the_table_is_not_opened_where_nothing_has_changed(tmp_path: Path) -> None:
    """But for a commit that says the newer time, once a minute."""
    replica = Replica(tmp_path, every_ms=0)
    replica.append(10, 1)
    assert replica.advance() == 1
    for upper in (11, IDLE_MS):
        replica.append(upper)
        assert replica.advance() == 0
    replica.append(IDLE_MS + 10)
    assert replica.advance() == 1
    assert replica.responses[-1].fields["time"] == str(IDLE_MS + 9)
    replica.append(IDLE_MS + 11, 2)
    assert replica.advance() == 1
    assert replica.rows() == [1, 2]


def test_another_replicas_append_is_left_to_it_for_a_while(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    replica.append(10_000, 1)
    assert replica.advance(won=False) == 0
    replica.now += TURN_SECONDS
    assert replica.advance(won=False) == 1
    assert replica.rows() == [1]


def test_a_view_that_ends_is_published_as_it_is_then(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    replica.append(10_000, 1)
    replica.advance()
    rows = pa.table({"n": [2], TIME: [10_001], DIFF: [1]})
    replica.shard.compare_and_append(rows, expected_upper=10_000, new_upper=EMPTY, term=1)
    assert replica.advance() == 1
    assert replica.rows() == [1, 2]
    assert replica.advance() == 0


def test_an_error_is_told_and_tried_again(tmp_path: Path) -> None:
    """The table keeps its rows and its time; the problem goes with the error."""
    replica = Replica(tmp_path)
    replica.append(1_001, 1)
    replica.advance()
    replica.append(2_001, error="DIVIDE_BY_ZERO")
    replica.advance()
    assert "in error" in replica.responses[-1].fields["problem"]
    assert replica.responses[-1].fields["time"] == "1000"
    assert replica.rows() == [1]
    assert replica.advance() == 0, "a failure has a pause"
    replica.append(3_001, error="DIVIDE_BY_ZERO", diff=-1)
    replica.now += 60
    assert replica.advance() == 1
    assert "problem" not in replica.responses[-1].fields


def given_to_short_pool(
    replica: Replica, monkeypatch: pytest.MonkeyPatch, lasts: Sequence[float | None], pause: float = 0.0
) -> list[int]:
    """The number of jobs of the pool of short publications after each publication. `lasts`: the seconds that
    each one takes; None where it fails at once. `pause`: seconds after each one."""
    publish, left = TableDestination.publish, [*lasts]

    def lasting(table: TableDestination, time: Time, term: WriterTerm) -> Reached:
        seconds = left.pop(0)
        if seconds is None:
            raise StorageError("the store is away")
        replica.now += seconds
        return publish(table, time, term)

    monkeypatch.setattr(TableDestination, "publish", lasting)
    given = list[int]()
    for number in range(len(lasts)):
        replica.append(1_001 * (number + 1), number)
        assert replica.advance() == 1
        given.append(len(replica.short.names))
        replica.now += pause
    return given


def test_short_publications_do_not_wait_behind_long_ones(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one may be long, and so may the one after a long one."""
    replica = Replica(tmp_path)
    assert given_to_short_pool(replica, monkeypatch, [0.0, 0.0, 2 * SHORT_SECONDS, 0.0, 0.0]) == [0, 1, 2, 2, 3]
    assert replica.rows() == [0, 1, 2, 3, 4]


def test_a_quick_failure_does_not_make_a_long_one_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lasts = [0.0, 2 * SHORT_SECONDS, None, 0.0, 0.0]
    assert given_to_short_pool(Replica(tmp_path), monkeypatch, lasts, pause=60.0) == [0, 1, 1, 1, 2]


def test_an_emptied_table_is_told(tmp_path: Path) -> None:
    """With a reason of its own, until the errors are corrected; nothing has failed, so there is no pause."""
    replica = Replica(tmp_path, empty_on_error=True)
    replica.append(1_001, 1)
    replica.advance()
    replica.append(2_001, error="DIVIDE_BY_ZERO")
    assert replica.advance() == 1
    status = replica.responses[-1].fields
    assert (status["time"], status["rows"], status["reason"]) == ("2000", "0", "ViewInError")
    assert replica.rows() == []
    replica.append(3_001, error="DIVIDE_BY_ZERO", diff=-1)
    assert replica.advance() == 1
    assert replica.responses[-1].fields.keys() == {"time", "rows", "bytes"}
    assert replica.rows() == [1]


def test_the_end_closes_the_destination_and_nothing_is_begun_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed: list[TableDestination] = []
    monkeypatch.setattr(TableDestination, "close", lambda table: closed.append(table))
    replica = Replica(tmp_path)
    replica.append(1_001, 1)
    replica.publisher.stop()
    assert closed == []
    assert replica.advance() == 1
    assert (len(closed), replica.responses) == (1, [])
    assert replica.advance() == 0


def test_a_new_client_is_told_again(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    replica.append(1_001, 1)
    replica.advance()
    replica.repeater.report_again()
    assert replica.responses[0] == replica.responses[1]


def test_unused_files_are_removed_though_a_publication_is_due(tmp_path: Path) -> None:
    replica = Replica(tmp_path)
    replica.append(1_001, 1)
    replica.advance()
    orphan = Path(replica.location) / "part--0123456789abcdef0123456789abcdef.parquet"
    orphan.write_bytes(b"")
    os.utime(orphan, (1, 1))
    replica.now += FIRST_CLEAN_SECONDS
    replica.append(5_001, 2)
    assert replica.advance() == 1
    assert not orphan.exists(), "before a publication that is due"
    assert replica.advance() == 1
    assert replica.rows() == [1, 2]
