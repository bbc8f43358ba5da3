"""All installed dataflows: created, scheduled, compacted, dropped, reconciled and advanced.

The controller may drop an index that another dataflow still imports. The index is then reported as ended at once, but
its dataflow runs until the last importer has ended.

Where another program has changed a table that a dataflow reads or writes, the dataflow and its importers end at once,
and the client is to connect again: the reconciliation then creates them anew, from the table as it is. Where that
happens again and again, it waits for a pause first (recomputation_pauses.py), and a Failure says so. Subscribes and
copies among them fail instead, since their clients keep what was sent before.
"""

from __future__ import annotations

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from tidemark_protocol.errors import StageViolation
from tidemark_protocol.frontier import Frontier, meet
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_protocol.messages.responses import (
    CopyToFailed,
    CopyToResponse,
    DescribedCollection,
    DescribedDataflow,
    Failure,
    FailureKind,
    Response,
    Status,
    SubscribeBatch,
    SubscribeResponse,
)
from tidemark_protocol.plan.dataflow import ClientSink, CopyToSink, DataflowDescription, SinkExport, SubscribeSink
from tidemark_replica.dataflow.dataflow_driver import DataflowDriver
from tidemark_replica.dataflow.export_state import ExportState
from tidemark_replica.dataflow.installed_dataflow import InstalledDataflow, Outdated
from tidemark_replica.dataflow.recomputation_pauses import RecomputationPauses
from tidemark_replica.dataflow.reconciliation import (
    NO_TERMS,
    ReuseCandidate,
    ReuseDecision,
    Terms,
    export_set,
    reconcile,
)
from tidemark_replica.errors import DataflowRefused

LOG = logging.getLogger(__name__)
FULL_PASS_MAX = 16
"""Maintenance visits all dataflows at once where there are at most so many."""
FULL_PASS_PAUSE_FACTOR = 100
"""Beyond FULL_PASS_MAX dataflows, a visit of all is followed by a pause of this many times its duration."""
Described = tuple[tuple[DescribedDataflow, ...], tuple[DescribedCollection, ...]]


Start = Callable[[InstalledDataflow, Callable[[str], None]], DataflowDriver]


class InstalledDataflows:
    """Dataflows by export id. `start` makes a dataflow's driver or raises DataflowRefused; the driver may also call
    back later with the reason of a refusal. `peek_hold` gives the earliest time that peeks need of an index."""

    def __init__(
        self,
        start: Start,
        send: Callable[[Response], None],
        peek_hold: Callable[[GlobalId], Frontier],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._start, self._send, self._peek_hold = start, send, peek_hold
        self._installed: dict[InstalledDataflow, DataflowDriver | None] = {}
        self._by_export: dict[GlobalId, InstalledDataflow] = {}
        self._awake: dict[InstalledDataflow, None] = {}
        self._outdated: dict[GlobalId, Outdated] = {}
        """Exports that ended since another program changed a table, and why; also of those created anew."""
        self._needs_client = False
        self._pauses = RecomputationPauses(clock)
        self._pauses_end = math.inf
        """The time when the first of the present pauses ends."""
        self._clock, self._next_full_pass = clock, 0.0

    def __iter__(self) -> Iterator[InstalledDataflow]:
        return iter(self._installed)

    def find(self, id: GlobalId) -> InstalledDataflow | None:
        """The dataflow that exports `id`, unless the export was dropped."""
        dataflow = self._by_export.get(id)
        return None if dataflow is None or dataflow.exports[id].dropped else dataflow

    def create(self, description: DataflowDescription) -> None:
        """Installs a dataflow; one that cannot be rendered is installed as refused. Raises StageViolation where an id
        is in use."""
        taken = [id for id in description.export_ids if self.find(id) is not None]
        if taken:
            raise StageViolation(f"dataflow {description.name}: export {taken[0]} exists already")
        imported = {i.id: self.find(i.id) for i in description.index_imports}
        dataflow = InstalledDataflow(description, {id: d for id, d in imported.items() if d is not None}, self._awake)
        for exporter in dataflow.imports.values():
            exporter.importers.add(dataflow)
        self._by_export.update(dict.fromkeys(description.export_ids, dataflow))
        self._installed[dataflow] = None
        try:
            self._refuse_to_go_on(description)
            missing = [id for id, exporter in imported.items() if exporter is None or exporter.refusal]
            if missing:
                raise DataflowRefused(f"it imports index {missing[0]}, which this replica does not have")
            dataflow.outdated = self._to_be_paused(dataflow)
            if dataflow.outdated is None:
                self._installed[dataflow] = self._start(dataflow, lambda reason: self._refuse(dataflow, reason))
        except DataflowRefused as refusal:
            self._refuse(dataflow, str(refusal))
        self._tell_of_change(dataflow)

    def _to_be_paused(self, dataflow: InstalledDataflow) -> Outdated | None:
        """The reason why the dataflow must not begin yet: its own pause, or that of a dataflow whose index it imports.
        Raises DataflowRefused where a client waits for it."""
        outdated = next((exporter.outdated for exporter in dataflow.imports.values() if exporter.outdated), None)
        if pause := self._pauses.present(export_set(dataflow.description)):
            self._pauses_end = min(self._pauses_end, pause.until)
            outdated = next((self._outdated[id] for id in dataflow.exports if id in self._outdated), outdated)
        if outdated is not None and (dataflow.description.is_transient or dataflow.description.is_query):
            raise DataflowRefused(outdated.message)
        return outdated

    def _refuse_to_go_on(self, description: DataflowDescription) -> None:
        """Raises DataflowRefused for a subscribe or a copy that has failed since a table was changed."""
        for id in description.export_ids:
            if id in self._outdated and is_transient(description, id):
                raise DataflowRefused(self._outdated[id].message)

    def _tell_of_change(self, dataflow: InstalledDataflow) -> None:
        for id in dataflow.exports:
            if outdated := self._outdated.get(id):
                again = "" if dataflow.outdated else ". The dataflow is computed again from the table as it is now"
                message = f"{outdated.change}{again}"
                self.send(Status(id, "table_changed", {"message": message}))
        if dataflow.outdated is not None:
            self._tell_of_pause(dataflow, dataflow.outdated)

    def _tell_of_pause(self, dataflow: InstalledDataflow, outdated: Outdated) -> None:
        for id in dataflow.exports:
            if outdated.attempts and not is_transient(dataflow.description, id):
                self.send(Failure(id, FailureKind.STEP, outdated.message, attempts=outdated.attempts))

    def schedule(self, id: GlobalId) -> None:
        if dataflow := self.find(id):
            dataflow.exports[id].scheduled = True
            if driver := self._installed[dataflow]:
                driver.retry_now()
            dataflow.wake()

    def allow_writes(self, id: GlobalId, term: WriterTerm) -> None:
        if dataflow := self.find(id):
            export = dataflow.exports[id]
            export.allow_writes(term)
            dataflow.wake()
            if driver := self._installed[dataflow]:
                driver.allow_writes(export)

    def compact(self, id: GlobalId, frontier: Frontier) -> None:
        """Moves the since of an export to `frontier`; the empty frontier drops it and reports its end."""
        dataflow = self.find(id)
        if dataflow is None:
            return
        export = dataflow.exports[id]
        export.compact(frontier)
        dataflow.wake()
        if export.dropped:
            self._outdated.pop(id, None)
            if answer := self._last_answer(dataflow, export):
                self._send(answer)
            self._collect()

    def maintain(self) -> bool:
        """Visits the dataflows that are awake, and periodically all: pauses and holds of peeks end with time. True
        where it visited all."""
        began = self._clock()
        everything = began >= self._next_full_pass
        outdated = list[InstalledDataflow]()
        for dataflow, driver in self._take_awake(everything):
            if driver is not None:
                self._compact_indexes(dataflow, driver)
                if dataflow.scheduled:
                    driver.advance()
            if dataflow.outdated is None:
                self._report(dataflow, driver)
            elif driver is not None:
                outdated.append(dataflow)
        for dataflow in outdated:
            if dataflow.outdated is not None and self._installed[dataflow] is not None:
                self._end_outdated(dataflow, self._begin_pause(dataflow, dataflow.outdated))
        self._end_pauses()
        if everything and len(self._installed) > FULL_PASS_MAX:
            ended = self._clock()
            self._next_full_pass = ended + FULL_PASS_PAUSE_FACTOR * (ended - began)
        return everything

    def _take_awake(self, everything: bool) -> Iterator[tuple[InstalledDataflow, DataflowDriver | None]]:
        """Yield the dataflows to visit, one after the other: a visit may wake others for the next maintenance. The end
        of a job may wake a dataflow that has ended."""
        for dataflow in list(self._installed if everything else self._awake):
            self._awake.pop(dataflow, None)
            if dataflow in self._installed:
                yield dataflow, self._installed[dataflow]

    def take_need_of_client(self) -> bool:
        """Whether dataflows have ended since the last call that a client must create anew."""
        needed, self._needs_client = self._needs_client, False
        return needed

    def _begin_pause(self, dataflow: InstalledDataflow, outdated: Outdated) -> Outdated:
        """Begin the pause before the replica computes the dataflow again; subscribes and copies end for good. Returns
        the reason that the replica gives to clients."""
        if dataflow.description.is_transient:
            return outdated
        pause = self._pauses.begin(export_set(dataflow.description))
        if not pause.seconds:
            self._needs_client = True
            return outdated
        self._pauses_end = min(self._pauses_end, pause.until)
        told = (
            f"This is change {pause.begun} in a row, so the dataflow is computed again after a pause of "
            f"{pause.seconds:.0f} s: end the program that goes on changing the table"
        )
        return replace(outdated, attempts=pause.begun, pause=told)

    def _end_pauses(self) -> None:
        """Asks for a client where a pause has ended: its reconciliation creates the dataflow anew."""
        if self._pauses_end < math.inf and self._clock() >= self._pauses_end:
            self._pauses_end = math.inf
            self._needs_client |= any(dataflow.outdated is not None for dataflow in self._installed)

    def _end_outdated(self, dataflow: InstalledDataflow, outdated: Outdated) -> None:
        """Ends the dataflow, after those that import its indexes. It stays installed until a client reconciles."""
        for importer in list(dataflow.importers):
            self._end_outdated(importer, outdated)
        driver, self._installed[dataflow] = self._installed[dataflow], None
        dataflow.outdated = outdated
        if driver is None:
            return
        LOG.warning("dataflow %s begins anew: %s", dataflow.description.name, outdated.message)
        driver.stop()
        self._outdated.update((id, outdated) for id, export in dataflow.exports.items() if not export.dropped)
        for sink in dataflow.description.sink_exports:
            if not dataflow.exports[sink.id].dropped and (
                answer := _failed(sink, outdated.message, is_void=outdated.is_certain)
            ):
                self._send(answer)
        self._tell_of_pause(dataflow, outdated)

    @property
    def are_stepping(self) -> bool:
        return any(driver is not None and driver.is_stepping for driver in self._installed.values())

    def reconcile(
        self,
        wanted: Sequence[DataflowDescription],
        allowed: Mapping[GlobalId, Frontier],
        terms: Terms = NO_TERMS,
    ) -> tuple[ReuseDecision, ...]:
        """Keeps the dataflows that `wanted` reuses and drops the others; the caller creates the rest. `allowed` and
        `terms` are the client's sinces and writer terms by export. Raises StageViolation, with nothing done, where an
        id is created twice."""
        ids = Counter(id for dataflow in wanted for id in dataflow.export_ids)
        if twice := [id for id, count in ids.items() if count > 1]:
            raise StageViolation(f"{twice[0]} is created twice")
        self._outdated = {id: outdated for id, outdated in self._outdated.items() if id in ids}
        self._pauses.keep_only({export_set(dataflow) for dataflow in wanted})
        kept = {export_set(d.description): d for d in self._installed if not d.dropped}
        here = [self._candidate(dataflow) for dataflow in kept.values()]
        verdicts = reconcile(here, wanted, allowed, terms)
        for verdict in verdicts:
            if verdict.reused:
                dataflow = kept.pop(export_set(verdict.wanted))
                dataflow.reuse_for(verdict.wanted)
                self._retell(dataflow)
                dataflow.wake()
        for orphan in kept.values():
            for export in orphan.exports.values():
                export.compact(Frontier.empty())
        self._collect()
        return verdicts

    def _candidate(self, dataflow: InstalledDataflow) -> ReuseCandidate:
        driver = self._installed[dataflow]
        superseded = driver is not None and driver.is_superseded
        outdated = dataflow.outdated is not None
        return ReuseCandidate(
            dataflow.description, dataflow.sinces, dataflow.reads_from, dataflow.terms, superseded, outdated
        )

    def _retell(self, dataflow: InstalledDataflow) -> None:
        if dataflow.refusal:
            self._refuse(dataflow, dataflow.refusal)
        self._tell_of_change(dataflow)
        if driver := self._installed[dataflow]:
            driver.report_again()

    def describe(self) -> Described:
        here = {d: driver for d, driver in self._installed.items() if d.outdated is None}
        alive = {d: driver for d, driver in here.items() if not d.dropped}
        dataflows = (
            DescribedDataflow(d.description.export_ids, d.digest, d.description.as_of, d.reads_from) for d in alive
        )
        collections = (
            DescribedCollection(id, export.since, _write_frontier(dataflow, driver, id))
            for dataflow, driver in alive.items()
            for id, export in dataflow.exports.items()
            if not export.dropped
        )
        return tuple(dataflows), tuple(collections)

    def shutdown(self) -> None:
        for driver in self._installed.values():
            if driver is not None:
                driver.stop()

    def _last_answer(self, dataflow: InstalledDataflow, export: ExportState) -> Response | None:
        if not is_transient(dataflow.description, export.id):
            return export.report.finish()
        driver = self._installed[dataflow]
        return driver.drop(export.id) if driver is not None and dataflow.refusal is None else None

    def _compact_indexes(self, dataflow: InstalledDataflow, driver: DataflowDriver) -> None:
        """Compacts each index up to the earliest time that the controller, an importer or a peek still reads.

        A dropped index that none of them reads goes to the empty frontier: it holds back no index with which it is one
        arrangement.
        """
        readers = [importer.reads_from for importer in dataflow.importers]
        for export in dataflow.description.index_exports:
            holds = [dataflow.exports[export.id].since, *readers, self._peek_hold(export.id)]
            driver.allow_compaction(export.id, meet(holds))

    def _collect(self) -> None:
        """Ends dataflows whose exports are dropped and that no other dataflow imports, importers first."""
        while True:
            ended = [d for d in self._installed if d.dropped and not d.importers]
            if not ended:
                return
            for dataflow in ended:
                driver = self._installed.pop(dataflow)
                for exporter in dataflow.imports.values():
                    exporter.importers.discard(dataflow)
                    exporter.wake()
                for id in dataflow.exports:
                    if self._by_export.get(id) is dataflow:
                        del self._by_export[id]
                if driver is not None:
                    driver.stop()

    def send(self, response: Response) -> None:
        """Sends a driver's response. A Status or Failure is sent only while its collection exists and has not ended."""
        if not isinstance(response, Status | Failure) or self._goes_on(response.id):
            self._send(response)

    def _goes_on(self, id: GlobalId) -> bool:
        dataflow = self.find(id)
        return dataflow is not None and not dataflow.exports[id].report.has_ended

    def _report(self, dataflow: InstalledDataflow, driver: DataflowDriver | None) -> None:
        if dataflow.processed.is_empty and dataflow.pending_error_reads:
            return
        write = {id: _write_frontier(dataflow, driver, id) for id in dataflow.exports}
        for message in dataflow.reports(write):
            if not is_transient(dataflow.description, message.id):
                self._send(message)

    def _refuse(self, dataflow: InstalledDataflow, reason: str) -> None:
        LOG.warning("dataflow %s is refused: %s", dataflow.description.name, reason)
        dataflow.refusal = reason
        for id in dataflow.exports:
            self.send(Failure(id, FailureKind.REFUSED, reason, stopped=True))
        for sink in dataflow.description.sink_exports:
            outdated = self._outdated.get(sink.id)
            if answer := _failed(sink, reason, is_void=outdated is not None and outdated.is_certain):
                self._send(answer)


def is_transient(description: DataflowDescription, id: GlobalId) -> bool:
    """Whether the export is a subscribe or a copy, whose own responses report its progress instead of Frontiers."""
    return any(e.id == id and isinstance(e.sink, ClientSink) for e in description.sink_exports)


def _write_frontier(dataflow: InstalledDataflow, driver: DataflowDriver | None, id: GlobalId) -> Frontier:
    return dataflow.processed if driver is None else driver.write_frontier(id)


def _failed(sink: SinkExport, reason: str, *, is_void: bool) -> Response | None:
    """The response owed to the client of a subscribe or a copy that cannot run."""
    if isinstance(sink.sink, SubscribeSink):
        whole = SubscribeBatch(Frontier.minimum(), Frontier.empty(), error=reason, is_void=is_void)
        return SubscribeResponse(sink.id, whole)
    if isinstance(sink.sink, CopyToSink):
        return CopyToResponse(sink.id, CopyToFailed(reason))
    return None
