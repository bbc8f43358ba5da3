"""Builds the sink of an export: subscribe, copy, continual task, or materialized view, perhaps with a refresh schedule,
and with its destinations."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Response
from tidemark_protocol.plan.dataflow import ClientSink as ClientExport
from tidemark_protocol.plan.dataflow import ContinualTaskSink as ContinualTaskExport
from tidemark_protocol.plan.dataflow import DataflowDescription, SinkExport
from tidemark_protocol.plan.dataflow import MaterializedViewSink as MaterializedView
from tidemark_replica.events.jobs import Pool
from tidemark_replica.shards.shards import ShardHandles, ShardWatch
from tidemark_replica.sinks.client_sinks import ClientSinks
from tidemark_replica.sinks.destinations.backup_check import BackupCheck
from tidemark_replica.sinks.destinations.destination import Destination
from tidemark_replica.sinks.destinations.publisher import Publisher
from tidemark_replica.sinks.interface import Sink
from tidemark_replica.sinks.kafka.topic_destination import TopicDestination
from tidemark_replica.sinks.postgres.postgres_destination import PostgresDestination
from tidemark_replica.sinks.published.table_destination import TableDestination
from tidemark_replica.sinks.table.continual_task import ContinualTaskProgress, ContinualTaskSink
from tidemark_replica.sinks.table.materialized_view import MaterializedViewSink, new_commit_id
from tidemark_replica.sinks.table.refresh_progress import RefreshProgress
from tidemark_replica.sinks.table.refresh_times import RefreshTimes
from tidemark_replica.sinks.table.task_writes import TaskWriter
from tidemark_replica.storage.source_secrets import SourceSecrets


def build_sink(
    export: SinkExport,
    of: DataflowDescription,
    clients: ClientSinks,
    handles: ShardHandles,
    watch: ShardWatch,
    jobs: Pool,
    publish_jobs: Pool,
    short_publish_jobs: Pool,
    secrets: SourceSecrets,
    respond: Callable[[Response], None],
    wake: Callable[[], None],
) -> Sink:
    """`of`: the export's dataflow; `secrets`: of destinations; `wake`: called when the sink has work to do."""
    sink, as_of = export.sink, Frontier.at(of.as_of)
    if isinstance(sink, ClientExport):
        return clients.build(export.id, sink, as_of, jobs, wake)
    shared, tasks = (handles, watch, jobs, respond, wake), TaskWriter(clients.session)
    if isinstance(sink, ContinualTaskExport):
        return ContinualTaskSink(export.id, sink.shard, as_of, *shared, ContinualTaskProgress(of.as_of), tasks=tasks)
    progress = None
    if sink.refresh is not None:
        progress = RefreshProgress(of.as_of, new_commit_id, RefreshTimes(sink.refresh, of.until))
    destinations = tuple(_destinations(export.id, sink, handles, secrets))
    publishers = tuple(
        Publisher(export.id, sink.shard, every_ms, destination, handles, publish_jobs, respond, short_publish_jobs)
        for every_ms, destination in destinations
    )
    check = BackupCheck(sink.shard, [destination for _, destination in destinations], handles, short_publish_jobs)
    return MaterializedViewSink(export.id, sink.shard, as_of, *shared, progress, publishers, check, tasks)


def _destinations(
    id: GlobalId, sink: MaterializedView, handles: ShardHandles, secrets: SourceSecrets
) -> Iterator[tuple[int, Destination]]:
    """The destinations of a view, each with the least milliseconds between two publications."""
    if sink.publish is not None:
        yield sink.publish.every_ms, TableDestination(id, sink.shard, sink.publish, handles, secrets)
    if sink.postgres is not None:
        yield sink.postgres.every_ms, PostgresDestination(id, sink.shard, sink.postgres, handles, secrets)
    if sink.kafka is not None:
        yield 0, TopicDestination(id, sink.shard, sink.kafka, handles, secrets)
