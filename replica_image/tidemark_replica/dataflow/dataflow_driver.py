"""The driver of one dataflow: renders it, steps it whenever its inputs advance, hands its output to its sinks.

    advance ──► render (once)
            ──► list the parts of [processed, meet of the inputs) ──► plan ──► run ──► commit ──► sinks stage
                     on a pool, unless cached                         on a pool, unless there are no updates
                                     └─ a Failure, and a retry after a pause ─┘

A dataflow whose views are computed anew at each refresh frees its state in between, and is rendered again
(refreshes/full.py); one of policy auto does so at a time whose step would cost more (refreshes/automatic.py).

At most one job of a dataflow runs at a time. All code except the jobs' runs on the command loop. A tick without updates
needs no job.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

from tidemark_persist import ForeignCommit
from tidemark_protocol.frontier import Frontier, meet
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_protocol.messages.responses import OUT_OF_MEMORY, Failure, FailureKind, Response
from tidemark_replica.dataflow.after_calls import after_calls
from tidemark_replica.dataflow.driver_context import DriverContext
from tidemark_replica.dataflow.export_state import ExportState
from tidemark_replica.dataflow.hydration_status import HydrationStatus
from tidemark_replica.dataflow.installed_dataflow import InstalledDataflow, Outdated
from tidemark_replica.dataflow.refreshes.automatic import AutomaticRefreshes, Heavy, Search, StepCost, are_of_one_time
from tidemark_replica.dataflow.refreshes.full import FullRefreshes
from tidemark_replica.dataflow.self_read_input import SelfReadInput
from tidemark_replica.dataflow.step_bound import StepBound
from tidemark_replica.dataflow.step_goal import StepGoal
from tidemark_replica.dataflow.step_inputs import Parts, StepInputs, release
from tidemark_replica.errors import DataflowRefused, ReplicaError
from tidemark_replica.events.jobs import Done, Failed, Job, Outcome, Pool, WakingJobs
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.errors import OutOfMemory
from tidemark_replica.render.stepped_dataflow import Step, StepOutcome
from tidemark_replica.retry import Backoff
from tidemark_replica.sinks.build import build_sink
from tidemark_replica.sinks.sink_progress import Staged
from tidemark_replica.telemetry.catch_up_status import CatchUpStatus
from tidemark_replica.telemetry.cost_status import CostStatus
from tidemark_replica.telemetry.error_status import (
    Errors,
    ErrorStatus,
    error_changes,
    index_errors,
    may_be_in_error,
    total_errors,
)
from tidemark_replica.telemetry.row_status import RowStatus, rows_of
from tidemark_replica.telemetry.status_repeater import StatusRepeater
from tidemark_replica.values.failure_text import log_text, public_text

LOG = logging.getLogger(__name__)
MESSAGE_LIMIT = 2000
UNTIL_SCHEDULED = math.inf
"""The pause, in seconds, after a hydration that ran out of memory: the driver waits until the controller schedules it
again."""
T = TypeVar("T")
ErrorChanges = Mapping[GlobalId, dict[int, Errors]]
"""The change of the number of each error by a step, by export and time."""


@dataclass(frozen=True)
class _Attempt:
    """A step that was begun at the monotonic time `began`, from the frontier `lower`, when the inputs were complete up
    to `goal`. `was_cut`: the bound of rows ended it before the goal. `rows`: about how many updates it reads (None: not
    known); `is_one_time`: whether all of them are of one time."""

    rendered: RenderedDataflow
    lower: Frontier
    goal: Frontier
    began: float
    was_cut: bool = False
    rows: int | None = None
    is_one_time: bool = True


@dataclass(frozen=True)
class _Listed:
    """The parts of a step, and its upper. `left`: where that is before the attempt's goal, about how many updates are
    before the goal. `heavy`: a time before the goal whose updates may cost more than a hydration."""

    parts: Parts
    upper: Frontier
    left: int = 0
    heavy: Heavy | None = None


class DataflowDriver:
    """Drives an installed dataflow. `refused` is called with the reason where the dataflow cannot be rendered."""

    def __init__(self, dataflow: InstalledDataflow, context: DriverContext, refused: Callable[[str], None]) -> None:
        self._hydration_status = HydrationStatus(dataflow.exports, context.io_jobs, context.respond)
        self._statuses = StatusRepeater(context.respond)
        context = replace(context, respond=self._statuses)
        self._dataflow, self._context, self._refused = dataflow, context, refused
        jobs = context.spark_jobs, context.hydration_jobs, context.io_jobs
        self._spark_jobs, self._hydration_jobs, self._io_jobs = (WakingJobs(each, dataflow.wake) for each in jobs)
        self._rendered: RenderedDataflow | None = None
        self._self_read = SelfReadInput.of(dataflow.description, context.handles)
        self._inputs = StepInputs(dataflow.description.source_imports, context.handles, self._self_read)
        self._job: Job | None = None
        self._backoff, self._stopped = Backoff(), False
        self._failure: tuple[Failure, ...] = ()
        """The failure of each export, while the last attempt to render or to step has failed."""
        self._since: dict[GlobalId, Frontier] = {}
        self._cost_status = CostStatus(next(iter(dataflow.exports)), context.respond)
        self._catch_up_status = CatchUpStatus(dataflow.exports, context.respond)
        self._error_status = {id: ErrorStatus(id, context.respond) for id in dataflow.exports}
        self._row_status = {id: RowStatus(id, context.respond) for id in dataflow.exports}
        for source in dataflow.description.source_imports:
            context.watch.follow(source.shard.shard_id, source.shard.location, self, dataflow.wake)
        jobs = context.sink_jobs, context.publish_jobs, context.short_publish_jobs
        sinks, publish, short = (WakingJobs(each, dataflow.wake) for each in jobs)
        pools = sinks, publish, short, context.secrets
        shared = context.clients, context.handles, context.watch, *pools, context.respond, dataflow.wake
        of = dataflow.description
        self._sinks = {export.id: build_sink(export, of, *shared) for export in of.sink_exports}
        self._goal, self._finished = StepGoal(of, self._sinks), False
        self._full_refreshes = FullRefreshes.of(dataflow, self._sinks)
        self._automatic = AutomaticRefreshes.of(dataflow, self._sinks, context)
        self._bound, self._seconds = StepBound(context.step_rows), 0.0
        """The seconds that the last step ran, without its waits for a thread."""

    def advance(self) -> None:
        """Starts the work that has become possible: rendering, or the next step."""
        if self._is_outdated():
            return
        inputs, full = self.input_frontier(), self._full_refreshes
        goal = self._goal.goal(inputs, hydrated=self._dataflow.hydrated or (full is not None and full.is_due))
        if self._rendered is not None:
            rendered = self._rendered
            self._cost_status.report(rendered.arrangements, rendered.operators, rendered.channels)
        elif full is not None:
            self._cost_status.report(tuple, tuple)
        self._report_rows()
        for id, sink in self._sinks.items():
            sink.advance()
            if (errors := sink.standing_errors) is not None:
                self._error_status[id].set_errors(errors)
        if self._job is not None and self._rendered is not None and not self._dataflow.hydrated:
            self._hydration_status.poll(self._rendered.progress)
        if self._job is not None or self._stopped or self._dataflow.refusal:
            return
        if self._finished or self._check_finished() or not self._backoff.has_elapsed:
            return
        if full is not None and self._waits_for_refresh(full, inputs):
            return
        if (auto := self._automatic) is not None:
            if self._waits_to_begin_anew(auto):
                return
            goal = auto.goal(goal)
        if goal <= self._dataflow.processed or any(sink.is_full for sink in self._sinks.values()):
            return
        if self._self_read is not None and not self._has_written(self._self_read):
            return
        if self._rendered is None:
            description = self._dataflow.description
            if (policy := full or auto) is not None:
                description = replace(description, as_of=policy.as_of)
            render = partial(self._context.renderer.render, description)
            self._submit(self._spark_jobs, FailureKind.RENDER, render, self._rendered_dataflow)
        else:
            self._step(self._rendered, goal)

    def _waits_for_refresh(self, full: FullRefreshes, inputs: Frontier) -> bool:
        """Whether there is nothing to compute before the next refresh: then the driver frees the state. Where the
        dataflow has no state, its sinks begin anew at the time from which the driver renders it."""
        if full.wait(inputs):
            if self._rendered is not None:
                self._cost_status.state_freed()
                self._free()
            return True
        return self._rendered is None and not full.begin_anew()

    def _waits_to_begin_anew(self, auto: AutomaticRefreshes) -> bool:
        """Whether the views are to be computed anew, but their sinks still write what came before. Once they have, the
        driver frees the state."""
        if auto.due is None:
            return False
        has_begun = auto.begin()
        if has_begun:
            self._cost_status.state_freed()
            self._free()
        return has_begun is False

    def _is_outdated(self) -> bool:
        """Whether another program has changed a table of the dataflow, which then begins anew."""
        try:
            self._inputs.check()
            for sink in self._sinks.values():
                sink.check_table()
        except ForeignCommit as foreign:
            self._dataflow.outdated = Outdated(public_text(foreign), foreign.is_certain)
            return True
        return self._dataflow.outdated is not None

    def _check_finished(self) -> bool:
        """Whether the dataflow has ended or was refused. At its end it releases its state and its inputs."""
        if self._goal.is_finished:
            self._finished, self._failure = True, ()
            self._context.watch.unfollow(self)
            self._free()
            if not self._dataflow.hydrated:
                self._hydration_status.report_hydrated()
            self._dataflow.progress(Frontier.empty())
        elif not self._dataflow.hydrated and (reason := self._goal.unreachable_reason):
            self._refused(reason)
        return self._finished or bool(self._dataflow.refusal)

    def input_frontier(self) -> Frontier:
        """The meet of the uppers of all inputs; empty for a dataflow of constants."""
        shards = [self._context.watch.state(i.shard.shard_id) for i in self._dataflow.description.source_imports]
        uppers = [Frontier.minimum() if shard is None or shard.error else shard.upper for shard in shards]
        return meet([*uppers, *(d.processed for d in self._dataflow.imports.values())])

    def write_frontier(self, id: GlobalId) -> Frontier:
        sink = self._sinks.get(id)
        return self._dataflow.processed if sink is None else sink.write_frontier

    @property
    def is_stepping(self) -> bool:
        return self._job is not None

    @property
    def is_superseded(self) -> bool:
        """Whether another revision has written the table of one of its views, so that it cannot go on."""
        return any(sink.is_superseded for sink in self._sinks.values())

    def allow_writes(self, export: ExportState) -> None:
        sink = self._sinks.get(export.id)
        if sink is not None and export.term is not None:
            sink.allow_writes(export.term)

    def allow_compaction(self, id: GlobalId, since: Frontier) -> None:
        if self._rendered is not None and since > self._since.get(id, Frontier.minimum()):
            self._since[id] = since
            self._rendered.compact(id, since)

    def retry_now(self) -> None:
        """Ends the pause after a failure: the controller has scheduled the dataflow again."""
        self._backoff.end_pause()

    def report_again(self) -> None:
        """Repeats for a new client every Status and every Failure that still holds."""
        for failure in () if self._dataflow.refusal else self._failure:
            self._context.respond(replace(failure, repeated=True))
        self._statuses.report_again()
        self._hydration_status.report_again()
        for sink in self._sinks.values():
            sink.report_again()

    def drop(self, id: GlobalId) -> Response | None:
        """Drops a subscribe or a copy; returns the last response owed to its client, if any."""
        sink = self._sinks.get(id)
        return None if sink is None else sink.drop()

    def stop(self) -> None:
        """Cancels running jobs and releases all resources; returns at once."""
        self._stopped = True
        self._context.watch.unfollow(self)
        self._hydration_status.stop()
        for sink in self._sinks.values():
            sink.stop()
        if self._rendered is not None:
            self._rendered.cancel()
        if self._job is None:
            self._free()
        else:
            self._job.cancel()

    def _has_written(self, own: SelfReadInput) -> bool:
        """Whether a task that reads its own output may step: it may write, and the output that the step reads is
        written."""
        return all(s.term is not None and s.write_frontier >= own.needs for s in self._sinks.values())

    def _submit(self, jobs: Pool, what: FailureKind, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """Starts the dataflow's one job. `done` receives its value, unless it failed or the dataflow was dropped
        meanwhile."""

        def on_end(outcome: Outcome[T]) -> None:
            self._job = None
            if self._stopped:
                if isinstance(outcome, Failed):
                    LOG.debug("%s ended after the drop: %s", name, outcome.error)
                elif isinstance(outcome.value, RenderedDataflow):
                    self._rendered = outcome.value
                self._free()
            elif isinstance(outcome, Failed):
                self._failed(what, outcome.error)
            else:
                done(outcome.value)

        name = f"dataflow {self._dataflow.description.name}: {what}"
        self._job = jobs.submit(name, work, on_end)

    def _rendered_dataflow(self, rendered: RenderedDataflow) -> None:
        self._rendered, self._failure = rendered, ()

    def _step(self, rendered: RenderedDataflow, goal: Frontier) -> None:
        """Begins a step from `processed` to at most `goal`."""
        attempt = _Attempt(rendered, self._dataflow.processed, goal, time.monotonic())
        parts, rows = self._cached_parts(attempt.lower, goal), self._bound.rows
        search = None if self._automatic is None else self._automatic.search()
        bounds = [rows, None if search is None else search.rows - 1]
        least = min((each for each in bounds if each is not None), default=None)
        if parts is not None and (least is None or rendered.rows_at_most(goal, parts) <= least):
            self._plan_step(attempt, _Listed(parts, goal))
        else:
            terms = [sink.term for sink in self._sinks.values()]
            work = partial(self._list_parts, attempt, rows, terms, search)
            self._submit(self._io_jobs, FailureKind.STEP, work, partial(self._plan_step, attempt))

    def _plan_step(self, attempt: _Attempt, listed: _Listed | None) -> None:
        """Plans the step and runs it on a pool; a step without updates commits at once."""
        if listed is None:
            return
        rendered, auto = attempt.rendered, self._automatic
        if auto is not None:
            if listed.heavy is not None:
                if auto.decide(listed.heavy):
                    self._dataflow.wake()
                    return
                listed = replace(listed, upper=min(listed.upper, listed.heavy.after))
            rows = rendered.rows_about(listed.upper, listed.parts)
            attempt = replace(attempt, rows=rows, is_one_time=are_of_one_time(listed.parts, listed.upper))
        if listed.left:
            attempt = replace(attempt, was_cut=True)
            self._catch_up_status.is_behind(attempt.goal.encode(), listed.left)
        try:
            step = rendered.plan_step(listed.upper, listed.parts)
        except ReplicaError as error:
            self._failed(FailureKind.STEP, error)
            return
        if rendered.is_quiet(step):
            self._seconds = 0.0
            self._commit_step(attempt, (rendered.skip(step), {}))
        else:
            jobs = self._hydration_jobs if step.hydrates else self._spark_jobs
            self._submit(jobs, FailureKind.STEP, lambda: self._run(rendered, step), partial(self._commit_step, attempt))

    def _run(self, rendered: RenderedDataflow, step: Step) -> tuple[StepOutcome, ErrorChanges]:
        """Runs on a pool: the step, and its changes of each sink's errors."""
        began = time.monotonic()
        try:
            outcome = rendered.run(step)
        except OutOfMemory:
            if not step.hydrates:
                self._bound.ran_out_of_memory(rendered.rows_at_most(step.upper, step.parts))
            raise
        self._seconds = time.monotonic() - began
        return outcome, {id: error_changes(delta) for id, delta in outcome.deltas.items()}

    def _commit_step(self, attempt: _Attempt, ran: tuple[StepOutcome, ErrorChanges]) -> None:
        """Commits the step's state, hands its output to the sinks and moves the frontier."""
        (outcome, errors), rendered = ran, attempt.rendered
        try:
            rendered.commit(outcome)
        except Exception as error:  # the state is that before the step; other dataflows go on
            self._release(outcome)
            self._failed(FailureKind.STEP, error)
            return
        self._release_leases()
        self._backoff.reset()
        self._failure = ()
        name, seconds = self._dataflow.description.name, time.monotonic() - attempt.began
        LOG.debug("dataflow %s: stepped over [%s, %s)", name, attempt.lower, rendered.frontier)
        self._context.metrics.step(seconds, outcome.cold_reads)
        self._cost_status.step(seconds)
        if rendered.frontier >= attempt.goal:
            self._bound.has_caught_up()
            self._catch_up_status.has_caught_up()
        elif attempt.was_cut and not outcome.step.hydrates:
            self._bound.was_cut(self._seconds)
        if self._automatic is not None and outcome.folder is not None:
            cost = StepCost(attempt.rows, self._seconds, attempt.is_one_time, rendered.build_seconds)
            self._automatic.ran(cost, hydrates=outcome.step.hydrates)
        self._stage_output(outcome, rendered.frontier, errors)
        self._report_errors(rendered, errors, hydrates=outcome.step.hydrates)

    def _cached_parts(self, lower: Frontier, upper: Frontier) -> Parts | None:
        """The parts of [lower, upper) as of the last poll; None where they are not known, or may be out of date after a
        failure."""
        if not self._dataflow.hydrated or self._backoff.failures:
            return None
        return self._inputs.step_cached(lower.encode(), upper.encode())

    def _list_parts(
        self, attempt: _Attempt, rows: int | None, terms: Sequence[WriterTerm | None], search: Search | None
    ) -> _Listed | None:
        """Runs on a pool. Lists the parts of the step, for a hydration also the contents at the as_of, and its upper:
        a step with more than `rows` updates is narrowed. None: a task that reads its own output must wait."""
        lower, upper = attempt.lower, attempt.goal
        if self._self_read is not None:
            reach = self._self_read.reach(lower.encode(), upper.encode(), next(t for t in terms if t is not None))
            if reach is None:
                return None
            upper = Frontier.decode(reach)
        list_parts = self._inputs.step if self._dataflow.hydrated else self._inputs.hydration
        parts = list_parts(lower.encode(), upper.encode())
        narrowed = upper if rows is None else attempt.rendered.narrowed(upper, parts, rows)
        left = attempt.rendered.rows_at_most(upper, parts) if narrowed < upper else 0
        if left and self._self_read is not None:  # it reads its output as of before its own end
            parts = list_parts(lower.encode(), narrowed.encode())
        heavy = None if search is None else search.find(attempt.rendered, upper, parts)
        return _Listed(parts, narrowed, left, heavy)

    def _release_leases(self) -> None:
        """Releases the leases of the step that has ended."""
        if leases := self._inputs.end_step():
            self._context.io_jobs.submit("release the leases of a step", partial(release, leases), lambda _: None)

    def _stage_output(self, outcome: StepOutcome, reached: Frontier, errors: ErrorChanges) -> None:
        """Hands the output of a committed step to the sinks and moves the frontier."""
        lower, hydrating = self._dataflow.processed.encode(), not self._dataflow.hydrated
        release = after_calls(len(self._sinks), lambda: self._release(outcome))
        for id, sink in self._sinks.items():
            sink.stage(Staged(lower, reached.encode(), outcome.deltas.get(id), release, errors.get(id, {})))
        self._dataflow.progress(reached)
        if hydrating:
            self._context.metrics.hydrated()
            self._hydration_status.report_hydrated()

    def _release(self, outcome: StepOutcome) -> None:
        """Removes the files of a step in the background: neither the command loop nor a pool waits for the disk."""
        if outcome.folder is not None:
            self._context.renderer.remove_later(outcome.release)

    def _report_rows(self) -> None:
        if not self._dataflow.hydrated:
            return
        if self._rendered is not None:
            for id, index in self._rendered.indexes.items():
                self._row_status[id].report(partial(rows_of, index))
        for id, sink in self._sinks.items():
            self._row_status[id].report(partial(getattr, sink, "rows"))

    def _report_errors(self, rendered: RenderedDataflow, by_export: ErrorChanges, *, hydrates: bool) -> None:
        for id, by_time in by_export.items():
            if self._sinks[id].standing_errors is None:
                status, errors = self._error_status[id], total_errors(by_time)
                status.set_errors(errors) if hydrates else status.change(errors)
        for id, index in rendered.indexes.items():
            if self._error_status[id].has_errors or may_be_in_error(index):
                self._dataflow.pending_error_reads += 1
                found = partial(self._errors_read, self._error_status[id])
                self._io_jobs.submit(f"errors of {id}", partial(index_errors, index), found)

    def _errors_read(self, error_status: ErrorStatus, outcome: Outcome[tuple[int, Errors]]) -> None:
        self._dataflow.pending_error_reads -= 1
        if isinstance(outcome, Done) and not self._stopped:
            error_status.replace(*outcome.value)

    def _failed(self, what: FailureKind, error: Exception) -> None:
        self._release_leases()
        if isinstance(error, DataflowRefused):
            self._refused(str(error))
            return
        if isinstance(error, ForeignCommit):
            self._dataflow.outdated = Outdated(public_text(error), error.is_certain)
            return
        self._inputs.note_failure(error)
        pause = UNTIL_SCHEDULED if self._waits_for_schedule(error) else 0.0
        if self._automatic is not None and isinstance(error, OutOfMemory):
            pause = max(pause, self._automatic.ran_out_of_memory())
        self._backoff.failed(pause)
        self._hydration_status.failed()
        LOG.warning("dataflow %s: %s failed: %s", self._dataflow.description.name, what, log_text(error))
        message, reason = public_text(error)[:MESSAGE_LIMIT], OUT_OF_MEMORY if isinstance(error, OutOfMemory) else ""
        failed = what, message, reason, self._backoff.failures
        self._failure = tuple(Failure(id, *failed) for id in self._dataflow.exports)
        for failure in self._failure:
            self._context.respond(failure)

    def _waits_for_schedule(self, error: Exception) -> bool:
        """Whether the hydration must not be retried by itself: it ran out of memory and would take it from other
        dataflows again. Dataflows of clients are retried, since a client waits."""
        serves_client = self._dataflow.description.is_query or self._dataflow.description.is_transient
        is_refresh = any(each is not None and each.is_anew for each in (self._full_refreshes, self._automatic))
        return isinstance(error, OutOfMemory) and not (self._dataflow.hydrated or is_refresh or serves_client)

    def _free(self) -> None:
        self._release_leases()
        rendered, self._rendered = self._rendered, None
        if rendered is not None:
            self._context.io_jobs.submit("free a dataflow", partial(self._context.renderer.free, rendered), _freed)


def _freed(outcome: Outcome[None]) -> None:
    if isinstance(outcome, Failed):
        LOG.warning("the files of a dropped dataflow stay in scratch: %s", outcome.error)
