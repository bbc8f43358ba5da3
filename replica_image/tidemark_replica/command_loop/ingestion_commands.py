"""IngestionCommands for the command loop. Sources need Spark, which starts late: commands wait for it here, and nothing
blocks.

    RunIngestion ──► kept until Spark has started ──► IngestionThreads (threads of its own)
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from tidemark_persist import ShardWriters
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.commands import RunIngestion
from tidemark_protocol.messages.responses import IngestionStatus, StorageResponse
from tidemark_protocol.plan.ingestion import (
    IngestionDescription,
    PostgresSource,
    PublicationTable,
    SourceSpec,
    SourceTable,
)
from tidemark_replica.errors import SourceNotReadable, SourceNotReleased
from tidemark_replica.events.jobs import Failed, Jobs, Outcome
from tidemark_replica.retry import Backoff
from tidemark_replica.spark.session import SparkHolder
from tidemark_replica.storage.clock import ControllerClock
from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.storage.ingestion_threads import IngestionThreads, ReceivedCall, release
from tidemark_replica.storage.source_secrets import SourceSecrets
from tidemark_replica.storage.written.receive import WriteHeader
from tidemark_replica.storage.written.refusal import WriteNotPossible
from tidemark_replica.storage.written.spool import WriteSpool
from tidemark_replica.values.failure_text import log_text, public_text

T = TypeVar("T")
LOG = logging.getLogger(__name__)
STOP_SECONDS = 2.0


class IngestionCommands:
    """All methods except `inspect`, `find_published` and `write` run on the command loop."""

    def __init__(
        self,
        spark: SparkHolder,
        jobs: Jobs,
        cache: Path,
        secrets: SourceSecrets | None = None,
        spool: WriteSpool | None = None,
    ) -> None:
        self._spark, self._jobs, self._cache, self._spool = spark, jobs, cache, spool
        self._secrets = secrets or SourceSecrets(None)
        self._shards = ShardWriters()
        self._manager: IngestionThreads | None = None
        self._waiting: dict[GlobalId, tuple[RunIngestion, ControllerClock]] = {}
        self._responses: list[StorageResponse] = []
        self._starting, self._backoff = False, Backoff()

    def run(self, command: RunIngestion) -> None:
        """Starts the ingestion, or gives a running one its new description, term and clock."""
        clock = ControllerClock(command.controller_now, command.max_ahead_ms)
        if self._manager is not None:
            self._manager.run(command, clock)
            return
        self._waiting[command.ingestion.id] = command, clock
        self._start()

    def drop(self, id: GlobalId) -> None:
        """Stops the ingestion; does nothing if there is none."""
        self._waiting.pop(id, None)
        if self._manager is not None:
            self._manager.drop(id)

    def is_ending(self, location: str) -> bool:
        """Whether a dropped ingestion may still write at the location."""
        return self._manager is not None and self._manager.is_ending(location)

    def forget(self, location: str) -> None:
        """Closes handles of the location: its shard is deleted."""
        self._shards.forget(location)

    def poll(self) -> list[StorageResponse]:
        """The responses since the last call. Retries the start of Spark with growing pauses."""
        self._start()
        news, self._responses = self._responses, []
        return news if self._manager is None else [*news, *self._manager.poll()]

    def report_again(self) -> None:
        """The next poll returns all statuses, for a new client."""
        if self._manager is not None:
            self._manager.report_again()

    def inspect(self, source: SourceSpec, pinned: IngestionDescription | None) -> tuple[SourceTable, ...]:
        """The tables that the source offers; callable from any thread. `pinned`: the source that they are added to, if
        they are. Raises SourceNotReadable."""
        return self._inspected(lambda manager: manager.inspect(source, pinned))

    def find_published(self, source: PostgresSource) -> tuple[tuple[PublicationTable, ...], int]:
        """The tables of the publication that the source does not name, and the number of those that were not examined;
        callable from any thread. Raises SourceNotReadable."""
        return self._inspected(lambda manager: manager.find_published(source))

    def _inspected(self, ask: Callable[[IngestionThreads], T]) -> T:
        manager = self._new_manager(self._spark.get())
        try:
            return ask(manager)
        except IngestionError as error:
            raise SourceNotReadable(self._secrets.scrub(str(error))) from error
        except Exception as error:  # gRPC would answer with its text, which may have data and secrets
            LOG.warning("a source cannot be inspected: %s", log_text(error))
            raise SourceNotReadable(self._secrets.scrub(public_text(error))) from error

    def release(self, description: IngestionDescription) -> None:
        """Ends what a deleted source keeps upstream; callable from any thread, again and again. Raises
        SourceNotReleased."""
        manager = self._manager
        if description.id in self._waiting or (manager is not None and manager.is_alive(description.id)):
            raise SourceNotReleased("the replica has not ended its ingestion yet")
        try:
            release(description, self._secrets)
        except IngestionError as error:
            raise SourceNotReleased(self._secrets.scrub(str(error))) from error
        except Exception as error:  # any failure is an answer, as for `inspect`
            LOG.warning("a source cannot be released: %s", log_text(error))
            raise SourceNotReleased(self._secrets.scrub(public_text(error))) from error

    def write(self, id: GlobalId, header: WriteHeader, pieces: Iterable[bytes]) -> ReceivedCall:
        """Receives a call that writes rows; callable from any thread. Raises as `IngestionThreads.write`."""
        manager = self._manager
        if manager is None:
            raise WriteNotPossible("this replica is starting; repeat the call")
        return manager.write(id, header, pieces)

    def shutdown(self) -> None:
        self._waiting.clear()
        if self._manager is not None:
            self._manager.close(STOP_SECONDS)

    def _start(self) -> None:
        if self._waiting and not self._starting and self._backoff.has_elapsed:
            self._starting = True
            self._jobs.submit("start Spark", self._spark.get, self._take_session)

    def _take_session(self, outcome: Outcome[SparkSession]) -> None:
        self._starting = False
        if isinstance(outcome, Failed):
            self._backoff.failed()
            self._responses += [IngestionStatus(id, "failed", str(outcome.error)) for id in self._waiting]
            return
        self._manager = self._new_manager(outcome.value)
        for command, clock in self._waiting.values():
            self._manager.run(command, clock)
        self._waiting.clear()

    def _new_manager(self, session: SparkSession) -> IngestionThreads:
        return IngestionThreads(session, self._shards, self._cache, self._secrets, self._spool)
