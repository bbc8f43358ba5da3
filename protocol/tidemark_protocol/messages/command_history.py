"""The command history: the commands that bring a new replica to the present, reduced to the fewest.

    push(CreateDataflow d) push(Schedule d) push(Peek p) push(CancelPeek p) push(AllowCompaction d to 7)
        reduces to    CreateDataflow d as of 7, Schedule d

The reduced history replays in one fixed order (`replay`). Hello and CreateInstance belong to a connection and are sent
before it. Storage commands are not part of it: their senders send them to one replica, and again. Peeks come before
AllowCompaction, so that the times that they read are still readable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from tidemark_protocol.frontier import Frontier, meet
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.commands import (
    AllowCompaction,
    AllowWrites,
    CancelPeek,
    Command,
    CreateDataflow,
    InitializationComplete,
    Peek,
    Schedule,
    UpdateConfiguration,
)
from tidemark_protocol.plan.dataflow import DataflowDescription

NO_RESUMES: Mapping[GlobalId, Frontier] = MappingProxyType({})


@dataclass
class _Entry:
    """A dataflow, and the later commands about its exports."""

    description: DataflowDescription
    compaction: dict[GlobalId, Frontier] = field(default_factory=dict)
    scheduled: dict[GlobalId, Schedule] = field(default_factory=dict)
    writes: dict[GlobalId, AllowWrites] = field(default_factory=dict)

    _created: CreateDataflow | None = None

    def created(self, resume_from: Frontier | None) -> CreateDataflow:
        """The CreateDataflow with the current as_of, or with `resume_from` where a replica resumes at an earlier time.

        The command is cached while the as_of stays the same, so that it is encoded once for all replicas.
        """
        as_of = self.as_of
        if resume_from is not None and resume_from < as_of:
            return CreateDataflow(self.description.with_as_of(resume_from))
        if self._created is None or self._created.dataflow.as_of != as_of.time:
            self._created = CreateDataflow(self.description.with_as_of(as_of))
        return self._created

    @property
    def as_of(self) -> Frontier:
        own = Frontier.at(self.description.as_of)
        return meet(max(own, self.compaction.get(e, own)) for e in self.description.export_ids)

    def compacted(self, resume_from: Frontier | None) -> Iterator[AllowCompaction]:
        """AllowCompaction of exports, where it goes beyond the as_of with which they are created."""
        own, as_of = Frontier.at(self.description.as_of), self.as_of
        resume_from = as_of if resume_from is None else min(resume_from, as_of)
        allowed = ((id, self.compaction.get(id, own)) for id in self.description.export_ids)
        yield from (AllowCompaction(id, frontier) for id, frontier in allowed if frontier > resume_from)


class History:
    """Reduces with each command: its size is bounded by what is alive, not by the number of commands."""

    def __init__(self) -> None:
        self._configuration = UpdateConfiguration()
        self._dataflows: list[_Entry] = []
        self._by_export: dict[GlobalId, _Entry] = {}
        self._peeks: dict[str, Peek] = {}
        self._complete = False

    def push(self, command: Command) -> None:
        """Add the command. Commands about ids that are gone change nothing. Raises ValueError."""
        match command:
            case CreateDataflow(dataflow):
                entry = _Entry(dataflow)
                self._dataflows.append(entry)
                self._by_export.update(dict.fromkeys(dataflow.export_ids, entry))
            case Schedule(id):
                if entry_ := self._by_export.get(id):
                    entry_.scheduled[id] = command
            case AllowWrites(id):
                if entry_ := self._by_export.get(id):
                    entry_.writes[id] = command
            case AllowCompaction(id, frontier):
                self._compact(id, frontier)
            case Peek():
                self._peeks[command.uuid] = command
            case CancelPeek(uuid):
                self._peeks.pop(uuid, None)
            case UpdateConfiguration():
                self._configuration = _merge(self._configuration, command)
            case InitializationComplete():
                self._complete = True
            case _:
                raise ValueError(f"{type(command).__name__} does not belong to the history")

    def replay(self, resume_from: Mapping[GlobalId, Frontier] = NO_RESUMES) -> Iterator[Command]:
        """The commands that bring a new replica to the present, after Hello and CreateInstance.

        `resume_from`: times at which the replica resumes exports that it has kept, where these are before the as_of.
        """
        if self._configuration != UpdateConfiguration():
            yield self._configuration
        for entry in self._dataflows:
            yield entry.created(resume_from.get(entry.description.export_ids[0]))
        for entry in self._dataflows:
            yield from entry.scheduled.values()
        yield from self._peeks.values()
        for entry in self._dataflows:
            yield from entry.compacted(resume_from.get(entry.description.export_ids[0]))
        for entry in self._dataflows:
            yield from entry.writes.values()
        if self._complete:
            yield InitializationComplete()

    @property
    def dataflow_count(self) -> int:
        return len(self._dataflows)

    def _compact(self, id: GlobalId, frontier: Frontier) -> None:
        entry = self._by_export.get(id)
        if entry is None:
            return
        entry.compaction[id] = max(frontier, entry.compaction.get(id, frontier))
        if frontier.is_empty:
            entry.scheduled.pop(id, None)
            entry.writes.pop(id, None)
        if entry.as_of.is_empty:
            self._dataflows.remove(entry)
            for export in entry.description.export_ids:
                self._by_export.pop(export, None)
            self._peeks = {u: p for u, p in self._peeks.items() if p.target.id not in entry.description.export_ids}


def _merge(old: UpdateConfiguration, new: UpdateConfiguration) -> UpdateConfiguration:
    limit = old.max_result_bytes if new.max_result_bytes is None else new.max_result_bytes
    above = old.stash_above_bytes if new.stash_above_bytes is None else new.stash_above_bytes
    settings = {**old.settings, **new.settings}
    return replace(old, max_result_bytes=limit, settings=settings, stash_above_bytes=above)
