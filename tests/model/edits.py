"""A simulation in which Dataflows are edited: revisions side by side, replaced together, given up, at any moment.

Replicas, connections, disasters and promises are those of `Simulation`; what the operator does is `operator.py`'s.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tests.model.operator import LAG, Durable, Operator, Running, Seen, Spec
from tests.model.pending_peeks import peek
from tests.model.simulation import REPLICAS, TABLES, Simulation
from tests.model.subscribes import Clients
from tidemark_operator.catalogue.replacement_closure import is_stale
from tidemark_operator.controller.answers.peeks import PeekAnswer
from tidemark_operator.controller.controller_events import Notice
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.controller.instance import Instance
from tidemark_operator.handlers.revisions.installer import restore
from tidemark_protocol.ids import GlobalId, ShardId


class EditedSimulation(Simulation):
    def __init__(self) -> None:
        self.durable: dict[str, Durable] = {}
        super().__init__()

    def _begin(self) -> None:
        self.book = ShardBook(lambda: self.now < self._stand_until)
        self.instance, self.clients = Instance(self.book), Clients(self)
        for id in TABLES:
            self.book.register(id, str(id), LAG)
        self.operator = Operator(self.durable, self.shards, Running(self.instance, self.take), self.reached)

    def add(self, spec: Spec) -> None:
        """A Dataflow over a table, or over another's index."""
        self.created += 1
        name = f"d{self.created}"
        self.operator.create(name, spec, self.reached)
        self.operator.mark(self._state(name))
        self.operator.install(self._state(name))

    def edit(self, name: str, dies: bool, **fields: int) -> None:
        """Other SQL, or other columns. `dies`: the operator, after it has stored a revision and before it sends it."""
        self.operator.edit(name, replace(self.durable[name].spec, **fields))
        if dies:
            self.operator.mark(self._state(name))
            self.new_operator()

    def revert(self, name: str) -> None:
        """To the SQL of what serves, if it is not that already."""
        stored = self.durable[name]
        if stored.active is not None:
            edit, _, version = stored.active.spec_digest.partition(", v")
            self.operator.edit(name, replace(stored.spec, edit=int(edit), version=int(version)))

    def drop(self, owner: str) -> None:
        self.operator.drop(owner)

    def die_while_taking_over(self) -> None:
        """The operator does, between the write that is the moment and whatever follows it."""
        any(self.operator.take_over(state, self.now, dies=True) for state in self.operator.states)
        self.new_operator()

    def maintain(self) -> None:
        self.operator.work(self.now)
        super().maintain()

    def ask(self, owner: str, back: int) -> None:
        """A peek of an index that serves, as `Simulation` asks."""
        index = self.instance.dataflows.index(self.serving(owner)[0])
        if index is None or index.write is None or index.write <= index.since:
            return
        time = max(index.since.encode(), index.write.encode() - 1 - back)
        asked, answered = self.questions.asked, self.questions.answered
        uuid = f"peek {len(asked) + len(answered)} of {index.id} at {time}"
        if uuid not in asked and uuid not in answered:
            self.questions.ask(peek(uuid, index.id, time))

    def serving(self, name: str) -> tuple[GlobalId, ...]:
        """Exports of the revision that is marked as active."""
        active = self.durable[name].active
        return active.revision.description.export_ids if active else ()

    def indexes(self) -> list[str]:
        """Dataflows whose index serves."""
        return [name for name, d in self.durable.items() if d.spec.kind == "index" and d.active]

    def complete(self, owner: str) -> int:
        reads = self.durable[owner].spec.reads
        return self.complete(reads) if reads in self.durable else self.shards[ShardId(reads)].upper

    def check(self) -> None:
        super().check()
        states = self.operator.states
        for state in states:
            stale = state.active is not None and is_stale(state.active.revision, states)
            assert not stale, f"{state.key.name} serves, but what it imports does not"

    def settle(self) -> None:
        """Every edit takes over, and nothing is left of what was before."""
        for name in REPLICAS:
            self.connect(name)
        self.leases.end_all()
        for _ in range(40):  # an edit at one end of a chain is planned, hydrated and level link by link
            self.exchange(REPLICAS)
        states = [s for s in self.operator.states if s.active or not self._reads_nothing(s.key.name)]
        assert not [s.key.name for s in states if s.pending or s.edited or not s.active]
        plans = [s.active.revision.description for s in states if s.active]
        assert set(self.instance.dataflows.owners()) == {s.owner for s in states}, "what was dropped is forgotten"
        complete = {s.active.revision.description.name: self.complete(s.key.name) for s in states if s.active}
        for name, replica in self.replicas.items():
            processed = {d.description.name: d.processed.encode() for d in replica.dataflows}
            assert processed == complete, f"{name} has done everything"
        self.questions.settle()
        holders = {h for s in self.book.all() for h in s.holds}
        assert holders == {f"export {id}" for d in plans if d.source_imports for id in d.export_ids}

    def _reads_nothing(self, name: str) -> bool:
        """Its input was dropped: nobody was asked to wait for it if it had not been planned by then."""
        reads = self.durable[name].spec.reads
        return reads not in self.durable and reads not in TABLES

    def take(self, notices: Iterable[Notice]) -> None:
        for notice in notices:
            if isinstance(notice, PeekAnswer):
                self.questions.count(notice)

    def _restore(self) -> None:
        self.operator.running.replicas = {name: Seen(message) for name, message in self.descriptions.items()}
        here: Any = self.operator.running
        restore(here, self.operator.registry)

    def _state(self, name: str) -> Any:
        return self.operator.state(name)
