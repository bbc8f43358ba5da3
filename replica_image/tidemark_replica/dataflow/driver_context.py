"""Services that all drivers of a replica share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark_protocol.messages.responses import Response
from tidemark_replica.dataflow.renderer import Renderer
from tidemark_replica.events.jobs import Jobs
from tidemark_replica.shards.shards import ShardHandles, ShardWatch
from tidemark_replica.sinks.client_sinks import ClientSinks
from tidemark_replica.storage.source_secrets import SourceSecrets
from tidemark_replica.telemetry.metrics import Metrics


@dataclass(frozen=True)
class DriverContext:
    """Shared parts and pools."""

    renderer: Renderer
    handles: ShardHandles
    watch: ShardWatch
    spark_jobs: Jobs
    hydration_jobs: Jobs
    """Hydrations take minutes, so they have threads of their own."""
    io_jobs: Jobs
    sink_jobs: Jobs
    """Jobs of sinks may take as long as a table is large, so polls of shards do not wait behind them."""
    publish_jobs: Jobs
    """Publications take as long as a view is large, so appends do not wait behind them."""
    short_publish_jobs: Jobs
    """Publications of destinations whose last one was short: so they seldom wait behind long ones."""
    respond: Callable[[Response], None]
    secrets: SourceSecrets
    """The Secrets of the databases and brokers that views are written to."""
    metrics: Metrics
    clients: ClientSinks
    step_rows: int | None = None
    """The largest number of updates of a step, unless one time has more; None: any number."""
