"""Builds the sinks of clients: subscribes and copies."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Response
from tidemark_protocol.plan.dataflow import CopyToSink as CopyToExport
from tidemark_protocol.plan.dataflow import SubscribeSink as SubscribeExport
from tidemark_replica.events.jobs import Pool
from tidemark_replica.sinks.copy.copy_sink import CopyToSink
from tidemark_replica.sinks.copy.files import Copy, write_copy
from tidemark_replica.sinks.copy.objects import is_object_store, write_objects
from tidemark_replica.sinks.interface import Sink
from tidemark_replica.sinks.sink_progress import Staged
from tidemark_replica.sinks.subscribe.subscribe import SubscribeSink


@dataclass(frozen=True)
class ClientSinks:
    """`has_room`: whether the client reads fast enough; `session`: Spark's; `storage`: the instance's location;
    `scratch`: the folder for files before they go to an object store."""

    respond: Callable[[Response], None]
    has_room: Callable[[], bool]
    session: Callable[[], Any]
    storage: Callable[[], str]
    scratch: Path

    def build(
        self,
        id: GlobalId,
        export: SubscribeExport | CopyToExport,
        as_of: Frontier,
        jobs: Pool,
        wake: Callable[[], None],
    ) -> Sink:
        if isinstance(export, SubscribeExport):
            return SubscribeSink(id, export, as_of, jobs, self.respond, self.has_room, wake)
        return CopyToSink(Copy(id, export, as_of.encode(), self.storage()), self._write, jobs, self.respond)

    def _write(self, copy: Copy, staged: Staged, stopped: Callable[[], bool]) -> int:
        if is_object_store(copy.storage):
            return write_objects(copy, staged.delta, self.session, stopped, self.scratch)
        return write_copy(copy, staged.delta, self.session, stopped)
