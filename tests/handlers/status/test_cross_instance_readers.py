"""Readers of a Dataflow's table in another instance learn that the table has ended."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from tests.handlers.harness import OperatorHarness
from tests.handlers.revised_dataflows import ask, dataflow, rev, table
from tests.protocol.samples import SHARD
from tests.replica.plans import COLUMNS, transient
from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_operator.controller.controller_events import Notice
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.handlers.reconcile.dataflow import DataflowReconciler
from tidemark_operator.handlers.revisions.installer import install
from tidemark_operator.handlers.revisions.revision_marks import promote
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.messages.commands import InstanceConfig
from tidemark_protocol.plan.dataflow import ShardMetadata, SourceImport, SubscribeSink


class Followed(OperatorHarness):
    """On `another` a subscribe follows the table of `d`, which runs on `default`, and one what `d` reads."""

    def __init__(self) -> None:
        super().__init__()
        self.own, self.another = (self.fleet.ensure("ns", InstanceConfig(n, "/data")) for n in ("default", "another"))
        self.notices = list[Notice]()
        cast(Any, self.another).notify = self.notices.extend
        book = self.fleet.book("ns")
        for shard in (SHARD, table("d", 1), table("d", 2)):
            book.register(shard.shard_id, shard.location, 0)
            book.observe(shard.shard_id, Frontier.at(500), Frontier.at(0))
        for name, shard in (("s", table("d", 1)), ("o", SHARD)):
            self._subscribe(name, shard)

    def _subscribe(self, name: str, shard: ShardMetadata) -> None:
        read = SourceImport(GlobalId("t"), shard, (0,))
        description = replace(transient(name, SubscribeSink(COLUMNS)), as_of=Time(300), source_imports=(read,))
        self.another.core.create(Dataflow(name, description, 1), WriterTerm(1))

    def install(self, state: DataflowState, edited: str | None = None) -> None:
        install(self.own, self.context.registry, state, edited)

    @property
    def told(self) -> list[str]:
        """The messages with which subscribes ended."""
        return [str(notice.batch.error) for notice in self.notices if isinstance(notice, SubscribeAdvanced)]

    @property
    def left(self) -> list[str]:
        return self.another.core.dataflows.owners()


def test_a_table_is_replaced_by_an_edit() -> None:
    """It has another one from now on, and can be read there."""
    context, state = Followed(), dataflow("d", rev("d", 1, view=1), rev("d", 2, view=2))
    context.install(state)
    promote(context.fleet.book("ns"), state)
    assert context.told == []

    context.install(state, edited="d")

    (reported,) = context.told
    assert reported.startswith(
        "Dataflow d was edited, and its new revision has taken over. No change had been sent yet. "
    )
    assert "Subscribe again" in reported
    assert context.left == ["o"]


def test_an_edit_keeps_its_table() -> None:
    """Its followers are told of more."""
    context, state = Followed(), dataflow("d", rev("d", 1, view=1), rev("d", 2, view=1))
    context.install(state)
    promote(context.fleet.book("ns"), state)
    context.install(state, edited="d")

    assert context.told == []
    assert context.left == ["s", "o"]


@pytest.mark.parametrize("runs", ["installed", "while it is edited", "suspended", "without its instance"])
def test_a_dataflow_is_deleted(runs: str) -> None:
    """Whether anything of it was installed or not; while it is suspended alone its readers wait. Nobody is sent to the
    table of an edit, which goes too."""
    next_one = (rev("d", 2, view=2),) if runs == "while it is edited" else ()
    context, state = Followed(), dataflow("d", rev("d", 1, view=1), *next_one)
    context.context.registry.put_dataflow(state)
    context.install(state)
    if runs == "suspended":
        ask(state, suspended=True)
        context.install(state)
    if runs == "without its instance":
        context.fleet.remove("ns", "default")
    assert context.told == []

    none = cast(Any, None)
    DataflowReconciler(context.context, none, none, lambda _: None).forget(state.key)

    assert context.told == ["Dataflow d was deleted. No change had been sent yet"]
    assert context.left == ["o"]
