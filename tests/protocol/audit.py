"""An audit of the commands of one connection: each is checked against those before it.

Audit().take(command)      raises AssertionError for what the protocol forbids a controller to send
"""

from __future__ import annotations

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Epoch, GlobalId
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.conversation_stages import Stages
from tidemark_protocol.plan.dataflow import DataflowDescription, ShardSink


class Audit:
    """Starts at Hello, or after it."""

    def __init__(self, *, greeted: bool = True) -> None:
        self._stages = Stages()
        self._since: dict[GlobalId, Frontier] = {}
        self._sinks: set[GlobalId] = set()
        self._peeks: set[str] = set()
        if greeted:
            self._stages.accept(c.Hello("audit", Epoch(1, 1)))
            self._stages.accept(c.CreateInstance(c.InstanceConfig("audit", "/")))

    def take(self, command: c.Command) -> None:
        self._stages.accept(command)
        match command:
            case c.CreateDataflow(dataflow):
                self._create(dataflow)
            case c.Schedule(id):
                self._live(command, id)
            case c.AllowWrites(id, term):
                self._live(command, id)
                assert id in self._sinks, f"{command}: it is no sink"
                assert term > 0, f"{command}: no term"
            case c.AllowCompaction(id, frontier):
                self._compact(command, id, frontier)
            case c.Peek():
                self._peek(command)
            case c.CancelPeek(uuid):
                assert uuid in self._peeks, f"{command}: nobody asked"

    def _create(self, dataflow: DataflowDescription) -> None:
        for id in dataflow.export_ids:
            assert id not in self._since, f"{id} is created twice"
        for imported in dataflow.index_imports:
            assert imported.id in self._since, f"{dataflow.name} imports {imported.id}, which is not there"
        self._since |= dict.fromkeys(dataflow.export_ids, Frontier.at(dataflow.as_of))
        self._sinks |= {e.id for e in dataflow.sink_exports if isinstance(e.sink, ShardSink)}

    def _compact(self, command: c.Command, id: GlobalId, frontier: Frontier) -> None:
        self._live(command, id)
        assert frontier >= self._since[id], f"{command}: it goes back from {self._since[id]}"
        self._since[id] = frontier
        if frontier.is_empty:
            del self._since[id]

    def _peek(self, peek: c.Peek) -> None:
        assert peek.uuid not in self._peeks, f"{peek}: asked twice"
        self._peeks.add(peek.uuid)
        if isinstance(peek.target, c.IndexTarget):
            self._live(peek, peek.target.id)
            since = self._since[peek.target.id]
            assert since.less_equal(peek.timestamp), f"{peek}: compacted to {since}"

    def _live(self, command: c.Command, id: GlobalId) -> None:
        assert id in self._since, f"{command}: {id} is not there, or not any more"
