"""The goal of a dataflow's next step, and its end.

    inputs complete up to       100     101    ...    199     200    201
    a view, an index            step    step          step    step   step
    views refreshed at 200      ─                                    up to 200

Where every export is a view with a refresh schedule, no step is needed between refreshes: the inputs keep their
updates. A dataflow is finished once all tables that it writes are, also where they were before it began.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_replica.sinks.interface import Sink
from tidemark_replica.sinks.table.materialized_view import MaterializedViewSink


class StepGoal:
    """The goal of one dataflow, given its sinks."""

    def __init__(self, description: DataflowDescription, sinks: Mapping[GlobalId, Sink]) -> None:
        self._description = description
        self._tables = [sink for sink in sinks.values() if isinstance(sink, MaterializedViewSink)]

    def goal(self, inputs: Frontier, *, hydrated: bool) -> Frontier:
        """The frontier to step to, given that all inputs are complete up to `inputs`."""
        if self._is_empty_range:
            return Frontier.minimum()
        wanted = [sink.step_goal(inputs) for sink in self._tables]
        return max(wanted) if self._is_for_tables and hydrated else inputs

    @property
    def is_finished(self) -> bool:
        """Whether the dataflow exports tables only, and all of them are finished."""
        ended = (sink.term is not None and sink.write_frontier.is_empty for sink in self._tables)
        return self._is_for_tables and all(ended)

    @property
    def unreachable_reason(self) -> str:
        """The reason why the dataflow cannot compute anything, or an empty text: it ends before its as_of, and its
        tables are not finished."""
        if not self._is_empty_range or any(not sink.upper_is_known for sink in self._tables):
            return ""
        until, as_of = self._description.until, self._description.as_of
        return f"it ends before {until}, but its inputs can only be read from {as_of} on; set a later end"

    @property
    def _is_for_tables(self) -> bool:
        return len(self._tables) == len(self._description.export_ids)

    @property
    def _is_empty_range(self) -> bool:
        """Whether no time lies between the as_of and the end."""
        until = self._description.until
        return bool(self._tables) and until is not None and until <= self._description.as_of
