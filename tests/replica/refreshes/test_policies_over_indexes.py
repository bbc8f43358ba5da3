"""Views that are computed anew over an index of another dataflow (`refresh_policy` full and auto): the index keeps what
the next hydration reads, though nobody else does."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.oracle.variants.in_process import without_jobs
from tests.replica.plans import SCHEMA, copies, shard
from tests.replica.refreshes.automatic_decisions import decided_by
from tests.replica.tables import Table, persisted, small_table
from tests.replica.worker_loop import Loop
from tidemark_persist import ShardNotFound, open_shard
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, WriterTerm
from tidemark_protocol.messages.responses import Status
from tidemark_protocol.plan.lir import refs
from tidemark_protocol.plan.refresh import AUTO, FULL, RefreshSchedule
from tidemark_replica.dataflow.dataflow_driver import DataflowDriver
from tidemark_replica.dataflow.installed_dataflows import InstalledDataflows
from tidemark_replica.dataflow.renderer import Renderer
from tidemark_replica.spark.session import SparkHolder

INDEX, VIEW = GlobalId("i"), GlobalId("v-view")
OFTEN = RefreshSchedule(every_ms=10)


class Replica:
    """An index of the table, and a view over the index."""

    def __init__(self, folder: Path, table: Table, refresh: RefreshSchedule | None, policy: str) -> None:
        self.loop = loop = Loop()
        session = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1, master="local"))
        self.renderer = Renderer(SparkHolder(lambda: session), folder / "scratch")
        around, empty = loop.driver_context(self.renderer, session, folder), Frontier.empty()
        self.dataflows = InstalledDataflows(
            lambda dataflow, refused: DataflowDriver(dataflow, around, refused), loop.said.append, lambda _: empty
        )
        self.dataflows.create(copies("i", 6, source=table.metadata, index=INDEX))
        view = copies("v", 6, imports_index=INDEX, view=shard("v", str(folder)), refresh=refresh)
        (export,), (index,) = view.sink_exports, view.index_imports
        export = replace(export, sink=replace(export.sink, refresh_policy=policy))
        index = replace(index, key=refs(SCHEMA)[:1])
        self.dataflows.create(replace(view, sink_exports=(export,), index_imports=(index,)))
        for id in (INDEX, VIEW):
            self.dataflows.schedule(id)
        self.dataflows.allow_writes(VIEW, WriterTerm(1))
        self.location = str(folder / "v")

    def reach(self, upper: int) -> None:
        def has() -> bool:
            with suppress(ShardNotFound):  # its folder is there before its log
                return open_shard(self.location).state().upper >= upper
            return False

        self.loop.run_until(has, self.dataflows.maintain)

    def end(self) -> None:
        self.dataflows.compact(VIEW, Frontier.empty())
        self.dataflows.compact(INDEX, Frontier.empty())
        self.loop.run_until(lambda: self.renderer.find(INDEX) is None, self.dataflows.maintain)
        self.loop.jobs.shutdown()
        self.renderer.close()


@pytest.fixture
def replicas() -> Iterator[list[Replica]]:
    made: list[Replica] = []
    with without_jobs():
        yield made
        for replica in made:
            replica.end()


@pytest.mark.parametrize(("refresh", "policy"), [(OFTEN, FULL), (OFTEN, AUTO), (None, AUTO)])
def test_oracle_an_imported_index_keeps_what_the_next_hydration_reads(
    tmp_path: Path,
    replicas: list[Replica],
    monkeypatch: pytest.MonkeyPatch,
    refresh: RefreshSchedule | None,
    policy: str,
) -> None:
    """The controller lets the index be compacted up to its last complete time, all the while."""
    rng, at, table = random.Random(7), 10, small_table(tmp_path)
    decided_by(monkeypatch, lambda _: True)
    replicas.append(replica := Replica(tmp_path, table, refresh, policy))
    replica.reach(at)
    while at < 80:
        upper = at + rng.randrange(1, 9)
        rows = [((rng.randrange(4), "x"), rng.randrange(at, upper), 1) for _ in range(rng.randrange(4))]
        table.append(upper, *rows)
        at = upper
        replica.reach(at)
        replica.dataflows.compact(INDEX, Frontier.at(at - 1))

    anew = [said for said in replica.loop.said if isinstance(said, Status) and said.kind == "recomputed"]
    assert bool(anew) == (policy == AUTO)
    for time in range(6, at):
        shown = time if refresh is None else max(6, time - time % 10)
        assert persisted(replica.location, time) == table.at(shown), f"at {time}"
