"""What a dataflow's driver asks of any sink."""

from __future__ import annotations

from typing import Protocol

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import WriterTerm
from tidemark_protocol.messages.responses import Response
from tidemark_replica.sinks.sink_progress import Staged


class Sink(Protocol):
    """Lives on the worker's thread; what takes long is done on a pool."""

    @property
    def write_frontier(self) -> Frontier:
        """Times below are where the sink puts them."""

    @property
    def term(self) -> WriterTerm | None:
        """Under which it may write a shard."""

    @property
    def is_full(self) -> bool:
        """The dataflow should not make more of what it takes."""

    def allow_writes(self, term: WriterTerm) -> None: ...

    def stage(self, staged: Staged) -> None:
        """A committed step's output; the files are the sink's from now on."""

    def advance(self) -> None:
        """Called at every maintenance."""

    def stop(self) -> None:
        """Begins nothing more; what runs may still end."""


class ClientSink(Sink, Protocol):
    """One that is there for a client."""

    def drop(self) -> Response | None:
        """It ends before it has come to its end; what the client is owed for that, if anything."""
