"""How far a dataflow is to step, and when it is over.

    inputs complete up to       100     101    ...    199     200    201
    a view, an index            step    step          step    step   step
    views refreshed at 200      ─                                    one step, over 200

Where every export is a view that is refreshed now and then, what changes in between is of no use to anybody: the
inputs keep it until it is. Once all tables that a dataflow is there for are finished, nothing is left to do: also
where they were when it began.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_replica.sinks.interface import Sink
from tidemark_replica.sinks.table.materialized_view import MaterializedViewSink


class StepGoal:
    """Of one dataflow and its sinks."""

    def __init__(self, description: DataflowDescription, sinks: Mapping[GlobalId, Sink]) -> None:
        self._description = description
        self._tables = [sink for sink in sinks.values() if isinstance(sink, MaterializedViewSink)]

    def goal(self, inputs: Frontier, *, hydrated: bool) -> Frontier:
        """Up to where to step now that all inputs are complete up to `inputs`."""
        if self._is_empty_range:
            return Frontier.minimum()
        wanted = [sink.step_goal(inputs) for sink in self._tables]
        return max(wanted) if self._is_for_tables and hydrated else inputs

    @property
    def is_finished(self) -> bool:
        """Whether it is there for tables alone, and all of them are finished."""
        ended = (sink.term is not None and sink.write_frontier.is_empty for sink in self._tables)
        return self._is_for_tables and all(ended)

    @property
    def unreachable_reason(self) -> str:
        """Why nothing can be computed of it, if so: its tables, which have been looked at, are not finished."""
        if not self._is_empty_range or any(not sink.upper_is_known for sink in self._tables):
            return ""
        until, as_of = self._description.until, self._description.as_of
        return f"it ends before {until}, and begins at {as_of}: what its inputs were until then cannot be read any more"

    @property
    def _is_for_tables(self) -> bool:
        return len(self._tables) == len(self._description.export_ids)

    @property
    def _is_empty_range(self) -> bool:
        """Whether it has no time at all that a table could show."""
        until = self._description.until
        return bool(self._tables) and until is not None and until <= self._description.as_of
