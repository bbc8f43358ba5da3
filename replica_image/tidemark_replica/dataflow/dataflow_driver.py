"""What makes one dataflow move: render it, step it whenever its inputs are further, hand its output to its sinks.

    advance ──► render (once)
            ──► list the parts of [processed, meet of the inputs) ──► plan ──► run ──► commit ──► sinks stage
                     on a pool, unless the watch knows                      on a pool, unless nothing has happened
                                     └─ failed: again after a pause, said in a Status ─┘

At most one job of a dataflow is under way at a time. Everything here is on the worker's thread but what jobs do: a tick
without updates costs no job at all.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeVar

from tidemark_protocol.frontier import Frontier, meet
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_protocol.messages.responses import Response, Status
from tidemark_replica.dataflow.driver_context import Surroundings
from tidemark_replica.dataflow.export_state import ExportState
from tidemark_replica.dataflow.hydration_status import Hydrating
from tidemark_replica.dataflow.installed_dataflow import InstalledDataflow
from tidemark_replica.dataflow.join_callback import after
from tidemark_replica.dataflow.self_read_input import OwnOutput
from tidemark_replica.dataflow.step_goal import Pace
from tidemark_replica.dataflow.step_inputs import Parts, StepInputs, release
from tidemark_replica.errors import DataflowRefused, ReplicaError
from tidemark_replica.events.jobs import Done, Failed, Job, Outcome, Pool, WakingJobs
from tidemark_replica.render import OutOfMemory, RenderedDataflow, Step, StepOutcome
from tidemark_replica.retry import Backoff
from tidemark_replica.sinks.build import build_sink
from tidemark_replica.sinks.copy.copy_sink import CopyToSink
from tidemark_replica.sinks.sink_progress import Staged
from tidemark_replica.sinks.subscribe.subscribe import SubscribeSink
from tidemark_replica.sinks.table.continual_task import ContinualTaskSink
from tidemark_replica.sinks.table.materialized_view import MaterializedViewSink
from tidemark_replica.telemetry.cost_status import Working
from tidemark_replica.telemetry.error_status import Erroring, Errors, changes, may_be_in_error, standing, total
from tidemark_replica.values.failure_text import in_full, told_of

LOG = logging.getLogger(__name__)
MESSAGE_LIMIT = 2000
UNTIL_SCHEDULED = math.inf
"""Seconds before a hydration that ran out of memory begins anew by itself."""
T = TypeVar("T")


class DataflowDriver:
    """The running side of an installed dataflow. `refused` is called if it turns out that it cannot be rendered."""

    def __init__(self, dataflow: InstalledDataflow, around: Surroundings, refused: Callable[[str], None]) -> None:
        self._dataflow, self._around, self._refused = dataflow, around, refused
        jobs = around.spark_jobs, around.hydration_jobs, around.io_jobs, around.sink_jobs
        waking = (WakingJobs(each, dataflow.wake) for each in jobs)
        self._spark_jobs, self._hydration_jobs, self._io_jobs, sink_jobs = waking
        self._rendered: RenderedDataflow | None = None
        self._own = OwnOutput.of(dataflow.description, around.handles)
        self._inputs = StepInputs(dataflow.description.source_imports, around.handles, self._own)
        self._job: Job | None = None
        self._backoff, self._stopped = Backoff(), False
        self._since: dict[GlobalId, Frontier] = {}
        self._working = Working(next(iter(dataflow.exports)), around.respond)
        self._erroring = {id: Erroring(id, around.respond) for id in dataflow.exports}
        self._hydrating = Hydrating(dataflow.exports, around.io_jobs, around.respond)
        for source in dataflow.description.source_imports:
            around.watch.follow(source.shard.shard_id, source.shard.location, self, dataflow.wake)
        shared = around.clients, around.handles, around.watch, sink_jobs, around.respond, dataflow.wake
        of = dataflow.description
        self._sinks = {export.id: build_sink(export, of, *shared) for export in of.sink_exports}
        self._pace, self._over = Pace(of, self._sinks), False

    def advance(self) -> None:
        goal = self._pace.goal(self.input_frontier(), hydrated=self._dataflow.hydrated)
        if self._rendered is not None:
            self._working.tell(self._rendered.arrangements, self._rendered.operators)
        for id, sink in self._sinks.items():
            sink.advance()
            if isinstance(sink, ContinualTaskSink):
                self._erroring[id].stand(sink.standing)
        if self._job is not None and self._rendered is not None and not self._dataflow.hydrated:
            self._hydrating.look(self._rendered.progress)
        if self._job is not None or self._stopped or self._dataflow.refusal:
            return
        if self._over or self._is_over() or not self._backoff.over:
            return
        if goal <= self._dataflow.processed or any(sink.is_full for sink in self._sinks.values()):
            return
        if self._own is not None and not self._has_written(self._own):
            return
        if self._rendered is None:
            render = partial(self._around.renderer.render, self._dataflow.description)
            self._submit(self._spark_jobs, "render", render, self._rendering_done)
        else:
            self._step(self._rendered, goal)

    def _is_over(self) -> bool:
        """Whether nothing is left to do, or nothing can be: what it held and kept from being compacted goes."""
        if self._pace.is_over:
            self._over = True
            self._around.watch.unfollow(self)
            self._free()
            if not self._dataflow.hydrated:
                self._hydrating.ended()
            self._dataflow.progress(Frontier.empty())
        elif not self._dataflow.hydrated and (reason := self._pace.never_began):
            self._refused(reason)
        return self._over or bool(self._dataflow.refusal)

    def input_frontier(self) -> Frontier:
        """How far all inputs are complete; empty for a dataflow of constants."""
        shards = [self._around.watch.seen(i.shard.shard_id) for i in self._dataflow.description.source_imports]
        uppers = [Frontier.minimum() if seen is None or seen.error else seen.upper for seen in shards]
        return meet([*uppers, *(d.processed for d in self._dataflow.imports.values())])

    def write_frontier(self, id: GlobalId) -> Frontier:
        sink = self._sinks.get(id)
        return self._dataflow.processed if sink is None else sink.write_frontier

    @property
    def is_stepping(self) -> bool:
        return self._job is not None

    @property
    def is_overtaken(self) -> bool:
        return any(isinstance(sink, MaterializedViewSink) and sink.is_overtaken for sink in self._sinks.values())

    def allow_writes(self, export: ExportState) -> None:
        sink = self._sinks.get(export.id)
        if sink is not None and export.term is not None:
            sink.allow_writes(export.term)

    def allow_compaction(self, id: GlobalId, since: Frontier) -> None:
        if self._rendered is not None and since > self._since.get(id, Frontier.minimum()):
            self._since[id] = since
            self._rendered.compact(id, since)

    def try_again(self) -> None:
        self._backoff.cut_short()

    def retell(self) -> None:
        """The client is a new one: what is wrong is said again."""
        self._working.retell()
        for erroring in self._erroring.values():
            erroring.retell()
        self._hydrating.retell()
        for sink in self._sinks.values():
            if isinstance(sink, MaterializedViewSink):
                sink.retell()

    def drop(self, id: GlobalId) -> Response | None:
        sink = self._sinks.get(id)
        return sink.drop() if isinstance(sink, SubscribeSink | CopyToSink) else None

    def stop(self) -> None:
        self._stopped = True
        self._around.watch.unfollow(self)
        self._hydrating.stop()
        for sink in self._sinks.values():
            sink.stop()
        if self._rendered is not None:
            self._rendered.cancel()
        if self._job is None:
            self._free()
        else:
            self._job.cancel()

    def _has_written(self, own: OwnOutput) -> bool:
        """Whether a task that reads its own output can go on: it may write, and what it waits for is written."""
        return all(s.term is not None and s.write_frontier >= own.needs for s in self._sinks.values())

    def _submit(self, jobs: Pool, what: str, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """One job; `done` goes on with what it gave, unless it failed or the dataflow was dropped meanwhile."""

        def ended(outcome: Outcome[T]) -> None:
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
        self._job = jobs.submit(name, work, ended)

    def _rendering_done(self, rendered: RenderedDataflow) -> None:
        self._rendered = rendered

    def _step(self, rendered: RenderedDataflow, upper: Frontier) -> None:
        began, lower = time.monotonic(), self._dataflow.processed

        def plan(listed: tuple[Parts, Frontier] | None) -> None:
            if listed is None:
                return
            inputs, reach = listed
            try:
                step = rendered.plan_step(reach, inputs)
            except ReplicaError as error:
                self._failed("step", error)
            else:
                if rendered.is_quiet(step):
                    commit((rendered.skip(step), {}))
                else:
                    jobs = self._hydration_jobs if step.hydrates else self._spark_jobs
                    self._submit(jobs, "step", lambda: _run(rendered, step), commit)

        def commit(ran: tuple[StepOutcome, Mapping[GlobalId, dict[int, Errors]]]) -> None:
            outcome, errors = ran
            try:
                rendered.commit(outcome)
            except Exception as error:  # the state is that before the step, and other dataflows have no part in it
                self._release(outcome)
                self._failed("step", error)
                return
            self._let_go()
            self._backoff.reset()
            LOG.debug("dataflow %s: stepped over [%s, %s)", self._dataflow.description.name, lower, rendered.frontier)
            self._around.metrics.step(time.monotonic() - began, outcome.cold_reads)
            self._working.step(time.monotonic() - began)
            self._take(outcome, rendered.frontier, errors)
            self._tell_errors(rendered, errors)

        if (known := self._known(lower, upper)) is not None:
            plan((known, upper))
        else:
            terms = [sink.term for sink in self._sinks.values()]
            self._submit(self._io_jobs, "step", lambda: self._listed(lower, upper, terms), plan)

    def _known(self, lower: Frontier, upper: Frontier) -> Parts | None:
        """What the watch's last look says of [lower, upper). After a failure it may be out of date."""
        if not self._dataflow.hydrated or self._backoff.failures:
            return None
        return self._inputs.known(lower.encode(), upper.encode())

    def _listed(
        self, lower: Frontier, upper: Frontier, terms: Sequence[WriterTerm | None]
    ) -> tuple[Parts, Frontier] | None:
        """On the pool: where the updates of [lower, upper) are, and to hydrate, the contents at the as_of; and up to
        when. None: a task that reads its own output must wait."""
        if self._own is not None:
            reach = self._own.reach(lower.encode(), upper.encode(), next(t for t in terms if t is not None))
            if reach is None:
                return None
            upper = Frontier.decode(reach)
        list_parts = self._inputs.step if self._dataflow.hydrated else self._inputs.hydration
        return list_parts(lower.encode(), upper.encode()), upper

    def _let_go(self) -> None:
        """The step has ended, one way or the other."""
        if leases := self._inputs.ended():
            self._around.io_jobs.submit("release what a step read", partial(release, leases), lambda _: None)

    def _take(self, outcome: StepOutcome, reached: Frontier, errors: Mapping[GlobalId, dict[int, Errors]]) -> None:
        """The step has happened: its output goes to the sinks, the frontier moves."""
        lower, hydrating = self._dataflow.processed.encode(), not self._dataflow.hydrated
        release = after(len(self._sinks), lambda: self._release(outcome))
        for id, sink in self._sinks.items():
            sink.stage(Staged(lower, reached.encode(), outcome.deltas.get(id), release, errors.get(id, {})))
        self._dataflow.progress(reached)
        if hydrating:
            self._around.metrics.hydrated()
            self._hydrating.ended()

    def _release(self, outcome: StepOutcome) -> None:
        """Its files go, beside everything else: neither the command loop nor a pool waits for the disk."""
        if outcome.folder is not None:
            self._around.renderer.soon(outcome.release)

    def _tell_errors(self, rendered: RenderedDataflow, changes: Mapping[GlobalId, dict[int, Errors]]) -> None:
        for id, by_time in changes.items():
            if not isinstance(self._sinks.get(id), ContinualTaskSink):
                self._erroring[id].change(total(by_time))
        for id, index in rendered.indexes.items():
            if self._erroring[id].any or may_be_in_error(index):
                self._dataflow.looking += 1
                found = partial(self._errors_found, self._erroring[id])
                self._io_jobs.submit(f"errors of {id}", partial(standing, index), found)

    def _errors_found(self, erroring: Erroring, outcome: Outcome[tuple[int, Errors]]) -> None:
        self._dataflow.looking -= 1
        if isinstance(outcome, Done) and not self._stopped:
            erroring.found(*outcome.value)

    def _failed(self, what: str, error: Exception) -> None:
        self._let_go()
        if isinstance(error, DataflowRefused):
            self._refused(str(error))
            return
        self._backoff.failed(UNTIL_SCHEDULED if self._gives_way(error) else 0.0)
        self._hydrating.failed()
        LOG.warning("dataflow %s: %s failed: %s", self._dataflow.description.name, what, in_full(error))
        fields = {"message": told_of(error)[:MESSAGE_LIMIT], "failures": str(self._backoff.failures)}
        if isinstance(error, OutOfMemory):
            fields["reason"] = "OutOfMemory"
        for id in self._dataflow.exports:
            self._around.respond(Status(id, f"{what}_failed", fields))

    def _gives_way(self, error: Exception) -> bool:
        """Whoever takes the memory may take it from others, again and again: when such a one hydrates again is for
        the controller to say, and whether. Somebody waits for what is there for a client."""
        description = self._dataflow.description
        in_a_hurry = description.is_query or description.is_transient
        return isinstance(error, OutOfMemory) and not self._dataflow.hydrated and not in_a_hurry

    def _free(self) -> None:
        self._let_go()
        rendered, self._rendered = self._rendered, None
        if rendered is not None:
            free = partial(self._around.renderer.free, rendered)
            self._around.io_jobs.submit("free a dropped dataflow", free, _freed)


def _run(rendered: RenderedDataflow, step: Step) -> tuple[StepOutcome, Mapping[GlobalId, dict[int, Errors]]]:
    """On the pool: the step, and how it changes the errors of each sink, by time."""
    outcome = rendered.run(step)
    return outcome, {id: changes(delta) for id, delta in outcome.deltas.items()}


def _freed(outcome: Outcome[None]) -> None:
    if isinstance(outcome, Failed):
        LOG.warning("a dropped dataflow left files in scratch: %s", outcome.error)
