"""The destination of a view that is written to a Kafka topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.sinks.kafka import KafkaSink
from tidemark_replica.shards.shards import ShardHandles
from tidemark_replica.sinks.destinations.destination import DestinationStopped, Reached
from tidemark_replica.sinks.kafka.publication import KafkaTopic
from tidemark_replica.sinks.kafka.stop import NOT_AUTHENTICATED
from tidemark_replica.storage.errors import IngestionError
from tidemark_replica.storage.source_secrets import SourceSecrets


class TopicDestination:
    """The topic of an export. Texts of errors have no value of a Secret."""

    kind = KafkaSink.KIND

    def __init__(
        self, id: GlobalId, shard: ShardMetadata, sink: KafkaSink, handles: ShardHandles, secrets: SourceSecrets
    ) -> None:
        """`id`: the export's."""
        self._shard, self._handles, self._secrets = shard, handles, secrets
        uid, _, name = id.partition("/")
        self._topic = KafkaTopic(f"{uid}/{name.partition('/')[0]}", sink, secrets.read)

    def publish(self, time: Time, term: WriterTerm) -> Reached:
        reader = self._handles.reader(self._shard.location, self._shard.shard_id)
        with self._without_secrets():
            return self._topic.publish(reader, time, term)

    def progress_time(self, contents: str) -> Time | None:
        with self._without_secrets():
            return self._topic.progress_time(contents)

    @contextmanager
    def _without_secrets(self) -> Iterator[None]:
        try:
            yield
        except DestinationStopped as stopped:
            raise DestinationStopped(stopped.reason, self._secrets.scrub(str(stopped))) from None
        except IngestionError as error:  # the Secret, or a setting of the client, is wrong
            raise DestinationStopped(NOT_AUTHENTICATED, self._secrets.scrub(str(error))) from None

    def clean(self) -> None:
        """Nothing is left behind: what was not committed is no record."""

    def interrupt(self) -> None:
        """A publication that runs ends before its next transaction."""
        self._topic.interrupt()

    def close(self) -> None:
        self._topic.close()
