"""What the drivers of a replica's dataflows have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark_protocol.messages.responses import Response
from tidemark_replica.dataflow.renderer import Renderer
from tidemark_replica.events.jobs import Jobs
from tidemark_replica.shards.shards import ShardHandles, ShardWatch
from tidemark_replica.sinks.client_sinks import ClientSinks
from tidemark_replica.telemetry.metrics import Metrics


@dataclass(frozen=True)
class DriverContext:
    """One of each, for all of them."""

    renderer: Renderer
    handles: ShardHandles
    watch: ShardWatch
    spark_jobs: Jobs
    hydration_jobs: Jobs
    """Hydrations take minutes: they keep no thread from the steps of what serves."""
    io_jobs: Jobs
    sink_jobs: Jobs
    """What sinks do may take as long as a table is large: nobody's look at a shard waits behind it."""
    respond: Callable[[Response], None]
    metrics: Metrics
    clients: ClientSinks
