"""The interface between a dataflow's driver and its sinks."""

from __future__ import annotations

from typing import Protocol

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import WriterTerm
from tidemark_protocol.messages.responses import Response
from tidemark_replica.sinks.sink_progress import Staged
from tidemark_replica.telemetry.error_status import Errors


class Sink(Protocol):
    """The sink of one export. All methods run on the command loop; slow work runs on a pool. A sink of a client
    has no shard and no table: the defaults are for it."""

    @property
    def write_frontier(self) -> Frontier:
        """The upper of what the sink has written."""

    @property
    def term(self) -> WriterTerm | None:
        """The writer term under which the sink may write its shard; None: it may not, or has no shard."""
        return None

    @property
    def is_full(self) -> bool:
        """Whether so much output waits that the dataflow should not step."""

    @property
    def is_superseded(self) -> bool:
        """Whether another revision has written the sink's shard, so that the sink cannot go on."""
        return False

    @property
    def standing_errors(self) -> Errors | None:
        """The errors at which the sink stands still; None for a sink that writes errors as updates."""
        return None

    @property
    def rows(self) -> int | None:
        """The updates in the files of the sink's shard; None: not known, or it has none."""
        return None

    def check_table(self) -> None:
        """Raises ForeignCommit where another program has changed the sink's table, so that the dataflow begins anew."""
        return

    def allow_writes(self, term: WriterTerm) -> None:
        """Allows the sink to write its shard under `term`."""
        return

    def stage(self, staged: Staged) -> None:
        """Takes the output of a committed step. The sink owns the files from now on."""

    def advance(self) -> None:
        """Starts work that has become possible; called at every maintenance."""

    def report_again(self) -> None:
        """Repeats the present failure, if any, for a new client. The sink of an earlier client repeats nothing."""
        return

    def drop(self) -> Response | None:
        """Ends the sink of a client early; returns the last response owed to the client, if any."""
        return None

    def stop(self) -> None:
        """Starts no more work; work on a pool may still end."""
