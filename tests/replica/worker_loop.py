"""A command loop without a server: it runs posted jobs until a condition holds."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.waiting import BOUND
from tidemark_protocol.messages.responses import Response
from tidemark_replica.dataflow.driver_context import DriverContext
from tidemark_replica.dataflow.renderer import Renderer
from tidemark_replica.events.jobs import Jobs
from tidemark_replica.events.mailbox import LoopCall, Mailbox
from tidemark_replica.shards.shards import ShardHandles, ShardWatch
from tidemark_replica.sinks.client_sinks import ClientSinks
from tidemark_replica.storage.source_secrets import SourceSecrets
from tidemark_replica.telemetry.metrics import Metrics


class Loop:
    """Mailbox, pool, shard watch and what was said, for objects that live on the worker's thread."""

    def __init__(self, handles: ShardHandles | None = None, *, bound: float = BOUND) -> None:
        self.bound = bound
        self.mailbox = Mailbox()
        self.jobs = Jobs(self.mailbox, "test", 2)
        self.hydration_jobs = Jobs(self.mailbox, "test hydrations", 2)
        self.sink_jobs = Jobs(self.mailbox, "test sinks", 2)
        self.handles = handles or ShardHandles()
        self.said: list[Response] = []
        self.watch = ShardWatch(self.handles, self.jobs, self.said.append)

    def run_until(self, holds: Callable[[], object], step: Callable[[], None] = lambda: None) -> None:
        """Maintenance by `step`, and continuations, until `holds`."""
        deadline = time.monotonic() + self.bound
        while not holds():
            assert time.monotonic() < deadline, f"it did not come true; said: {self.said[-5:]}"
            self.watch.maintain()
            step()
            event = self.mailbox.take(time.monotonic() + 0.02)
            if isinstance(event, LoopCall):
                event.run()

    def driver_context(self, renderer: Renderer, session: Any, folder: Path) -> DriverContext:
        """The context that drivers of dataflows get; copies go below `folder`."""
        say = self.said.append
        clients = ClientSinks(say, lambda: True, lambda: session, lambda: str(folder), folder / "copies")
        jobs, handles, watch = self.jobs, self.handles, self.watch
        hydrations, sinks = self.hydration_jobs, self.sink_jobs
        pools = jobs, hydrations, jobs, sinks, sinks, sinks
        return DriverContext(renderer, handles, watch, *pools, say, SourceSecrets(None), Metrics(), clients)
