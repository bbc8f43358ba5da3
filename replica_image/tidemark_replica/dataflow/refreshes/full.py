"""Views that are computed anew at each refresh, and keep no state in between (`refreshPolicy: full`).

    inputs     ────────────R1··································R2······················►
    dataflow   hydrates at R1, writes R1 │ no state: its        │ hydrates at R2, writes R2 │ ...
                                         │ frontiers follow     │
                                         │ the inputs, to R2    │

Between two refreshes nothing of the views changes. So their frontiers follow the inputs without a step, the inputs are
not held for them, and the sinks go on moving the uppers of their shards. Once the inputs are past the next refresh, the
dataflow hydrates there, and its sinks append the difference to what their shards hold.

A dataflow waits only while every shard was last written under its own term and has all refreshes so far. Before that
it hydrates and steps as any other. So does a new process: it hydrates at its as_of before it waits. The controller has
a slot for that hydration, and the replica learns the view's errors from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemark_protocol.frontier import Frontier, meet
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.plan.dataflow import MaterializedViewSink as MaterializedView
from tidemark_protocol.plan.refresh import FULL
from tidemark_replica.dataflow.installed_dataflow import InstalledDataflow
from tidemark_replica.sinks.interface import Sink
from tidemark_replica.sinks.sink_progress import Staged
from tidemark_replica.sinks.table.materialized_view import MaterializedViewSink


class FullRefreshes:
    """The refreshes of one dataflow. `as_of`: from which it is rendered. `is_anew`: whether it has begun anew since its
    first hydration. `is_due`: whether it began anew at a refresh; then it computes no further than it must."""

    def __init__(self, dataflow: InstalledDataflow, sinks: Sequence[MaterializedViewSink]) -> None:
        self._dataflow, self._sinks = dataflow, tuple(sinks)
        self.as_of = dataflow.description.as_of
        self.is_due = self.is_anew = self._is_waiting = False

    @classmethod
    def of(cls, dataflow: InstalledDataflow, sinks: Mapping[GlobalId, Sink]) -> FullRefreshes | None:
        """None: the dataflow keeps its state."""
        views = [e.sink for e in dataflow.description.sink_exports if isinstance(e.sink, MaterializedView)]
        if not len(views) == len(dataflow.exports) == sum(view.refresh_policy == FULL for view in views):
            return None
        return cls(dataflow, [sink for sink in sinks.values() if isinstance(sink, MaterializedViewSink)])

    def wait(self, inputs: Frontier) -> bool:
        """Moves the dataflow's frontier with those of its inputs, where no refresh is due before `inputs`. False: one
        is due, a shard lacks an earlier one, or a sink is at work."""
        until = self._settled_until
        if until is None or inputs > until or not (self._is_waiting or self._dataflow.hydrated):
            return False
        if not self._is_waiting:  # staged rows are for the next refresh, which computes them anew
            self._is_waiting = True
            for sink in self._sinks:
                sink.begin_anew(self._dataflow.processed, is_blank=True)
        reached, now = self._dataflow.processed, min(inputs, until)
        if now > reached:
            for sink in self._sinks:
                sink.stage(Staged(reached.encode(), now.encode(), None))
            self._dataflow.progress(now)
        return True

    def begin_anew(self) -> bool:
        """Moves the as_of to the refresh that is due, or, where a shard lacks an earlier one, to the dataflow's
        frontier. Does nothing before the first hydration. False: a sink is at work."""
        if not self._dataflow.hydrated and not self.is_anew:
            return True
        if not all(sink.may_begin_anew for sink in self._sinks):
            return False
        until = self._settled_until
        self.is_anew = True
        self.is_due, self._is_waiting = until is not None, False
        begin = self._dataflow.processed if until is None else until
        for sink in self._sinks:
            sink.begin_anew(begin)
        self._dataflow.begin_anew(begin)
        self.as_of = Time(begin.encode())
        return True

    @property
    def _settled_until(self) -> Frontier | None:
        """The first refresh at or after the frontier. None: a shard lacks an earlier one, or its sink is at work."""
        until = [sink.settled_until for sink in self._sinks]
        known = [each for each in until if each is not None]
        return meet(known) if len(known) == len(until) else None
