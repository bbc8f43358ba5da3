"""A deleted `postgres` source has its slot dropped by a replica: tried again and again, and never for ever."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.controller.ingester_choice import Ingester
from tidemark_operator.errors import Waiting
from tidemark_operator.handlers.deletion.upstream_release import TIMEOUT_MS, UpstreamRelease
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, WriterTerm
from tidemark_protocol.plan.ingestion import FilesSource, IngestionDescription, PostgresSource, SourceSpec

SOURCE = PostgresSource("db", 5432, "shop", "secret", "p", ())
AWAY = "replication slot tidemark_u_1 is in use by process 7 of the server"


class Surroundings:
    """A clock, replicas that give these answers and then none, and the Events. It is the operator's context."""

    def __init__(self, *answers: str) -> None:
        self.now, self.answers = 0, list(answers)
        self.asked: list[ReplicaId] = []
        self.notes: list[str] = []
        self.events, self.releases = self, self.operator()
        self.may_answer: asyncio.Event | None = None

    def operator(self) -> UpstreamRelease:
        """An operator that begins now."""
        return UpstreamRelease(cast(Any, self), lambda: self.now)

    def running(self, namespace: str, name: str) -> Any:
        return self if (namespace, name) == ("ns", "default") else None

    async def release(self, ingester: ReplicaId, description: IngestionDescription) -> str:
        assert description.source == SOURCE
        self.asked.append(ingester)
        if self.may_answer is not None:
            await self.may_answer.wait()
        if not self.answers:
            raise Waiting("NoReplicaOnline", "waiting for a replica")
        return self.answers.pop(0)

    async def warn(self, key: Key, uid: str, reason: str, note: str) -> None:
        self.notes.append(f"{reason}: {note}")

    def gone_after(self, state: SourceState) -> int | None:
        """The time at which the object could go, asked each second for two time limits."""

        async def scenario() -> int | None:
            until = self.now + 2 * TIMEOUT_MS
            while self.now < until:
                if await self.releases.release(state):
                    return self.now
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                self.now += 1000
            return None

        return asyncio.run(scenario())


def deleted(source: SourceSpec = SOURCE, ingester: str = "r1") -> SourceState:
    pinned = IngestionDescription(GlobalId("U-1"), "s", source, 1000, ShardId("r"), "/r", ())
    state = SourceState(Key(DATA_SOURCES, "ns", "s"), "U-1", "default", pinned)
    state.ingester = Ingester(ingester, WriterTerm(1)) if ingester else None
    return state


def test_it_is_asked_for_until_it_is_dropped() -> None:
    around, state = Surroundings(AWAY, AWAY, ""), deleted()
    assert around.gone_after(state) == 11_000
    assert (around.asked, around.notes) == (["r1"] * 3, [])
    assert around.gone_after(state) == 11_000, "the tables are deleted meanwhile; it is not asked for again"
    assert len(around.asked) == 3


def test_crash_an_operator_that_begins_anew_asks_again() -> None:
    around, state = Surroundings(AWAY, "", ""), deleted()
    assert around.gone_after(state) is not None
    around.releases = around.operator()
    assert around.gone_after(state) is not None
    assert (len(around.asked), around.notes) == (3, [])


def test_it_is_given_up_with_the_statement_that_drops_it() -> None:
    """No replica answers any more, or the server is away."""
    around, state = Surroundings(AWAY), deleted()
    assert around.gone_after(state) == TIMEOUT_MS
    assert around.notes == [
        "ReplicationSlotKept: DataSource s was deleted, and its replication slot could not be dropped (waiting for a"
        " replica). It keeps WAL until you run SELECT pg_drop_replication_slot('tidemark_u_1') in database shop of"
        " db:5432"
    ]


def test_an_answer_after_it_was_given_up_makes_no_other_event() -> None:
    """The object is there until its tables are deleted."""
    around, state = Surroundings(AWAY), deleted()

    async def scenario() -> bool:
        around.may_answer = asyncio.Event()
        while not await around.releases.release(state):
            await asyncio.sleep(0)
            around.now += 1000
        around.may_answer.set()
        for _ in range(3):
            await asyncio.sleep(0)
        return await around.releases.release(state)

    assert asyncio.run(scenario())
    assert (around.now, len(around.asked), len(around.notes)) == (TIMEOUT_MS, 1, 1)


def test_without_an_instance_it_is_given_up_too() -> None:
    around, state = Surroundings(), deleted()
    state.instance = "gone"
    assert around.gone_after(state) == TIMEOUT_MS
    assert "(ComputeInstance gone does not run)" in around.notes[0]


def test_an_address_that_is_not_allowed_is_not_connected_to() -> None:
    around, state = Surroundings(""), deleted()
    state.refused = IngestionFailure("AddressNotAllowed", "host db is not in the list")
    assert around.gone_after(state) == 0
    assert not around.asked
    assert "(host db is not in the list)" in around.notes[0]


def test_what_keeps_nothing_upstream_goes_at_once() -> None:
    around = Surroundings()
    never_ingested, not_pinned = deleted(ingester=""), deleted()
    not_pinned.pinned = None
    for state in (deleted(FilesSource(())), never_ingested, not_pinned):
        assert around.gone_after(state) == 0
    assert (around.asked, around.notes) == ([], [])
