"""Views that are computed anew at a time whose updates cost more (`refreshPolicy: auto`).

    inputs     ··x··x··XXXXXXXX··x··        step over [.., t)      hydration at t, of one time        step from t + 1 on
    time               t                    the shards have it ──► the sinks append the difference ──►

The dataflow keeps its state and steps like any other. Where one time has so many updates that the step costs more than
a hydration (step_costs.py), the dataflow first steps to that time and its sinks write what came before. Then it frees
its state, is rendered with that time as its as_of, and hydrates up to the next time. Its sinks begin unsynced, so they
append the difference to what their shards hold, as after a restart.

With a refresh schedule, a refresh takes the place of the time: the views change there alone, so all updates up to it
are those of one step, which the dataflow need not take.

A dataflow that is behind steps: one step over many times costs less than many hydrations, of which each lets more
times come. So a time is computed anew only where it is the only one with so many updates since the dataflow was level
with its inputs.

Each replica decides for itself, by its own measurements. The views' contents at a time are the same either way. The
dataflow holds its inputs just before its frontier, so they can be read at the time where it begins anew. A process that
dies meanwhile begins as any does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tidemark_persist import FilePart
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.plan.dataflow import MaterializedViewSink as MaterializedView
from tidemark_protocol.plan.refresh import AUTO
from tidemark_replica.dataflow.driver_context import DriverContext
from tidemark_replica.dataflow.installed_dataflow import InstalledDataflow
from tidemark_replica.dataflow.refreshes.step_costs import Estimate, StepCosts
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.sinks.interface import Sink
from tidemark_replica.sinks.table.materialized_view import MaterializedViewSink
from tidemark_replica.telemetry.recomputation_status import Recomputation, RecomputationStatus

LOG = logging.getLogger(__name__)
REFRESHES_MAX = 100
"""The refreshes of one step that are looked at, at most."""
HEAVY_MAX = 1
"""A step over more times that may each cost more than a hydration is taken."""
RETRY_SECONDS = 300.0
"""The pause after a recomputation that ran out of memory: each try may take it from other dataflows."""


@dataclass(frozen=True)
class Heavy:
    """A time whose updates, `rows` at most, may cost more than a hydration. `begin`: the frontier from which these are
    all up to it that matter: the time itself, or just after the refresh before."""

    time: int
    rows: int
    begin: int

    @property
    def after(self) -> Frontier:
        """Where a step over that time ends, so that later times are looked at by themselves."""
        return Frontier.decode(self.time + 1)


@dataclass(frozen=True)
class Search:
    """The time that a step is searched for: the one time with at least `rows` updates; where `next_refresh` is given,
    the one refresh with so many since the one before."""

    rows: int
    next_refresh: Callable[[int], int] | None

    def find(
        self, rendered: RenderedDataflow, upper: Frontier, parts: Mapping[GlobalId, Sequence[FilePart]]
    ) -> Heavy | None:
        """Runs on a pool while no step runs: it may read columns of times. None: there is none, or there are several.
        Raises PersistError, ArrangementError."""
        if self.next_refresh is None:
            found = [Heavy(time, rows, time) for time, rows in rendered.heavy_times(upper, parts, self.rows)]
        else:
            found = list(self._refreshes(rendered, upper, parts, self.next_refresh))
        return found[0] if 0 < len(found) <= HEAVY_MAX else None

    def _refreshes(
        self,
        rendered: RenderedDataflow,
        upper: Frontier,
        parts: Mapping[GlobalId, Sequence[FilePart]],
        next_refresh: Callable[[int], int],
    ) -> Iterator[Heavy]:
        before, begin = 0, rendered.frontier.encode()
        for _ in range(REFRESHES_MAX):
            refresh = next_refresh(begin)
            if refresh >= upper.encode():
                return
            rows = rendered.rows_at_most(Frontier.decode(refresh + 1), parts)
            if rows - before >= self.rows:
                yield Heavy(refresh, rows - before, begin)
            before, begin = rows, refresh + 1


@dataclass(frozen=True)
class Due:
    """The views are to be computed anew at `time` once the dataflow is at `begin`, since the step is estimated to cost
    more."""

    time: int
    begin: int
    estimate: Estimate


@dataclass(frozen=True)
class StepCost:
    """A step that has run: over about `rows` updates (None: not known), for `seconds`. `build_seconds`: how long the
    dataflow was rendered. `is_one_time`: whether all updates are of one time."""

    rows: int | None
    seconds: float
    is_one_time: bool
    build_seconds: float


def are_of_one_time(parts: Mapping[GlobalId, Sequence[FilePart]], upper: Frontier) -> bool:
    """Whether all updates before `upper` are, by the times of their files."""
    end = upper.encode()
    read = [part for each in parts.values() for part in each if part.lower < end]
    return not read or max(min(part.upper, end) for part in read) - min(part.lower for part in read) == 1


class AutomaticRefreshes:
    """The recomputations of one dataflow. `as_of`: from which it is rendered. `due`: set from the decision to the end
    of the hydration; `is_anew`: whether the dataflow has begun anew since its first hydration."""

    def __init__(
        self, dataflow: InstalledDataflow, sinks: Sequence[MaterializedViewSink], context: DriverContext
    ) -> None:
        self._dataflow, self._sinks = dataflow, tuple(sinks)
        self._handles, self._renderer, self._metrics = context.handles, context.renderer, context.metrics
        self._status = RecomputationStatus(next(iter(dataflow.exports)), context.respond)
        self._has_schedule = any(
            isinstance(e.sink, MaterializedView) and e.sink.refresh for e in dataflow.description.sink_exports
        )
        self.costs = StepCosts()
        self.as_of = dataflow.description.as_of
        self.due: Due | None = None
        self.is_anew = False
        self._declined, self._number = -1, 0
        self._is_level = False
        self._goal = self._begun = self._had_come = Frontier.minimum()
        """The goal of another policy now; where the last step began, and what that goal was then."""

    @classmethod
    def of(
        cls, dataflow: InstalledDataflow, sinks: Mapping[GlobalId, Sink], context: DriverContext
    ) -> AutomaticRefreshes | None:
        """None: the dataflow is maintained incrementally. That is so for plans with other exports beside, which no
        resource asks for: an index keeps the history since its since, and a task reads its own output."""
        views = [e.sink for e in dataflow.description.sink_exports if isinstance(e.sink, MaterializedView)]
        asked = sum(view.refresh_policy == AUTO for view in views)
        if not asked:
            return None
        if not len(views) == len(dataflow.exports) == asked or len({view.refresh for view in views}) > 1:
            name = dataflow.description.name
            LOG.warning("dataflow %s has other exports beside its views of policy auto: it steps at every time", name)
            return None
        return cls(dataflow, [s for s in sinks.values() if isinstance(s, MaterializedViewSink)], context)

    def goal(self, goal: Frontier) -> Frontier:
        """The goal of the next step, given that of a dataflow with another policy: up to the time that is due; of a
        hydration there, that time alone."""
        self._goal = goal
        if self.due is None:
            return goal
        return min(goal, Frontier.decode(self.due.time + 1 if self._has_begun else self.due.begin))

    def search(self) -> Search | None:
        """The search of the step that begins now, towards `goal`. None: no step costs more than a hydration, as
        far as is known, or the dataflow is behind: what ran last has left some of what had come when it began."""
        if self._dataflow.processed != self._begun:  # else it has failed
            self._is_level = self._dataflow.processed >= self._had_come
        self._begun, self._had_come = self._dataflow.processed, self._goal
        if self.due is not None or not (self._dataflow.hydrated and self._is_level):
            return None
        rows = self.costs.least_rows(self._input_rows)
        if rows is None:
            return None
        if not self._has_schedule:
            return Search(rows, None)
        return Search(rows, self._sinks[0].next_refresh) if all(sink.is_own for sink in self._sinks) else None

    def decide(self, heavy: Heavy) -> bool:
        """Whether the views are to be computed anew at the time."""
        if heavy.time == self._declined:
            return False
        self.costs.correction = max(sink.correction_seconds for sink in self._sinks)
        estimate = self.costs.estimate(heavy.rows, self._input_rows)
        if estimate is None or not self.costs.decide(estimate):
            self._declined = heavy.time
            return False
        self.due = Due(heavy.time, heavy.begin, estimate)
        return True

    def begin(self) -> bool | None:
        """Begins anew at the time that is due: True. False: the dataflow or a sink is not as far. None: a sink cannot
        write, so the dataflow steps over that time."""
        due = self.due
        if due is None or self._has_begun or not self._dataflow.hydrated:
            return None
        if self._dataflow.processed < Frontier.decode(due.begin):
            return None
        ready = [sink.may_begin_anew_at(due.time) for sink in self._sinks]
        if None in ready:
            self.due, self._declined = None, due.time
            return None
        if not all(ready):
            return False
        at = Frontier.at(due.time)
        for sink in self._sinks:
            sink.begin_anew(at)
        self._dataflow.begin_anew(at)
        self.as_of, self.is_anew = Time(due.time), True
        self._status.report_begin(_recomputation(due))
        return True

    def ran(self, cost: StepCost, *, hydrates: bool) -> None:
        """Learns from a step or a hydration, and tells of a recomputation.

        Steps of several times cost more than one time of as many updates, so only those between two refreshes count.
        """
        if not hydrates:
            if cost.rows is not None and (cost.is_one_time or self._has_schedule):
                self.costs.stepped(cost.rows, cost.seconds)
            return
        due, self.due, seconds = self.due, None, cost.build_seconds + cost.seconds
        if due is None:
            self.costs.hydrated(self._input_rows, seconds)
            return
        self._number += 1
        self.costs.recomputed(due.estimate, self._input_rows, seconds)
        self._metrics.recomputed()
        self._status.report(_recomputation(due), seconds, self._number)

    def ran_out_of_memory(self) -> float:
        """Returns for how many seconds to wait at least. After a recomputation nothing more is computed anew by this
        process, once this one succeeds."""
        if self.due is None or not self._has_begun:
            return 0.0
        if not self.costs.is_given_up:
            self.costs.is_given_up = True
            self._status.given_up(self.due.time)
        return RETRY_SECONDS

    @property
    def _input_rows(self) -> int:
        """About how many rows a hydration reads now."""
        of = self._dataflow.description
        readers = (self._handles.cached_reader(i.shard.location, i.shard.shard_id) for i in of.source_imports)
        indexes = (self._renderer.find(index.id) for index in of.index_imports)
        rows = sum(reader.size().rows for reader in readers if reader is not None)
        return rows + sum(index.manifest.rows for index in indexes if index is not None)

    @property
    def _has_begun(self) -> bool:
        return self.due is not None and self.is_anew and not self._dataflow.hydrated


def _recomputation(due: Due) -> Recomputation:
    why = due.estimate
    return Recomputation(due.time, why.rows, why.input_rows, why.step, why.hydration)
